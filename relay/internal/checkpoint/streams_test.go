package checkpoint

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

func newTestStreams(t *testing.T) (*Streams, *relaytest.Checkpoints, *Manager) {
	store := relaytest.NewCheckpoints()
	s := NewStreams(store, 100, relaytest.Logger(t), prometheus.NewRegistry())
	return s, store, &Manager{store: store, streams: s, log: relaytest.Logger(t)}
}

// open reads a stream's checkpoint and opens it, as the library does.
func open(t *testing.T, m *Manager, gen time.Time, id string) *Stream {
	t.Helper()
	if _, err := m.GetProgress(t.Context(), gen, "t", scyllacdc.StreamID(id)); err != nil {
		t.Fatal(err)
	}
	return m.streams.Begin(scyllacdc.StreamID(id))
}

// A generation must not begin before all changes of the previous one are acknowledged:
// after a crash the old streams are never read again.
func TestProgressManager_FinishesAGenerationBeforeTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, store, m := newTestStreams(t)
		older, newer := relaytest.Start, relaytest.Start.Add(time.Hour)
		if err := m.StartGeneration(t.Context(), older); err != nil {
			t.Fatal(err)
		}
		p := open(t, m, older, "a")
		id := p.Begin(relaytest.At(5), 1)

		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := m.StartGeneration(ctx, newer); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("StartGeneration() error = %v, want the deadline's", err)
		}
		if gen, _ := m.GetCurrentGeneration(t.Context()); !gen.Equal(older) {
			t.Errorf("GetCurrentGeneration() = %s, want the old one, %s", gen, older)
		}
		time.AfterFunc(time.Minute, func() { p.Settle(id) })
		if err := m.StartGeneration(t.Context(), newer); err != nil {
			t.Fatal(err)
		}
		if gen, _ := m.GetCurrentGeneration(t.Context()); !gen.Equal(newer) {
			t.Errorf("GetCurrentGeneration() = %s, want %s", gen, newer)
		}
		if pos, _ := store.Position(t.Context(), older, []byte("a")); pos != relaytest.At(5) {
			t.Errorf("checkpoint = %s, want %s: the old stream's end is saved", pos.Time(), relaytest.At(5).Time())
		}
		if n := m.streams.Count(); n != 0 {
			t.Errorf("streams = %d, want the old one dropped", n)
		}
	})
}

func TestStreams_ResumeFromTheCheckpoint(t *testing.T) {
	t.Parallel()
	s, _, m := newTestStreams(t)
	p := open(t, m, relaytest.Start, "a")
	if p.start != relaytest.At(0) {
		t.Errorf("start = %s, want the generation's, %s", p.start.Time(), relaytest.Start)
	}
	p.Settle(p.Begin(relaytest.At(7), 1))
	p.Begin(relaytest.At(8), 1)
	if err := s.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := open(t, m, relaytest.Start, "a"); p.start != relaytest.At(7) {
		t.Errorf("start after a restart = %s, want the settled %s", p.start.Time(), relaytest.At(7).Time())
	}
}

// A restarted reader reads again what follows the checkpoint, which may be older than the
// position. The stream knows which of these changes an earlier reader has settled, also
// after another restart.
func TestStreams_KnowWhatWasSettledBeforeARestart(t *testing.T) {
	t.Parallel()
	s, store, m := newTestStreams(t)
	p := open(t, m, relaytest.Start, "a")
	p.Settle(p.Begin(relaytest.At(7), 1))
	p.Begin(relaytest.At(8), 1)
	p.Settle(p.Begin(relaytest.At(9), 1))
	p.Settle(p.Begin(relaytest.At(10), 2)) // one event of two
	p.Idle(relaytest.At(11))
	for range 2 {
		store.Err = errors.New("no checkpoint is saved")
		_ = s.Reset(t.Context())
		store.Err = nil
		p = open(t, m, relaytest.Start, "a")
		for at, want := range map[int]bool{6: true, 7: true, 8: false, 9: true, 10: false, 11: false, 12: false} {
			if got := p.Settled(relaytest.At(at)); got != want {
				t.Errorf("Settled(%d) = %t, want %t", at, got, want)
			}
		}
	}
}

func TestStreams_SaveIdleProgressSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, store, m := newTestStreams(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx, time.Second, time.Minute) }()
		p := open(t, m, relaytest.Start, "a")
		position := func() time.Time {
			pos, _ := store.Position(t.Context(), relaytest.Start, []byte("a"))
			return pos.Time()
		}
		time.Sleep(2500 * time.Millisecond) // the first save is done
		p.Idle(relaytest.At(1))
		time.Sleep(10 * time.Second)
		if position().Equal(relaytest.At(1).Time()) {
			t.Error("an empty window was saved immediately")
		}
		p.Settle(p.Begin(relaytest.At(2), 1))
		time.Sleep(2 * time.Second)
		if got := position(); !got.Equal(relaytest.At(2).Time()) {
			t.Errorf("checkpoint = %s, want %s: it passed an event", got, relaytest.At(2).Time())
		}
		p.Idle(relaytest.At(3))
		time.Sleep(2 * time.Minute)
		if got := position(); !got.Equal(relaytest.At(3).Time()) {
			t.Errorf("checkpoint = %s, want %s in the end", got, relaytest.At(3).Time())
		}

		store.Fail(errors.New("database unavailable"))
		p.Settle(p.Begin(relaytest.At(4), 1))
		time.Sleep(time.Hour)
		store.Fail(nil)
		time.Sleep(2 * time.Second)
		if got := position(); !got.Equal(relaytest.At(4).Time()) {
			t.Errorf("checkpoint = %s, want %s after the database came back", got, relaytest.At(4).Time())
		}
		cancel()
		<-done
	})
}

// The library opens streams one by one, over up to Config.BusyDelay; the answers for the
// tail reader must be the same before and after.
func TestStreams_KnowThePositionBeforeTheyAreOpened(t *testing.T) {
	t.Parallel()
	s, store, m := newTestStreams(t)
	gen, both := relaytest.Start, [][]byte{[]byte("a"), []byte("b")}
	if err := store.SavePosition(t.Context(), gen, []byte("a"), relaytest.At(5)); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.HandedUpTo(both); ok {
		t.Error("HandedOf() reports a time before the generation begins")
	}
	if err := m.StartGeneration(t.Context(), gen); err != nil {
		t.Fatal(err)
	}
	early := make(map[string]int64)
	early["a"], _ = s.Handed(gen, []byte("a"))
	early["all"], _ = s.HandedUpTo(both)
	early["b"], _ = s.Handed(gen, []byte("b"))
	if _, ok := s.Handed(gen.Add(time.Hour), []byte("b")); ok {
		t.Error("Handed() reports a time for a generation that is not read yet")
	}
	open(t, m, gen, "a")
	if got, ok := s.Handed(gen, []byte("a")); !ok || got != early["a"] {
		t.Errorf("handed() = %d before the stream is opened, %d after", early["a"], got)
	}
	if got, ok := s.HandedUpTo(both); !ok || got != early["all"] {
		t.Errorf("handedOf() = %d before streams are opened, %d, %t after one is", early["all"], got, ok)
	}
	open(t, m, gen, "b")
	if got, ok := s.Handed(gen, []byte("b")); !ok || got != early["b"] {
		t.Errorf("handed() of a stream without a checkpoint = %d before it is opened, %d after", early["b"], got)
	}
	if got, ok := s.HandedUpTo(both); !ok || got != early["all"] {
		t.Errorf("handedOf() = %d before streams are opened, %d, %t after", early["all"], got, ok)
	}

	// A generation whose checkpoints cannot be read waits for its streams.
	store.Mu.Lock()
	store.Err = errors.New("away")
	store.Mu.Unlock()
	if got := s.resume(t.Context(), gen.Add(time.Hour)); got != nil {
		t.Errorf("resume() = %v without checkpoints, want nil", got)
	}
}
