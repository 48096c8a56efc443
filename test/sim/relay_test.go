package sim

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The relay is stopped and started again, at once and after a while.
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

// The relay is stopped while the broker is away: it gives up waiting, and the
// next one carries the events.
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

// The relay starts while most reads fail, those by which the reader learns where
// to go on too: it ends, and is started again until it works.
func TestRelay_StartsWhileReadsFail(t *testing.T) {
	seen := simulate(t, 18, nil, func(w *world) {
		w.traffic(300, time.Hour)
		time.Sleep(10 * time.Minute)
		w.stopRelay()
		mend := w.failReads(0.3) // a start reads much, and the reader is to be reached
		for range 40 {           // one time in ten the reader is lucky
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

// The relay is killed, again and again, and started again at once or later.
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

// The relay is killed in the middle of catching up, when it has most to
// repeat: as the broker takes a request, whose answer it therefore never sees,
// and as the database takes a checkpoint. The next one reads back what was
// published.
func TestRelay_CrashesWhileCatchingUp(t *testing.T) {
	seen := simulate(t, 16, nil, crashWhileCatchingUp)
	wantOnce(t, seen)
}

// The same with a relay that may not read its topics: it repeats what was
// published and not covered by a checkpoint, and that is bounded.
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
