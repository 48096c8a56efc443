package engine

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

const testPartitions = 4

var errTest = errors.New("no luck")

// world is an in-memory broker with a producer and a database, in a synctest bubble.
type world struct {
	t        *testing.T
	net      kfake.VirtualNetwork
	broker   *kfake.Cluster
	producer *kgo.Client
	adm      *kadm.Client
	db       *memory
	log      *logtest.Buffer
	stops    []func()
	engines  int
}

// eachBroker runs f in a bubble for each version of the broker that subscriptions support.
func eachBroker(t *testing.T, f func(w *world, v *testworld.BrokerVersion)) {
	t.Helper()
	testworld.EachBroker(t, func(t *testing.T, v *testworld.BrokerVersion) {
		if v.TopicIDs {
			inBubble(t, func(w *world) { f(w, v) }, v.Options()...)
		}
	})
}

// inBubble runs f with a world in virtual time.
func inBubble(t *testing.T, f func(w *world), broker ...kfake.Opt) {
	t.Helper()
	outer := t
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, db: newMemory(), log: new(logtest.Buffer)}
		var err error
		w.broker, err = kfake.NewCluster(append(broker, kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(w.net.Listen), kfake.SeedTopics(testPartitions, "a", "b"))...)
		if err != nil {
			t.Fatal(err)
		}
		if w.producer, err = kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9092"), kgo.Dialer(w.net.DialContext)); err != nil {
			t.Fatal(err)
		}
		w.adm = kadm.NewClient(w.producer)
		defer func() {
			for _, stop := range w.stops {
				stop()
			}
			w.producer.Close()
			w.broker.Close()
			if outer.Failed() || t.Failed() {
				t.Log(w.log)
			}
		}()
		f(w)
	})
}

// put creates a subscription.
func (w *world) put(s subscriptions.Subscription) {
	w.t.Helper()
	s = s.WithDefaults()
	if err := s.Validate(); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.db.Put(context.Background(), s, "test"); err != nil {
		w.t.Fatal(err)
	}
}

// process is an Engine with its network and its database connection.
type process struct {
	*Engine
	w    *world
	name string
	reg  *prometheus.Registry
	stop func()

	mu     sync.Mutex
	frozen bool // the network hangs
	dead   bool // the network and the database are cut
	thaw   *sync.Cond
	conns  []net.Conn
}

// start runs an engine until its stop is called or the bubble ends. It returns when the
// engine has its partitions.
func (w *world) start(options ...func(*Config)) *process {
	w.t.Helper()
	w.engines++
	p := &process{w: w, name: "i" + strconv.Itoa(w.engines), reg: prometheus.NewRegistry()}
	p.thaw = sync.NewCond(&p.mu)
	cfg := Config{
		// The broker of tests begins its rebalance timeout anew with each repeated request
		// to join. Therefore these are rarer than that.
		Kafka: []kgo.Opt{kgo.SeedBrokers("127.0.0.1:9092"), kgo.Dialer(p.dial), kgo.RequestTimeoutOverhead(4 * rebalanceTimeout)}, Store: &connection{w.db, p}, DeadLetters: &connection{w.db, p}, Instance: p.name,
		Registerer: p.reg, Logger: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})).With("instance", p.name),
	}
	for _, set := range options {
		set(&cfg)
	}
	e, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	p.Engine = e
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := e.Run(ctx); err != nil {
			w.t.Errorf("Run() = %v", err)
		}
	}()
	p.stop = sync.OnceFunc(func() { p.freeze(false); cancel(); <-done })
	w.stops = append(w.stops, p.stop)
	w.sleep(10 * time.Second)
	return p
}

// kill cuts the process off; nothing that it does has an effect.
func (p *process) kill() {
	p.mu.Lock()
	p.dead = true
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.freeze(false)
}

// freeze lets the network of the process hang, as that of one that is stopped.
func (p *process) freeze(frozen bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = frozen
	p.thaw.Broadcast()
}

// cut closes the connections to the broker, which the client opens again.
func (p *process) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func (p *process) alive() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return errTest
	}
	return nil
}

func (p *process) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := p.w.net.DialContext(ctx, network, addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.dead {
		_ = conn.Close()
		return nil, errTest
	}
	if err != nil {
		return nil, err
	}
	p.conns = append(p.conns, conn)
	return &link{conn, p}, nil
}

// link is a connection that hangs while its process is frozen.
type link struct {
	net.Conn
	p *process
}

func (l *link) wait() {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	for l.p.frozen {
		l.p.thaw.Wait()
	}
}

func (l *link) Write(b []byte) (int, error) {
	l.wait()
	return l.Conn.Write(b)
}

func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	l.wait()
	return n, err
}

// connection is the database connection of a process.
type connection struct {
	*memory
	p *process
}

func (c *connection) ClaimPartition(ctx context.Context, p store.Partition, owner string) (int64, error) {
	if err := c.p.alive(); err != nil {
		return 0, err
	}
	return c.memory.ClaimPartition(ctx, p, owner)
}

func (c *connection) SetHandOver(ctx context.Context, p store.Partition, epoch int64, leases []byte) error {
	if err := c.p.alive(); err != nil {
		return err
	}
	return c.memory.SetHandOver(ctx, p, epoch, leases)
}

func (c *connection) Save(ctx context.Context, p store.Partition, epoch int64, rows []store.Stored) error {
	if err := c.p.alive(); err != nil {
		return err
	}
	return c.memory.Save(ctx, p, epoch, rows)
}

func (c *connection) Remove(ctx context.Context, p store.Partition, epoch int64, offsets []int64) error {
	if err := c.p.alive(); err != nil {
		return err
	}
	return c.memory.Remove(ctx, p, epoch, offsets)
}

func (c *connection) Write(ctx context.Context, d *dlq.DeadLetter) (dlq.Status, error) {
	if err := c.p.alive(); err != nil {
		return "", err
	}
	return c.memory.Write(ctx, d)
}

// sleep advances the time until all goroutines are idle.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// event returns the record of an event with a name and a key.
func event(topic, key, name string, headers ...kgo.RecordHeader) *kgo.Record {
	e := outbox.Event{
		ID: outbox.NameID(gocql.UUID{1}, topic, name), AggregateID: outbox.IDFromText(key), Sequence: 1, AggregateType: "thing", Type: "Made", Payload: []byte(`{"name":"` + name + `"}`),
		CreatedAt: time.Now(), Headers: map[string]string{"name": name}, ContentType: "application/json",
	}
	return &kgo.Record{Topic: topic, Key: e.Key(), Value: e.Payload, Headers: append(outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s"), headers...)}
}

// keyBeside returns another key of the same partition.
func keyBeside(key string) string {
	place := func(key string) int {
		return kgo.StickyKeyPartitioner(nil).ForTopic("a").Partition(&kgo.Record{Key: []byte(key)}, testPartitions)
	}
	for i := 0; ; i++ {
		if other := key + strconv.Itoa(i); place(other) == place(key) {
			return other
		}
	}
}

// produce publishes event name of a key.
func (w *world) produce(topic, key, name string, headers ...kgo.RecordHeader) {
	w.t.Helper()
	w.publish(event(topic, key, name, headers...))
}

func (w *world) publish(records ...*kgo.Record) {
	w.t.Helper()
	if err := w.producer.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

// many publishes events e0, e1 … of the given number of keys, in turn.
func (w *world) many(topic string, first, n, keys int) {
	w.t.Helper()
	var records []*kgo.Record
	for i := first; i < first+n; i++ {
		records = append(records, event(topic, "k"+strconv.Itoa(i%keys), "e"+strconv.Itoa(i)))
	}
	w.publish(records...)
}

// receive returns up to n messages.
func (p *process) receive(n int, wait time.Duration) []subscriptions.Message {
	p.w.t.Helper()
	out, err := p.Receive(context.Background(), "s", subscriptions.Receive{Max: n, Wait: wait})
	if err != nil {
		p.w.t.Fatal(err)
	}
	return out
}

// all receives until there is nothing more.
func (p *process) all() (out []subscriptions.Message) {
	p.w.t.Helper()
	for {
		some := p.receive(1000, 0)
		if len(some) == 0 {
			return out
		}
		out = append(out, some...)
	}
}

// settle applies an action to messages and returns the codes.
func (p *process) settle(a subscriptions.Action, messages ...subscriptions.Message) (codes []subscriptions.Code) {
	p.w.t.Helper()
	for len(messages) > 0 {
		n := min(len(messages), subscriptions.MaxReceipts)
		var actions []subscriptions.Settle
		for _, m := range messages[:n] {
			actions = append(actions, subscriptions.Settle{Action: a, Receipt: m.Receipt})
		}
		results, err := p.Settle(context.Background(), "s", actions)
		if err != nil {
			p.w.t.Fatal(err)
		}
		for _, r := range results {
			codes = append(codes, r.Code)
		}
		messages = messages[n:]
	}
	return codes
}

// ok fails the test unless all actions succeed.
func (p *process) ok(a subscriptions.Action, messages ...subscriptions.Message) {
	p.w.t.Helper()
	for i, c := range p.settle(a, messages...) {
		if c != subscriptions.CodeOK {
			p.w.t.Fatalf("%s of %s = %s", a, nameOfMessage(&messages[i]), c)
		}
	}
}

func nameOfMessage(m *subscriptions.Message) string { return m.Headers["name"] }

func names(messages []subscriptions.Message) (out []string) {
	for i := range messages {
		out = append(out, nameOfMessage(&messages[i]))
	}
	return out
}
