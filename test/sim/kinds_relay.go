package sim

import (
	"math/rand/v2"
	"time"
)

// relayKinds contains restarts and crashes of the relay.
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
		// The relay crashes up to four times: at a message that it sends or receives,
		// when the broker executes a produce request, or when the database stores a
		// checkpoint. After each crash but the last the next relay starts immediately,
		// and may crash during its start.
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
						break // no relay can start before the database is back
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
