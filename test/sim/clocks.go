package sim

import (
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// wrongClock is how far the clock that dates records, or that of the relay's host, is off.
const wrongClock = time.Hour

// recordClock dates the records of a relay by world.recordAhead, as its host does with
// CreateTime and a broker with LogAppendTime.
type recordClock struct{ w *world }

// OnProduceRecordBuffered implements kgo.HookProduceRecordBuffered.
func (c recordClock) OnProduceRecordBuffered(r *kgo.Record) {
	if ahead := time.Duration(c.w.recordAhead.Load()); ahead != 0 {
		r.Timestamp = time.Now().Add(ahead).Truncate(time.Millisecond)
	}
}

// clockKinds contains wrong clocks that begin and end.
var clockKinds = []*kind{
	{
		name: "records have a wrong time", most: untilSpan, excluding: []string{"records have a wrong time"},
		begin: func(r *rand.Rand, w *world) func() {
			ahead := wrongClock
			if r.IntN(2) == 0 {
				ahead = -ahead
			}
			w.recordAhead.Store(int64(ahead))
			return func() { w.recordAhead.Store(0) }
		},
	},
}
