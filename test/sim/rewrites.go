package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// rewrite stores an event of n aggregates again, as a service does that does not know
// whether its first write had an effect: the row has the same event id and a later write
// time. Before it and after it the aggregates have other events. Each aggregate begins at
// a random time of span, and the row is written again seconds to days later.
func (w *world) rewrite(rnd *rand.Rand, n int, span time.Duration) {
	for range n {
		begin, p := time.Duration(rnd.Int64N(int64(span))), w.newLateParcel(rnd)
		w.ledger.customers.Go(func() {
			time.Sleep(begin)
			var all []outbox.Event
			for range 1 + p.rnd.IntN(3) {
				e := p.event()
				p.store(e)
				all = append(all, e)
			}
			low, high := math.Log(float64(time.Second)), math.Log(float64(max(span-begin, time.Minute)))
			time.Sleep(time.Duration(math.Exp(low + p.rnd.Float64()*(high-low))))
			last := len(all) - 1
			if p.rnd.IntN(3) == 0 {
				last = p.rnd.IntN(len(all)) // a client that was paused for long
			}
			p.store(all[last])
			time.Sleep(upTo(p.rnd, 20*time.Minute))
			p.onTime(p.rnd.IntN(3))
		})
	}
}
