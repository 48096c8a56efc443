package sim

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The relay is stopped and restarted, immediately and after a delay.
func TestRelay_StoppedAndRestarted(t *testing.T) {
	seen := simulate(t, 13, nil, func(w *world) {
		w.traffic(500, time.Hour)
		for range 8 {
			time.Sleep(3 * time.Minute)
			w.stopRelay()
			w.startRelay()
			time.Sleep(3 * time.Minute)
			w.stopRelay()
			time.Sleep(time.Minute)
			w.startRelay()
		}
	})
	wantOnce(t, seen)
}

// The relay is stopped while the broker is down: it stops waiting, and the next one
// publishes the events.
func TestRelay_StoppedWithoutABroker(t *testing.T) {
	seen := simulate(t, 14, nil, func(w *world) {
		w.traffic(500, time.Hour)
		time.Sleep(10 * time.Minute)
		w.net.cut(broker)
		time.Sleep(10 * time.Minute)
		w.stopRelay()
		w.startRelay()
		time.Sleep(10 * time.Minute)
		w.stopRelay()
		w.net.mend(broker)
		w.startRelay()
	})
	wantOnce(t, seen)
}

// The relay starts while most reads fail, including the ones of the positions to resume
// from: the reader ends and restarts until it succeeds.
func TestRelay_StartsWhileReadsFail(t *testing.T) {
	seen := simulate(t, 18, nil, func(w *world) {
		w.traffic(300, time.Hour)
		time.Sleep(10 * time.Minute)
		w.stopRelay()
		mend := w.failReads(0.3) // low enough that a start reaches the reader
		for range 40 {           // one time in ten the reader succeeds
			w.startRelay()
			time.Sleep(10 * time.Minute)
			w.stopRelay()
			if w.seen.restarts > 0 {
				break
			}
		}
		mend()
		w.startRelay()
	})
	if seen.restarts == 0 {
		t.Error("the reader never ended")
	}
	wantOnce(t, seen)
}

// The relay is killed repeatedly and restarted, immediately or later.
func TestRelay_Crashes(t *testing.T) {
	simulate(t, 15, nil, func(w *world) {
		rnd := rand.New(rand.NewPCG(w.seed, 'x'))
		w.traffic(500, time.Hour)
		for range 20 {
			time.Sleep(time.Duration(rnd.Int64N(int64(5 * time.Minute))))
			w.crashRelay()
			time.Sleep(time.Duration(rnd.Int64N(int64(time.Minute))))
			w.startRelay()
		}
	})
}

// The relay is killed while it catches up, when it has most to repeat: as the broker
// executes a request whose answer it never receives, and as the database stores a
// checkpoint. The next one reads back the published events.
func TestRelay_CrashesWhileCatchingUp(t *testing.T) {
	seen := simulate(t, 16, nil, crashWhileCatchingUp)
	wantOnce(t, seen)
}

// As above, with a relay that may not read its topics: it repeats published events
// without a checkpoint, a bounded number.
func TestRelay_CrashesWithoutReadingBack(t *testing.T) {
	seen := simulate(t, 16, func(s *settings) { s.relay.ReadBackMargin = -1 }, crashWhileCatchingUp)
	if seen.duplicates == 0 {
		t.Error("no duplicates: the relay was not killed while it published")
	}
}

func crashWhileCatchingUp(w *world) {
	w.traffic(1000, 2*time.Hour)
	time.Sleep(5 * time.Minute)
	w.net.cut(broker)
	time.Sleep(time.Hour)
	w.net.mend(broker)
	for i := range 4 {
		w.crashWhen(w.kafka.onProduce, 3+2*i, time.Hour)
		w.startRelay()
		w.crashWhen(w.saves.onEach, 1+i, time.Hour)
		w.startRelay()
	}
}
