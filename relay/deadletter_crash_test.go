package relay

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// deadLettersFail lets no dead letter be written or changed until it is called off.
func (w *world) deadLettersFail() (end func()) {
	id := w.db.Faults().MustAdd(faults.Rule{
		Name: "no dead letters", Match: faults.Match{Table: "dead_letter_queue", Kinds: []engine.OpKind{engine.OpCAS}},
		Effect: faults.Effect{Failure: faults.Unavailable(2, 1)},
	})
	return func() {
		if err := w.db.Faults().Remove(id); err != nil {
			w.t.Error(err)
		}
	}
}

// readsFail lets no row of the table be read until it is called off.
func (w *world) readsFail(table string) (end func()) {
	id := w.db.Faults().MustAdd(faults.Rule{
		Name: "no reads of " + table, Match: faults.Match{Table: table, Kinds: []engine.OpKind{engine.OpRead}},
		Effect: faults.Effect{Failure: faults.Unavailable(2, 1)},
	})
	return func() {
		if err := w.db.Faults().Remove(id); err != nil {
			w.t.Error(err)
		}
	}
}

// No checkpoint passes an event before its dead letter is written.
func TestDeadLetters_CheckpointWaitsForTheDeadLetter(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow = 20 * time.Second })
		defer w.close()
		w.crashAfter(5 * time.Second)
		written, reachable := w.deadLettersFail(), w.unreachable()
		all := relaytest.Events(10, 4, "OrderUpdated")
		for _, e := range all {
			w.write(e)
		}
		w.crashAfter(3 * time.Minute)
		written()
		reachable()
		_, stop := w.run()
		time.Sleep(3 * time.Minute)
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
	})
}

// A relay is killed long after it replayed dead letters and before it could note
// that. The next one reads back to where the replay began, and finds them.
func TestDeadLetters_ReadBackGoesToTheClaim(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow = 20 * time.Second })
		defer w.close()
		w.crashAfter(5 * time.Second)
		reachable := w.unreachable()
		all := relaytest.Events(10, 4, "OrderUpdated")
		for _, e := range all {
			w.write(e)
		}
		w.crashAfter(3 * time.Minute)
		if n := len(w.open()); n == 0 {
			t.Fatal("no dead letters")
		}
		reachable()
		noted := func() {}
		var once sync.Once
		w.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			once.Do(func() { noted = w.deadLettersFail() })
			return nil, nil, false
		})
		w.crashAfter(15 * time.Minute)
		synctest.Wait()
		noted()
		r, stop := w.run()
		time.Sleep(3 * time.Minute)
		if s := r.Status(); s.DeadLetters != 0 {
			t.Errorf("%d dead letters are left", s.DeadLetters)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		got := w.consume("OrderUpdated")
		if len(got) != len(all) {
			t.Errorf("%d records of %d events", len(got), len(all))
		}
		relaytest.CheckOrder(t, got, all)
	})
}

// Dead letters that the database never takes, more than are written at the same time,
// delay their own aggregates alone: others are stored, readiness names one of them, and
// nothing is lost.
func TestDeadLetters_OneThatCannotBeStoredDelaysNoOther(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	for how, failure := range map[string]*faults.Failure{
		"refused":   faults.Refuse(cqlerr.Unauthorized, "no MODIFY on it"),
		"too large": faults.Refuse(cqlerr.Server, "Mutation of 20971520 bytes is too large"),
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
				defer w.close()
				all := relaytest.Events(publish.WriteConcurrency+60, 1, "no topic")
				bad := make(map[string]bool)
				for _, e := range all[:len(all)-20] {
					bad[string(e.ID.UUID().Bytes())] = true
				}
				id := w.db.Faults().MustAdd(faults.Rule{
					Match: faults.Match{Table: "dead_letter_chains", Func: func(op engine.Op) bool {
						for _, m := range op.Mutations {
							for _, row := range m.Rows {
								if slices.ContainsFunc(row.Clustering, func(v []byte) bool { return bad[string(v)] }) {
									return true
								}
							}
						}
						return false
					}},
					Effect: faults.Effect{Failure: failure},
				})
				r, stop := w.run()
				for _, e := range all[:len(all)-20] {
					w.write(e)
				}
				time.Sleep(time.Minute)
				for _, e := range all[len(all)-20:] {
					w.write(e)
				}
				time.Sleep(5 * time.Minute)
				if n := len(w.open()); n != 20 {
					t.Errorf("%d dead letters are stored, want the 20 that can be", n)
				}
				s := r.Status()
				if n := len(s.Problems); s.Unstored == 0 || n == 0 || !strings.Contains(strings.Join(s.Problems, "\n"), s.OldestUnstored.EventID.String()) {
					t.Errorf("%d dead letters are reported as not stored, problems %q", s.Unstored, s.Problems)
				}
				if err := w.db.Faults().Remove(id); err != nil {
					t.Fatal(err)
				}
				removed := time.Now().Truncate(time.Millisecond)
				time.Sleep(5 * time.Minute)
				if n := len(w.open()); n != len(all) {
					t.Errorf("%d dead letters are stored, want %d", n, len(all))
				}
				// Jobs that were made before do not select them, and notices find them. A call of
				// Write, with its retries, has one time.
				late := 0
				if err := w.deadLetters().List(t.Context(), dlq.Filter{Since: removed.Add(-15 * time.Second)}, func(*dlq.DeadLetter) error { late++; return nil }); err != nil || late != len(bad) {
					t.Errorf("%d dead letters are dated by the time at which they could be stored, %v, want %d", late, err, len(bad))
				}
				if s, err := w.deadLetters().Stats(t.Context()); err != nil || s.Open != int64(len(all)) {
					t.Errorf("the lists have %d entries, %v, want %d", s.Open, err, len(all))
				}
				if n := r.Status().Unstored; n != 0 {
					t.Errorf("%d dead letters are still reported as not stored", n)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
