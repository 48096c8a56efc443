package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// repairs is the result of a repair of missing events.
type repairs struct {
	Asked     int `json:"asked"`
	Published int `json:"published"`
	// Left contains the events that were not published.
	Left []leftEvent `json:"left"`
}

// leftEvent is an event that is, or may be, still missing.
type leftEvent struct {
	Event     gocql.UUID        `json:"event_id"`
	Aggregate outbox.ID         `json:"aggregate_id"`
	Seq       int64             `json:"sequence"`
	State     relay.RepairState `json:"state"`
	Detail    string            `json:"detail,omitempty"`
}

// verdict returns the verdict after the repair.
func (r *repairs) verdict(c verify.Counts) verify.Verdict {
	if r != nil && len(r.Left) == 0 {
		c.Missing, c.Published = 0, c.Published+c.Missing
	}
	return c.Verdict()
}

func (r *repairs) print(out *strings.Builder) {
	if r == nil {
		return
	}
	fmt.Fprintf(out, "repair: %d events requested, %d published\n", r.Asked, r.Published)
	for i, l := range r.Left {
		if i == verifyShown {
			fmt.Fprintf(out, "%-10s  and %d more; -o json lists them all\n", "left", len(r.Left)-i)
			break
		}
		fmt.Fprintf(out, "%-10s  event %s  aggregate %s seq %d  (%s)\n", l.State, l.Event, l.Aggregate, l.Seq, l.Detail)
	}
}

// repairAudited is repair with an entry in the audit trail. Without missing events there is
// none.
func (f *verifyFlags) repairAudited(c *app.Config, cmd *cobra.Command, v *verify.Verification, session *gocql.Session, conf *relay.Config) (r *repairs, err error) {
	missing := missingEvents(v)
	requests := relay.NewRepairs(session, c.Scylla.Keyspace, conf.Name, app.TableName(conf))
	if len(missing) == 0 {
		return repair(cmd, missing, requests, f.repairWait)
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	change := admin.Change{
		Actor: f.by.actorName(), Action: "repair-events", Target: conf.Name, Reason: f.by.reason,
		Detail: map[string]any{"table": app.TableName(conf), "events": len(missing), "first": missing[0].EventID},
	}
	err = c.Trail(session, log).Record(cmd.Context(), change, func(ctx context.Context) (any, error) {
		if r, err = repair(cmd, missing, requests, f.repairWait); err != nil {
			return nil, err
		}
		return map[string]int{"published": r.Published, "left": len(r.Left)}, nil
	})
	return r, err
}

// missingEvents returns the events that a verification found missing.
func missingEvents(v *verify.Verification) (missing []relay.Repair) {
	v.Ledger().Check(v.Window, func(f verify.Finding) {
		if f.Kind == verify.Missing {
			missing = append(missing, relay.Repair{Aggregate: f.Aggregate, EventID: f.Event.UUID(), Sequence: f.Seq})
		}
	})
	return missing
}

// repair requests all missing events from the relay and waits for its answers.
func repair(cmd *cobra.Command, missing []relay.Repair, requests *relay.Repairs, patience time.Duration) (*repairs, error) {
	r := &repairs{Asked: len(missing), Left: []leftEvent{}}
	answered := 0
	bar := cli.NewProgress(cmd.ErrOrStderr(), nil)
	deadline := time.Now().Add(patience)
	for from := 0; from < len(missing); from += app.RepairAtOnce {
		part := missing[from:min(from+app.RepairAtOnce, len(missing))]
		if err := r.ask(cmd.Context(), requests, part, deadline); err != nil {
			return nil, err
		}
		answered += len(part)
		bar.Draw(cli.Work{Done: int64(answered), Total: int64(len(missing)), Detail: "missing events"}, 0, answered == len(missing))
	}
	return r, nil
}

// ask requests events and waits for the answers until the deadline. Unanswered requests are
// withdrawn.
func (r *repairs) ask(ctx context.Context, requests *relay.Repairs, part []relay.Repair, deadline time.Time) error {
	answers, err := requests.Publish(ctx, part, deadline)
	for _, a := range answers {
		if a.State == relay.RepairPublished {
			r.Published++
			continue
		}
		if a.State == relay.RepairAsked && a.Detail == "" {
			a.Detail = "no answer: is a relay of this name running?"
		}
		r.Left = append(r.Left, leftEvent{a.EventID, a.Aggregate, a.Sequence, a.State, a.Detail})
	}
	return err
}
