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
			return w.nowAndThen(func() time.Duration { return time.Second + upTo(r, 5*time.Minute) }, func() { w.operate(r, w.deadLetters()) })
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
			stop := w.nowAndThen(func() time.Duration { return time.Second + upTo(r, 5*time.Minute) }, func() { o.work(r) })
			return func() { stop(); o.session.Close() }
		},
	},
}
