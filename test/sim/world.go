package sim

import (
	"log/slog"
	"slices"
	"strings"
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
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

const (
	keyspace    = "outbox"
	events      = "outbox_messages"
	checkpoints = "relay_checkpoints"
	deadLetters = "dead_letter_queue"
	eventsLog   = keyspace + "." + events + "_scylla_cdc_log"
)

// maxInFlight is the default limit of events in flight of a relay: low, so that an outage
// reaches it.
const maxInFlight = 100

// topics contains the topics of events.
var topics = []string{orders.EventCreated, orders.EventCancelled, parcelMoved, parcelDelivered}

// settings contains the configuration of a scenario.
type settings struct {
	node   scyllafake.Config
	schema schema.Options
	relay  relay.Config
	orders orders.Config
	// hints makes the order services send hints to the relay.
	hints bool
	// denied includes denials of read access to topics.
	denied bool
	// brokerTime makes the brokers date the records.
	brokerTime bool
	// brokers is the number of brokers; 0 is one.
	brokers int
	// descending makes the outbox table have the last event of an aggregate first.
	descending bool
	// hostAhead is how far the clock of the relay's host is ahead of all others.
	hostAhead time.Duration
	// skews contains the clock offset of each order service; if empty, there is one
	// service with a correct clock.
	skews []time.Duration
}

// world contains all components of a bubble.
type world struct {
	t        *testing.T
	seed     uint64
	settings settings
	began    time.Time
	log      *slog.Logger
	// forgot is true if a start found more published events than it could remember, or a
	// relay ended while the broker held its records back.
	forgot atomic.Bool
	// restarts contains when relays started again in their processes, in order of time.
	restarts struct {
		sync.Mutex
		at []time.Time
	}

	net   *network
	node  *scyllafake.Server
	saves saves
	kafka *kafka
	tap   *tap

	hints    *hints            // nil without
	session  *session          // of the order services
	together *relay.Process    // of shards that run in one process
	services []*orders.Service // one for each clock
	verifier *verifier         // nil without
	ledger   *ledger

	clock       scyllatest.Clock // of all hosts but the relay's
	recordAhead atomic.Int64     // of the clock that dates the relay's records, as a time.Duration

	database     chan struct{}  // holds a token needed to connect to or stop the database
	largeParcels atomic.Bool    // parcels are too large for the broker
	frozen       bool           // the database is frozen; guarded by the token
	unlogged     bool           // the outbox table has no CDC log, without which no relay starts; guarded by the token
	launching    sync.WaitGroup // relays that are not running yet
	ending       sync.WaitGroup // crashed relays that have not ended

	mu     sync.Mutex
	relays []*process // all relays; the last one is current
	seen   outcome
}

// onVnodes selects a database whose CDC streams belong to vnodes. The default is one whose
// streams belong to tablets.
func onVnodes(s *settings) { s.node.Version = "5.1" }

// outcome contains the measurements of a simulation.
type outcome struct {
	// inFlight is the maximum number of events in flight of a relay.
	inFlight int
	// behind is the maximum lag of a relay.
	behind time.Duration
	// problems contains the problems that relays reported.
	problems map[string]bool
	// restarts is the number of reader restarts.
	restarts int
	haunted  int // rewritten old checkpoints
	// scanned is the number of events that relays handed on by a scan of the outbox
	// table.
	scanned int
	// letters is the number of dead letters, replayed and discarded count dead letters that were
	// replayed and discarded.
	deadLetters, replayed, discarded int
	// asked is the number of events that operators requested.
	asked int
	// events, records and duplicates count the outbox, the topics and the records
	// that repeat an event.
	events, records, duplicates int
	// relays is the number of relays.
	relays int
	// simulated is the virtual duration.
	simulated time.Duration
	// repeatedRows is the number of log rows of events beyond the first of each.
	repeatedRows int
	// late is the number of duplicates that requests wrote after their clients had given them up.
	late int
	// missed is the number of events that a checkpoint passed before they became visible,
	// in a range without rows: see evidence.missed.
	missed int
	// lost is the number of lost answers to produce requests, foreign the number of records of
	// other producers.
	lost, foreign int
}

// shortSeed is the seed of the simulation that -short runs: six hours without a broker.
const shortSeed = 1

// simulate runs a scenario in its own bubble: it starts the system, runs the scenario,
// ends all faults, waits until the relay has caught up, and checks the promises.
func simulate(t *testing.T, seed uint64, change func(*settings), scenario func(*world)) (seen outcome) {
	t.Helper()
	if testing.Short() && seed != shortSeed {
		t.Skip("-short runs one simulation only")
	}
	scyllatest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, seed, change)
		defer w.close()
		w.startRelay()
		scenario(w)
		w.calm()
		w.settleDeadLetters()
		w.stopVerifier()
		w.stopRelay()
		w.verify()
		w.seen.relays, w.seen.simulated = len(w.relays), time.Since(w.began)
		seen = w.seen
		t.Logf("seed %d, %s simulated: %d customers, %d relays, %d events, %d log rows of events repeated, %d duplicates, %d dead letters, %d of them replayed, %d discarded, at most %d in flight and %s behind, %d reader restarts",
			seed, w.after(time.Now()), w.ledger.arrived, len(w.relays), seen.events, seen.repeatedRows, seen.duplicates, seen.deadLetters, seen.replayed, seen.discarded,
			seen.inFlight, seen.behind.Round(time.Second), seen.restarts)
	})
	return seen
}

func newWorld(t *testing.T, seed uint64, change func(*settings)) *world {
	t.Helper()
	w := &world{
		t: t, seed: seed, began: time.Now(), net: newNetwork(seed),
		seen:     outcome{problems: make(map[string]bool)},
		database: make(chan struct{}, 1),
	}
	w.log = slog.New(&logWatcher{slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}), w})
	w.database <- struct{}{}
	w.settings = settings{
		node: scyllafake.Config{Tokens: 4, Seed: seed, RingDelay: 2 * time.Second},
		relay: relay.Config{
			Settings: relay.Settings{
				PublishSettings: relay.PublishSettings{
					MaxInFlightRecords: maxInFlight, MaxInFlightBytes: 1 << 20, Topics: make(map[string]string),
				},
				MaxStreamBacklog: maxInFlight,
			},
			LoadMeter: testworld.Idle{},
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
	if ahead := w.settings.hostAhead; ahead != 0 {
		node := w.settings.node.Now
		w.clock.Set(-ahead)
		w.settings.node.Now = func() time.Time {
			if node == nil {
				return w.clock.Now()
			}
			return node().Add(-ahead)
		}
	}
	if w.node, err = scyllafake.Start(w.settings.node); err != nil {
		t.Fatalf("start the database: %v", err)
	}
	w.kafka = startKafka(t, seed, max(1, w.settings.brokers), w.settings.brokerTime, topics...)
	w.tap = startTap(t, w.kafka, topics...)

	admin := w.connect("admin", "")
	w.settings.schema.Components = schema.Components()
	if err := schema.Migrate(t.Context(), admin.Session, w.settings.schema); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	if w.settings.descending {
		w.makeDescending(admin)
	}
	admin.Close()

	if w.settings.hostAhead == 0 {
		w.session = w.connect("orders", keyspace)
	} else {
		w.session = w.connectBy(&w.clock, "orders", keyspace)
	}
	if w.settings.hints {
		w.hints = startHints(t, seed)
		w.settings.orders.Hints = w.hints.sender
	}
	for _, skew := range append(w.settings.skews, make([]time.Duration, max(0, 1-len(w.settings.skews)))...) {
		c := w.settings.orders
		c.Logger = w.log
		c.Clock = testworld.Clock(func() time.Time { return w.clock.Now().Add(skew) })
		s, err := orders.New(w.session.Session, c)
		if err != nil {
			t.Fatalf("start the order service: %v", err)
		}
		w.services = append(w.services, s)
	}
	w.ledger = newLedger()
	return w
}

// close stops everything; a bubble must be empty at its end.
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
	time.Sleep(2 * time.Minute) // let timers of the clients expire
}

// faults returns the fault injector of the database.
func (w *world) faults() *faults.Injector { return w.node.Faults() }

// ofClock reports whether a problem of a relay is that of a clock, which no end of a fault repairs.
func ofClock(problem string) bool { return strings.Contains(problem, "synchronize") }

// calm ends all faults and waits until the customers have finished and the relay is idle.
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
		s.Problems = slices.DeleteFunc(s.Problems, ofClock)
		if s.InFlight == 0 && s.Behind < behind && len(s.Problems) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Errorf("the relay has not caught up: %+v", s)
			return
		}
	}
}

// awaitCustomers waits until all customers have finished; without faults that takes only
// a few pauses.
func (w *world) awaitCustomers() {
	w.t.Helper()
	gone := make(chan struct{})
	go func() { w.ledger.customers.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-time.After(12 * time.Hour):
		w.t.Fatal("some customers have no answer twelve hours after all faults ended")
	}
}

// after formats a time as the duration since the start of the simulation.
func (w *world) after(t time.Time) string { return t.Sub(w.began).Round(time.Millisecond).String() }
