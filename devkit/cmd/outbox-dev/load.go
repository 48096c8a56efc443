package main

import (
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/load"
)

func newLoadCommand() *cobra.Command {
	var (
		api, output string
		rate        float64
		attempts    int
	)
	cmd := &cobra.Command{
		Use:   "load FILE",
		Short: "Post a file of orders and cancellations to an order API",
		Long: `Post a file of orders and cancellations to an order API.

The file contains JSON lines, optionally compressed with gzip:
  {"op":"create","order":{"invoice":"1","country":"…","currency":"GBP","lines":[…]}}
  {"op":"cancel","invoice":"1","credit_note":"…"}
An invalid or rejected line is reported with its number and skipped; the exit status
is then 1.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := url.Parse(api)
			if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				return cli.Usage(fmt.Errorf("--api %q: use a URL such as http://127.0.0.1:8080", api))
			}
			if rate < 0 {
				return cli.Usage(fmt.Errorf("--rate %g: use requests per second, or 0 for no limit", rate))
			}
			if attempts < 1 {
				return cli.Usage(fmt.Errorf("--attempts %d: use a number from 1", attempts))
			}
			errOut := cmd.ErrOrStderr()
			l := load.NewLoader(strings.TrimSuffix(api, "/"), rate, func(n int, err error) {
				fmt.Fprintf(errOut, "\rline %d: %v\n", n, err)
			})
			l.Attempts = attempts
			s, err := l.LoadFile(cmd.Context(), args[0], cli.NewProgress(errOut, func() cli.Work { return cli.Work{Done: l.FinishedLines()} }))
			if err != nil {
				return err
			}
			err = cli.Show(cmd.OutOrStdout(), output, s, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%d lines in %.1f s: %d orders created, %d cancelled, %d rejected, %d tried again\n",
					s.Lines, s.Elapsed, s.Created, s.Cancelled, s.Rejected, s.Retried)
				return err
			})
			if err == nil && s.Rejected > 0 {
				err = cli.QuietError{}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&api, "api", "http://127.0.0.1:8080", "URL of the order API")
	cmd.Flags().Float64Var(&rate, "rate", 0, "maximum number of requests per second; 0 is no limit")
	cmd.Flags().IntVar(&attempts, "attempts", load.DefaultAttempts, "maximum attempts per line while the API is unreachable or answers 429 or 503")
	cli.OutputFlag(cmd, &output)
	cmd.Example = "  outbox-dev load orders.jsonl.gz --api http://127.0.0.1:8080 --rate 100"
	return cmd
}
