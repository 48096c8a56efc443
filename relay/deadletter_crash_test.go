package relay

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/faults"
)

// lettersFail lets no dead letter be written or changed until it is called off.
func (w *world) lettersFail() (end func()) {
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
func TestDeadLetters_TheCheckpointWaitsForTheLetter(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow = 20 * time.Second })
		defer w.close()
		w.crashAfter(5 * time.Second)
		written, reachable := w.lettersFail(), w.unreachable()
		all := events(10, 4, "OrderUpdated")
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
		checkOrder(t, w.consume("OrderUpdated"), all)
	})
}

// A relay is killed long after it replayed dead letters and before it could note
// that. The next one reads back to where the replay began, and finds them.
func TestDeadLetters_ReadBackGoesToTheClaim(t *testing.T) {
	t.Parallel()
	long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow = 20 * time.Second })
		defer w.close()
		w.crashAfter(5 * time.Second)
		reachable := w.unreachable()
		all := events(10, 4, "OrderUpdated")
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
			once.Do(func() { noted = w.lettersFail() })
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
		checkOrder(t, got, all)
	})
}
