package sim

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

const (
	keyspace    = "outbox"
	events      = "outbox_messages"
	checkpoints = "relay_checkpoints"
	deadLetters = "dead_letter_queue"
	eventsLog   = keyspace + "." + events + "_scylla_cdc_log"
)

// maxInFlight is how many events a relay holds at most, unless a scenario says
// otherwise: few, so that an outage reaches the bound.
const maxInFlight = 100

// topics are where events go.
var topics = []string{orders.EventCreated, orders.EventCancelled, parcelMoved, parcelDelivered}

// settings are what scenarios differ in besides what goes wrong.
type settings struct {
	node   scyllafake.Config
	schema schema.Options
	relay  relay.Config
	orders orders.Config
	// hints lets the order services tell the relay of what they wrote.
	hints bool
	// denied lets topics be denied to those who read them, too.
	denied bool
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
	saves saves
	kafka *kafka
	tap   *tap

	hints    *hints            // nil without
	session  *session          // the order services'
	backs    *relay.ReadBacks  // of shards that begin together, if they read together
	services []*orders.Service // one for each clock
	verifier *verifier         // nil without
	ledger   *ledger

	database     chan struct{}  // holds a token that is taken to connect to the database, and to stop it
	largeParcels atomic.Bool    // parcels are too large for the broker
	frozen       bool           // the database is; guarded by the token
	launching    sync.WaitGroup // relays that are not running yet
	ending       sync.WaitGroup // relays that crashed and are not gone yet

	mu     sync.Mutex
	relays []*process // all that ever ran, the last one now
	seen   outcome
}

// onTablets makes the database one whose CDC streams are those of tablets.
func onTablets(s *settings) {
	s.node.Version, s.node.Tablets = "2025.4", true
	s.schema.Tablets = schema.TabletsOn
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
	haunted  int // old checkpoints that were written once more
	// scanned is how many events relays handed on by a scan of the outbox table.
	scanned int
	// letters is how many dead letters there were, replayed how many of them the
	// relay published, discarded how many it was told not to.
	letters, replayed, discarded int
	// asked is how many events operators asked for.
	asked int
	// events, records and duplicates count the outbox, the topics and the records
	// that repeat an event.
	events, records, duplicates int
	// relays is how many there were, one after the other.
	relays int
	// simulated is how long it all took.
	simulated time.Duration
	// repeatedRows is how many log rows of events there were beyond the first.
	repeatedRows int
	// missed is how many events were written where a checkpoint then moved on over a
	// time without rows, before they could be seen: see evidence.missed.
	missed int
}

// shortSeed is that of the simulation that -short runs: six hours without a broker.
const shortSeed = 1

// simulate runs a scenario in a bubble of its own: starts everything, lets the
// scenario run, mends what is broken, waits until the relay has caught up, and
// then holds what was left behind to the promises.
func simulate(t *testing.T, seed uint64, change func(*settings), scenario func(*world)) (seen outcome) {
	t.Helper()
	if testing.Short() && seed != shortSeed {
		t.Skip("of the simulations -short runs one; run it without")
	}
	scyllatest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, seed, change)
		defer w.close()
		w.startRelay()
		scenario(w)
		w.calm()
		w.settleLetters()
		w.stopVerifier()
		w.stopRelay()
		w.verify()
		w.seen.relays, w.seen.simulated = len(w.relays), time.Since(w.began)
		seen = w.seen
		t.Logf("seed %d, %s simulated: %d customers, %d relays, %d events, %d log rows of events repeated, %d duplicates, %d dead letters, %d of them replayed, %d discarded, at most %d in flight and %s behind, %d reader restarts",
			seed, w.after(time.Now()), w.ledger.arrived, len(w.relays), seen.events, seen.repeatedRows, seen.duplicates, seen.letters, seen.replayed, seen.discarded,
			seen.inFlight, seen.behind.Round(time.Second), seen.restarts)
	})
	return seen
}

func newWorld(t *testing.T, seed uint64, change func(*settings)) *world {
	t.Helper()
	w := &world{
		t: t, seed: seed, began: time.Now(), net: newNetwork(seed),
		log:      slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
		seen:     outcome{problems: make(map[string]bool)},
		database: make(chan struct{}, 1),
	}
	w.database <- struct{}{}
	w.settings = settings{
		node: scyllafake.Config{Tokens: 4, Seed: seed, RingDelay: 2 * time.Second},
		relay: relay.Config{
			MaxInFlightRecords: maxInFlight, MaxInFlightBytes: 1 << 20, MaxStreamBacklog: maxInFlight,
			Topics: make(map[string]string),
			Load:   func(context.Context) (relay.Load, error) { return relay.Load{}, nil }, // not that of the machine of the tests
		},
	}
	for _, topic := range topics {
		w.settings.relay.Topics[topic] = topic
	}
	if change != nil {
		change(&w.settings)
	}
	var err error
	w.settings.node.Hook = &w.saves
	if w.node, err = scyllafake.Start(w.settings.node); err != nil {
		t.Fatalf("start the database: %v", err)
	}
	w.kafka = startKafka(t, topics...)
	w.tap = startTap(t, w.kafka, topics...)

	admin := w.connect("admin", "")
	if err := schema.Migrate(t.Context(), admin.Session, w.settings.schema); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	admin.Close()

	w.session = w.connect("orders", keyspace)
	if w.settings.hints {
		w.hints = startHints(t, seed)
		w.settings.orders.Committed = w.hints.sender.Committed
	}
	for _, skew := range append(w.settings.skews, make([]time.Duration, max(0, 1-len(w.settings.skews)))...) {
		c := w.settings.orders
		c.Logger = w.log
		c.Now = func() time.Time { return time.Now().Add(skew) }
		s, err := orders.New(w.session.Session, c)
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
	if w.hints != nil {
		w.hints.close()
	}
	w.tap.close()
	w.kafka.cluster.Close()
	if err := w.node.Close(); err != nil {
		w.t.Errorf("close the database: %v", err)
	}
	time.Sleep(2 * time.Minute) // what the clients have on timers
}

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
	w.launching.Wait()
	w.awaitCustomers()
	c := w.relay().config
	behind := c.ConfidenceWindow + 2*time.Minute + 2*c.IdleDelay
	time.Sleep(behind + 3*time.Minute)
	for deadline := time.Now().Add(6 * time.Hour); ; time.Sleep(time.Minute) {
		s := w.relay().relay.Status()
		if s.InFlight == 0 && s.Behind < behind && len(s.Problems) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Errorf("the relay has not caught up: %+v", s)
			return
		}
	}
}

// awaitCustomers waits until all customers have gone; with everything mended
// that takes no more than some pauses.
func (w *world) awaitCustomers() {
	w.t.Helper()
	gone := make(chan struct{})
	go func() { w.ledger.customers.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-time.After(12 * time.Hour):
		w.t.Fatal("some customers have no answer twelve hours after everything was mended")
	}
}

// after says how long the simulation has run, for messages.
func (w *world) after(t time.Time) string { return t.Sub(w.began).Round(time.Millisecond).String() }
