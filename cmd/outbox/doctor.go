package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/doctor"
)

func newDoctorCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check ScyllaDB, Kafka, archive and permissions; report fixes",
		Long: `Check that ScyllaDB, Kafka and the archive are reachable, and that the relay has the
permissions it needs. The report contains a fix for every failed check. The command
writes one row, and one object of the archive, and deletes them. Exit status 1 if a
check failed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := app.LoadConfig(cmd)
			if err != nil {
				return err
			}
			findings := doctor.Check(cmd.Context(), c)
			err = cli.Show(cmd.OutOrStdout(), output, findings, func(w io.Writer) error { return printFindings(w, findings) })
			for _, f := range findings {
				if err == nil && !f.OK {
					err = cli.QuietError{}
				}
			}
			return err
		},
	}
	cli.OutputFlag(cmd, &output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionRelay, app.SectionRetention)
	return cmd
}

func printFindings(w io.Writer, findings []doctor.Finding) error {
	bad := 0
	for _, f := range findings {
		mark := "ok  "
		if !f.OK {
			mark = "FAIL"
			bad++
		}
		fmt.Fprintf(w, "%s  %s: %s\n", mark, f.Check, strings.Join(strings.Fields(f.Detail), " ")) // drivers' errors have line ends
		if f.Fix != "" {
			fmt.Fprintf(w, "      -> %s\n", f.Fix)
		}
	}
	total := fmt.Sprintf("%d checks passed", len(findings))
	if bad > 0 {
		total = fmt.Sprintf("%d of %d checks failed", bad, len(findings))
	}
	_, err := fmt.Fprintln(w, total)
	return err
}
