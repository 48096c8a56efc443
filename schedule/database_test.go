package schedule

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// bundle is a store on an in-memory node.
type bundle struct {
	*Store
	node    *scyllafake.Server
	session *gocql.Session
}

func setup(t testing.TB) *bundle {
	t.Helper()
	node, session := scyllatest.Start(t)
	b := &bundle{node: node, session: session}
	b.Store = NewStore(b.session, gocql.LocalQuorum, 30*time.Second)
	return b
}

// scheduler returns a scheduler with short intervals; change may alter it.
func (b *bundle) scheduler(t testing.TB, change ...func(*Config)) *Scheduler {
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

// start runs it until the test ends, or until stop is called.
func start(t testing.TB, s *Scheduler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			t.Errorf("Run() = %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// message is one for a time.
func message(at time.Time) *Message {
	now := time.Now().UTC().Truncate(time.Millisecond)
	return &Message{
		ID: outbox.NewID(), Topic: "reminders", Key: "customer-7", Payload: []byte(`{"n":1}`), ContentType: "application/json",
		Headers: map[string]string{"a": "b"}, Client: "test", CreatedAt: now, DeliverAt: at.UTC().Truncate(time.Millisecond),
	}
}

// put stores messages as if handed in at when.
func (b *bundle) put(t testing.TB, when time.Time, ms ...*Message) {
	t.Helper()
	for _, m := range ms {
		if err := b.Put(t.Context(), m, when); err != nil {
			t.Fatalf("Put() = %v", err)
		}
	}
}

// eventually waits until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

// written is a message's event with the time of its write.
type written struct {
	outbox.Event
	at time.Time
}

// outboxed are the events of the outbox by id. The CDC log must have each at one time,
// or at times that are more than handFresh apart: no row gets a new time before.
func (b *bundle) outboxed(t testing.TB) map[gocql.UUID]written {
	t.Helper()
	out := map[gocql.UUID]written{}
	var sc outbox.Scanner
	var micros int64
	iter := b.session.Query("SELECT writetime(payload), " + outbox.Columns + " FROM outbox_messages").Iter()
	for iter.Scan(append([]any{&micros}, sc.Dest()...)...) {
		e, err := sc.Event()
		if err != nil {
			t.Fatal(err)
		}
		out[e.ID] = written{e, time.UnixMicro(micros)}
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	logged := map[gocql.UUID][]time.Time{}
	iter = b.session.Query(`SELECT event_id, "cdc$time" FROM outbox_messages_scylla_cdc_log`).Iter()
	var id, at gocql.UUID
	for iter.Scan(&id, &at) {
		logged[id] = append(logged[id], at.Time())
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
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

// count is how many rows a table has.
func (b *bundle) count(t testing.TB, table string) int {
	t.Helper()
	var n int
	if err := b.session.Query("SELECT count(*) FROM " + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
