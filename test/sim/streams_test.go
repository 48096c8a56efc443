package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay"
)

// The streams of the CDC log are replaced repeatedly while orders arrive, also while the
// broker is down, so that the relay holds events of the old streams.
func TestGeneration_Changes(t *testing.T) {
	seen := simulate(t, 8, onVnodes, func(w *world) {
		w.traffic(500, time.Hour)
		for i := range 3 {
			time.Sleep(10 * time.Minute)
			w.newGeneration(1 + i)
		}
		w.net.cut(broker)
		time.Sleep(10 * time.Minute)
		w.newGeneration(1)
		time.Sleep(10 * time.Minute)
		w.net.mend(broker)
	})
	wantOnce(t, seen)
}

// No checkpoint can be saved while the streams are replaced three times. The relay waits
// at the end of the first generation and continues once saves succeed.
func TestGeneration_CheckpointsCannotBeSaved(t *testing.T) {
	seen := simulate(t, 19, func(s *settings) { onVnodes(s); s.relay.Tail = relay.TailOff }, func(w *world) {
		w.traffic(200, time.Hour)
		time.Sleep(10 * time.Minute)
		mend := w.failWrites(1)
		for range 3 {
			w.newGeneration(1)
			time.Sleep(5 * time.Minute)
		}
		mend()
	})
	wantOnce(t, seen)
}

// The relay is stopped while it waits for a broker at the end of a generation, with two
// more to follow. It holds events instead of spilling them: generations do not wait for
// dead letters.
func TestGeneration_StoppedAtTheEndOfOne(t *testing.T) {
	seen := simulate(t, 20, func(s *settings) { onVnodes(s); s.relay.WhenOpen = relay.WhenOpenHold }, func(w *world) {
		w.traffic(200, time.Hour)
		time.Sleep(10 * time.Minute)
		w.net.cut(broker)
		for range 3 {
			w.newGeneration(1)
			time.Sleep(5 * time.Minute)
		}
		if s := w.relay().relay.Status(); s.InFlight == 0 {
			t.Error("the relay holds no events of the first generation")
		}
		w.stopRelay()
		w.startRelay()
		time.Sleep(5 * time.Minute)
		w.net.mend(broker)
	})
	wantOnce(t, seen)
}

// The relay crashes after it has read a generation to its end, with unpublished events of
// it. The next one must not begin with the new generation.
func TestGeneration_CrashAtTheEndOfOne(t *testing.T) {
	simulate(t, 9, onVnodes, func(w *world) {
		w.traffic(500, time.Hour)
		time.Sleep(10 * time.Minute)
		w.net.cut(broker)
		time.Sleep(2 * time.Minute)
		w.newGeneration(2)
		time.Sleep(4 * time.Minute)
		if s := w.relay().relay.Status(); s.InFlight == 0 || s.InFlight == maxInFlight {
			t.Errorf("%d events in flight: the relay has not read the generation to its end, or holds none of its events", s.InFlight)
		}
		w.crashRelay()
		w.startRelay()
		time.Sleep(10 * time.Minute)
		w.crashRelay()
		w.net.mend(broker)
		w.startRelay()
	})
}

// Tablets are split and merged while orders arrive and while the broker is down.
func TestTablets_SplitAndMerge(t *testing.T) {
	seen := simulate(t, 17, nil, func(w *world) {
		w.traffic(500, time.Hour)
		for _, merge := range []bool{false, false, true} {
			time.Sleep(10 * time.Minute)
			w.resize(merge)
		}
		w.net.cut(broker)
		time.Sleep(10 * time.Minute)
		w.resize(true)
		time.Sleep(10 * time.Minute)
		w.net.mend(broker)
	})
	wantOnce(t, seen)
}

// One stream of a vnode always has rows. The streams of the other shards sometimes have
// rows, up to ten minutes late. The library does not report streams without rows next to
// one with rows, so the relay moves their checkpoints itself: never past rows that appear
// within the confidence window.
func TestStreams_LateRowsBesideABusyOne(t *testing.T) {
	seen := simulate(t, 21, func(s *settings) {
		onVnodes(s)
		s.node.Tokens, s.node.Shards = 1, 8
		s.relay.ConfidenceWindow = wideWindow
		s.relay.BusyDelay = 4 * busyEvery // always rows between two reads
	}, func(w *world) {
		rnd := rand.New(rand.NewPCG(w.seed, 'l'))
		w.keepBusy(100 * time.Minute)
		for range 4 {
			time.Sleep(16 * time.Minute)
			stop := findKind("rows late").begin(rnd, w)
			w.traffic(20, 3*time.Minute)
			time.Sleep(4 * time.Minute)
			stop()
			w.crashRelay()
			w.startRelay()
		}
	})
	wantOnce(t, seen)
	t.Logf("%d events became visible after a checkpoint moved past their position", seen.missed)
	if seen.missed < 20 {
		t.Error("too few events for a significant result")
	}
}
