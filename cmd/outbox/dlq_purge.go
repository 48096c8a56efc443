package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
)

// purgeFlags are those of outbox dlq purge.
type purgeFlags struct {
	dlqFilter
	dlqConfirm
	dlqActor
	force, noArchive, all bool
	output                string
}

func newDLQPurgeCommand() *cobra.Command {
	var f purgeFlags
	cmd := &cobra.Command{
		Use:   "purge [EVENT_ID...]",
		Short: "Move resolved and archived letters out of the database now",
		Long: `Move resolved and archived letters out of the database now, rather than when their
retention is over. An outline stays: ids, times, outcome, who purged it and why, so
that the event is never published by mistake.

Letters go to retention.archive first, and can be restored from there. Without an
archive, --no-archive says that they are to be lost. Failed and manual letters,
whose events are in no topic, need --force; those parked behind them go on.
Pending, parked and claimed ones cannot be purged: discard them first.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := eventIDs(args)
			if err != nil {
				return err
			}
			filter, err := f.check(len(ids) > 0, time.Now())
			if err != nil {
				return err
			}
			return withDLQConfig(cmd, func(c *config, s *dlq.Store) error { return f.purge(cmd, c, s, ids, filter) })
		},
	}
	f.dlqFilter.addFlags(cmd, 0)
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd)
	cmd.Flags().BoolVar(&f.all, "all", false, "all that can be purged, without any filter")
	cmd.Flags().BoolVar(&f.force, "force", false, "failed and manual letters too")
	cmd.Flags().BoolVar(&f.noArchive, "no-archive", false, "lose the letters: write them to no archive")
	outputFlag(cmd, &f.output)
	addFlags(cmd, sectionScylla, sectionRetention)
	return cmd
}

func (f *purgeFlags) check(named bool, now time.Time) (dlq.Filter, error) {
	filter, err := f.scope(named, f.all, f.output, now)
	if err != nil {
		return filter, err
	}
	if len(filter.Status) == 0 {
		filter.Status = []dlq.Status{dlq.Resolved, dlq.Archived}
		if f.force {
			filter.Status = append(filter.Status, dlq.Failed, dlq.Manual)
		}
	}
	return filter, nil
}

// purged is what purge prints as JSON.
type purged struct {
	Preview dlq.Preview `json:"preview"`
	DryRun  bool        `json:"dry_run,omitempty"`
	Purged  int         `json:"purged"`
	Refused int         `json:"refused"`
	Missing []string    `json:"missing,omitempty"`
	Objects []string    `json:"objects,omitempty"`
	Errors  []string    `json:"errors,omitempty"`
}

func (f *purgeFlags) purge(cmd *cobra.Command, c *config, s *dlq.Store, ids []gocql.UUID, filter dlq.Filter) (err error) {
	ctx := cmd.Context()
	var a *archive.Archive
	if !f.noArchive {
		if c.Retention.Archive == "" {
			return usageError{withHint(errors.New("retention.archive is empty: the letters would be lost"), "--retention-archive names an archive; --no-archive loses them")}
		}
		if a, err = c.openArchive(cmd); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, a.Close()) }()
	}
	var out purged
	var letters []dlq.Letter
	if len(ids) > 0 {
		letters, out.Missing, err = readLetters(ctx, s, ids)
	} else {
		letters, _, err = collect(cmd, s, filter, f.limit)
	}
	if err != nil {
		return err
	}
	var may []dlq.Letter
	refused := make(map[dlq.Status]int)
	for i := range letters {
		switch err := s.CheckPurge(&letters[i], dlq.Purge{Force: f.force}); {
		case err == nil:
			may = append(may, letters[i])
		case len(ids) == 0 && !letters[i].PurgedAt.IsZero(): // not meant
		default:
			refused[letters[i].Status]++
			out.Refused++
			if len(out.Errors) < dlqErrors {
				out.Errors = append(out.Errors, err.Error())
			}
		}
	}
	if out.Preview, may, err = s.Preview(ctx, dlq.ActionPurge, may); err != nil {
		return err
	}
	out.Preview.Refused = refused
	w := cmd.ErrOrStderr()
	if f.output == "table" || !f.dryRun {
		printPreview(w, &changed{Preview: out.Preview, Missing: out.Missing})
		if f.noArchive {
			fmt.Fprintln(w, "they go to no archive: payloads, errors and histories are lost")
		}
	}
	out.DryRun = f.dryRun
	if !f.dryRun && len(may) > 0 {
		if err := f.confirm(cmd, "purge "+plural(len(may), "letter")+"?"); err != nil {
			return err
		}
		events := make([]gocql.UUID, len(may))
		for i := range may {
			events[i] = may[i].EventID
		}
		moved, err := a.Move(ctx, s, events, f.force, f.by())
		if err != nil {
			return withHint(fmt.Errorf("purged %d of %d: %w", moved.Purged, len(may), err), "the same command goes on with the rest")
		}
		out.Purged, out.Objects = moved.Purged, moved.Objects
		out.Refused += moved.Refused
		for _, e := range moved.Errors {
			out.Errors = append(out.Errors, e.Error())
		}
	}
	if f.output != "table" {
		err = printAs(cmd.OutOrStdout(), f.output, out)
	} else if !f.dryRun {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "purge: %d purged, %d refused, %d not found\n", out.Purged, out.Refused, len(out.Missing))
	}
	for _, e := range out.Errors {
		fmt.Fprintln(w, "  "+clean(e, 300))
	}
	if err == nil && !f.dryRun && (out.Refused > 0 || len(out.Missing) > 0) {
		err = quietError{}
	}
	return err
}
