package checkpoint

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	scyllacdc "github.com/scylladb/scylla-cdc-go"
)

// Checkpoints never go back during the life of a relay, whatever other relays write.
func TestSteadyCheckpoints(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	at := func(n int) time.Time { return time.Date(2026, 11, 22, 12, n, 0, 0, time.UTC) }
	pos := func(n int) gocql.UUID { return gocql.MinTimeUUID(at(n)) }
	table := &memoryCheckpoints{positions: make(map[string]gocql.UUID)}
	s := NewSteadyStore(table, nil)
	check := func(what string, gen time.Time, want int) {
		t.Helper()
		one, err := s.Position(ctx, gen, []byte("s"))
		all, allErr := s.Positions(ctx, gen)
		if err != nil || allErr != nil || one != pos(want) || all["s"] != one {
			t.Errorf("%s: Position() = %s, %v, Positions() = %v, %v, want %s", what, one.Time(), err, all, allErr, at(want))
		}
	}
	table.generation, table.positions["s"] = at(0), pos(2)
	if gen, _, err := s.Start(ctx); err != nil || !gen.Equal(at(0)) {
		t.Errorf("Start() = %s, %v", gen, err)
	}
	check("as saved", at(0), 2)
	table.positions["s"] = pos(1)
	check("an older one", at(0), 2)
	if err := s.SavePosition(ctx, at(0), []byte("s"), pos(4)); err != nil {
		t.Fatal(err)
	}
	table.positions["s"] = pos(3)
	check("older than the saved one", at(0), 4)
	table.positions["s"] = pos(5)
	check("a newer one", at(0), 5)
	if err := s.SaveGeneration(ctx, at(6)); err != nil {
		t.Fatal(err)
	}
	table.generation, table.positions["s"] = at(0), pos(7)
	if gen, _, err := s.Start(ctx); err != nil || !gen.Equal(at(6)) {
		t.Errorf("Start() after an older generation was written = %s, %v, want %s", gen, err, at(6))
	}
	check("of the new generation", at(6), 7)
	if len(s.positions) != 1 {
		t.Errorf("%d positions recorded, want those of the new generation", len(s.positions))
	}
}

// memoryCheckpoints stores the checkpoints of one stream.
type memoryCheckpoints struct {
	Store
	generation time.Time
	positions  map[string]gocql.UUID
}

func (m *memoryCheckpoints) Position(_ context.Context, _ time.Time, stream []byte) (gocql.UUID, error) {
	return m.positions[string(stream)], nil
}

func (m *memoryCheckpoints) Positions(context.Context, time.Time) (map[string]gocql.UUID, error) {
	return map[string]gocql.UUID{"s": m.positions["s"]}, nil
}

func (m *memoryCheckpoints) SavePosition(_ context.Context, _ time.Time, stream []byte, pos gocql.UUID) error {
	m.positions[string(stream)] = pos
	return nil
}

func (m *memoryCheckpoints) Start(context.Context) (generation, first time.Time, err error) {
	return m.generation, time.Time{}, nil
}

func (m *memoryCheckpoints) SaveGeneration(_ context.Context, generation time.Time) error {
	m.generation = generation
	return nil
}

// The database's clock is believed to be ahead, and then is not: neither positions saved in that
// time nor positions that a reader has passed count, also once the clock has reached it.
func TestStreams_ClockBelievedAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const window = 2 * time.Minute
		began, ahead := time.Now(), time.Hour
		newest := func() time.Time { return time.Now().Add(ahead - window) }
		store := NewSteadyStore(&memoryCheckpoints{positions: make(map[string]gocql.UUID)}, newest)
		s := NewStreams(store, 100, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		s.Newest = newest
		m := NewManager(store, s, slog.New(slog.DiscardHandler), nil)
		gen, id := began.Add(-time.Hour), scyllacdc.StreamID("s")
		open := func() (*Stream, time.Time) {
			t.Helper()
			from, err := m.GetProgress(t.Context(), gen, "t", id)
			if err != nil {
				t.Fatal(err)
			}
			return s.Begin(id), from.LastProcessedRecordTime.Time()
		}
		at := func(d time.Duration) gocql.UUID { return gocql.MinTimeUUID(began.Add(d)) }
		if err := m.StartGeneration(t.Context(), gen); err != nil {
			t.Fatal(err)
		}
		p, _ := open()
		row := p.Begin(at(-time.Minute), 1)
		p.Settle(row)
		p.HandedOn(at(-time.Minute))
		held := p.Begin(at(45*time.Minute), 1)
		p.Settle(held)
		p.Idle(at(50 * time.Minute))
		if err := s.save(t.Context(), s.All()); err != nil {
			t.Fatal(err)
		}
		ahead = 0
		for _, passed := range []time.Duration{0, time.Second, 40 * time.Minute, 2 * time.Hour} {
			time.Sleep(time.Until(began.Add(passed)))
			if err := s.Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
			p, from := open()
			pos, _ := p.Quiescent()
			// The first reader after the error has read nothing more, so nothing more may count later.
			if end := began.Add(time.Second - window); from.After(end) || pos.Time().After(end) || p.Settled(at(time.Minute)) {
				t.Errorf("after %s the stream is read from %s and its position is %s, want before %s; a row at 1m is settled: %t",
					passed, from, pos.Time(), end, p.Settled(at(time.Minute)))
			}
			if upTo, _ := s.Handed(gen, id); upTo > began.Add(time.Second-window).UnixMicro() {
				t.Errorf("after %s all changes up to %s count as handed on", passed, time.UnixMicro(upTo))
			}
		}
	})
}
