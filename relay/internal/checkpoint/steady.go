package checkpoint

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"
)

// SteadyStore is a Store whose positions never go back during the life of the relay, even
// if a previous owner writes older ones late (package fence).
//
// Positions are read several times: the first read determines how far the topics are read
// back, a later one where the sweep reader begins. If the later one were older, published
// events would be published again.
//
// A position after newest is the exception: the database's clock was believed to
// be ahead, and later rows may not have been read.
type SteadyStore struct {
	Store
	newest func() time.Time // the time that no position passes; nil without one

	mu                sync.Mutex
	generation, first time.Time
	positions         map[streamKey]gocql.UUID // of the current and later generations
}

// streamKey identifies a stream of a generation, which begins at generation, in Unix
// milliseconds.
type streamKey struct {
	generation int64
	stream     string
}

// NewSteadyStore returns a SteadyStore backed by s. Its positions do not pass newest, unless that
// is nil.
func NewSteadyStore(s Store, newest func() time.Time) *SteadyStore {
	return &SteadyStore{Store: s, newest: newest, positions: make(map[streamKey]gocql.UUID)}
}

// latest records a position and returns the latest recorded one of the stream. Called
// locked.
func (s *SteadyStore) latest(generation time.Time, stream string, pos gocql.UUID) gocql.UUID {
	key := streamKey{generation.UnixMilli(), stream}
	if known, ok := s.positions[key]; ok && (pos == (gocql.UUID{}) || scyllacdc.CompareTimeUUID(pos, known) < 0) {
		pos = known
	}
	pos = notAfter(pos, s.newest)
	if pos != (gocql.UUID{}) && !generation.Before(s.generation) {
		s.positions[key] = pos
	}
	return pos
}

// notAfter returns pos, or newest if that is earlier; nil has no end.
func notAfter(pos gocql.UUID, newest func() time.Time) gocql.UUID {
	if newest == nil {
		return pos
	}
	if end := newest(); pos.Time().After(end) {
		return gocql.MinTimeUUID(end)
	}
	return pos
}

// Position implements Store.
func (s *SteadyStore) Position(ctx context.Context, generation time.Time, stream []byte) (gocql.UUID, error) {
	pos, err := s.Store.Position(ctx, generation, stream)
	if err != nil {
		return pos, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest(generation, string(stream), pos), nil
}

// Positions implements Store.
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

// SavePosition implements Store.
func (s *SteadyStore) SavePosition(ctx context.Context, generation time.Time, stream []byte, position gocql.UUID) error {
	err := s.Store.SavePosition(ctx, generation, stream, position)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.latest(generation, string(stream), position)
	}
	return err
}

// Start implements Store.
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

// SaveGeneration implements Store.
func (s *SteadyStore) SaveGeneration(ctx context.Context, generation time.Time) error {
	err := s.Store.SaveGeneration(ctx, generation)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.enter(generation)
	}
	return err
}

// enter records a generation and drops the positions of earlier ones. Called locked.
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
