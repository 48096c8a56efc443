package checkpoint

import (
	"context"
	"testing"
	"time"

	"github.com/gocql/gocql"
)

// Checkpoints never go back during the life of a relay, whatever other relays write.
func TestSteadyCheckpoints(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	at := func(n int) time.Time { return time.Date(2026, 11, 22, 12, n, 0, 0, time.UTC) }
	pos := func(n int) gocql.UUID { return gocql.MinTimeUUID(at(n)) }
	table := &memoryCheckpoints{positions: make(map[string]gocql.UUID)}
	s := NewSteadyStore(table)
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
