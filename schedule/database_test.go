package schedule

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// fixture is a store on an in-memory node.
type fixture struct {
	*Store
	world.World
}

func setup(t testing.TB) *fixture {
	t.Helper()
	b := &fixture{World: world.Start(t)}
	b.Store = NewStore(b.Session, gocql.LocalQuorum, 30*time.Second)
	return b
}

// scheduler returns a scheduler with short intervals; change may alter it.
func (b *fixture) scheduler(t testing.TB, change ...func(*Config)) *Scheduler {
	t.Helper()
	cfg := Config{Store: b.Store, Poll: 20 * time.Millisecond, Sweep: 200 * time.Millisecond, Lease: 20 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// releaseOne releases one message.
func (s *Scheduler) releaseOne(ctx context.Context, x slot) (err error) {
	s.release(ctx, []slot{x}, func(_ slot, e error) { err = e })
	return err
}

// message is one for a time.
func message(at time.Time) *Message {
	now := time.Now().UTC().Truncate(time.Millisecond)
	return &Message{
		ID: outbox.NewID().UUID(), Topic: "reminders", Key: "customer-7", Payload: []byte(`{"n":1}`), ContentType: "application/json",
		Headers: map[string]string{"a": "b"}, Client: "test", CreatedAt: now, DeliverAt: at.UTC().Truncate(time.Millisecond),
	}
}

// put stores messages as if submitted at when.
func (b *fixture) put(t testing.TB, when time.Time, ms ...*Message) {
	t.Helper()
	for _, m := range ms {
		if err := b.Put(t.Context(), m, when); err != nil {
			t.Fatalf("Put() = %v", err)
		}
	}
}

// readOutbox are the events of the outbox by id. The CDC log must have each at one time,
// or at times that are more than handFresh apart: no row gets a new time before.
func (b *fixture) readOutbox(t testing.TB) map[gocql.UUID]world.Written {
	t.Helper()
	out := map[gocql.UUID]world.Written{}
	for _, e := range b.Outbox(t) {
		out[e.ID.UUID()] = e
	}
	logged := map[gocql.UUID][]time.Time{}
	for _, row := range b.Log(t) {
		logged[row.Event] = append(logged[row.Event], row.At)
	}
	for id := range out {
		slices.SortFunc(logged[id], time.Time.Compare)
		if len(logged[id]) == 0 {
			t.Errorf("event %s is not in the CDC log", id)
		}
		for i, at := range logged[id][min(1, len(logged[id])):] {
			if apart := at.Sub(logged[id][i]); apart > 0 && apart <= handFresh {
				t.Errorf("event %s is in the CDC log at the times %v, want one", id, logged[id])
			}
		}
	}
	return out
}

// count returns the number of rows of a table.
func (b *fixture) count(t testing.TB, table string) int {
	t.Helper()
	var n int
	if err := b.Session.Query("SELECT count(*) FROM " + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
