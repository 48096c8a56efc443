package checkpoint

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"
)

// SteadyStore are checkpoints that never go back as long as the relay lives,
// although an owner before it may write older ones late (docs/design/relay.md, The fence).
//
// They are read several times: how far the topics are read back follows from the first
// reading, and where the sweep begins from a later one. If that were further back, what
// is out would be published again. What a position once said stays true.
type SteadyStore struct {
	Store

	mu                sync.Mutex
	generation, first time.Time
	positions         map[streamKey]gocql.UUID // of this generation and later ones
}

// streamKey is a stream of a generation, which begins so many milliseconds after 1970.
type streamKey struct {
	generation int64
	stream     string
}

func NewSteadyStore(s Store) *SteadyStore {
	return &SteadyStore{Store: s, positions: make(map[streamKey]gocql.UUID)}
}

// latest notes a position and returns the latest there was of the stream. Called locked.
func (s *SteadyStore) latest(generation time.Time, stream string, pos gocql.UUID) gocql.UUID {
	key := streamKey{generation.UnixMilli(), stream}
	known, ok := s.positions[key]
	switch {
	case ok && (pos == (gocql.UUID{}) || scyllacdc.CompareTimeUUID(pos, known) < 0):
		return known
	case pos != gocql.UUID{} && !generation.Before(s.generation):
		s.positions[key] = pos
	}
	return pos
}

// Position implements checkpointStore.
func (s *SteadyStore) Position(ctx context.Context, generation time.Time, stream []byte) (gocql.UUID, error) {
	pos, err := s.Store.Position(ctx, generation, stream)
	if err != nil {
		return pos, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest(generation, string(stream), pos), nil
}

// Positions implements checkpointStore.
func (s *SteadyStore) Positions(ctx context.Context, generation time.Time) (map[string]gocql.UUID, error) {
	all, err := s.Store.Positions(ctx, generation)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream, pos := range all {
		all[stream] = s.latest(generation, stream, pos)
	}
	return all, nil
}

// SavePosition implements checkpointStore.
func (s *SteadyStore) SavePosition(ctx context.Context, generation time.Time, stream []byte, position gocql.UUID) error {
	err := s.Store.SavePosition(ctx, generation, stream, position)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.latest(generation, string(stream), position)
	}
	return err
}

// Start implements checkpointStore.
func (s *SteadyStore) Start(ctx context.Context) (generation, first time.Time, err error) {
	if generation, first, err = s.Store.Start(ctx); err != nil {
		return generation, first, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enter(generation)
	s.first = Later(s.first, first)
	return s.generation, s.first, nil
}

// SaveGeneration implements checkpointStore.
func (s *SteadyStore) SaveGeneration(ctx context.Context, generation time.Time) error {
	err := s.Store.SaveGeneration(ctx, generation)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.enter(generation)
	}
	return err
}

// enter notes a generation and forgets those before it. Called locked.
func (s *SteadyStore) enter(generation time.Time) {
	if !generation.After(s.generation) {
		return
	}
	s.generation = generation
	maps.DeleteFunc(s.positions, func(k streamKey, _ gocql.UUID) bool { return k.generation < generation.UnixMilli() })
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
