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
		Short: "List, fill and restore the archive of old dead letters",
		Long: `List, fill and restore the archive of old dead letters.

The archive is retention.archive: a folder, or the URL of a bucket. Its objects are
compressed JSON Lines, one dead letter per line, grouped by day, each with a
manifest.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newArchiveListCommand(), newArchiveShowCommand(), newArchiveRunCommand(), newArchiveRestoreCommand())
	return cmd
}

// openArchive opens retention.archive.
func openArchive(c *app.Config, cmd *cobra.Command) (*archive.Archive, error) {
	if c.Retention.Archive == "" {
		return nil, cli.Usage(cli.WithHint(errors.New("retention.archive is empty"), "--retention-archive names a folder, or a bucket such as s3://name?region=…"))
	}
	a, err := archive.Open(cmd.Context(), c.Retention.Archive)
	if err != nil {
		return nil, fmt.Errorf("retention.archive: %w", err)
	}
	return a, nil
}

// withArchive runs f with the archive. It opens no database session.
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

// manifestTable prints the archive's objects as a list.
var manifestTable = cli.Table[manifestView]{
	Header: "OBJECT\tDEAD LETTERS\tBYTES\tFAILED FROM\tTO\tEXPIRES",
	Row: func(w io.Writer, v manifestView) {
		expires := "-"
		if v.Expires != nil {
			expires = v.Expires.Format(time.DateOnly)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\n", cli.Clean(v.Object, 0), v.DeadLetters, v.Bytes, cli.At(w, v.From), cli.At(w, v.To), expires)
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
					err = cli.Usage(fmt.Errorf("--since %w", err))
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
	cmd.Flags().StringVar(&since, "since", "", "objects written since: a date, a time (RFC 3339) or an age such as 720h; UTC")
	cli.ListFlags(cmd, &output)
	app.AddFlags(cmd, app.SectionRetention)
	return cmd
}

func newArchiveShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show OBJECT|EVENT_ID",
		Short: "Print the dead letters of an object, or one of them, as JSON Lines",
		Long: `Print the dead letters of an object, or one of them, as JSON Lines. The command
checks the object against its manifest; exit status 1 if it is damaged. For an
event id it reads the name of the object from the database.`,
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
				s, _, closeSession, err := c.DLQStore()
				if err != nil {
					return err
				}
				defer closeSession()
				l, err := s.Read(cmd.Context(), id)
				if err != nil {
					return err
				}
				if l.Archive == "" {
					return cli.WithHint(fmt.Errorf("event %s is not in the archive: its dead letter is %s", id, l.Status), "outbox dlq show %s", id)
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
		return cli.WithHint(err, "outbox dlq archive list prints the objects; they expire after retention.keep")
	}
	return err
}

func newArchiveRunCommand() *cobra.Command {
	var output string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Archive old dead letters and delete expired objects now",
		Long: `Archive old dead letters and delete expired objects now. A relay with
retention.archive does so periodically. An object is read back before its dead
letters are deleted from the database, so an interruption loses nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			return withArchive(cmd, func(c *app.Config, a *archive.Archive) error {
				store, _, closeSession, err := c.DLQStore()
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
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d resolved and %d failed dead letters moved to %s; %d failed ones stay because they block others, %d were changed concurrently\n%s expired, %s deleted\n",
					r.Archived[dlq.Resolved], r.Archived[dlq.Failed], cli.Plural(len(r.Objects), "object"), r.Held, r.Changed,
					cli.Plural(len(r.Expired), "object"), cli.Plural(r.Forgotten, "outline"))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would be moved and deleted")
	cli.OutputFlag(cmd, &output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionRetention)
	return cmd
}

// planSweep prints the plan of a sweep.
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
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "would move %s%d resolved and %d failed dead letters; %d failed ones stay because they block others; %s expired\n",
		least, plan.Archived[dlq.Resolved], plan.Archived[dlq.Failed], plan.Held, cli.Plural(len(plan.Expired), "object"))
	return err
}
