package relay

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/swept"
)

// Events that the sweep hands on first are counted by the reason why the tail had not.
func TestSwept_IsCountedByCause(t *testing.T) {
	t.Parallel()
	const log = "outbox_messages_scylla_cdc_log"
	for _, tt := range []struct {
		want   swept.Cause
		change func(*Config)
		write  func(w *world, r *Relay, e outbox.Event)
	}{
		{swept.TailOff, func(c *Config) { c.Tail = TailOff }, func(w *world, _ *Relay, e outbox.Event) { w.write(e) }},
		{swept.Late, nil, func(w *world, _ *Relay, e outbox.Event) { w.writeLate(e, 30*time.Second) }},
		{swept.Failing, nil, func(w *world, r *Relay, e outbox.Event) {
			// The tail's reads fail, until the row is older than it reads.
			id := w.db.Faults().MustAdd(faults.Rule{
				Name: "no reads of the log", Match: faults.Match{Table: log, Kinds: []engine.OpKind{engine.OpRead}},
				Effect: faults.Effect{Failure: faults.Unavailable(2, 1)},
			})
			w.write(e)
			time.Sleep(5 * time.Minute)
			if err := w.db.Faults().Remove(id); err != nil {
				w.t.Error(err)
			}
		}},
		{swept.Left, nil, func(w *world, r *Relay, e outbox.Event) {
			r.publisher.Load().Swept().Leave(e.AggregateID.UUID()) // as the tail does when it is not sure
			w.writeLate(e, 30*time.Second)
		}},
		{swept.HeldBack, nil, func(w *world, r *Relay, e outbox.Event) {
			r.publisher.Load().Swept().Waited(time.Now().Add(time.Second))
			w.writeLate(e, 30*time.Second)
		}},
	} {
		t.Run(tt.want.String(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					wideWindow(c)
					if tt.change != nil {
						tt.change(c)
					}
				})
				defer w.close()
				r, stop := w.run()
				time.Sleep(10 * time.Second)
				e := relaytest.Event(1, 1, "OrderUpdated")
				tt.write(w, r, e)
				time.Sleep(10 * time.Minute)
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
				relaytest.CheckOrder(t, w.consume("OrderUpdated"), []outbox.Event{e})
				if n := relaytest.Count(r.metrics.Found[publish.BySweep]); n != 1 {
					t.Fatalf("the sweep found %v events, want the one", n)
				}
				for c := range swept.Causes {
					want := 0.0
					if c == tt.want {
						want = 1
					}
					if n := relaytest.Count(r.metrics.Swept[c]); n != want {
						t.Errorf("%v events were swept as %s, want %v", n, c, want)
					}
				}
			})
		})
	}
}
