package relay

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// ownGenerations are generations with the streams that may have rows of a shard.
type ownGenerations struct {
	generationSource
	own *portion
}

func (o *ownGenerations) generation(ctx context.Context, start time.Time) (*generation, error) {
	g, err := o.generationSource.generation(ctx, start)
	if err != nil || o.own.all() {
		return g, err
	}
	return g.only(o.own.arc), nil
}

// only is the generation with the streams whose ranges the arc meets. For a token
// of the arc its streamsFor are what they were.
func (g *generation) only(a arc) *generation {
	ends := make(map[int]int64)
	g.eachRange(func(r tokenRange, has func(arc) bool) {
		if has(a) {
			for _, s := range r.streams {
				ends[s] = r.end
			}
		}
	})
	var streams [][]byte
	var of []int64
	for i, s := range g.streams {
		if end, ok := ends[i]; ok {
			streams, of = append(streams, s), append(of, end)
		}
	}
	return newGeneration(g.start, streams, func(i int) int64 { return of[i] })
}

// eachRange calls f with every range, and with what says whether an arc has tokens
// of it. The first range goes on behind the last one's end.
func (g *generation) eachRange(f func(r tokenRange, has func(arc) bool)) {
	after := int64(math.MinInt64)
	for i, r := range g.ranges {
		own := arc{after, r.end}
		f(r, func(a arc) bool {
			return own.meets(a) || i == 0 && arc{g.ranges[len(g.ranges)-1].end, math.MaxInt64}.meets(a)
		})
		after = r.end
	}
}

// farAhead is where the reader is told to go on in streams that it is to pass over.
// It asks for nothing that is younger than the confidence window, so it never asks
// for them, and when their generation ends they are past its end.
var farAhead = gocql.MinTimeUUID(time.Date(4000, 1, 1, 0, 0, 0, 0, time.UTC))

// skippedStreams are the streams of the generation being read that have nothing of
// the shard. Passing over them saves reading them. What is right does not hang on
// it: rows of others are passed over one by one too, and where it cannot be told
// which streams these are, all are read. nil skips none.
type skippedStreams struct {
	own         *portion
	generations generationSource
	log         *slog.Logger

	mu     sync.Mutex
	kept   *generation // nil keeps all
	failed int
}

// skipTries is how often in a row it is asked which streams a generation has.
const skipTries = 5

// choose finds out which streams of a generation are passed over. It is called
// before the reader opens them.
func (s *skippedStreams) choose(ctx context.Context, gen time.Time) error {
	if s == nil || s.own.all() {
		return nil
	}
	g, err := s.generations.generation(ctx, gen)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = nil
	switch {
	case err == nil:
		s.kept, s.failed = g, 0
	case ctx.Err() != nil || failure.Classify(err) == failure.Fatal:
		return err
	default:
		if s.failed++; s.failed < skipTries {
			return err
		}
		s.failed = 0
		s.log.Warn("cannot tell which streams have rows of this shard; all are read, and the rows of others passed over", "generation", gen.UTC(), "err", err)
	}
	return nil
}

func (s *skippedStreams) has(stream []byte) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept != nil && s.kept.index(stream) < 0
}

// passedOver takes the changes of a stream that has nothing of the shard: none.
type passedOver struct{}

// Consume does nothing.
func (passedOver) Consume(context.Context, scyllacdc.Change) error { return nil }

// End does nothing.
func (passedOver) End() error { return nil }
