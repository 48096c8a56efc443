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

// farAhead is the position of skipped streams. The reader reads only changes older than
// the confidence window, so it never queries these streams, and at the end of their
// generation the position is past that end.
var farAhead = gocql.MinTimeUUID(time.Date(4000, 1, 1, 0, 0, 0, 0, time.UTC))

// Skipped is the set of streams of the current generation that have no rows of the shard;
// the reader does not read them. This only saves reads: rows of other shards are filtered
// individually too, and all streams are read while the set is unknown. A nil Skipped
// skips nothing.
type Skipped struct {
	own         *cdclog.Portion
	generations cdclog.Generations
	log         *slog.Logger

	mu     sync.Mutex
	kept   *cdclog.Generation // nil: read all streams
	failed int
}

// NewSkipped returns the streams of generations that have no rows of own.
func NewSkipped(own *cdclog.Portion, generations cdclog.Generations, log *slog.Logger) *Skipped {
	return &Skipped{own: own, generations: generations, log: log}
}

// skipTries is the number of consecutive failed reads of a generation after which all of
// its streams are read.
const skipTries = 5

// choose determines the streams of a generation to skip. It is called before the reader
// opens them.
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
		s.log.Warn("cannot read the streams of the generation; reading all streams and skipping rows of other shards", "generation", gen.UTC(), "err", err)
	}
	return nil
}

// Has reports whether the stream is skipped.
func (s *Skipped) Has(stream []byte) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept != nil && s.kept.Index(stream) < 0
}
