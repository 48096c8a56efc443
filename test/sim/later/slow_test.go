package later

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/test/sim/line"
)

// tailSees is how long after its write time a row may become visible so that the
// relay's tail reader finds it, whatever it reads beside it: each TailOverlap it goes
// back by twice as much.
var tailSees = relay.Defaults().TailOverlap

// The statements of a hand-over take long, and are carried out or not: a row of the
// event becomes visible soon after its write time, for the relay's tail reader.
func TestScheduler_HandsOverBySlowStatements(t *testing.T) {
	lost := faults.WriteTimeout(faults.Simple, 0, 1)
	for name, c := range map[string]struct {
		effect faults.Effect
		kind   engine.OpKind
		table  string
		count  int
	}{
		"a row is carried out late": {faults.Effect{Delay: 5 * time.Second}, engine.OpWrite, "outbox_messages", 1},
		"rows are lost":             {faults.Effect{Delay: 5 * time.Second, Failure: lost}, engine.OpWrite, "outbox_messages", 4},
		"a decision takes long":     {faults.Effect{Delay: 1900 * time.Millisecond}, engine.OpCAS, "schedule_slots", 1},
		"decisions take long":       {faults.Effect{Delay: 1900 * time.Millisecond}, engine.OpCAS, "schedule_slots", 2},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 1, func(w *world) {
				w.tailed = tailSees
				w.waiting()
				w.node.Faults().MustAdd(faults.Rule{
					Match: faults.Match{Kinds: []engine.OpKind{c.kind}, Table: c.table}, Effect: c.effect, Count: c.count,
				})
				w.hosts = []*host{{w: w, rnd: w.random(), run: scheduler}}
				w.during(func() { time.Sleep(90 * time.Second) })
			})
		})
	}
}

// A scheduler dies while it writes the row of a message, and a successor takes over
// when its lease has ended.
func TestScheduler_SuccessorWritesForTheTail(t *testing.T) {
	for _, carried := range []bool{false, true} {
		t.Run("carried out "+strconv.FormatBool(carried), func(t *testing.T) {
			simulate(t, 1, func(w *world) {
				w.tailed = tailSees
				w.waiting()
				l := &line.Line{}
				session := l.Connect(w.t, w.node)
				ctx, died := context.WithCancel(w.t.Context())
				l.Arm(0, carried, died)
				w.node.Faults().MustAdd(faults.Rule{
					Match: faults.Match{Kinds: []engine.OpKind{engine.OpWrite}, Table: "outbox_messages", Func: func(engine.Op) bool {
						l.Kill()
						return !carried
					}},
					Effect: faults.Effect{Failure: faults.WriteTimeout(faults.Simple, 0, 1)}, Count: 1,
				})
				w.looking(func() { scheduler(ctx, &host{w: w, rnd: w.random()}, session) })
				session.Close()
				w.node.Faults().Clear()
				w.hosts = []*host{{w: w, rnd: w.random(), run: scheduler}}
				w.during(func() { time.Sleep(30 * time.Second) })
			})
		})
	}
}

// waiting stores a message that is due in a minute.
func (w *world) waiting() {
	at := new(atomic.Pointer[messages.Service])
	w.services = append(w.services, at)
	w.hosts = []*host{{w: w, rnd: w.random(), run: service(at)}}
	w.during(func() {
		w.hand(w.t.Context(), &order{number: 1, at: time.Now(), deliverAt: time.Now().Add(time.Minute)})
	})
}
