package publish

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/earlier"
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
		want             earlier.Fate
	}{
		{"written before", -2 * time.Second, -time.Second, false, earlier.Doubtful},
		{"created and written after", 31 * time.Second, 32 * time.Second, false, earlier.Unpublished},
		{"created before, written after", -time.Second, 2 * time.Second, false, earlier.Rewritten},
		{"created after by a clock that is ahead, written after", 6 * time.Second, 20 * time.Second, false, earlier.Rewritten},
		{"written long after it was created", 31 * time.Second, 2 * time.Minute, false, earlier.Rewritten},
		{"written after, created at an unknown time", 0, 2 * time.Second, true, earlier.Unpublished},
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

// An id that the index has forgotten proves nothing: a row that was written before the newest
// forgotten one may have been published by this run.
func TestPublisher_FateOfAForgottenEvent(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	defer b.close()
	began := time.Now()
	at := func(seconds int) int64 { return began.Add(time.Duration(seconds) * time.Second).UnixMicro() }
	p := b.publisher
	var forgotten int64
	p.ask(func(c *cell) {
		c.ids.init(func() int { return 2 })
		for i := range 1000 {
			c.ids.add(&item{event: outbox.Event{ID: outbox.IDFromUUID(relaytest.EventID(100 + i))}, written: at(i / 10), shown: true}, true)
		}
		forgotten = c.ids.index.Horizon()
	})
	if forgotten <= at(0) {
		t.Fatalf("the index has forgotten nothing after the start: horizon %d, start %d", forgotten, at(0))
	}
	row := func(written int64) *cdclog.StoredEvent {
		f := &cdclog.StoredEvent{Event: relaytest.Event(1, 1, "OrderCreated"), Written: written}
		f.CreatedAt = time.UnixMicro(written)
		return f
	}
	for _, tt := range []struct {
		name                string
		written, remembered int64
		want                earlier.Fate
	}{
		{"written before a forgotten one", forgotten - 1, at(600), earlier.Doubtful},
		{"written after all forgotten ones", forgotten + at(31) - at(0), at(600), earlier.Unpublished},
		{"nothing as new is forgotten of its stream", forgotten - 1, forgotten - at(31) + at(0), earlier.Unpublished},
	} {
		if got := p.Fate(row(tt.written), began.UnixMicro(), tt.remembered); got != tt.want {
			t.Errorf("%s: Fate() = %d, want %d", tt.name, got, tt.want)
		}
	}
}
