package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

// noneScheduled is the text for a filter without results.
const noneScheduled = "no message that waits matches"

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
	fl.StringVar(&f.from, "since", "", "messages due since: a date, a time (RFC 3339) or a duration from now such as 24h; UTC")
	fl.StringVar(&f.until, "until", "", "messages due before")
	fl.StringVar(&f.createdFrom, "created-since", "", "messages accepted since: a date, a time (RFC 3339) or an age such as 24h; UTC")
	fl.StringVar(&f.createdUntil, "created-until", "", "messages accepted before; a date includes its day")
}

func (f *scheduledFilter) empty() bool { return *f == scheduledFilter{} }

// filter returns the selection of the flags. Without --since it includes overdue messages.
// Errors are of usage.
func (f *scheduledFilter) filter(now time.Time) (messages.Many, error) {
	m := messages.Many{Due: true}
	m.Topic, m.Key, m.Client = f.topic, f.key, f.client
	m.After.DeliverAt, m.Until = now.Add(-schedule.MaxAhead), now.Add(schedule.MaxAhead+time.Minute)
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
	err := errors.Join(when("since", f.from, true, &m.After.DeliverAt), when("until", f.until, true, &m.Until),
		when("created-since", f.createdFrom, false, &m.CreatedFrom), when("created-until", f.createdUntil, false, &m.CreatedUntil))
	switch {
	case err != nil:
		return m, cli.Usage(err)
	case !m.After.DeliverAt.Before(m.Until):
		return m, cli.Usage(fmt.Errorf("--since %s is not before --until %s", f.from, f.until))
	case m.Until.Sub(m.After.DeliverAt) > 3*schedule.MaxAhead:
		return m, cli.Usage(fmt.Errorf("--since %s: must be at most three years before --until", f.from))
	}
	return m, nil
}

func newScheduledListCommand() *cobra.Command {
	var f scheduledFilter
	var output string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List scheduled messages, next delivery first",
		Long: `List scheduled messages, next delivery first.

The list includes messages that are due and not published yet. It contains no
payloads: GET /v1/messages/{id}/content and the console show them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			many, err := f.filter(time.Now())
			if err == nil {
				err = cli.CheckOutput(output)
			}
			if err == nil && limit < 0 {
				err = cli.Usage(fmt.Errorf("--limit %d must not be negative", limit))
			}
			if err != nil {
				return err
			}
			c, err := app.LoadConfig(cmd)
			if err != nil {
				return cli.Usage(err)
			}
			log, err := c.Log.Logger(cmd.ErrOrStderr())
			if err != nil {
				return cli.Usage(err)
			}
			session, service, err := scheduled(c, log)
			if err != nil {
				return err
			}
			defer sessions.Close(session)
			found, more, err := listScheduled(cmd, service, many, limit)
			if err != nil {
				return err
			}
			return scheduledTable.Print(cmd, output, found, more)
		},
	}
	f.addFlags(cmd)
	cmd.Flags().IntVar(&limit, "limit", dlqListed, "maximum number of messages; 0 is all")
	cli.ListFlags(cmd, &output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionLog)
	return cmd
}

// listScheduled reads up to limit selected messages, 0 for all; more reports that there are
// others.
func listScheduled(cmd *cobra.Command, service *messages.Service, many messages.Many, limit int) (out []messages.View, more bool, err error) {
	err = toTheEnd(cmd.Context(), many, func(many messages.Many) (messages.Rest, error) {
		room := schedule.MaxPage
		if limit > 0 {
			room = min(room, limit+1-len(out))
		}
		page, next, rest, err := service.List(cmd.Context(), many.After, many.Filter, room)
		if err != nil {
			return messages.Rest{}, err
		}
		if out = append(out, page...); limit > 0 && len(out) > limit {
			out, more, rest = out[:limit], true, false
		}
		return messages.Rest{More: rest, Next: next}, nil
	})
	return out, more, err
}

// scheduledView is a scheduled message as JSON, with the keys of GET /v1/messages.
type scheduledView struct {
	ID        string         `json:"id"`
	State     messages.State `json:"state"`
	Topic     string         `json:"topic"`
	Key       string         `json:"key,omitempty"`
	Client    string         `json:"client,omitempty"`
	CreatedAt time.Time      `json:"created_at"`
	DeliverAt time.Time      `json:"deliver_at"`
}

// scheduledTable prints scheduled messages as a list.
var scheduledTable = cli.Table[messages.View]{
	Header: "MESSAGE\tTOPIC\tKEY\tCLIENT\tACCEPTED\tDUE",
	Row: func(w io.Writer, v messages.View) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", v.ID, cli.Clean(v.Topic, 60), cli.Clean(v.Key, 40), cli.Clean(v.Client, 40), cli.At(w, v.CreatedAt), cli.At(w, v.DeliverAt))
	},
	View: func(v messages.View) any {
		return scheduledView{v.ID.String(), v.State, v.Topic, v.Key, v.Client, v.CreatedAt, v.DeliverAt}
	},
	None:  noneScheduled,
	First: "next",
}
