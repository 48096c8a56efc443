package releases

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/inbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schedule"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/api"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/engine"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
	"github.com/scylla-outbox/scylla-outbox/test/clitest"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

// keyspace is that of all tests; that of a given cluster is fresh.
var keyspace = schema.DefaultKeyspace

const (
	brokerAddr = "127.0.0.1:9092"
	// unnumbered is an outbox table of a service: ids are texts, and there are no sequence
	// numbers.
	unnumbered = "shop_events"
)

// own returns the statements of the tables of services and consumers, which the schema does not
// contain.
func own() []string {
	return []string{
		"CREATE TABLE " + keyspace + "." + unnumbered + " (aggregateid text, id timeuuid, aggregatetype text, type text, payload text, PRIMARY KEY (aggregateid, id))" +
			" WITH cdc = {'enabled': true, 'ttl': 259200}",
		"CREATE TABLE " + keyspace + ".totals (id text PRIMARY KEY, sum bigint, applied_seq bigint, applied_id text, applied_epoch bigint)",
		inbox.OnceTable(keyspace, "mails"),
	}
}

// TestMain names the host in all rows, which are recorded.
func TestMain(m *testing.M) {
	self.Host = func() string { return "host" }
	os.Exit(m.Run())
}

// world is the embedded engines in a bubble, and the stores of all services.
type world struct {
	t           *testing.T
	node        *scyllafake.Server // nil for a given cluster
	statements  *statements        // nil records none
	net         kfake.VirtualNetwork
	broker      *kfake.Cluster
	client      *kgo.Client
	kafka       *kadm.Client
	session     *gocql.Session
	deadLetters *dlq.Store
	jobs        *jobs.Store
	sweeper     *archive.Sweeper
	archiveDir  string
	orders      *orders.Service
	messages    *messages.Service
	subs        *store.Store
	accept      func()   // ends the last call of refuse
	running     []func() // stop what runs
}

// bubble runs f with empty engines under virtual time, which begins at the given time. The node has
// the identity, a random one if it is nil, with vnodes, like the nodes that the releases wrote to.
func bubble(t *testing.T, at time.Time, id *topology.Identity, f func(*world)) {
	t.Helper()
	bubbleOn(t, at, scyllafake.Config{Tokens: 4, Version: "5.1", Identity: id}, f)
}

// bubbleOn is bubble with the configuration of the node, and options of the broker.
func bubbleOn(t *testing.T, at time.Time, conf scyllafake.Config, f func(*world), broker ...kfake.Opt) {
	t.Helper()
	scyllatest.Bubble(t, func(t *testing.T) {
		time.Sleep(time.Until(at))
		w := &world{t: t, archiveDir: t.TempDir()}
		var err error
		w.node, err = scyllafake.Start(conf)
		w.must(err)
		w.startBroker(broker...)
		defer w.close()
		f(w)
	})
}

// startBroker starts the broker and its clients.
func (w *world) startBroker(opts ...kfake.Opt) {
	var err error
	w.broker, err = kfake.NewCluster(append(opts, kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(w.net.Listen))...)
	w.must(err)
	w.client, err = kgo.NewClient(w.brokers(kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	w.must(err)
	w.kafka = kadm.NewClient(w.client)
}

// close ends everything; a bubble must be empty at its end.
func (w *world) close() {
	for _, stop := range w.running {
		stop()
	}
	if w.session != nil {
		sessions.Close(w.session)
	}
	w.client.Close()
	w.broker.Close()
	if w.node == nil {
		return
	}
	if err := w.node.Close(); err != nil {
		w.t.Error(err)
	}
	time.Sleep(2 * time.Minute) // timers of the driver
	synctest.Wait()
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// must1 returns v of a call that must succeed.
func must1[V any](w *world) func(v V, err error) V {
	return func(v V, err error) V {
		w.t.Helper()
		w.must(err)
		return v
	}
}

func (w *world) brokers(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{kgo.SeedBrokers(brokerAddr), kgo.Dialer(w.net.DialContext)}, more...)
}

func (w *world) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
}

// connect returns a session; the keyspace may be empty.
func (w *world) connect(in string) *gocql.Session {
	c := given(in)
	if w.node != nil {
		c = scyllatest.Cluster(w.node, in)
		c.NumConns, c.ReconnectInterval = 1, 0
	}
	c.Consistency = gocql.LocalQuorum
	w.observe(c)
	c.Logger = log.New(io.Discard, "", 0)
	s, err := c.CreateSession()
	w.must(err)
	s.SetPrefetch(0)
	return s
}

// observe records the statements of sessions with the configuration.
func (w *world) observe(c *gocql.ClusterConfig) {
	if w.statements != nil {
		c.QueryObserver, c.BatchObserver = w.statements, w.statements
	}
}

// config returns the configuration of the commands, for the database of this world.
func (w *world) config() *app.Config {
	c := must1[*app.Config](w)(clitest.Config(w.t, app.LoadConfigFrom, func(cmd *cobra.Command) { app.AddFlags(cmd, app.RelaySections...) }, "", nil,
		"--scylla-keyspace", keyspace, "--scylla-hosts", cmp.Or(os.Getenv(hostsVar), "127.0.0.1")))
	c.Scylla.Username, c.Scylla.Password, c.Scylla.Timeout = os.Getenv(userVar), os.Getenv(passwordVar), 10*time.Second
	c.Scylla.Configure = func(cluster *gocql.ClusterConfig) {
		if w.node != nil {
			cluster.Dialer, cluster.NumConns, cluster.ReconnectInterval = w.node, 1, 0
		}
		w.observe(cluster)
	}
	return c
}

// migrate applies today's schema.
func (w *world) migrate() {
	s := w.connect("")
	defer sessions.Close(s)
	w.must(schema.Migrate(w.t.Context(), s, schema.Options{Keyspace: keyspace, Components: schema.Components()}))
}

// open opens today's stores on the keyspace.
func (w *world) open() {
	w.session = w.connect(keyspace)
	var err error
	w.deadLetters, err = dlq.Open(w.session, keyspace)
	w.must(err)
	w.jobs = jobs.New(w.deadLetters)
	objects, err := archive.Open(w.t.Context(), w.archiveDir)
	w.must(err)
	w.t.Cleanup(func() { _ = objects.Close() })
	sweeper, err := archive.NewSweeper(archive.Config{Store: w.deadLetters, Archive: objects, Owner: "releases"})
	w.must(err)
	w.sweeper = sweeper
	w.orders, err = orders.New(w.session, orders.Config{Logger: w.logger()})
	w.must(err)
	w.messages, err = messages.NewService(w.session, messages.Config{Topics: []string{"reminders"}, Logger: w.logger()})
	w.must(err)
	w.subs, err = store.Open(w.session, keyspace)
	w.must(err)
}

// run runs f until the returned function is called.
func (w *world) run(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f(ctx); err != nil {
			w.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	w.running = append(w.running, stop)
	return stop
}

// relays runs the relays of both outbox tables, as the one shard of an instance. metrics are the
// metrics of the relay of outbox_messages.
func (w *world) relays() (metrics prometheus.Gatherer, stop func()) {
	agreed, err := (&relay.Agreement{Session: w.session, Keyspace: keyspace, Name: relay.Defaults().Name}).AgreeOn(w.t.Context(), 1)
	if err != nil || agreed != 1 {
		w.t.Fatalf("the relay has %d shards, %v; want 1", agreed, err)
	}
	var stops []func()
	registry := prometheus.NewRegistry()
	for i, c := range []relay.Config{
		{Settings: relay.Settings{Table: outbox.DefaultTableName}},
		{Settings: relay.Settings{Table: unnumbered}, Mapping: outbox.Mapping{Preset: outbox.PresetDebezium}},
	} {
		c.Session, c.Keyspace, c.Logger = w.session, keyspace, w.logger()
		c.Brokers, c.Kafka = []string{brokerAddr}, []kgo.Opt{kgo.Dialer(w.net.DialContext)}
		if i == 0 {
			c.Registerer = registry
		}
		c.Shard, c.Partitions = relay.Shard{Count: 1}, 2
		c.LoadMeter = testworld.Idle{}
		c.TailMaxInterval, c.IdleDelay, c.ReplayPoll = 20*time.Second, 20*time.Second, 20*time.Second // as in package sim
		c.TailMinInterval = 5 * time.Millisecond                                                      // the waits of the story are between its doubled values
		if w.statements != nil {
			c.TailMaxInterval = time.Second // the story waits for dead letters of each of many streams
		}
		r, err := relay.New(c)
		w.must(err)
		stops = append(stops, w.run(r.Run))
		if w.statements != nil {
			stops = append(stops, w.run(func(ctx context.Context) error { r.Heartbeat(ctx, "test", 0); return nil }))
		}
	}
	return registry, func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// scheduler runs the scheduler.
func (w *world) scheduler(change ...func(*schedule.Config)) (stop func()) {
	c := schedule.Config{Store: schedule.NewStore(w.session, gocql.LocalQuorum, 3*time.Second), Owner: "releases", Logger: w.logger(), Poll: 5 * time.Second, LookAhead: 20 * time.Second}
	for _, f := range change {
		f(&c)
	}
	s, err := schedule.New(c)
	w.must(err)
	return w.run(s.Run)
}

// subscribing runs the subscriptions.
func (w *world) subscribing(instance string) (e *engine.Engine, stop func()) {
	e, err := engine.New(engine.Config{Kafka: w.brokers(), Store: w.subs, DeadLetters: w.deadLetters, Instance: instance, Address: "http://" + instance, Logger: w.logger()})
	w.must(err)
	return e, w.run(e.Run)
}

// admin serves the admin API, which records the history, until the returned function is
// called.
func (w *world) admin() (stop func()) {
	_, s := w.newAdmin()
	l, err := w.net.Listen("tcp", "127.0.0.1:8087")
	w.must(err)
	return w.run(func(ctx context.Context) error { return s.Serve(ctx, l) })
}

// idle returns the subscriptions for a process that runs none.
func (w *world) idle() *engine.Engine {
	return must1[*engine.Engine](w)(engine.NewIdle(engine.Config{Kafka: w.brokers(), Store: w.subs, DeadLetters: w.deadLetters, Instance: "none", Address: "http://none"}, w.kafka))
}

// newAdmin returns the admin API and a token for it.
func (w *world) newAdmin() (token string, s *admin.Server) {
	secret, hash := access.NewToken()
	gate, err := access.New(access.Config{Tokens: []access.Token{{Name: "operator", Role: access.Admin, Hash: hash}}, RequestsPerSecond: 1e6, RequestsBurst: 1e6})
	w.must(err)
	idle := w.idle()
	s, err = admin.New(admin.Config{
		Session: w.session, Keyspace: keyspace, DeadLetters: w.deadLetters, Gate: gate, Relay: relay.Defaults().Name, Archive: w.sweeper, Logger: w.logger(),
		Kafka:  testworld.Kafka(w.brokers()),
		Routes: []func(huma.API){w.orders.Register, messages.NewAPI(w.messages).RegisterKept, api.Operators(idle, w.logger())},
	})
	w.must(err)
	return secret, s
}

// api returns a function that gets a resource of the admin API, or posts a body to it.
func (w *world) api() func(path string, body ...string) (int, json.RawMessage) {
	secret, s := w.newAdmin()
	return func(path string, body ...string) (int, json.RawMessage) {
		r := httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, path, nil)
		if len(body) > 0 {
			r = httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, path, strings.NewReader(body[0]))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set(httpapi.ReasonHeader, "INC-311")
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, r)
		return rec.Code, rec.Body.Bytes()
	}
}
