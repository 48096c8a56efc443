package sim

import (
	"math/rand/v2"
	"time"
)

// relayKinds are what happens to the relay itself.
var relayKinds = []*kind{
	{
		name: "relay restarts", most: untilSpan,
		excluding: []string{"relay restarts", "relay crashes", "database frozen"},
		begin: func(_ *rand.Rand, w *world) func() {
			if !w.relayRuns() {
				return func() {}
			}
			w.stopRelay()
			return w.launchRelay
		},
	},
	{
		// It dies up to four times: at a message that it sends or is sent, which is
		// wherever it waits for anything; when the broker takes what it published; or
		// when the database takes a checkpoint. All but the last time the next one
		// starts at once, and may not come to its end either.
		name: "relay crashes", most: 20 * time.Minute,
		excluding: []string{"relay restarts", "relay crashes", "database frozen"},
		begin: func(r *rand.Rand, w *world) func() {
			if !w.relayRuns() {
				return func() {}
			}
			const patience = 5 * time.Minute
			for i := range 1 + r.IntN(4) {
				if i > 0 {
					if w.net.isAway(database) {
						break // nothing can start, and it comes back only after this
					}
					w.startRelay()
				}
				switch r.IntN(5) {
				case 0:
					w.crashRelay()
				case 1:
					w.crashWhen(w.kafka.onProduce, 1+r.IntN(10), patience)
				case 2:
					w.crashWhen(w.saves.onEach, 1+r.IntN(20), patience)
				default:
					name := w.relay().name
					w.crashWhen(func(f func()) { w.net.onMessage(name, f) }, 1+int(upTo(r, 400)), patience)
				}
			}
			return w.launchRelay
		},
	},
}
