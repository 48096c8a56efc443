package relay

import (
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// An operator whose clock is two minutes ahead asks for an event, and the relay is
// restarted: the event is published once, also where the operator's version writes with
// its own time, so that the relay's answers are covered.
func TestClocks_RepairIsPublishedOnce(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(w *world, operator *gocql.Session, q *backfill.Repair) error{
		"this version": func(w *world, operator *gocql.Session, q *backfill.Repair) error {
			return backfill.NewRepairs(operator, "outbox", w.cfg.Name, "outbox."+w.cfg.Table).Ask(w.t.Context(), q)
		},
		"a version before": func(w *world, operator *gocql.Session, q *backfill.Repair) error {
			q.ID = gocql.TimeUUID()
			return operator.Query("INSERT INTO relay_repairs (relay, table_name, repair_id, aggregate_id, seq, event_id, state, requested_by, updated_at)"+
				" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", w.cfg.Name, "outbox."+w.cfg.Table, q.ID, q.Aggregate, q.Sequence, q.EventID, string(backfill.RepairAsked), "x", time.Now()).Exec()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.IdleCheckpoint, c.ReadBackMargin = 5*time.Second, time.Second })
				defer w.close()
				_, stop := w.run()
				time.Sleep(30 * time.Second)
				if err := stop(); err != nil {
					t.Error(err)
				}
				e := relaytest.Event(1, 1, "OrderUpdated")
				w.write(e)
				time.Sleep(time.Minute)
				w.skipLog()
				clock := new(scyllatest.Clock)
				clock.Set(2 * time.Minute)
				q := backfill.Repair{Aggregate: e.AggregateID, EventID: e.ID.UUID(), Sequence: e.Sequence}
				operator := clock.Connect(t, w.db)
				err := ask(w, operator, &q)
				operator.Close()
				if err != nil {
					t.Fatal(err)
				}
				_, stop = w.run()
				time.Sleep(40 * time.Second)
				if err := stop(); err != nil {
					t.Error(err)
				}
				_, stop = w.run()
				requests := backfill.NewRepairs(w.session, "outbox", w.cfg.Name, "outbox."+w.cfg.Table)
				if got := w.answers(requests, 4*time.Minute)[e.ID.UUID()]; got.State != backfill.RepairPublished {
					t.Errorf("the request is %+v, want published", got)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if got := w.consume("OrderUpdated"); len(got) != 1 {
					t.Errorf("the event is published %d times, want once", len(got))
				}
				if err := requests.Forget(t.Context(), q.ID); err != nil {
					t.Fatal(err)
				}
				if all, err := requests.All(t.Context()); err != nil || len(all) > 0 {
					t.Errorf("after Forget() there are %+v, %v", all, err)
				}
			})
		})
	}
}

// A request that was answered, or that its asker has deleted, is not answered again: an
// answer that was delayed on its way changes nothing.
func TestClocks_AnswerOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		_, session := startNode(t)
		r := backfill.NewRepairs(session, "outbox", "relay", "outbox.t")
		q := backfill.Repair{Aggregate: outbox.IDFromText("customer 1"), EventID: gocql.UUID{2}, Sequence: 1}
		if err := r.Ask(t.Context(), &q); err != nil {
			t.Fatal(err)
		}
		if ok, err := r.Take(t.Context(), q.ID); err != nil || !ok {
			t.Fatalf("take() = %v, %v", ok, err)
		}
		if ok, err := r.Take(t.Context(), q.ID); err != nil || ok {
			t.Errorf("a second take() = %v, %v, want false", ok, err)
		}
		if ok, err := r.Answer(t.Context(), q.ID, backfill.RepairAsked, backfill.RepairAsked, "waits"); err != nil || ok {
			t.Errorf("an answer to what was asked = %v, %v, want false", ok, err)
		}
		if ok, err := r.Answer(t.Context(), q.ID, backfill.RepairTaken, backfill.RepairPublished, ""); err != nil || !ok {
			t.Errorf("answer() = %v, %v", ok, err)
		}
		if err := r.Forget(t.Context(), q.ID); err != nil {
			t.Fatal(err)
		}
		if ok, err := r.Answer(t.Context(), q.ID, backfill.RepairPublished, backfill.RepairUnknown, ""); err != nil || ok {
			t.Errorf("an answer to a deleted request = %v, %v, want false", ok, err)
		}
		if all, err := r.All(t.Context()); err != nil || len(all) > 0 {
			t.Errorf("All() = %+v, %v, want none", all, err)
		}
	})
}

// startNode is scyllatest.Start in a bubble, whose timers it lets run out.
func startNode(t *testing.T) (*scyllafake.Server, *gocql.Session) {
	t.Helper()
	t.Cleanup(func() { time.Sleep(time.Minute) })
	return scyllatest.Start(t)
}

// succession is an instance whose clock is two minutes ahead, and its successor.
func succession(t *testing.T) (ahead, after *gocql.Session) {
	t.Helper()
	node, after := startNode(t)
	clock := new(scyllatest.Clock)
	clock.Set(2 * time.Minute)
	return clock.Connect(t, node), after
}

// What a successor saves counts, although its predecessor's clock was ahead.
func TestClocks_CheckpointsOfASuccessor(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		ahead, after := succession(t)
		old, now := checkpoint.NewCQLStore(ahead, "outbox", "r", "outbox.t", "r", nil, 0), checkpoint.NewCQLStore(after, "outbox", "r", "outbox.t", "r", nil, 0)
		gen, stream, ctx := time.UnixMilli(1000), []byte("s"), t.Context()
		for i, c := range []*checkpoint.CQLStore{old, now} {
			at := gen.Add(time.Duration(i+1) * time.Hour)
			if err := c.SavePosition(ctx, gen, stream, gocql.MaxTimeUUID(at)); err != nil {
				t.Fatal(err)
			}
			if err := c.SaveGeneration(ctx, at); err != nil {
				t.Fatal(err)
			}
			if err := c.SaveFirst(ctx, at); err != nil {
				t.Fatal(err)
			}
			pos, err := c.Position(ctx, gen, stream)
			if err != nil || !pos.Time().Equal(at) {
				t.Errorf("%d: the position is %s, %v, want %s", i, pos.Time(), err, at)
			}
			if g, first, err := c.Start(ctx); err != nil || !g.Equal(at) || !first.Equal(at) {
				t.Errorf("%d: the generation is %s, the first %s, %v, want %s", i, g, first, err, at)
			}
		}
	})
}

// A scan that an instance began is ended by its successor, or replaced.
func TestClocks_ScansOfASuccessor(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		ahead, after := succession(t)
		old, now := checkpoint.NewScans(ahead, "outbox", "r", "outbox.t", nil), checkpoint.NewScans(after, "outbox", "r", "outbox.t", nil)
		ctx := t.Context()
		one := &checkpoint.Scan{Started: time.UnixMilli(1000), State: checkpoint.ScanRunning, Ranges: 2}
		if err := old.Begin(ctx, one, nil); err != nil {
			t.Fatal(err)
		}
		one.Read = 1
		if err := old.Advance(ctx, one, []int{0}); err != nil {
			t.Fatal(err)
		}
		one.State, one.Read = checkpoint.ScanDone, 2
		if err := now.Advance(ctx, one, []int{1}); err != nil {
			t.Fatal(err)
		}
		two := &checkpoint.Scan{Started: time.UnixMilli(2000), State: checkpoint.ScanRunning}
		if err := old.Begin(ctx, two, nil); err != nil {
			t.Fatal(err)
		}
		if err := now.Begin(ctx, &checkpoint.Scan{Started: time.UnixMilli(3000), State: checkpoint.ScanRunning}, two); err != nil {
			t.Fatal(err)
		}
		all, err := now.Load(ctx)
		if err != nil || len(all) != 3 || all[2].State != checkpoint.ScanDone || all[2].Read != 2 || len(all[2].Done) != 2 || all[1].State != checkpoint.ScanReplaced {
			t.Errorf("load() = %+v, %v", all, err)
		}
	})
}

// What an instance writes of itself after its clock was set back is read: others would
// take it for dead, and carry its table beside it.
func TestClocks_InstanceWhoseClockIsSetBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		node, reader := startNode(t)
		clock := new(scyllatest.Clock)
		session := clock.Connect(t, node)
		for i, set := range []time.Duration{2 * time.Minute, 0} {
			clock.Set(set)
			want := []string{"running", "stopped"}[i]
			if err := heartbeat.Write(t.Context(), session, "outbox", &heartbeat.Row{Relay: "m", Table: "outbox.t", Instance: "i", RelayStatus: heartbeat.RelayStatus{State: want}}, heartbeatLife); err != nil {
				t.Fatal(err)
			}
			if got, err := heartbeat.Read(t.Context(), reader, "outbox"); err != nil || len(got) != 1 || got[0].State != want {
				t.Errorf("the rows are %+v, %v, want one that is %s", got, err, want)
			}
		}
	})
}

// A request waits for its event's dead letter, which the operator then discards, or comes
// just after that and is met by another relay: the event is not published, and the answer
// does not claim that it is.
func TestRepair_OfADiscardedDeadLetter(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"same relay", "discarded between two relays", "asked after both"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.IdleCheckpoint, c.ReadBackMargin = 5*time.Second, time.Second
					c.Kafka = append(c.Kafka, relaytest.NoCompression())
				})
				defer w.close()
				e := relaytest.Event(1, 1, "OrderCreated")
				end := w.refuse(e.ID.UUID(), kerr.InvalidRecord)
				_, stop := w.run()
				time.Sleep(5 * time.Second)
				w.write(e)
				time.Sleep(time.Minute)
				requests := backfill.NewRepairs(w.session, "outbox", w.cfg.Name, "outbox."+w.cfg.Table)
				ask := func() {
					askFor(t, requests, e)
				}
				stopRelay := func() {
					if err := stop(); err != nil {
						t.Error(err)
					}
				}
				if name != "asked after both" {
					ask()
				}
				time.Sleep(20 * time.Second)
				end()
				if name == "discarded between two relays" {
					stopRelay()
				}
				if err := w.deadLetters().Discard(t.Context(), e.ID.UUID(), dlq.Actor{Name: "ada", Reason: "test"}); err != nil {
					t.Fatal(err)
				}
				switch name {
				case "discarded between two relays":
					_, stop = w.run()
				case "asked after both":
					time.Sleep(10 * time.Second)
					stopRelay()
					ask()
					_, stop = w.run()
				}
				if got := w.answers(requests, time.Minute)[e.ID.UUID()]; got.State != backfill.RepairUnknown || got.Detail != backfill.IsWithheld {
					t.Errorf("the request is %+v, want %q", got, backfill.IsWithheld)
				}
				stopRelay()
				if got := w.consume("OrderCreated"); len(got) != 0 {
					t.Errorf("the discarded event is published %d times", len(got))
				}
			})
		})
	}
}
