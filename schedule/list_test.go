package schedule

import (
	"testing"
	"time"

	"github.com/gocql/gocql"
)

// A page scans a bounded number of minutes, each of which costs reads; later
// pages find rare messages.
func TestList_OnePageLooksThroughSoManyMinutes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now().UTC().Truncate(time.Minute)
	batch := b.Session.Batch(gocql.UnloggedBatch)
	const minutes = maxMinutes + 50
	for i := range minutes {
		at := now.Add(time.Duration(i) * time.Minute)
		batch.Query("INSERT INTO schedule_buckets (month, bucket) VALUES (?, ?)", monthAt(at), at) // of delivered messages
	}
	if err := batch.Exec(); err != nil {
		t.Fatal(err)
	}
	rare := message(now.Add(minutes * time.Minute))
	b.put(t, now, rare)
	f := Filter{Until: now.Add(30 * 24 * time.Hour), Topic: rare.Topic, Client: rare.Client}
	page, next, more, err := b.List(t.Context(), Position{DeliverAt: now}, f, 10)
	if err != nil || len(page) != 0 || !more {
		t.Fatalf("List() = %d messages, more %v, %v, want it to stop on the way", len(page), more, err)
	}
	page, _, more, err = b.List(t.Context(), next, f, 10)
	if err != nil || len(page) != 1 || page[0].ID != rare.ID || more {
		t.Fatalf("List() = %+v, more %v, %v, want the message", page, more, err)
	}
	if m := page[0]; m.Payload != nil || m.Headers != nil || m.Key != rare.Key || m.Client != rare.Client {
		t.Errorf("List() = %+v, want no payload", m)
	}
}
