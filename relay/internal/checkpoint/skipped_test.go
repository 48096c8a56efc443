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

// noGenerations cannot tell which streams there are.
type noGenerations struct {
	cdclog.Generations
	asked int
}

func (n *noGenerations) Generation(context.Context, time.Time) (*cdclog.Generation, error) {
	n.asked++
	return nil, errors.New("the database is away")
}

// Where it cannot be told which streams have nothing of a shard, none is passed over;
// and the whole table is not asked about.
func TestSkippedStreams_SkipNothingUnknown(t *testing.T) {
	t.Parallel()
	source := &noGenerations{}
	p := cdclog.PortionOf(cdclog.Shard{Index: 1, Count: 3}, outbox.DefaultTable)
	s := &Skipped{own: &p, generations: source, log: relaytest.Logger(t)}
	gen := relaytest.Start
	for try := range skipTries - 1 {
		if err := s.choose(t.Context(), gen); err == nil {
			t.Fatalf("choose() gives up after %d tries", try+1)
		}
	}
	if err := s.choose(t.Context(), gen); err != nil || s.Has([]byte("stream")) {
		t.Errorf("choose() = %v, has() = %t, want a reader of all streams", err, s.Has([]byte("stream")))
	}
	s.kept = &cdclog.Generation{} // of a generation before
	for s.choose(t.Context(), gen) != nil {
	}
	if s.Has([]byte("stream")) {
		t.Error("streams are passed over because of another generation's")
	}
	source.asked = 0
	whole := &Skipped{own: &cdclog.Portion{Tokens: cdclog.Ring}, generations: source}
	if err := whole.choose(t.Context(), gen); err != nil || source.asked > 0 || whole.Has([]byte("stream")) {
		t.Errorf("the whole table: %v, asked %d times", err, source.asked)
	}
}
