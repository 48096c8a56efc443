package relay

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	scyllacdc "github.com/scylladb/scylla-cdc-go"
)

func newTestStreams(t *testing.T) (*streams, *memCheckpoints, *progressManager) {
	store := newMemCheckpoints()
	s := newStreams(store, 100, testLogger(t), newMetrics(prometheus.NewRegistry()))
	return s, store, &progressManager{store: store, streams: s, log: testLogger(t)}
}

// open reads a stream's checkpoint and opens it, as the library does.
func open(t *testing.T, m *progressManager, gen time.Time, id string) *streamProgress {
	t.Helper()
	if _, err := m.GetProgress(t.Context(), gen, "t", scyllacdc.StreamID(id)); err != nil {
		t.Fatal(err)
	}
	return m.streams.begin(scyllacdc.StreamID(id))
}

// A generation must not begin before all of the one before it is acknowledged:
// after a crash the old streams are never looked at again.
func TestProgressManager_FinishesAGenerationBeforeTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, store, m := newTestStreams(t)
		older, newer := testStart, testStart.Add(time.Hour)
		if err := m.StartGeneration(t.Context(), older); err != nil {
			t.Fatal(err)
		}
		p := open(t, m, older, "a")
		id := p.begin(at(5), 1)

		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := m.StartGeneration(ctx, newer); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("StartGeneration() error = %v, want it to wait until the deadline", err)
		}
		if gen, _ := m.GetCurrentGeneration(t.Context()); !gen.Equal(older) {
			t.Errorf("GetCurrentGeneration() = %s, want the old one, %s", gen, older)
		}
		time.AfterFunc(time.Minute, func() { p.settle(id) })
		if err := m.StartGeneration(t.Context(), newer); err != nil {
			t.Fatal(err)
		}
		if gen, _ := m.GetCurrentGeneration(t.Context()); !gen.Equal(newer) {
			t.Errorf("GetCurrentGeneration() = %s, want %s", gen, newer)
		}
		if pos, _ := store.Position(t.Context(), older, []byte("a")); pos != at(5) {
			t.Errorf("checkpoint = %s, want %s: the old stream's end is saved", pos.Time(), at(5).Time())
		}
		if n := m.streams.count(); n != 0 {
			t.Errorf("streams = %d, want the old one dropped", n)
		}
	})
}

func TestStreams_GoOnFromTheCheckpoint(t *testing.T) {
	t.Parallel()
	s, _, m := newTestStreams(t)
	p := open(t, m, testStart, "a")
	if p.start != at(0) {
		t.Errorf("start = %s, want the generation's, %s", p.start.Time(), testStart)
	}
	p.settle(p.begin(at(7), 1))
	p.begin(at(8), 1)
	if err := s.reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := open(t, m, testStart, "a"); p.start != at(7) {
		t.Errorf("start after a restart = %s, want the settled %s", p.start.Time(), at(7).Time())
	}
}

func TestStreams_SaveIdleProgressSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, store, m := newTestStreams(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.run(ctx, time.Second, time.Minute) }()
		p := open(t, m, testStart, "a")
		position := func() time.Time {
			pos, _ := store.Position(t.Context(), testStart, []byte("a"))
			return pos.Time()
		}
		time.Sleep(2500 * time.Millisecond) // the first save is over
		p.idle(at(1))
		time.Sleep(10 * time.Second)
		if position().Equal(at(1).Time()) {
			t.Error("empty time was saved at once")
		}
		p.settle(p.begin(at(2), 1))
		time.Sleep(2 * time.Second)
		if got := position(); !got.Equal(at(2).Time()) {
			t.Errorf("checkpoint = %s, want %s: it passed an event", got, at(2).Time())
		}
		p.idle(at(3))
		time.Sleep(2 * time.Minute)
		if got := position(); !got.Equal(at(3).Time()) {
			t.Errorf("checkpoint = %s, want %s in the end", got, at(3).Time())
		}

		store.fail(errors.New("the database is away"))
		p.settle(p.begin(at(4), 1))
		time.Sleep(time.Hour)
		store.fail(nil)
		time.Sleep(2 * time.Second)
		if got := position(); !got.Equal(at(4).Time()) {
			t.Errorf("checkpoint = %s, want %s after the database came back", got, at(4).Time())
		}
		cancel()
		<-done
	})
}

// The library opens streams one after the other, for as long as Config.BusyDelay;
// what the tail asks must be answered the same before as afterwards.
func TestStreams_KnowWhereStreamsGoOnBeforeTheyAreOpened(t *testing.T) {
	t.Parallel()
	s, store, m := newTestStreams(t)
	gen, both := testStart, [][]byte{[]byte("a"), []byte("b")}
	if err := store.SavePosition(t.Context(), gen, []byte("a"), at(5)); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.handedOf(both); ok {
		t.Error("handedOf() knows before the generation begins")
	}
	if err := m.StartGeneration(t.Context(), gen); err != nil {
		t.Fatal(err)
	}
	early := make(map[string]int64)
	early["a"], _ = s.handed(gen, []byte("a"))
	early["all"], _ = s.handedOf(both)
	early["b"], _ = s.handed(gen, []byte("b"))
	if _, ok := s.handed(gen.Add(time.Hour), []byte("b")); ok {
		t.Error("handed() knows a stream of a generation that is not read yet")
	}
	open(t, m, gen, "a")
	if got, ok := s.handed(gen, []byte("a")); !ok || got != early["a"] {
		t.Errorf("handed() = %d before the stream is opened, %d after", early["a"], got)
	}
	if got, ok := s.handedOf(both); !ok || got != early["all"] {
		t.Errorf("handedOf() = %d before streams are opened, %d, %t after one is", early["all"], got, ok)
	}
	open(t, m, gen, "b")
	if got, ok := s.handed(gen, []byte("b")); !ok || got != early["b"] {
		t.Errorf("handed() of a stream without a checkpoint = %d before it is opened, %d after", early["b"], got)
	}
	if got, ok := s.handedOf(both); !ok || got != early["all"] {
		t.Errorf("handedOf() = %d before streams are opened, %d, %t after", early["all"], got, ok)
	}

	// A generation whose checkpoints cannot be read waits for its streams.
	store.mu.Lock()
	store.err = errors.New("away")
	store.mu.Unlock()
	if got := s.resume(t.Context(), gen.Add(time.Hour)); got != nil {
		t.Errorf("resume() = %v without an answer, want nothing", got)
	}
}
