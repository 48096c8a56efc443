package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// query is what a command reads with the admin API.
type query[T any] struct {
	// needs is the component that the database needs. Default: dead letters.
	needs schema.Component
	// sections are the sections of settings that the command reads, beside database and API.
	sections []string
	// check returns errors of usage, before the API is opened. Nil: there are none.
	check func(args []string) error
	read  func(ctx context.Context, api *operatorAPI, args []string) (T, error)
}

// command completes a command of texts, arguments and flags, and returns it: it prints the result as
// a table by print, or as JSON or YAML.
func (q query[T]) command(cmd *cobra.Command, print func(io.Writer, *T) error) *cobra.Command {
	var output string
	cli.OutputFlag(cmd, &output)
	return q.complete(cmd, func(cmd *cobra.Command, found T) error {
		return cli.Show(cmd.OutOrStdout(), output, found, func(w io.Writer) error { return print(w, &found) })
	})
}

// complete is command with a function that prints in every format.
func (q query[T]) complete(cmd *cobra.Command, show func(*cobra.Command, T) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if q.check != nil {
			if err := q.check(args); err != nil {
				return err
			}
		}
		return withAPIOf(cmd, "", []schema.Component{cmp.Or(q.needs, schema.DeadLetters)}, func(api *operatorAPI) error {
			found, err := q.read(cmd.Context(), api, args)
			if err != nil {
				return err
			}
			return show(cmd, found)
		})
	}
	app.AddFlags(cmd, append(q.sections, app.SectionScylla, app.SectionAPI)...)
	return cmd
}

// page is a page of a list. next is the cursor of the next one, empty for none; notes are printed to the
// standard error.
type page[T any] struct {
	entries []T
	next    string
	notes   []string
}

// newListCommand completes a command of texts and flags that prints a page of a list as a table, or as JSON or
// YAML.
func newListCommand[T any](cmd *cobra.Command, table cli.Table[T], q query[page[T]]) *cobra.Command {
	var output string
	cmd.Args = cobra.NoArgs
	cli.ListFlags(cmd, &output)
	return q.complete(cmd, func(cmd *cobra.Command, p page[T]) error {
		return errors.Join(table.Print(cmd, output, p.entries, p.next), printGaps(cmd.ErrOrStderr(), p.notes))
	})
}

// listing contains the flags of a list with the newest entry first, by pages, and its period once they are
// checked.
type listing struct {
	cli.Listing
	since, until time.Time
}

// addFlags adds the flags, as [cli.Listing.AddFlags] does, and --cursor.
func (l *listing) addFlags(cmd *cobra.Command, things, event string, limit int) {
	l.AddFlags(cmd, things, event, limit)
	cli.CursorFlag(cmd, &l.Cursor)
}

// check sets the period. Errors are of usage.
func (l *listing) check([]string) (err error) {
	l.since, l.until, err = l.Span(time.Now())
	return err
}

// paging returns the part of the list that is printed.
func (l *listing) paging() adminclient.Paging {
	return adminclient.Paging{Cursor: l.Cursor, Limit: l.Limit}
}

// newGetCommand is a query of the event or message whose id is the argument.
func newGetCommand[T any](cmd *cobra.Command, needs schema.Component, read func(api *operatorAPI, ctx context.Context, id string) (T, error), print func(io.Writer, *T) error) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	return query[T]{
		needs: needs,
		check: func(args []string) error { _, err := eventIDs(args); return err },
		read: func(ctx context.Context, api *operatorAPI, args []string) (out T, err error) {
			ids, err := eventIDs(args)
			if err != nil {
				return out, err
			}
			return read(api, ctx, ids[0].String())
		},
	}.command(cmd, print)
}
