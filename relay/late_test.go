package relay

import (
	"fmt"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// once fails the test for each event that is not in the topics exactly once.
func (w *world) once(want []outbox.Event, topics ...string) {
	w.t.Helper()
	n := make(map[gocql.UUID]int)
	for _, d := range w.consume(topics...) {
		n[d.ID.UUID()]++
	}
	for _, e := range want {
		if n[e.ID.UUID()] != 1 {
			w.t.Errorf("seq %d of aggregate %s is published %d times", e.Sequence, e.AggregateID, n[e.ID.UUID()])
		}
	}
}

// The first event of an aggregate becomes visible behind the sweep. A later one shows
// that it is missing, however much later, with the tail and without.
func TestLate_FirstEvent(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for _, tt := range []struct {
		name   string
		late   time.Duration
		change func(n *faults.Node) error
	}{
		{name: "minutes", late: 200 * time.Second},
		{name: "an hour", late: time.Hour},
		{name: "minutes, and a new generation", late: 200 * time.Second, change: shardEngines[0].change},
	} {
		for _, tail := range []string{TailOff, TailOn} {
			t.Run(fmt.Sprint(tt.name, "/tail ", tail), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { wideWindow(c); c.Tail, c.TailMaxInterval = tail, 2*time.Second })
					defer w.close()
					r, stop := w.run()
					time.Sleep(time.Minute)
					e := relaytest.Events(1, 2, "OrderUpdated")
					w.writeLate(e[0], tt.late)
					time.Sleep(tt.late + time.Minute)
					if tt.change != nil {
						if err := tt.change(w.db.Faults().Node()); err != nil {
							t.Error(err)
						}
					}
					time.Sleep(10 * time.Minute)
					w.write(e[1])
					time.Sleep(5 * time.Minute)
					if err := stop(); err != nil {
						t.Error(err)
					}
					w.once(e, "OrderUpdated")
					for _, result := range []string{"published", "unpublished", "unproven"} {
						if n := relaytest.Count(r.metrics.proof.Results.WithLabelValues(result)); n != 0 {
							t.Errorf("%v proofs in topics, %s: the relay read the row's stream from its beginning and knows", n, result)
						}
					}
				})
			})
		}
	}
}

// conditionally inserts an event as a service changes an aggregate.
func (w *world) conditionally(e outbox.Event) (applied bool, err error) {
	w.t.Helper()
	stmt, args, err := outbox.DefaultTable.InsertIfNotExists(e)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.session.Query(stmt, args...).RetryPolicy(&gocql.SimpleRetryPolicy{NumRetries: 0}).MapScanCAS(map[string]any{})
}

// A conditional write is decided and stays invisible. The relay is restarted, and the next
// conditional write of the aggregate makes the row visible, with its old time.
func TestLate_DecidedConditionalWrite(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	for _, tail := range []string{TailOff, TailOn} {
		for _, restarts := range []int{0, 1, 2} {
			t.Run(fmt.Sprint("tail ", tail, "/restarts ", restarts), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { wideWindow(c); c.Tail, c.TailMaxInterval = tail, 2*time.Second })
					defer w.close()
					r, stop := w.run()
					time.Sleep(time.Minute)
					e := relaytest.Events(2, 3, "OrderUpdated")
					w.write(e[0])
					w.write(e[1])
					time.Sleep(10 * time.Minute)
					w.db.Faults().MustAdd(faults.CASTimeout(true))
					if _, err := w.conditionally(e[2]); err == nil { // the second of the first aggregate
						t.Error("the conditional write did not time out")
					}
					for range restarts {
						time.Sleep(10 * time.Minute)
						if err := stop(); err != nil {
							t.Error(err)
						}
						r, stop = w.run()
					}
					time.Sleep(10 * time.Minute)
					if ok, err := w.conditionally(e[2]); ok || err != nil {
						t.Errorf("applied %v, err %v", ok, err)
					}
					if ok, err := w.conditionally(e[4]); !ok || err != nil {
						t.Errorf("applied %v, err %v", ok, err)
					}
					if ok, err := w.conditionally(e[3]); !ok || err != nil { // nothing is missing in the other one
						t.Errorf("applied %v, err %v", ok, err)
					}
					time.Sleep(10 * time.Minute)
					if s := r.Status(); len(s.Problems) > 0 || s.Waiting.Count > 0 {
						t.Errorf("problems %q, %d aggregates wait", s.Problems, s.Waiting.Count)
					}
					if err := stop(); err != nil {
						t.Error(err)
					}
					w.once(e[:5], "OrderUpdated")
				})
			})
		}
	}
}
