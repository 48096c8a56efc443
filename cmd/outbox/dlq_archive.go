package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

func newDLQArchiveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Look into the archive of old dead letters, fill it, and bring letters back",
		Long: `Look into the archive of old dead letters, fill it, and bring letters back.

The archive is retention.archive: a folder, or a bucket by URL. Its objects are
compressed JSON Lines, one letter a line, by day, each with a manifest.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newArchiveListCommand(), newArchiveShowCommand(), newArchiveRunCommand(), newArchiveRestoreCommand())
	return cmd
}

// openArchive opens retention.archive.
func openArchive(c *app.Config, cmd *cobra.Command) (*archive.Archive, error) {
	if c.Retention.Archive == "" {
		return nil, cli.Usage(cli.WithHint(errors.New("retention.archive is empty: there is no archive"), "--retention-archive names a folder, or a bucket such as s3://name?region=…"))
	}
	a, err := archive.Open(cmd.Context(), c.Retention.Archive)
	if err != nil {
		return nil, fmt.Errorf("retention.archive: %w", err)
	}
	return a, nil
}

// withArchive runs f with the archive; it reaches no database.
func withArchive(cmd *cobra.Command, f func(*app.Config, *archive.Archive) error) (err error) {
	c, err := app.LoadConfig(cmd)
	if err != nil {
		return err
	}
	a, err := openArchive(c, cmd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	return f(c, a)
}

// manifestView is a manifest without its events.
type manifestView struct {
	archive.Manifest
	Events  []string   `json:"events,omitempty"`
	Expires *time.Time `json:"expires,omitempty"`
}

// manifestTable is the archive's objects as a list.
var manifestTable = cli.Table[manifestView]{
	Header: "OBJECT\tLETTERS\tBYTES\tDIED FROM\tTO\tEXPIRES",
	Row: func(w io.Writer, v manifestView) {
		expires := "-"
		if v.Expires != nil {
			expires = v.Expires.Format(time.DateOnly)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\n", cli.Clean(v.Object, 0), v.Letters, v.Bytes, v.From.UTC().Format(cli.ListTime), v.To.UTC().Format(cli.ListTime), expires)
	},
	View: func(v manifestView) any { return v },
	None: "the archive is empty",
}

func newArchiveListCommand() *cobra.Command {
	var output, since string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the objects of the archive, oldest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var from time.Time
			err := cli.CheckOutput(output)
			if err == nil && since != "" {
				if from, _, err = cli.DateOrTime(since, time.Now()); err != nil {
					err = cli.Usage(fmt.Errorf("--start-date %w", err))
				}
			}
			if err != nil {
				return err
			}
			return withArchive(cmd, func(c *app.Config, a *archive.Archive) error {
				views := []manifestView{}
				if err := a.List(cmd.Context(), from, func(m archive.Manifest) error {
					v := manifestView{Manifest: m}
					if c.Retention.Keep > 0 {
						v.Expires = timeOrNil(m.CreatedAt.Add(c.Retention.Keep))
					}
					views = append(views, v)
					return nil
				}); err != nil {
					return err
				}
				return manifestTable.Print(cmd, output, views, false)
			})
		},
	}
	cmd.Flags().StringVar(&since, "start-date", "", "objects written then or later: a date, a time (RFC 3339), or how long ago, such as 720h; UTC")
	cli.OutputFlag(cmd, &output)
	app.AddFlags(cmd, app.SectionRetention)
	return cmd
}

func newArchiveShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show OBJECT|EVENT_ID",
		Short: "Print the letters of an object, or one letter, as JSON Lines",
		Long: `Print the letters of an object, or one letter, as JSON Lines. The object is
checked against its manifest; exit status 1 if it is damaged. A letter is found
by the database, which knows its object.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			print := func(r archive.Record) error {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", r.JSON())
				return err
			}
			id, err := gocql.ParseUUID(args[0])
			if err != nil {
				return withArchive(cmd, func(_ *app.Config, a *archive.Archive) error {
					return archiveHint(a.Records(cmd.Context(), args[0], print))
				})
			}
			return withArchive(cmd, func(c *app.Config, a *archive.Archive) error {
				s, closeSession, err := c.DLQStore()
				if err != nil {
					return err
				}
				defer closeSession()
				l, err := s.Read(cmd.Context(), id)
				if err != nil {
					return err
				}
				if l.Archive == "" {
					return cli.WithHint(fmt.Errorf("event %s is not in the archive: its letter is %s", id, l.Status), "outbox dlq show %s", id)
				}
				r, err := a.DeadLetter(cmd.Context(), l.Archive, id)
				if err != nil {
					return archiveHint(err)
				}
				return print(r)
			})
		},
	}
	app.AddFlags(cmd, app.SectionScylla, app.SectionRetention)
	return cmd
}

func archiveHint(err error) error {
	if errors.Is(err, archive.ErrNotFound) {
		return cli.WithHint(err, "outbox dlq archive list shows what there is; objects go after retention.keep")
	}
	return err
}

func newArchiveRunCommand() *cobra.Command {
	var output string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Sweep now: move what is old to the archive, and remove what has expired",
		Long: `Sweep now: move what is old to the archive, and remove what has expired. A relay
with retention.archive does so by itself. An object is read back before its
letters are removed from the database; an interruption loses nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			return withArchive(cmd, func(c *app.Config, a *archive.Archive) error {
				store, closeSession, err := c.DLQStore()
				if err != nil {
					return err
				}
				defer closeSession()
				sweeper, err := archive.NewSweeper(c.Sweep(store, a))
				if err != nil {
					return cli.Usage(err)
				}
				if dryRun {
					return planSweep(cmd, sweeper, output)
				}
				r, err := sweeper.Once(cmd.Context())
				if err != nil {
					return err
				}
				if output != "table" {
					return cli.PrintAs(cmd.OutOrStdout(), output, r)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d resolved and %d failed letters moved to %s; %d failed stay because others wait behind them, %d were changed meanwhile\n%s expired, %s forgotten\n",
					r.Archived[dlq.Resolved], r.Archived[dlq.Failed], cli.Plural(len(r.Objects), "object"), r.Held, r.Changed,
					cli.Plural(len(r.Expired), "object"), cli.Plural(r.Forgotten, "outline"))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be moved and removed")
	cli.OutputFlag(cmd, &output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionRetention)
	return cmd
}

// planSweep prints what a sweep would do.
func planSweep(cmd *cobra.Command, sweeper *archive.Sweeper, output string) error {
	plan, more, err := sweeper.Plan(cmd.Context())
	if err != nil {
		return err
	}
	if output != "table" {
		return cli.PrintAs(cmd.OutOrStdout(), output, plan)
	}
	least := ""
	if more {
		least = "at least "
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "would move %s%d resolved and %d failed letters; %d failed stay because others wait behind them; %s expired\n",
		least, plan.Archived[dlq.Resolved], plan.Archived[dlq.Failed], plan.Held, cli.Plural(len(plan.Expired), "object"))
	return err
}
