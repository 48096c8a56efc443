package sim

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

const (
	keyspace  = "outbox"
	events    = "outbox_messages"
	eventsLog = keyspace + "." + events + "_scylla_cdc_log"
)

// topics are where order events go.
var topics = []string{orders.EventCreated, orders.EventCancelled}

// settings are what scenarios differ in besides what goes wrong.
type settings struct {
	node   scyllafake.Config
	schema schema.Options
	relay  relay.Config
	orders orders.Config
	// skews is how far the clock of each order service is ahead. There is one
	// service for each; none means one whose clock is right.
	skews []time.Duration
}

// world is everything that runs in one bubble.
type world struct {
	t        *testing.T
	seed     uint64
	settings settings
	began    time.Time
	log      *slog.Logger

	net   *network
	node  *scyllafake.Server
	kafka *kafka
	tap   *tap

	session  *gocql.Session    // the order services'
	services []*orders.Service // one for each clock
	ledger   *ledger

	ending sync.WaitGroup // relays that crashed and are not gone yet

	mu     sync.Mutex
	relays []*process // all that ever ran, the last one now
	seen   outcome
}

// outcome is what was seen while a simulation ran, and what came of it.
type outcome struct {
	// inFlight is the most events that a relay ever held in memory.
	inFlight int
	// behind is the furthest that a relay ever was behind.
	behind time.Duration
	// problems are what relays said was wrong.
	problems map[string]bool
	// restarts is how often relays started their reader again.
	restarts int
	// events, records and duplicates count the outbox, the topics and the records
	// that repeat an event.
	events, records, duplicates int
	// repeatedRows is how many log rows of events there were beyond the first.
	repeatedRows int
}

// bubbles lets one bubble run at a time; see simulate.
var bubbles sync.Mutex

// simulate runs a scenario in a bubble of its own: starts everything, lets the
// scenario run, mends what is broken, waits until the relay has caught up, and
// then holds what was left behind to the promises.
func simulate(t *testing.T, seed uint64, change func(*settings), scenario func(*world)) (seen outcome) {
	t.Helper()
	// The driver keeps channels in global pools. One that was made outside of a
	// bubble, or in another one, cannot be used in it; two garbage collections
	// empty the pools.
	bubbles.Lock()
	defer bubbles.Unlock()
	runtime.GC()
	runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed, change)
		defer w.close()
		w.startRelay()
		scenario(w)
		w.calm()
		w.stopRelay()
		w.verify()
		seen = w.seen
		t.Logf("seed %d, %s simulated: %d customers, %d relays, %d events, %d log rows of events repeated, %d duplicates, at most %d in flight and %s behind, %d reader restarts",
			seed, w.after(time.Now()), w.ledger.arrived, len(w.relays), seen.events, seen.repeatedRows, seen.duplicates,
			seen.inFlight, seen.behind.Round(time.Second), seen.restarts)
	})
	return seen
}

func newWorld(t *testing.T, seed uint64, change func(*settings)) *world {
	t.Helper()
	w := &world{
		t: t, seed: seed, began: time.Now(), net: newNetwork(seed),
		log:  slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
		seen: outcome{problems: make(map[string]bool)},
	}
	w.settings = settings{
		node: scyllafake.Config{Tokens: 4, Seed: seed, RingDelay: 2 * time.Second},
		relay: relay.Config{
			MaxInFlightRecords: 100, MaxInFlightBytes: 1 << 20, MaxStreamBacklog: 100,
			Topics: map[string]string{orders.EventCreated: orders.EventCreated, orders.EventCancelled: orders.EventCancelled},
		},
	}
	if change != nil {
		change(&w.settings)
	}
	var err error
	if w.node, err = scyllafake.Start(w.settings.node); err != nil {
		t.Fatalf("start the database: %v", err)
	}
	w.kafka = startKafka(t, topics...)
	w.tap = startTap(t, w.kafka, topics...)

	admin := w.connect("admin", "")
	if err := schema.Migrate(t.Context(), admin, w.settings.schema); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	// The history of the checkpoints is their own CDC log.
	err = admin.Query("ALTER TABLE " + keyspace + ".relay_checkpoints WITH cdc = {'enabled': true, 'ttl': 259200}").Exec()
	if err != nil {
		t.Fatalf("log the checkpoints: %v", err)
	}
	admin.Close()

	w.session = w.connect("orders", keyspace)
	for _, skew := range append(w.settings.skews, make([]time.Duration, max(0, 1-len(w.settings.skews)))...) {
		c := w.settings.orders
		c.Logger = w.log
		c.Now = func() time.Time { return time.Now().Add(skew) }
		s, err := orders.New(w.session, c)
		if err != nil {
			t.Fatalf("start the order service: %v", err)
		}
		w.services = append(w.services, s)
	}
	w.ledger = newLedger()
	return w
}

// close ends everything; a bubble must be empty at its end.
func (w *world) close() {
	w.session.Close()
	w.ending.Wait()
	w.tap.close()
	w.kafka.cluster.Close()
	if err := w.node.Close(); err != nil {
		w.t.Errorf("close the database: %v", err)
	}
	time.Sleep(2 * time.Minute) // what the clients have on timers
}

// connect makes a session of a client that the network knows by this name. The
// database must be there.
func (w *world) connect(client, keyspace string) *gocql.Session {
	w.t.Helper()
	s, err := w.tryConnect(client, keyspace)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) tryConnect(client, keyspace string) (*gocql.Session, error) {
	cluster := gocql.NewCluster("127.0.0.1")
	cluster.Dialer = dialer(func(ctx context.Context) (net.Conn, error) {
		return w.net.dial(ctx, client, database, w.node.Dial)
	})
	cluster.Keyspace = keyspace
	cluster.Timeout = 5 * time.Second
	cluster.ConnectTimeout = 5 * time.Second
	cluster.Consistency = gocql.LocalQuorum
	cluster.Logger = log.New(io.Discard, "", 0)
	s, err := cluster.CreateSession()
	if err != nil {
		return nil, fmt.Errorf("connect %s to the database: %w", client, err)
	}
	// The driver fetches the next page ahead under a lock for which the reader
	// then waits, and in a bubble time stands still while anything waits for a lock.
	s.SetPrefetch(0)
	return s, nil
}

// dialer is a gocql.Dialer.
type dialer func(context.Context) (net.Conn, error)

// DialContext connects to the one node there is.
func (d dialer) DialContext(ctx context.Context, _, _ string) (net.Conn, error) { return d(ctx) }

// faults is what makes the database fail.
func (w *world) faults() *faults.Injector { return w.node.Faults() }

// calm mends everything and waits until the customers have gone and the relay
// has nothing left to do.
func (w *world) calm() {
	w.t.Helper()
	w.faults().Clear()
	w.net.mend(database)
	w.kafka.unfreeze()
	w.net.mend(broker)
	w.ledger.customers.Wait()
	window := w.relay().config.ConfidenceWindow
	time.Sleep(window + 5*time.Minute)
	for deadline := time.Now().Add(6 * time.Hour); ; time.Sleep(time.Minute) {
		s := w.relay().relay.Status()
		if s.InFlight == 0 && s.Behind < window+2*time.Minute && len(s.Problems) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Errorf("the relay has not caught up: %+v", s)
			return
		}
	}
}

// after says how long the simulation has run, for messages.
func (w *world) after(t time.Time) string { return t.Sub(w.began).Round(time.Millisecond).String() }
