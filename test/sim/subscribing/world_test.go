package subscribing

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/verify"
	"github.com/scylla-outbox/scylla-outbox/test/sim/line"
)

const (
	// busy is the time in which everything fails, quiet bounds the time until every
	// message is settled afterwards.
	busy, quiet = time.Minute, 10 * time.Minute
	// sessionTimeout is that of the engine.
	sessionTimeout = 12 * time.Second

	partitions = 3
	brokerAddr = "127.0.0.1:9092"
)

var topics = []string{"a", "b"}

// counts are what a simulation is about. TestSeeds checks that each of them occurs.
type counts struct {
	messages, deliveries, again, acknowledged, expired, unknown, deadLettered, deaths, frozen, troubles, seeks, purges, replays, resizes, deleted, late,
	recreated, offsetsLost, calls, hangs, panics, refused, diedAfterCall, unwanted, stops atomic.Int64
}

// world is everything in a bubble.
type world struct {
	t           *testing.T
	rnd         *rand.Rand
	log         *logtest.Buffer
	node        *scyllafake.Server
	net         kfake.VirtualNetwork
	broker      *kfake.Cluster
	producer    *kgo.Client
	admin       *kadm.Client
	session     *gocql.Session // never fails
	store       *store.Store
	deadLetters *dlq.Store
	key         []byte
	counts      *counts
	calm        atomic.Bool  // nothing fails, and consumers acknowledge everything
	slow        atomic.Int32 // positive while the broker answers fetches slowly
	dark        atomic.Bool  // no process runs

	sick          int       // percentage of the calls of the plugin that fail
	settledAt     time.Time // when all messages were settled
	subscriptions []*ledger
	running       sync.WaitGroup // processes

	mu struct {
		sync.Mutex
		processes map[string]*process // by host
		members   map[member]time.Time
		assigned  []time.Time    // requests after which a group has new assignments
		made      map[string]int // how often a topic was deleted
	}
}

// simulate runs a story in a bubble.
func simulate(t *testing.T, seed uint64, c *counts, story func(*world)) {
	t.Helper()
	scyllatest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, seed, c)
		story(w)
		w.close()
	})
}

func newWorld(t *testing.T, seed uint64, c *counts) *world {
	t.Helper()
	w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 's')), counts: c, log: new(logtest.Buffer)}
	w.mu.processes = make(map[string]*process)
	w.mu.members = make(map[member]time.Time)
	w.mu.made = make(map[string]int)
	conf := scyllatest.Config()
	conf.Seed = seed
	w.node = scyllatest.Node(t, conf)
	w.session = w.connect(&process{Line: new(line.Line), w: w})
	var err error
	w.store, err = store.Open(w.session, schema.DefaultKeyspace)
	must(t, err)
	w.deadLetters, err = dlq.Open(w.session, schema.DefaultKeyspace)
	must(t, err)
	w.key, err = w.store.ReceiptKey(t.Context())
	must(t, err)
	w.broker, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(w.net.Listen), kfake.SeedTopics(partitions, topics...))
	must(t, err)
	w.broker.Control(w.beforeRequest)
	w.producer, err = kgo.NewClient(kgo.SeedBrokers(brokerAddr), kgo.Dialer(w.net.DialContext), kgo.MetadataMinAge(time.Second), kgo.MetadataMaxAge(5*time.Second))
	must(t, err)
	w.admin = kadm.NewClient(w.producer)
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// connect opens a session of a process.
func (w *world) connect(p *process) *gocql.Session {
	w.t.Helper()
	c := scyllatest.Cluster(w.node, schema.DefaultKeyspace)
	c.Dialer = p.clock.Dialer(line.Dialer{Line: p.Line, Dial: func(ctx context.Context) (net.Conn, error) {
		conn, err := w.node.Dial(ctx)
		if err != nil {
			return nil, err
		}
		// The driver holds locks while it writes; a frozen process receives nothing.
		return &link{Conn: conn, p: p, reads: true}, nil
	}})
	c.NumConns = 1
	c.ReconnectInterval = 0
	c.Consistency = gocql.LocalQuorum
	c.Logger = log.New(io.Discard, "", 0)
	s, err := c.CreateSession()
	must(w.t, err)
	return s
}

func (w *world) random() *rand.Rand { return rand.New(rand.NewPCG(w.rnd.Uint64(), 'r')) }

// subscribe creates a subscription and its ledger.
func (w *world) subscribe(s subscriptions.Subscription) *ledger {
	w.t.Helper()
	s.Start = subscriptions.StartEarliest
	s = s.WithDefaults()
	must(w.t, s.Validate())
	if _, err := w.store.Put(w.t.Context(), s, "test"); err != nil {
		w.t.Fatal(err)
	}
	l := newLedger(w, s)
	w.subscriptions = append(w.subscriptions, l)
	return l
}

// publish publishes a message of a key and records its place.
func (w *world) publish(topic, key, name string, headers map[string]string) {
	e := outbox.Event{
		ID: outbox.NameID(gocql.UUID{1}, name), AggregateID: outbox.IDFromText(key), Sequence: 1, AggregateType: "thing", Type: "Happened", Payload: []byte("{}"),
		CreatedAt: time.Now(), ContentType: "application/json", Headers: map[string]string{"name": name},
	}
	r := &kgo.Record{Topic: topic, Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")}
	for k, v := range headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: k, Value: []byte(v)})
	}
	if err := w.producer.ProduceSync(context.Background(), r).FirstErr(); err != nil {
		w.t.Errorf("publish: %v", err)
		return
	}
	w.counts.messages.Add(1)
	for _, l := range w.subscriptions {
		l.recordPublished(&message{
			once: headers[subscriptions.HeaderMaxReceive] != "", unwanted: headers[headerUnwanted] != "",
			name: name, key: key, topic: topic, partition: r.Partition, offset: r.Offset, made: w.made(topic), at: r.Timestamp,
		})
	}
}

// produce publishes n messages, most of them of few keys, until ctx ends. If recreates is set, it
// also deletes topics and creates them again.
func (w *world) produce(ctx context.Context, rnd *rand.Rand, n int, recreates bool) {
	for i := range n {
		if recreates && rnd.IntN(n/3) == 0 {
			w.recreate(topics[rnd.IntN(len(topics))], time.Duration(rnd.Int64N(int64(3*time.Second))))
		}
		_ = retry.Wait(ctx, time.Duration(rnd.ExpFloat64()*float64(busy*2/3)/float64(n)))
		key := fmt.Sprint("k", int(rnd.ExpFloat64()*4))
		headers := map[string]string{}
		if rnd.IntN(10) == 0 {
			headers[subscriptions.HeaderMaxReceive] = "1"
		}
		if rnd.IntN(20) == 0 {
			headers[headerUnwanted] = "1"
			w.counts.unwanted.Add(1)
		}
		w.publish(topics[rnd.IntN(len(topics))], key, fmt.Sprint("m", i), headers)
	}
}

// awaitSettled waits until every message is settled, and reports whether it is.
func (w *world) awaitSettled() bool {
	for end := time.Now().Add(quiet); time.Now().Before(end); time.Sleep(2 * time.Second) {
		all := true
		for _, l := range w.subscriptions {
			r, err := verify.Check(w.t.Context(), verify.Config{Store: w.store, DeadLetters: w.deadLetters, Kafka: w.admin}, l.Name)
			must(w.t, err)
			all = all && r.Waiting == 0 && r.Stored == 0 && r.DeadLetters == l.leftOpen()
		}
		if all {
			w.settledAt = time.Now()
			return true
		}
	}
	return false
}

// close ends everything; a bubble must be empty at its end.
func (w *world) close() {
	w.running.Wait()
	w.session.Close()
	w.producer.Close()
	w.broker.Close()
	if err := w.node.Close(); err != nil {
		w.t.Error(err)
	}
	time.Sleep(2 * time.Minute) // timers of the driver
	synctest.Wait()
}
