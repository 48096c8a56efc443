package checkpoint

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// farAhead is where the reader is told to go on in streams that it is to pass over.
// It asks for nothing that is younger than the confidence window, so it never asks
// for them, and when their generation ends they are past its end.
var farAhead = gocql.MinTimeUUID(time.Date(4000, 1, 1, 0, 0, 0, 0, time.UTC))

// Skipped are the streams of the generation being read that have nothing of
// the shard. Passing over them saves reading them. What is right does not hang on
// it: rows of others are passed over one by one too, and where it cannot be told
// which streams these are, all are read. nil skips none.
type Skipped struct {
	own         *cdclog.Portion
	generations cdclog.Generations
	log         *slog.Logger

	mu     sync.Mutex
	kept   *cdclog.Generation // nil keeps all
	failed int
}

// NewSkipped returns the streams of generations that contain nothing of own.
func NewSkipped(own *cdclog.Portion, generations cdclog.Generations, log *slog.Logger) *Skipped {
	return &Skipped{own: own, generations: generations, log: log}
}

// skipTries is how often in a row it is asked which streams a generation has.
const skipTries = 5

// choose finds out which streams of a generation are passed over. It is called
// before the reader opens them.
func (s *Skipped) choose(ctx context.Context, gen time.Time) error {
	if s == nil || s.own.All() {
		return nil
	}
	g, err := s.generations.Generation(ctx, gen)
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

func (s *Skipped) Has(stream []byte) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept != nil && s.kept.Index(stream) < 0
}
