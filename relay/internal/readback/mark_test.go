package readback

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// fixedGenerations is a generationSource.
type fixedGenerations struct {
	starts  []time.Time
	streams []string
	err     error
}

func (f fixedGenerations) Times(context.Context) ([]time.Time, error) { return f.starts, f.err }

func (f fixedGenerations) Generation(_ context.Context, start time.Time) (*cdclog.Generation, error) {
	g := &cdclog.Generation{Start: start}
	for _, s := range f.streams {
		g.Streams = append(g.Streams, []byte(s))
	}
	return g, f.err
}

func TestReadback_Mark(t *testing.T) {
	t.Parallel()
	at := func(minutes int) time.Time { return time.Date(2025, 1, 1, 0, minutes, 0, 0, time.UTC) }
	tests := []struct {
		name              string
		generation, first time.Time
		positions         map[string]int
		starts            []time.Time
		want              time.Time
	}{
		{name: "it never ran", starts: []time.Time{at(0)}},
		{name: "it ran and read no generation yet", first: at(5), starts: []time.Time{at(0)}, want: at(5)},
		{
			name: "the oldest stream decides", generation: at(0), first: at(1), starts: []time.Time{at(-9), at(0)},
			positions: map[string]int{"a": 30, "b": 20}, want: at(20),
		},
		{
			name: "a stream without a position is read from its beginning", generation: at(0), first: at(-9), starts: []time.Time{at(0)},
			positions: map[string]int{"a": 30}, want: at(0),
		},
		{
			name: "or from where the relay first read", generation: at(0), first: at(2), starts: []time.Time{at(0)},
			positions: map[string]int{"a": 30}, want: at(2),
		},
		{
			name: "the tail is in the next generation", generation: at(0), first: at(0), starts: []time.Time{at(0), at(10)},
			positions: map[string]int{"a": 30, "b": 20}, want: at(10),
		},
		{
			name: "the next generation is to come", generation: at(0), first: at(0), starts: []time.Time{at(50), at(0)},
			positions: map[string]int{"a": 30, "b": 20}, want: at(20),
		},
		{
			name: "the generation is forgotten", generation: at(0), first: at(3), starts: []time.Time{at(10)},
			positions: map[string]int{"a": 30, "b": 20}, want: at(3),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store := relaytest.NewCheckpoints()
			store.Generation, store.First = tt.generation, tt.first
			for s, m := range tt.positions {
				_ = store.SavePosition(t.Context(), tt.generation, []byte(s), gocql.MinTimeUUID(at(m)))
			}
			_ = store.SavePosition(t.Context(), at(-99), []byte("b"), gocql.MinTimeUUID(at(-98))) // of an old generation
			cfg := Config{FirstAge: time.Hour}
			r := &Reader{cfg: &cfg, Store: store, source: fixedGenerations{starts: tt.starts, streams: []string{"a", "b"}}}
			if got, err := r.Mark(t.Context()); !got.Equal(tt.want) || err != nil {
				t.Errorf("mark() = %s, %v, want %s", got, err, tt.want)
			}
			if tt.generation.IsZero() && store.First.IsZero() {
				t.Error("where it first read is not saved")
			}
		})
	}
	t.Run("the database is away", func(t *testing.T) {
		t.Parallel()
		store := relaytest.NewCheckpoints()
		store.Generation = at(0)
		away := errors.New("away")
		r := &Reader{cfg: &Config{}, log: slog.New(slog.DiscardHandler), Store: store, source: fixedGenerations{err: away}}
		if _, err := r.Mark(t.Context()); !errors.Is(err, away) {
			t.Errorf("mark() error = %v, want %v", err, away)
		}
	})
}
