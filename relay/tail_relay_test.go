package relay

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// wideWindow is how a relay on a cluster is set up.
func wideWindow(c *Config) {
	c.ConfidenceWindow, c.BusyDelay, c.IdleDelay = Defaults().ConfidenceWindow, Defaults().BusyDelay, Defaults().IdleDelay
}

// Events go out in milliseconds, and once, though the sweep sees each again two
// minutes later; and it alone moves the checkpoints.
func TestTail_IsEarlyAndTheSweepRepeatsNothing(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for _, conf := range []scyllafake.Config{{Version: "5.1", Tokens: 4}, {Version: "2025.4"}, {}} {
		t.Run("version="+conf.Version, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, conf, func(c *Config) {
					wideWindow(c)
					c.TailMaxInterval = Defaults().TailMaxInterval
				})
				defer w.close()
				r, stop := w.run()
				time.Sleep(5 * time.Second)
				all := relaytest.Events(10, 6, "OrderCreated", "OrderUpdated")
				written := make(map[gocql.UUID]time.Time)
				for _, e := range all {
					w.write(e)
					written[e.ID.UUID()] = time.Now()
					time.Sleep(170 * time.Millisecond)
				}
				time.Sleep(time.Second)
				got := w.consume("OrderCreated", "OrderUpdated")
				relaytest.CheckOrder(t, got, all)
				for _, d := range got {
					if late := d.At.Sub(written[d.ID.UUID()]); late > 150*time.Millisecond {
						t.Errorf("event %s came after %s", d.ID, late)
					}
				}
				if s := r.Status(); s.Tail.Streams == 0 || s.Tail.Err != nil || len(s.Problems) > 0 {
					t.Errorf("Status() = %+v, want a tail that reads, and no problems", s)
				}
				if n := relaytest.Count(r.metrics.Found[publish.ByTail]); n != float64(len(all)) {
					t.Errorf("the tail found %v of %d events", n, len(all))
				}
				time.Sleep(3 * time.Minute)
				relaytest.CheckOrder(t, w.consume("OrderCreated", "OrderUpdated"), all)
				if n := relaytest.Count(r.metrics.Repeated); n != float64(len(all)) {
					t.Errorf("the sweep saw %v of %d events again", n, len(all))
				}
				if s := r.publisher.Load().State(); s.Fresh != 0 {
					t.Errorf("%d events are still to be shown by the sweep", s.Fresh)
				}
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
				// The checkpoints cover all of it: the next relay publishes nothing again.
				_, stop = w.run()
				time.Sleep(3 * time.Minute)
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
				relaytest.CheckOrder(t, w.consume("OrderCreated", "OrderUpdated"), all)
			})
		})
	}
}

// When a generation begins, its streams are read from its first moment on.
func TestTail_IsThereWhenAGenerationBegins(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for _, tt := range []struct {
		conf   scyllafake.Config
		change func(*faults.Node) error
	}{
		{scyllafake.Config{Version: "5.1", Tokens: 4}, func(n *faults.Node) error {
			_, err := n.NewGeneration(faults.Generation{In: 35 * time.Second, ExtraTokens: 4})
			return err
		}},
		{scyllafake.Config{}, func(n *faults.Node) error {
			_, err := n.Resize(faults.Resize{Keyspace: "outbox", Table: "outbox_messages", In: 35 * time.Second})
			return err
		}},
	} {
		t.Run("version="+tt.conf.Version, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, tt.conf, func(c *Config) {
					wideWindow(c)
					c.TailMaxInterval = Defaults().TailMaxInterval
				})
				defer w.close()
				r, stop := w.run()
				time.Sleep(5 * time.Second)
				if err := tt.change(w.db.Faults().Node()); err != nil {
					t.Fatal(err)
				}
				all := relaytest.Events(20, 25, "OrderUpdated")
				written := make(map[gocql.UUID]time.Time)
				for _, e := range all {
					w.write(e)
					written[e.ID.UUID()] = time.Now()
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(time.Second)
				got := w.consume("OrderUpdated")
				relaytest.CheckOrder(t, got, all)
				for _, d := range got {
					if late := d.At.Sub(written[d.ID.UUID()]); late > 150*time.Millisecond {
						t.Errorf("event %s, written at %s, came after %s", d.ID, written[d.ID.UUID()].Format(time.TimeOnly), late)
					}
				}
				if all, err := r.generations().Times(t.Context()); err != nil || len(all) < 2 {
					t.Errorf("generations: %v, %v, want two at least", all, err)
				}
				time.Sleep(5 * time.Minute)
				relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
			})
		})
	}
}

// Everything at once that can go wrong without a crash: rows that turn up late
// and more than once, the database away, the broker away, streams that change. No event is lost,
// duplicated or in the wrong order.
func TestTail_WithoutACrashEveryEventGoesOutOnce(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for seed := range seeds.Range(t, relaytest.Fewer(4)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) { testTailTrouble(t, seed) })
		})
	}
}

func testTailTrouble(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	conf := scyllafake.Config{Version: "5.1", Tokens: 4}
	change := func(n *faults.Node) error {
		_, err := n.NewGeneration(faults.Generation{In: 12 * time.Second})
		return err
	}
	if seed%2 == 1 {
		conf = scyllafake.Config{}
		change = func(n *faults.Node) error {
			_, err := n.Resize(faults.Resize{Keyspace: "outbox", Table: "outbox_messages", In: 12 * time.Second})
			return err
		}
	}
	w := newWorld(t, conf, func(c *Config) {
		wideWindow(c)
		c.GenerationDelay = 3 * time.Second
		c.MaxAggregates = 8 + rnd.IntN(50)
		c.MaxInFlightRecords = 10 + rnd.IntN(100)
	})
	defer w.close()
	var gone atomic.Bool
	w.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		return nil, net.ErrClosed, gone.Load()
	})
	r, stop := w.run()
	time.Sleep(5 * time.Second)
	// Some hints are lost, some come twice, some are wrong.
	hint := func(e outbox.Event) {
		for range rnd.IntN(3) {
			r.tail.Load().Hint([]int64{int64(rnd.Uint64()), rows.Token(outbox.DefaultTable, e.AggregateID)})
		}
	}
	all := relaytest.Events(20, 15, "OrderCreated", "OrderUpdated", "OrderCancelled")
	for i, e := range all {
		switch {
		case i == 100:
			if err := change(w.db.Faults().Node()); err != nil {
				t.Fatal(err)
			}
		case i%60 == 30:
			gone.Store(true)
			time.AfterFunc(time.Duration(1+rnd.IntN(60))*time.Second, func() { gone.Store(false) })
		}
		// A batch that is replayed in another generation never is.
		if (i < 40 || i > 200) && rnd.IntN(8) == 0 {
			w.writeLate(e, time.Duration(3+rnd.IntN(20))*time.Second, time.Duration(30+rnd.IntN(30))*time.Second)
		} else {
			w.write(e)
		}
		hint(e)
		time.Sleep(time.Duration(rnd.IntN(400)) * time.Millisecond)
	}
	time.Sleep(10 * time.Minute)
	if s := r.Status(); len(s.Problems) > 0 || s.InFlight != 0 || s.Tail.Waiting != 0 {
		t.Errorf("Status() = %+v, want all done and no problems", s)
	}
	if err := stop(); err != nil {
		t.Errorf("Run() error = %v", err)
	}
	got := w.consume("OrderCreated", "OrderUpdated", "OrderCancelled")
	relaytest.CheckOrder(t, got, all)
	relaytest.CheckTimes(t, got)
	m := r.metrics
	t.Logf("seed %d: found by tail %v, sweep %v, key %v; left %v, gaps %v, late %v", seed, relaytest.Count(m.Found[publish.ByTail]),
		relaytest.Count(m.Found[publish.BySweep]), relaytest.Count(m.Found[publish.ByKey]), relaytest.Count(m.capture.TailLeft),
		relaytest.Count(m.capture.Gaps), relaytest.Count(m.Late))
}

// writeLate stores the event by a batch that times out and is replayed.
func (w *world) writeLate(e outbox.Event, after ...time.Duration) {
	w.t.Helper()
	w.db.Faults().MustAdd(faults.BatchlogReplay(after...))
	if err := w.attempt(e); err == nil {
		w.t.Error("the batch did not time out")
	}
}

// A writer in the same process need not send a hint.
func TestRelay_CommittedIsAHint(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		// Generations are announced before they begin.
		w := newWorld(t, scyllafake.Config{Tokens: 4, RingDelay: 5 * time.Second}, func(c *Config) {
			wideWindow(c)
			c.TailMinInterval, c.TailMaxInterval = 20*time.Second, 20*time.Second
		})
		defer w.close()
		r, stop := w.run()
		time.Sleep(time.Minute)
		all := relaytest.Events(8, 1, "OrderCreated")
		written := make(map[gocql.UUID]time.Time)
		for _, e := range all {
			w.write(e)
			written[e.ID.UUID()] = time.Now()
			r.Committed(e.AggregateID)
			time.Sleep(27 * time.Second)
		}
		got := w.consume("OrderCreated")
		relaytest.CheckOrder(t, got, all)
		for _, d := range got {
			if late := d.At.Sub(written[d.ID.UUID()]); late > 100*time.Millisecond {
				t.Errorf("event %s came after %s, though the relay was told of it", d.ID, late)
			}
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
	})
}

// The lag of the tail reader is known where it reads, and grows with the time that the database takes.
func TestRelay_TailLag(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, wideWindow)
		defer w.close()
		r, stop := w.run()
		time.Sleep(time.Minute)
		if lag, known := r.TailLag(); !known || lag > 10*time.Millisecond {
			t.Errorf("TailLag() = %s, %t beside a fast database", lag, known)
		}
		w.db.Faults().MustAdd(faults.Rule{
			Match:  faults.Match{Kinds: []engine.OpKind{engine.OpRead}, Func: func(o engine.Op) bool { return strings.HasSuffix(o.Table, "_scylla_cdc_log") }},
			Effect: faults.Effect{Delay: 200 * time.Millisecond},
		})
		time.Sleep(time.Minute)
		if lag, known := r.TailLag(); !known || lag < 100*time.Millisecond {
			t.Errorf("TailLag() = %s, %t beside a slow database", lag, known)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		time.Sleep(time.Minute)
		if lag, known := r.TailLag(); known {
			t.Errorf("TailLag() = %s of a relay that has ended", lag)
		}
	})
}

// How long the oldest event waits for its acknowledgement counts from when the
// producer has it: an event of the tail waits long before the sweep comes to it.
func TestTail_ReportsHowLongItsEventsWait(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			patient(c)
			c.ConfidenceWindow, c.StallAfter = 10*time.Minute, 20*time.Second
		})
		defer w.close()
		r, stop := w.run()
		time.Sleep(5 * time.Second)
		if got := r.Status().OldestUnacknowledged; got != 0 {
			t.Errorf("with nothing under way the oldest event waits for %s", got)
		}
		end := w.slow("Away")
		for _, e := range relaytest.Events(1, 1, "Away") {
			w.write(e)
		}
		time.Sleep(30 * time.Second)
		s := r.Status()
		if s.InFlight != 1 || s.OldestUnacknowledged < 25*time.Second || !strings.Contains(strings.Join(s.Problems, "; "), "the oldest event waits for its acknowledgement") {
			t.Errorf("after 30 s %d events are under way, the oldest for %s, problems %q", s.InFlight, s.OldestUnacknowledged, s.Problems)
		}
		end()
		time.Sleep(10 * time.Second)
		if s := r.Status(); s.OldestUnacknowledged != 0 || len(s.Problems) != 0 {
			t.Errorf("when it is out the oldest waits for %s, problems %q", s.OldestUnacknowledged, s.Problems)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
