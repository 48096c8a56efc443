package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
)

// loadWorkers is how many requests a load has under way.
const loadWorkers = 32

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

The file holds JSON lines, also packed with gzip:
  {"op":"create","order":{"invoice":"1","country":"…","currency":"GBP","lines":[…]}}
  {"op":"cancel","invoice":"1","credit_note":"…"}
A line that is broken or rejected is reported with its number and skipped.
Exit status 1 if there was one.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("output", output, "text", "json"); err != nil {
				return err
			}
			u, err := url.Parse(api)
			if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				return usageError{fmt.Errorf("--api %q: use a URL such as http://127.0.0.1:8080", api)}
			}
			if rate < 0 {
				return usageError{fmt.Errorf("--rate %g: use requests per second, or 0 for as fast as it goes", rate)}
			}
			if attempts < 1 {
				return usageError{fmt.Errorf("--attempts %d: use a number from 1", attempts)}
			}
			errOut := cmd.ErrOrStderr()
			l := newLoader(strings.TrimSuffix(api, "/"), rate, func(n int, err error) {
				fmt.Fprintf(errOut, "\rline %d: %v\n", n, err)
			})
			l.attempts = attempts
			s, err := l.loadFile(cmd.Context(), args[0], newProgress(errOut, 0, l.finished, nil))
			if err != nil {
				return err
			}
			if output == "json" {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(s)
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d lines in %.1f s: %d orders created, %d cancelled, %d rejected, %d tried again\n",
					s.Lines, s.Elapsed, s.Created, s.Cancelled, s.Rejected, s.Retried)
			}
			if err == nil && s.Rejected > 0 {
				err = quietError{}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&api, "api", "http://127.0.0.1:8080", "the order API")
	cmd.Flags().Float64Var(&rate, "rate", 0, "requests per second at most; 0 means as fast as it goes")
	cmd.Flags().IntVar(&attempts, "attempts", defaultAttempts, "how often a line is sent, a second or more apart, while the API is away or says not now")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func newLoader(api string, rate float64, problem func(int, error)) *loader {
	return &loader{
		api:      api,
		client:   &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: loadWorkers}},
		workers:  loadWorkers,
		rate:     rate,
		attempts: defaultAttempts,
		run:      uuid.New(),
		problem:  problem,
	}
}

// finished is how many lines have been dealt with.
func (l *loader) finished() int64 { return l.created.Load() + l.cancelled.Load() + l.rejected.Load() }

// loadFile loads a file and shows the progress.
func (l *loader) loadFile(ctx context.Context, path string, p *progress) (loadSummary, error) {
	f, err := os.Open(path)
	if err != nil {
		return loadSummary{}, noFile(err)
	}
	defer f.Close()
	r, err := gunzip(f)
	if err != nil {
		return loadSummary{}, fmt.Errorf("%s: %w", path, err)
	}
	began := time.Now()
	err = showing(ctx, p, func() error { return l.load(ctx, r) })
	if err != nil {
		if errors.Is(err, context.Canceled) {
			err = context.Cause(ctx)
		}
		err = fmt.Errorf("load %s: stopped after %d lines: %w", path, l.finished(), err)
	}
	return l.summary(time.Since(began)), err
}

// showing runs f while p draws.
func showing(ctx context.Context, p *progress, f func() error) error {
	drawing, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { p.run(drawing); close(done) }()
	err := f()
	stop()
	<-done
	return err
}

// noFile says what kind of file is wanted.
func noFile(err error) error {
	return withHint(err, "name a file of JSON lines; see outbox load --help")
}
