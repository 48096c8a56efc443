package sim

import (
	"math/rand/v2"
	"time"
)

// topicKinds contains what other clients do to the topics of the relay.
var topicKinds = []*kind{
	{
		name: "topic deleted and made again", most: 2 * time.Minute,
		excluding: []string{"topic deleted and made again", "topic denied"},
		begin: func(r *rand.Rand, w *world) func() {
			topic := topics[r.IntN(len(topics))]
			w.deleteTopic(topic)
			if r.IntN(3) > 0 {
				w.makeTopic(topic)
			}
			return func() { w.makeTopic(topic) }
		},
	},
	{
		// Of one partition, or of all, as a purge does.
		name: "records deleted",
		begin: func(r *rand.Rand, w *world) func() {
			topic := topics[r.IntN(len(topics))]
			if r.IntN(3) == 0 {
				for p := range int32(partitions) {
					w.trim(topic, p, 1)
				}
			} else {
				w.trim(topic, r.Int32N(partitions), r.Float64())
			}
			return func() {}
		},
	},
	{
		name: "another source in the topics", most: untilSpan, excluding: []string{"another source in the topics"},
		begin: func(r *rand.Rand, w *world) func() {
			s := w.newStranger()
			if s == nil {
				return func() {}
			}
			stop := w.nowAndThen(func() time.Duration { return upTo(r, time.Minute) }, func() { s.write(w.ledger.lastStored()...) })
			return func() { stop(); s.close() }
		},
	},
}
