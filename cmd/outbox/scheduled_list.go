package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/schedule"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// noneScheduled is the text for a filter without results.
const noneScheduled = "no scheduled message matches"

// scheduledFilter contains the flags that select scheduled messages.
type scheduledFilter struct {
	topic, key, client                     string
	from, until, createdFrom, createdUntil string
}

func (f *scheduledFilter) addFlags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.topic, "topic", "", "messages for this topic")
	fl.StringVar(&f.key, "key", "", "messages with this key")
	fl.StringVar(&f.client, "client", "", "messages of this client: the name of a token, or 'address 192.0.2.1'")
	fl.StringVar(&f.from, "since", "", "messages due since a date, a time (RFC 3339) or a duration from now such as 24h; UTC")
	fl.StringVar(&f.until, "until", "", "messages due before")
	fl.StringVar(&f.createdFrom, "created-since", "", "messages accepted since a date, a time (RFC 3339) or an age such as 24h; UTC")
	fl.StringVar(&f.createdUntil, "created-until", "", "messages accepted before; a date includes its day")
}

func (f *scheduledFilter) empty() bool { return *f == scheduledFilter{} }

// filter returns the selection of the flags. Without --since it includes overdue messages.
// Errors are of usage.
func (f *scheduledFilter) filter(now time.Time) (messages.ManyFilter, error) {
	m := messages.ManyFilter{Topic: f.topic, Key: f.key, Client: f.client, Since: now.Add(-schedule.MaxAhead).UTC(), Until: now.Add(schedule.MaxAhead + time.Minute).UTC()}
	when := func(flag, text string, ahead bool, at *time.Time) error {
		if text == "" {
			return nil
		}
		t, day, err := cli.DateOrTime(text, now)
		if d, bad := time.ParseDuration(text); bad == nil && ahead {
			t, err = now.Add(d), nil
		}
		if err != nil {
			return fmt.Errorf("--%s %w", flag, err)
		}
		if *at = t.UTC(); day && (flag == "until" || flag == "created-until") {
			*at = at.AddDate(0, 0, 1)
		}
		return nil
	}
	err := errors.Join(when("since", f.from, true, &m.Since), when("until", f.until, true, &m.Until),
		when("created-since", f.createdFrom, false, &m.CreatedSince), when("created-until", f.createdUntil, false, &m.CreatedUntil))
	switch {
	case err != nil:
		return m, cli.Usage(err)
	case !m.Since.Before(m.Until):
		return m, cli.Usage(fmt.Errorf("--since %s is not before --until %s", f.from, f.until))
	case m.Until.Sub(m.Since) > 3*schedule.MaxAhead:
		return m, cli.Usage(fmt.Errorf("--since %s: must be at most three years before --until", f.from))
	}
	return m, nil
}

func newScheduledListCommand() *cobra.Command {
	var f scheduledFilter
	var filter messages.ManyFilter
	var paging adminclient.Paging
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List scheduled messages, next delivery first",
		Long: `List scheduled messages, next delivery first.

The list includes messages that are due and not published yet. It contains no
payloads: GET /v1/messages/{id}/content and the console show them.`,
	}
	f.addFlags(cmd)
	cmd.Flags().IntVar(&paging.Limit, "limit", dlqListed, "maximum number of messages; 0 is all")
	cli.CursorFlag(cmd, &paging.Cursor)
	return newListCommand(cmd, scheduledTable, query[page[adminclient.ScheduledMessage]]{
		needs: schema.Schedule,
		check: func([]string) (err error) {
			if filter, err = f.filter(time.Now()); err == nil && paging.Limit < 0 {
				err = cli.Usage(fmt.Errorf("--limit %d must not be negative", paging.Limit))
			}
			return err
		},
		read: func(ctx context.Context, api *operatorAPI, _ []string) (p page[adminclient.ScheduledMessage], err error) {
			p.entries, p.next, err = api.Scheduled(ctx, filter, paging)
			return p, err
		},
	})
}

// scheduledTable prints scheduled messages as a list.
var scheduledTable = cli.Table[adminclient.ScheduledMessage]{
	Header: "MESSAGE\tTOPIC\tKEY\tCLIENT\tACCEPTED\tDUE",
	Row: func(w io.Writer, m adminclient.ScheduledMessage) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", cli.Clean(m.ID, 40), cli.Clean(m.Topic, 60), cli.Clean(m.Key, 40), cli.Clean(m.Client, 40), cli.At(w, m.CreatedAt), cli.At(w, m.DeliverAt))
	},
	None:  noneScheduled,
	First: "next",
}
