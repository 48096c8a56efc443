package publish

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// What a row proves that no reader has offered: nothing, if it was written before this run
// began; nothing either, if its event is older, because an earlier write of the row may have
// been published.
func TestPublisher_Fate(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	defer b.close()
	began := time.Now()
	for _, tt := range []struct {
		name             string
		created, written time.Duration // since began
		unknown          bool          // when the event was created
		want             Fate
	}{
		{"written before", -2 * time.Second, -time.Second, false, FateDoubtful},
		{"created and written after", time.Second, 2 * time.Second, false, FateUnpublished},
		{"created before, written after", -time.Second, 2 * time.Second, false, FateRewritten},
		{"written long after it was created", time.Second, 2 * time.Minute, false, FateRewritten},
		{"written after, created at an unknown time", 0, 2 * time.Second, true, FateUnpublished},
	} {
		f := cdclog.StoredEvent{Event: relaytest.Event(1, 1, "OrderCreated"), Written: began.Add(tt.written).UnixMicro()}
		f.CreatedAt = began.Add(tt.created)
		if tt.unknown {
			f.CreatedAt = time.Time{}
		}
		if got := b.publisher.Fate(&f, began.UnixMicro(), f.Written); got != tt.want {
			t.Errorf("%s: Fate() = %d, want %d", tt.name, got, tt.want)
		}
	}
}
