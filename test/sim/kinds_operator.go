package sim

import (
	"math/rand/v2"
	"time"
)

// operatorKinds contains operators' changes of dead letters during faults.
var operatorKinds = []*kind{
	{
		name: "operator at work", most: untilSpan, excluding: []string{"operator at work", "database frozen"},
		begin: func(r *rand.Rand, w *world) func() {
			return w.nowAndThen(w.betweenOperations(r), func() { w.operate(r, w.deadLetters()) })
		},
	},
	{
		// It also requests repairs of events that are missing in the topics.
		name: "operator with a wrong clock", most: untilSpan, excluding: []string{"operator with a wrong clock", "database frozen"},
		begin: func(r *rand.Rand, w *world) func() {
			o := w.newRemote()
			if o == nil {
				return func() {} // the database is unreachable
			}
			stop := w.nowAndThen(w.betweenOperations(r), func() { o.work(r) })
			return func() { stop(); o.session.Close() }
		},
	},
}

// betweenOperations returns random times between two operations of an operator: minutes, and
// longer in simulations of days, because each operation reads all open dead letters.
func (w *world) betweenOperations(r *rand.Rand) func() time.Duration {
	most := max(5*time.Minute, 6*w.settings.relay.IdleDelay)
	return func() time.Duration { return time.Second + upTo(r, most) }
}
