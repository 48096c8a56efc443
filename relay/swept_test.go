package relay

import (
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// What the sweep hands on first is counted by why the tail had not.
func TestSwept_IsCountedByCause(t *testing.T) {
	t.Parallel()
	const log = "outbox_messages_scylla_cdc_log"
	for _, tt := range []struct {
		want   sweptCause
		change func(*Config)
		write  func(w *world, r *Relay, e outbox.Event)
	}{
		{sweptTailOff, func(c *Config) { c.Tail = TailOff }, func(w *world, _ *Relay, e outbox.Event) { w.write(e) }},
		{sweptLate, nil, func(w *world, _ *Relay, e outbox.Event) { w.writeLate(e, 30*time.Second) }},
		{sweptFailing, nil, func(w *world, r *Relay, e outbox.Event) {
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
		{sweptLeft, nil, func(w *world, r *Relay, e outbox.Event) {
			r.publisher.Load().leave(e.AggregateID) // what it does when it is not sure
			w.writeLate(e, 30*time.Second)
		}},
		{sweptHeldBack, nil, func(w *world, r *Relay, e outbox.Event) {
			r.publisher.Load().tailed.waited.Store(time.Now().Add(time.Second).UnixMicro())
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
				if n := relaytest.Count(r.metrics.found[bySweep]); n != 1 {
					t.Fatalf("the sweep found %v events, want the one", n)
				}
				for c := range sweptCauses {
					want := 0.0
					if c == tt.want {
						want = 1
					}
					if n := relaytest.Count(r.metrics.swept[c]); n != want {
						t.Errorf("%v events were swept as %s, want %v", n, c, want)
					}
				}
			})
		})
	}
}

// An aggregate that the tail leaves is remembered until the sweep has come by it,
// and no more of them than the bound.
func TestSwept_RemembersABoundedNumber(t *testing.T) {
	t.Parallel()
	p := &publisher{metrics: newEngineMetrics(prometheus.NewRegistry())}
	p.tailed.left = make(map[gocql.UUID]struct{})
	for i := range 3 * maxLeft {
		p.leave(relaytest.Event(i, 1, "OrderUpdated").AggregateID)
	}
	if n := len(p.tailed.left); n > maxLeft {
		t.Errorf("%d aggregates are remembered, want at most %d", n, maxLeft)
	}
	p.tailed.window = 1000
	if c := p.tailed.swept(&offer{event: relaytest.Event(-1, 1, "OrderUpdated"), written: 5000}); c != sweptBeforeStart {
		t.Errorf("swept() = %s before the tail has read, want before_start", c)
	}
	p.tailed.began.Store(5000)
	for written, want := range map[int64]sweptCause{3999: sweptBeforeStart, 4001: sweptLate} {
		if c := p.tailed.swept(&offer{event: relaytest.Event(-1, 1, "OrderUpdated"), written: written}); c != want {
			t.Errorf("swept() = %s of a row written at %d, want %s", c, written, want)
		}
	}
	last := relaytest.Event(3*maxLeft-1, 1, "OrderUpdated")
	if c := p.tailed.swept(&offer{event: last}); c != sweptLeft {
		t.Errorf("swept() = %s, want left", c)
	}
	if c := p.tailed.swept(&offer{event: last}); c == sweptLeft {
		t.Error("an aggregate is left for ever")
	}
}
