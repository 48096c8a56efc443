package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

func newDLQArchiveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "List, fill and restore the archive of old dead letters",
		Long: `List, fill and restore the archive of old dead letters.

The archive is archive.url: a folder, or the URL of a bucket. Its objects are
compressed JSON Lines, one dead letter per line, grouped by day, each with a
manifest.`,
	}
	cmd.AddCommand(newArchiveListCommand(), newArchiveGetCommand(), newArchiveRunCommand(), newArchiveRestoreCommand())
	return cmd
}

// withArchive runs f with the archive. It opens no database session.
func withArchive(cmd *cobra.Command, f func(*archive.Archive) error) (err error) {
	c, err := app.LoadConfig(cmd)
	if err != nil {
		return err
	}
	if c.Archive.URL == "" {
		return noArchive()
	}
	a, err := archive.Open(cmd.Context(), c.Archive.URL)
	if err != nil {
		return fmt.Errorf("archive.url: %w", err)
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	return f(a)
}

// noArchive returns the error of a missing archive.
func noArchive() error {
	return cli.Usage(cli.WithHint(errors.New("archive.url is empty"), archiveHint))
}

// objectTable prints the archive's objects as a list.
var objectTable = cli.Table[admin.ArchiveObject]{
	Header: "OBJECT\tDEAD LETTERS\tBYTES\tFAILED FROM\tTO\tEXPIRES",
	Row: func(w io.Writer, o admin.ArchiveObject) {
		expires := "-"
		if o.Expires != nil {
			expires = o.Expires.Format(time.DateOnly)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\n", cli.Clean(o.Object, 0), o.DeadLetters, o.Bytes, cli.At(w, o.From), cli.At(w, o.To), expires)
	},
	None: "the archive is empty",
}

func newArchiveListCommand() *cobra.Command {
	var f listing
	cmd := &cobra.Command{Use: "list", Short: "List the objects of the archive, oldest first"}
	cmd.Flags().StringVar(&f.Since, "since", "", "objects written since a date, a time (RFC 3339) or an age such as 720h; UTC")
	cmd.Flags().StringVar(&f.Until, "until", "", "objects written before; a date includes its day")
	return newListCommand(cmd, objectTable, query[page[admin.ArchiveObject]]{
		sections: []string{app.SectionRetention},
		check:    f.check,
		read: func(ctx context.Context, api *operatorAPI, _ []string) (p page[admin.ArchiveObject], err error) {
			objects, configured, err := api.Archives(ctx, f.since)
			if err == nil && !configured {
				err = noArchive()
			}
			p.entries = slices.DeleteFunc(objects, func(o admin.ArchiveObject) bool { return !f.until.IsZero() && !o.CreatedAt.Before(f.until) })
			return p, err
		},
	})
}

func newArchiveGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get OBJECT|EVENT_ID",
		Short: "Print the dead letters of an object, or one of them, as JSON Lines",
		Long: `Print the dead letters of an object, or one of them, as JSON Lines. The command
reads the archive itself (archive.url) and checks the object against its
manifest; exit status 1 if it is damaged. For an event id it reads the name of the
object from the database, or with --api-admin-url from the API.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			print := func(r archive.Record) error {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", r.JSON())
				return err
			}
			id, err := gocql.ParseUUID(args[0])
			if err != nil {
				return withArchive(cmd, func(a *archive.Archive) error { return objectHint(a.Records(cmd.Context(), args[0], print)) })
			}
			return withAPI(cmd, "", func(api *operatorAPI) error {
				l, err := api.DeadLetter(cmd.Context(), id.String())
				if err != nil {
					return err
				}
				if l.ArchiveObject == "" {
					return cli.WithHint(fmt.Errorf("event %s is not in the archive: its dead letter is %s", id, l.Status), "outbox dlq get %s", id)
				}
				return withArchive(cmd, func(a *archive.Archive) error {
					r, err := a.DeadLetter(cmd.Context(), l.ArchiveObject, id)
					if err != nil {
						return objectHint(err)
					}
					return print(r)
				})
			})
		},
	}
	app.AddFlags(cmd, app.SectionScylla, app.SectionRetention, app.SectionAPI)
	return cmd
}

// objectHint adds a hint to the error of an object that does not exist.
func objectHint(err error) error {
	if errors.Is(err, archive.ErrNotFound) {
		return cli.WithHint(err, "outbox dlq archive list prints the objects; they expire after retention.keep")
	}
	return err
}

func newArchiveRunCommand() *cobra.Command {
	var f dlqChangeFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Archive old dead letters and delete expired objects now",
		Long: `Archive old dead letters and delete expired objects now. A relay with
archive.url does so periodically. An object is read back before its dead
letters are deleted from the database, so an interruption loses nothing. The sweep is
a job; 'outbox dlq jobs' lists and steers it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.requireReason(f.dryRun); err != nil {
				return err
			}
			job := admin.NewJobBody{JobTarget: admin.JobTarget{Action: dlq.ActionArchive}}
			return withAPI(cmd, f.actor, func(api *operatorAPI) error { return f.change(cmd, api, job) })
		},
	}
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd, "audit trail")
	f.dlqRun.addFlags(cmd, false)
	cli.OutputFlag(cmd, &f.output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionRetention, app.SectionAPI)
	return cmd
}
