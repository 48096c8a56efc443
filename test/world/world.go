// Package world is the environment of the tests of services: an in-memory
// database with the schema, faults of it, and the contents of the outbox.
//
// It contains no service, so every service can use it in its own tests.
package world

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/internal/cgroup"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// Patience is the maximum wait for an expected state, on a busy machine, too.
const Patience = 5 * time.Minute

// World is an in-memory node with the schema, and a session in its keyspace.
type World struct {
	Node    *scyllafake.Server
	Session *gocql.Session
}

// Start returns a World that runs until the test ends.
func Start(t testing.TB) World {
	t.Helper()
	node, session := scyllatest.Start(t)
	return World{Node: node, Session: session}
}

// StartOn is Start with the configuration of the node, for example one of scyllatest.Versions.
func StartOn(t testing.TB, conf scyllafake.Config) World {
	t.Helper()
	node, session := scyllatest.StartOn(t, conf)
	return World{Node: node, Session: session}
}

// Fault adds a fault of operations of the given kinds; count 0 means all. hits
// returns the number of affected operations.
func (w World) Fault(count int, e faults.Effect, kinds ...engine.OpKind) (hits func() int) {
	id := w.Node.Faults().MustAdd(faults.Rule{Match: faults.Match{Kinds: kinds}, Count: count, Effect: e})
	return func() int { return w.Node.Faults().Hits(id) }
}

// Written is an event of the outbox with the time of its write.
type Written struct {
	outbox.Event
	At time.Time
}

// Outbox returns the events of the outbox table, or the ones of the given
// aggregates. The events of an aggregate are in the order of their sequence.
func (w World) Outbox(t testing.TB, aggregates ...gocql.UUID) (all []Written) {
	t.Helper()
	where, args := "", []any{}
	if len(aggregates) > 0 {
		texts := make([]string, len(aggregates))
		for i, id := range aggregates {
			texts[i] = id.String()
		}
		where, args = " WHERE aggregate_id IN ?", []any{texts}
	}
	sc := rows.NewScanner(outbox.DefaultTable)
	var micros int64
	iter := w.Session.Query("SELECT writetime(payload), "+rows.Columns(outbox.DefaultTable)+" FROM outbox_messages"+where, args...).Iter()
	for iter.Scan(append([]any{&micros}, sc.Dest()...)...) {
		e, err := sc.Event()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Written{e, time.UnixMicro(micros)})
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// Logged is a row of the CDC log of the outbox table.
type Logged struct {
	Aggregate, Event gocql.UUID
	Sequence         int64
	At               time.Time
}

// Log returns the rows of the CDC log of the outbox table.
func (w World) Log(t testing.TB) (all []Logged) {
	t.Helper()
	iter := w.Session.Query(`SELECT aggregate_id, event_id, seq, "cdc$time" FROM outbox_messages_scylla_cdc_log`).Iter()
	var row Logged
	var aggregate outbox.ID
	for at := (gocql.UUID{}); iter.Scan(&aggregate, &row.Event, &row.Sequence, &at); {
		row.Aggregate, row.At = aggregate.UUID(), at.Time()
		all = append(all, row)
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// Eventually waits until ok returns true, and fails the test after Patience.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

// Run runs f until stop is called or the test ends, and fails the test if f
// returns an error.
func Run(t testing.TB, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// StartBroker runs a broker in memory until the test ends.
func StartBroker(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	broker, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	return broker
}

// Connect returns a client of a broker in memory, which is open until the test ends.
func Connect(t testing.TB, broker *kfake.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(broker.ListenAddrs()...)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// Kafka are the options of clients of a broker.
type Kafka []kgo.Opt

// Client returns a client with further options.
func (k Kafka) Client(more ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(slices.Concat(k, more)...)
}

// Clock is a clock that is a function.
type Clock func() time.Time

// Now returns the time by the function.
func (c Clock) Now() time.Time { return c() }

// Idle is the load of a container that does nothing; tests use it instead of the load of
// their machine.
type Idle struct{}

// Load returns no load.
func (Idle) Load(context.Context) (cgroup.Load, error) { return cgroup.Load{}, nil }
