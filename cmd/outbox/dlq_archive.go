package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
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
func (c *config) openArchive(cmd *cobra.Command) (*archive.Archive, error) {
	if c.Retention.Archive == "" {
		return nil, usageError{withHint(errors.New("retention.archive is empty: there is no archive"), "--retention-archive names a folder, or a bucket such as s3://name?region=…")}
	}
	a, err := archive.Open(cmd.Context(), c.Retention.Archive)
	if err != nil {
		return nil, fmt.Errorf("retention.archive: %w", err)
	}
	return a, nil
}

// withArchive runs f with the archive; it reaches no database.
func withArchive(cmd *cobra.Command, f func(*config, *archive.Archive) error) (err error) {
	c, err := loadConfig(cmd)
	if err != nil {
		return usageError{err}
	}
	a, err := c.openArchive(cmd)
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

func newArchiveListCommand() *cobra.Command {
	var output, since string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the objects of the archive, oldest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var from time.Time
			err := checkOutput(output)
			if err == nil && since != "" {
				if from, _, err = dateOrTime(since, time.Now()); err != nil {
					err = usageError{fmt.Errorf("--start-date %w", err)}
				}
			}
			if err != nil {
				return err
			}
			return withArchive(cmd, func(c *config, a *archive.Archive) error {
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
				if output != "table" {
					return printAs(cmd.OutOrStdout(), output, views)
				}
				if len(views) == 0 {
					_, err := fmt.Fprintln(cmd.ErrOrStderr(), "the archive is empty")
					return err
				}
				tw := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				fmt.Fprintln(tw, "OBJECT\tLETTERS\tBYTES\tDIED FROM\tTO\tEXPIRES")
				for _, v := range views {
					expires := "-"
					if v.Expires != nil {
						expires = v.Expires.Format(time.DateOnly)
					}
					fmt.Fprintf(tw, "%s\t%d\t%d\t%s\t%s\t%s\n", clean(v.Object, 0), v.Letters, v.Bytes, v.From.UTC().Format(dlqTime), v.To.UTC().Format(dlqTime), expires)
				}
				return tw.Flush()
			})
		},
	}
	cmd.Flags().StringVar(&since, "start-date", "", "objects written then or later: a date, a time (RFC 3339), or how long ago, such as 720h; UTC")
	outputFlag(cmd, &output)
	addFlags(cmd, sectionRetention)
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
				return withArchive(cmd, func(_ *config, a *archive.Archive) error {
					return archiveHint(a.Records(cmd.Context(), args[0], print))
				})
			}
			return withArchive(cmd, func(c *config, a *archive.Archive) error {
				s, closeSession, err := c.dlqStore()
				if err != nil {
					return err
				}
				defer closeSession()
				l, err := s.Read(cmd.Context(), id)
				if err != nil {
					return err
				}
				if l.Archive == "" {
					return withHint(fmt.Errorf("event %s is not in the archive: its letter is %s", id, l.Status), "outbox dlq show %s", id)
				}
				r, err := a.Letter(cmd.Context(), l.Archive, id)
				if err != nil {
					return archiveHint(err)
				}
				return print(r)
			})
		},
	}
	addFlags(cmd, sectionScylla, sectionRetention)
	return cmd
}

func archiveHint(err error) error {
	if errors.Is(err, archive.ErrNotFound) {
		return withHint(err, "outbox dlq archive list shows what there is; objects go after retention.keep")
	}
	return err
}

func newArchiveRunCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Sweep now: move what is old to the archive, and remove what has expired",
		Long: `Sweep now: move what is old to the archive, and remove what has expired. A relay
with retention.archive does so by itself. An object is read back before its
letters are removed from the database; an interruption loses nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			return withArchive(cmd, func(c *config, a *archive.Archive) error {
				session, err := c.Scylla.session(c.Scylla.Keyspace)
				if err != nil {
					return err
				}
				defer session.Close()
				opts, err := c.dlqOptions()
				if err != nil {
					return err
				}
				store, err := dlq.Open(session, c.Scylla.Keyspace, opts...)
				if err != nil {
					return usageError{err}
				}
				sweeper, err := archive.NewSweeper(c.sweep(store, a, session))
				if err != nil {
					return usageError{err}
				}
				r, err := sweeper.Once(cmd.Context())
				if err != nil {
					return err
				}
				if output != "table" {
					return printAs(cmd.OutOrStdout(), output, r)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d resolved and %d failed letters moved to %s; %d failed stay because others wait behind them, %d were changed meanwhile\n%s expired, %s forgotten\n",
					r.Archived[dlq.Resolved], r.Archived[dlq.Failed], plural(len(r.Objects), "object"), r.Held, r.Changed,
					plural(len(r.Expired), "object"), plural(r.Forgotten, "outline"))
				return err
			})
		},
	}
	outputFlag(cmd, &output)
	addFlags(cmd, sectionScylla, sectionRetention)
	return cmd
}

func newArchiveRestoreCommand() *cobra.Command {
	var sure dlqConfirm
	var who dlqActor
	var object string
	cmd := &cobra.Command{
		Use:   "restore [EVENT_ID...]",
		Short: "Bring letters back from the archive",
		Long: `Bring letters back from the archive, as they were: resolved, or, if they were
failed, manual and released, because their aggregates have gone on. They stay in
the archive's object too. Name events, or all of an object by --object.

A relay that runs takes them in, and replays one when somebody says so.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := eventIDs(args)
			if err != nil {
				return err
			}
			if (len(ids) > 0) == (object != "") {
				return usageError{errors.New("which letters? name event ids, or an object by --object")}
			}
			return withArchive(cmd, func(c *config, a *archive.Archive) error {
				s, closeSession, err := c.dlqStore()
				if err != nil {
					return err
				}
				defer closeSession()
				return restore(cmd, s, a, ids, object, sure, who.by())
			})
		},
	}
	cmd.Flags().StringVar(&object, "object", "", "all letters of this object that were purged into it")
	sure.addFlags(cmd)
	who.addFlags(cmd)
	addFlags(cmd, sectionScylla, sectionRetention)
	return cmd
}

func restore(cmd *cobra.Command, s *dlq.Store, a *archive.Archive, ids []gocql.UUID, object string, sure dlqConfirm, by dlq.Actor) error {
	ctx, w := cmd.Context(), cmd.ErrOrStderr()
	if object != "" {
		m, err := a.Manifest(ctx, object)
		if err != nil {
			return archiveHint(err)
		}
		if ids, err = eventIDs(m.Events); err != nil {
			return err
		}
	}
	outlines, err := s.ReadMany(ctx, ids)
	if err != nil {
		return err
	}
	var todo []gocql.UUID
	left := 0
	for _, id := range ids {
		if l, ok := outlines[id]; !ok || l.Status != dlq.Archived {
			left++
			continue
		}
		todo = append(todo, id)
	}
	fmt.Fprintf(w, "restore %s; %d are not archived and stay as they are\n", plural(len(todo), "letter"), left)
	if sure.dryRun || len(todo) == 0 {
		if len(todo) == 0 && !sure.dryRun {
			return quietError{}
		}
		return nil
	}
	if err := sure.confirm(cmd, "restore "+plural(len(todo), "letter")+"?"); err != nil {
		return err
	}
	restored := 0
	var failed []string
	for _, id := range todo {
		if err := restoreOne(cmd, s, a, id, by); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted: %d of %d restored: %w", restored, len(todo), err)
			}
			failed = append(failed, err.Error())
			continue
		}
		restored++
	}
	fmt.Fprintf(cmd.OutOrStdout(), "restore: %d restored, %d failed\n", restored, len(failed))
	for _, e := range failed[:min(len(failed), dlqErrors)] {
		fmt.Fprintln(w, "  "+clean(e, 300))
	}
	if len(failed)+left > 0 {
		return quietError{}
	}
	return nil
}

func restoreOne(cmd *cobra.Command, s *dlq.Store, a *archive.Archive, id gocql.UUID, by dlq.Actor) error {
	ctx := cmd.Context()
	l, err := s.Read(ctx, id)
	if err != nil {
		return err
	}
	if l.PurgedAt.IsZero() {
		return s.Restore(ctx, id, nil, nil, by)
	}
	if l.Archive == "" {
		return fmt.Errorf("dead letter %s was purged at %s and is in no archive", id, l.PurgedAt.UTC().Format(time.RFC3339))
	}
	r, err := a.Letter(ctx, l.Archive, id)
	if err != nil {
		return err
	}
	whole, err := r.Letter()
	if err != nil {
		return err
	}
	return s.Restore(ctx, id, &whole, r.History, by)
}

// tableParts splits "keyspace.table".
func tableParts(table string) (keyspace, name string) {
	keyspace, name, _ = strings.Cut(table, ".")
	return keyspace, name
}
