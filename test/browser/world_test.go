//go:build browser

package browser

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/console"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schedule"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/api"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/engine"
	"github.com/scylla-outbox/scylla-outbox/test/ports"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

const (
	table = schema.DefaultKeyspace + ".outbox_messages"
	topic = "OrderCreated"
	// small is the initial size limit of the topic.
	small = "2000"
	// patience is the maximum wait for an expected state, on a busy machine, too.
	patience = 5 * time.Minute
)

// world is the whole system: database, broker, relay, jobs, API, console.
type world struct {
	t           *testing.T
	node        *scyllafake.Server
	session     *gocql.Session
	deadLetters *dlq.Store
	orders      *orders.Service
	messages    *messages.Service
	broker      *kfake.Cluster
	brokerOpts  []kfake.Opt
	brokers     []string // the address of broker, which a closed one does not have
	kafka       *kgo.Client
	engine      *engine.Engine
	schemas     *srfake.Registry
	gate        *access.Gate
	keeper      *archive.Sweeper
	tokens      map[access.Role]string
	addr        string // of the API
	stop        func() // stops the API
}

// start starts everything but the relay.
func start(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, tokens: make(map[access.Role]string)}
	w.node, w.session = scyllatest.Start(t)
	var err error
	if w.deadLetters, err = dlq.Open(w.session, schema.DefaultKeyspace, dlq.WithTimeouts(patience, patience)); err != nil {
		t.Fatal(err)
	}
	if w.orders, err = orders.New(w.session, orders.Config{AttemptTimeout: patience, WriteBudget: patience}); err != nil {
		t.Fatal(err)
	}
	if w.messages, err = messages.NewService(w.session, messages.Config{Topics: []string{"*"}, AttemptTimeout: patience}); err != nil {
		t.Fatal(err)
	}
	addrs, err := ports.Take(2)
	if err != nil {
		t.Fatal(err)
	}
	port, err := net.LookupPort("tcp", addrs[1][strings.LastIndexByte(addrs[1], ':')+1:])
	if err != nil {
		t.Fatal(err)
	}
	w.brokerOpts = []kfake.Opt{kfake.NumBrokers(1), kfake.DefaultNumPartitions(3), kfake.Ports(port), kfake.DataDir(t.TempDir())}
	w.startBroker()
	t.Cleanup(func() { w.broker.Close() })
	if w.kafka, err = kgo.NewClient(kgo.SeedBrokers(w.brokers...)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.kafka.Close)
	w.engine = newEngine(t, w)
	w.schemas = srfake.New()
	t.Cleanup(w.schemas.Close)
	var conf access.Config
	for _, r := range access.Roles {
		secret, hash := access.NewToken()
		w.tokens[r] = secret
		conf.Tokens = append(conf.Tokens, access.Token{Name: "mara-" + string(r), Role: r, Hash: hash})
	}
	if w.gate, err = access.New(conf); err != nil {
		t.Fatal(err)
	}
	a, err := archive.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	sweeper, err := archive.NewSweeper(archive.Config{Store: w.deadLetters, Archive: a, Owner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	w.keeper = sweeper
	w.serve(addrs[0])
	return w
}

// startBroker starts the broker, again after its Close: on the same port, with its former data.
func (w *world) startBroker() {
	w.t.Helper()
	var err error
	if w.broker, err = kfake.NewCluster(w.brokerOpts...); err != nil {
		w.t.Fatal(err)
	}
	w.brokers = w.broker.ListenAddrs()
}

// serve runs the API with the console at an address.
func (w *world) serve(addr string) {
	w.t.Helper()
	schemas, err := registry.New(w.schemas.URL(), nil, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	server, err := admin.New(admin.Config{
		Session: w.session, Keyspace: schema.DefaultKeyspace, DeadLetters: w.deadLetters, Gate: w.gate, Kafka: testworld.Kafka{kgo.SeedBrokers(w.brokers...)}, Relay: "orders",
		Tables:  []admin.Table{{Keyspace: schema.DefaultKeyspace, Name: outbox.DefaultTableName}},
		Routes:  []func(huma.API){w.orders.Register, messages.NewAPI(w.messages).RegisterKept, messages.NewAPI(w.messages).RegisterMany, api.Operators(w.engine, slog.New(slog.DiscardHandler))},
		Console: console.Handler(console.Settings{TraceURL: "https://traces.example/trace/{trace_id}", Orders: true, SignIn: w.gate.SignIn()}),
		Archive: w.keeper, Registry: schemas, Written: w.written, Subscriptions: running{w.engine}, Redeliverer: w.redeliverer(),
		Timeout: patience, LiveInterval: 200 * time.Millisecond, DrainTimeout: 100 * time.Millisecond,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(w.t.Context(), "tcp", addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.addr = l.Addr().String()
	w.stop = w.background("API", func(ctx context.Context) error {
		_ = server.Serve(ctx, l) // a stream that does not end in time is closed
		return nil
	})
}

// running are the subscriptions of this process. Pages of events have none.
type running struct{ *engine.Engine }

func (running) Of(context.Context, *kgo.Record) ([]subscriptions.Progress, error) { return nil, nil }

// background runs f until stop, or the end of the test.
func (w *world) background(name string, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("%s: %v", name, err)
		}
	}
	w.t.Cleanup(stop)
	return stop
}

// relay starts the relay, and a topic that accepts small records only.
func (w *world) relay() (end func()) {
	w.t.Helper()
	limit := small
	if _, err := kadm.NewClient(w.kafka).CreateTopic(w.t.Context(), 3, 1, map[string]*string{"max.message.bytes": &limit}, topic); err != nil {
		w.t.Fatal(err)
	}
	conf := relay.Config{Session: w.session, Brokers: w.brokers, Keyspace: schema.DefaultKeyspace, Logger: slog.New(slog.DiscardHandler)}
	conf.Name, conf.Partitions, conf.Replication = "orders", 3, 1
	conf.ConfidenceWindow, conf.BusyDelay, conf.IdleDelay, conf.ReplayPoll = 30*time.Second, 200*time.Millisecond, 200*time.Millisecond, 100*time.Millisecond
	r, err := relay.New(conf)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.background("relay", func(ctx context.Context) error {
		go r.Heartbeat(ctx, "test", 200*time.Millisecond)
		return r.Run(ctx)
	})
}

// scheduler hands messages to the outbox when they are due, as a relay's process does.
func (w *world) scheduler() {
	w.t.Helper()
	s, err := schedule.New(schedule.Config{Store: schedule.NewStore(w.session, gocql.LocalQuorum, patience), Poll: 20 * time.Millisecond, Sweep: 200 * time.Millisecond})
	if err != nil {
		w.t.Fatal(err)
	}
	w.background("scheduler", s.Run)
}

// raiseLimit lets the topic accept large records.
func (w *world) raiseLimit() {
	w.t.Helper()
	large := "1048576"
	if _, err := kadm.NewClient(w.kafka).AlterTopicConfigs(w.t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &large}}, topic); err != nil {
		w.t.Fatal(err)
	}
}

// store stores events of one aggregate like a service, with payloads of these
// sizes.
func (w *world) store(sizes ...int) (ids []gocql.UUID) {
	w.t.Helper()
	aggregate := outbox.NewID().UUID()
	for i, size := range sizes {
		e := outbox.Event{
			ID: outbox.NewID(), AggregateID: outbox.IDFromUUID(aggregate), Sequence: int64(i + 1), AggregateType: "order", Type: topic,
			Payload: fmt.Appendf(nil, `{"order":%q,"total":12345678901234567890.50,"note":%q}`, aggregate, noise(size)), ContentType: "application/json",
			Headers: map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
		}
		b := w.session.Batch(gocql.LoggedBatch)
		if err := outbox.Append(b, e); err != nil {
			w.t.Fatal(err)
		}
		if err := b.Exec(); err != nil {
			w.t.Fatal(err)
		}
		ids = append(ids, e.ID.UUID())
	}
	return ids
}

// noise is text that no compression makes small.
func noise(n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%016x", rand.Uint64())
	}
	return b.String()[:n]
}

// until waits for a state of a dead letter.
func (w *world) until(id gocql.UUID, what string, ok func(*dlq.DeadLetter) bool) dlq.DeadLetter {
	w.t.Helper()
	var l dlq.DeadLetter
	var err error
	if !eventually(func() bool {
		l, err = w.deadLetters.Read(w.t.Context(), id)
		return err == nil && ok(&l)
	}) {
		w.t.Fatalf("dead letter %s is %s (%s), %v; want it %s", id, l.Status, l.ErrorClass, err, what)
	}
	return l
}

func is(s dlq.Status) func(*dlq.DeadLetter) bool {
	return func(l *dlq.DeadLetter) bool { return l.Status == s }
}

// records are the values in the topic by event id.
func (w *world) records(want int) map[string][]string {
	w.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	out, n := make(map[string][]string), 0
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for n < want && ctx.Err() == nil {
		c.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			n++
			for _, h := range r.Headers {
				if h.Key == "ce_id" {
					out[string(h.Value)] = append(out[string(h.Value)], string(r.Value))
				}
			}
		})
	}
	return out
}

// tooLarge stores n events that the topic refuses, and waits for their dead letters.
func (w *world) tooLarge(n int) (ids []gocql.UUID) {
	w.t.Helper()
	for range n {
		ids = append(ids, w.store(4000)...)
	}
	for _, id := range ids {
		w.until(id, "suspended", is(dlq.Suspended))
	}
	return ids
}

// writeDeadLetter writes a dead letter directly.
func (w *world) writeDeadLetter(change func(*dlq.DeadLetter)) gocql.UUID {
	w.t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	l := dlq.DeadLetter{
		Table: table, EventID: outbox.NewID().UUID(), AggregateID: outbox.NewID().String(), AggregateType: "order", EventType: topic, Sequence: 1,
		Payload: []byte(`{"n":1}`), ContentType: "application/json", Headers: map[string]string{}, CreatedAt: now, WrittenAt: now.UnixMicro(), Topic: topic,
		Status: dlq.Suspended, ErrorClass: "record_too_large", ErrorCode: "MESSAGE_TOO_LARGE", ErrorText: "the record has 4000 bytes, the topic accepts 2000",
		ErrorChain: []string{"publish", "the record is too large"}, Attempts: 1, FirstFailedAt: now, LastFailedAt: now, Strategy: dlq.StrategyManual,
	}
	if change != nil {
		change(&l)
	}
	if _, err := w.deadLetters.Write(w.t.Context(), &l); err != nil {
		w.t.Fatal(err)
	}
	return l.EventID
}

// eventually polls until ok or the end of patience.
func eventually(ok func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(30 * time.Millisecond) {
		if ok() {
			return true
		}
	}
	return ok()
}

func mustID(t *testing.T, text string) gocql.UUID {
	t.Helper()
	id, err := gocql.ParseUUID(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (w *world) jobs() *jobs.Store { return jobs.New(w.deadLetters) }
