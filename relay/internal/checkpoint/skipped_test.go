package checkpoint

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// noGenerations fails each read of a generation.
type noGenerations struct {
	cdclog.Generations
	asked int
}

func (n *noGenerations) Generation(context.Context, time.Time) (*cdclog.Generation, error) {
	n.asked++
	return nil, errors.New("database unavailable")
}

// If the streams of a shard are unknown, no stream is skipped; a relay of the whole table
// does not query them.
func TestSkippedStreams_SkipNothingUnknown(t *testing.T) {
	t.Parallel()
	source := &noGenerations{}
	p := cdclog.NewPortion(cdclog.Shard{Index: 1, Count: 3}, outbox.DefaultTable)
	s := &Skipped{own: &p, generations: source, log: relaytest.Logger(t)}
	gen := relaytest.Start
	for try := range skipTries - 1 {
		if err := s.choose(t.Context(), gen); err == nil {
			t.Fatalf("choose() gives up after %d attempts", try+1)
		}
	}
	if err := s.choose(t.Context(), gen); err != nil || s.Has([]byte("stream")) {
		t.Errorf("choose() = %v, Has() = %t, want no stream skipped", err, s.Has([]byte("stream")))
	}
	s.kept = &cdclog.Generation{} // of the previous generation
	for s.choose(t.Context(), gen) != nil {
	}
	if s.Has([]byte("stream")) {
		t.Error("streams are skipped by the set of another generation")
	}
	source.asked = 0
	whole := &Skipped{own: &cdclog.Portion{Tokens: cdclog.Ring}, generations: source}
	if err := whole.choose(t.Context(), gen); err != nil || source.asked > 0 || whole.Has([]byte("stream")) {
		t.Errorf("whole table: %v, %d reads of a generation", err, source.asked)
	}
}
