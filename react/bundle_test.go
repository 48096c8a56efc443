package react

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
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

	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

// memory is a Deliveries in memory with injectable failures.
type memory struct {
	mu      sync.Mutex
	rows    map[gocql.UUID]delivery.Delivery
	asked   map[gocql.UUID]delivery.Asked
	since   map[string]time.Time
	reports []delivery.Report // the last
	err     error             // of every write
	saves   func(delivery.Delivery) error
}

func newMemory() *memory {
	return &memory{rows: make(map[gocql.UUID]delivery.Delivery), asked: make(map[gocql.UUID]delivery.Asked), since: make(map[string]time.Time)}
}

func (m *memory) Read(_ context.Context, id gocql.UUID) (*delivery.Delivery, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := m.rows[id]
	if !ok {
		return nil, delivery.ErrNotFound
	}
	return &d, nil
}

func (m *memory) Save(_ context.Context, d *delivery.Delivery) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil && m.saves != nil {
		if err := m.saves(*d); err != nil {
			return err
		}
	}
	if m.err == nil {
		m.rows[d.ID] = *d
	}
	return m.err
}

func (m *memory) Repeats(_ context.Context, rule string, after gocql.UUID, limit int) (out []delivery.Asked, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, a := range m.asked {
		if m.rows[id].Rule == rule && bytes.Compare(id[:], after[:]) > 0 {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b delivery.Asked) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return out[:min(len(out), limit)], m.err
}

func (m *memory) Repeated(_ context.Context, d *delivery.Delivery) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.asked, d.ID)
	return m.err
}

func (m *memory) Since(_ context.Context, rule string, first time.Time) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.since[rule]; !ok {
		m.since[rule] = first
	}
	return m.since[rule], nil
}

func (m *memory) Report(_ context.Context, all []delivery.Report) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.reports = all
	}
	return m.err
}

// repeatAll requests a repeat of all deliveries, like delivery.Store.
func (m *memory) repeatAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, d := range m.rows {
		d.State, d.Attempts, d.Repeats = delivery.Pending, 0, d.Repeats+1
		m.rows[id], m.asked[id] = d, delivery.Asked{ID: id, Topic: d.Topic, Partition: d.Partition}
	}
}

// states returns the states of all deliveries of a rule, by event id.
func (m *memory) states(rule string) map[string]delivery.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[string]delivery.State)
	for _, d := range m.rows {
		if d.Rule == rule {
			out[d.EventID] = d.State
		}
	}
	return out
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// taker is a plugin that records its events.
type taker struct {
	mu  sync.Mutex
	got []string // names of events, in order of arrival
	at  map[string][]time.Time
	all []Event
	// process, if set, returns the result of an event.
	process func(ctx context.Context, e Event) error
}

func (p *taker) CanHandle(e Event) bool { return e.Type != "Unwanted" }

func (p *taker) Process(ctx context.Context, e Event) error {
	p.mu.Lock()
	if p.at == nil {
		p.at = make(map[string][]time.Time)
	}
	p.got = append(p.got, e.Headers["name"])
	p.at[e.Headers["name"]] = append(p.at[e.Headers["name"]], time.Now())
	p.all = append(p.all, e)
	p.mu.Unlock()
	if p.process != nil {
		return p.process(ctx, e)
	}
	return nil
}

// times returns how often an event arrived.
func (p *taker) times(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.at[name])
}

func (p *taker) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.got)
}

// bundle is an in-memory broker with a producer, and the store of some
// reactors. It is created inside a synctest bubble.
type bundle struct {
	t        *testing.T
	net      kfake.VirtualNetwork
	broker   *kfake.Cluster
	kafka    []kgo.Opt
	producer *kgo.Client
	store    *memory
	log      *logtest.Buffer
	stops    []func()
}

const testPartitions = 4

// sleep advances the time until all goroutines are idle.
func (b *bundle) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// inBubble runs f with a bundle in virtual time.
func inBubble(t *testing.T, f func(b *bundle)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bundle{t: t, store: newMemory(), log: new(logtest.Buffer)}
		var err error
		b.broker, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(b.net.Listen), kfake.SeedTopics(testPartitions, "a", "b"))
		if err != nil {
			t.Fatal(err)
		}
		b.kafka = []kgo.Opt{kgo.SeedBrokers("127.0.0.1:9092"), kgo.Dialer(b.net.DialContext)}
		if b.producer, err = kgo.NewClient(b.kafka...); err != nil {
			t.Fatal(err)
		}
		defer func() {
			for _, stop := range b.stops {
				stop()
			}
			b.producer.Close()
			b.broker.Close()
			if t.Failed() {
				t.Log(b.log)
			}
		}()
		f(b)
	})
}

// running is a running reactor.
type running struct {
	b    *bundle
	reg  *prometheus.Registry
	stop func()
}

// start runs a reactor until stop is called or the bubble ends. It returns when
// the reactor has its partitions.
func (b *bundle) start(plugins map[string]Plugin, rules []Rule, change ...func(*Config)) *running {
	b.t.Helper()
	r := &running{b: b, reg: prometheus.NewRegistry()}
	cfg := Config{
		Kafka: b.kafka, Deliveries: b.store, Rules: rules, Plugins: plugins, Registerer: r.reg,
		Logger: slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&cfg)
	}
	reactor, err := New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := reactor.Run(ctx); err != nil {
			b.t.Errorf("Run() = %v", err)
		}
	}()
	r.stop = sync.OnceFunc(func() { cancel(); <-done })
	b.stops = append(b.stops, r.stop)
	b.sleep(10 * time.Second)
	return r
}

// produce publishes an event of an aggregate.
func (b *bundle) produce(topic, name, aggregate, typ, payload string) {
	b.t.Helper()
	e := outbox.Event{
		ID: outbox.NameID(gocql.UUID{1}, name), AggregateText: aggregate, Sequence: 1, AggregateType: "thing", Type: typ, Payload: []byte(payload),
		CreatedAt: time.Now(), Headers: map[string]string{"name": name}, ContentType: "application/json",
	}
	r := &kgo.Record{Topic: topic, Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")}
	if err := b.producer.ProduceSync(b.t.Context(), r).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
}

// many publishes events e0, e1 … of five aggregates.
func (b *bundle) many(topic string, first, n int) {
	b.t.Helper()
	for i := first; i < first+n; i++ {
		b.produce(topic, "e"+strconv.Itoa(i), "thing-"+strconv.Itoa(i%5), "Made", `{"n":`+strconv.Itoa(i)+`}`)
	}
}

func (r *running) metric(name string, labels ...string) float64 {
	r.b.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.b.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var have []string
			for _, l := range m.GetLabel() {
				if l.GetName() != "plugin" { // the label plugin depends on the rule
					have = append(have, l.GetValue())
				}
			}
			slices.Sort(have)
			slices.Sort(labels)
			if slices.Equal(have, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	r.b.t.Fatalf("no metric %s of %v", name, labels)
	return 0
}

// committed is the sum of a rule's committed offsets in a topic.
func (b *bundle) committed(rule, topic string) (n int64) {
	b.t.Helper()
	offsets, err := kadm.NewClient(b.producer).FetchOffsets(b.t.Context(), DefaultGroup+"."+rule)
	if err != nil {
		b.t.Fatal(err)
	}
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Topic == topic && o.At > 0 {
			n += o.At
		}
	})
	return n
}

var errTest = errors.New("no luck")
