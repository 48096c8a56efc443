package reacting

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

const (
	// busy is how long everything goes wrong, quiet how long it takes at most until all
	// is delivered after that.
	busy  = 3 * time.Minute
	quiet = 10 * time.Minute
	// statementTimeout bounds one statement of any process.
	statementTimeout = 2 * time.Second

	partitions = 3
	brokerAddr = "127.0.0.1:9092"
)

var topics = []string{"a", "b"}

// world is everything in one bubble.
type world struct {
	t        *testing.T
	rnd      *rand.Rand
	node     *scyllafake.Server
	net      kfake.VirtualNetwork
	broker   *kfake.Cluster
	producer *kgo.Client
	host     *host
	ledger   *ledger
	troubles atomic.Int32 // how often the database began to fail
	deaths   atomic.Int32
	well     atomic.Bool // the plugins are

	mu     sync.Mutex
	events map[string]*event // by id
	lanes  map[string][]*event
}

// event is one that was published.
type event struct {
	id, topic, aggregate string
	n                    int       // its place among the ones of its aggregate in its topic
	at                   time.Time // when it was published
}

// simulate runs a story in a bubble, and judges what came of it.
func simulate(t *testing.T, seed uint64, story func(*world)) {
	t.Helper()
	scyllatest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, seed)
		story(w)
		w.close()
	})
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 'w')), events: make(map[string]*event), lanes: make(map[string][]*event)}
	w.ledger = &ledger{w: w, calls: make(map[string][]*call)}
	conf := scyllatest.Config()
	conf.Seed = seed
	w.node = scyllatest.Node(t, conf)
	var err error
	w.broker, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(w.net.Listen), kfake.SeedTopics(partitions, topics...))
	if err != nil {
		t.Fatal(err)
	}
	if w.producer, err = kgo.NewClient(kgo.SeedBrokers(brokerAddr), kgo.Dialer(w.net.DialContext)); err != nil {
		t.Fatal(err)
	}
	return w
}

// people makes the host; mortal processes die now and then.
func (w *world) people(mortal bool) {
	life := 0
	if mortal {
		life = []int{0, 30, 100, 300}[w.rnd.IntN(4)]
	}
	w.host = &host{w: w, name: "host", rnd: w.random(), life: life, mortal: mortal}
}

func (w *world) random() *rand.Rand { return rand.New(rand.NewPCG(w.rnd.Uint64(), 'r')) }

// minute lets the host run while events are published and things go wrong, then lets
// what is left be done, and judges.
func (w *world) minute(troubled bool) {
	ctx, end := context.WithTimeout(w.t.Context(), busy)
	defer end()
	var all sync.WaitGroup
	all.Go(func() { w.host.live(ctx) })
	time.Sleep(5 * time.Second) // the groups have formed: a rule begins with what comes from then on
	rnd, n := w.random(), 40+w.rnd.IntN(60)
	all.Go(func() { w.publish(ctx, rnd, n) })
	if troubled {
		rnd := w.random()
		all.Go(func() { w.trouble(ctx, rnd) })
	}
	all.Wait()
	// Everything is well again, with one process.
	w.well.Store(true)
	last := &host{w: w, name: "last", rnd: w.random()}
	ctx, stop := context.WithTimeout(w.t.Context(), quiet)
	defer stop()
	last.live(ctx)
	w.judge()
}

// publish publishes n events of few aggregates, at their times.
func (w *world) publish(ctx context.Context, rnd *rand.Rand, n int) {
	for i := range n {
		_ = retry.Wait(ctx, time.Duration(rnd.ExpFloat64()*float64(busy*2/3)/float64(n)))
		e := &event{topic: topics[rnd.IntN(len(topics))], aggregate: fmt.Sprint("thing-", rnd.IntN(6))}
		o := outbox.Event{
			ID: outbox.NameID(gocql.UUID{1}, fmt.Sprint(i)), AggregateText: e.aggregate, Sequence: int64(i + 1), AggregateType: "thing", Type: "Happened",
			Payload: []byte("{}"), CreatedAt: time.Now(), ContentType: "application/json",
		}
		e.id = o.ID.String()
		w.mu.Lock()
		lane := e.topic + "/" + e.aggregate
		e.n, e.at = len(w.lanes[lane]), time.Now()
		w.events[e.id] = e
		w.lanes[lane] = append(w.lanes[lane], e)
		w.mu.Unlock()
		r := &kgo.Record{Topic: e.topic, Key: o.Key(), Value: o.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &o, "/s")}
		if err := w.producer.ProduceSync(w.t.Context(), r).FirstErr(); err != nil {
			w.t.Errorf("publish: %v", err)
		}
	}
}

func (w *world) store(s *gocql.Session) *delivery.Store {
	store, err := delivery.Open(delivery.Config{Session: s, Keyspace: schema.DefaultKeyspace, Timeout: statementTimeout})
	if err != nil {
		w.t.Fatal(err)
	}
	return store
}

// close ends everything; a bubble must be empty at its end.
func (w *world) close() {
	w.producer.Close()
	w.broker.Close()
	if err := w.node.Close(); err != nil {
		w.t.Error(err)
	}
	time.Sleep(2 * time.Minute) // what the driver has on timers
}
