package backfill

import (
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// More events are requested than doubts are remembered, in the same order again and again.
// Each is doubted at first, and all requests are granted in the end.
func TestRepairer_DoubtsMoreThanItRemembers(t *testing.T) {
	t.Parallel()
	r := &Repairer{seen: make(map[gocql.UUID]int), doubted: make(map[gocql.UUID]int)}
	events := make([]gocql.UUID, 2*maxDoubted)
	for i := range events {
		events[i] = outbox.NewID().UUID()
	}
	first := true
	for pass := 0; len(events) > 0; pass++ {
		if pass == 50 {
			t.Fatalf("%d events are doubted after %d requests for each", len(events), pass)
		}
		r.polls++
		clear(r.seen)
		left := events[:0]
		for _, id := range events {
			q := Repair{ID: outbox.NewID().UUID(), EventID: id}
			r.seen[q.ID] = r.polls
			if r.doubt(&q) {
				left = append(left, id)
			} else if first {
				t.Fatalf("event %s is not doubted at first", id)
			}
			if len(r.doubted) > maxDoubted {
				t.Fatalf("%d doubts are remembered, want at most %d", len(r.doubted), maxDoubted)
			}
		}
		events, first = left, false
	}
}
