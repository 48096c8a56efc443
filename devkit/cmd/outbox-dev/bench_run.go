package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/relay/share"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

const (
	// benchTokens is the number of CDC streams of the embedded database.
	benchTokens = 256
	// benchPatience limits the wait for the next event.
	benchPatience = 30 * time.Second
	// benchSettle is the time before a measurement for a process to reach a steady
	// state, at most as long as the load.
	benchSettle = 2 * time.Second
)

// benchmark is a run of `outbox-dev bench`.
type benchmark struct {
	benchFlags
	out, errOut io.Writer
	conf        *app.Config
	log         *slog.Logger
	embedded    bool
	forward     []string // flags of the clients, for the child processes
	program     bench.Program
	name        string // prefix of keyspaces and topics
	made        int
	dataDir     string // of the embedded engines; empty keeps data in memory

	nodes            bench.Nodes  // that report their processor time
	about            string       // the database, in a sentence; empty for the embedded one
	database, broker *bench.Child // nil if external ones are used
	client           *kgo.Client
	report           bench.Report
}

func newBenchmark(cmd *cobra.Command, f benchFlags) (*benchmark, error) {
	b := &benchmark{benchFlags: f, out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr()}
	fl := cmd.Flags()
	switch given := fl.Changed("scylla-hosts"); {
	case given != fl.Changed("kafka-seeds"):
		return nil, cli.Usage(errors.New("--scylla-hosts and --kafka-seeds belong together: set both, or neither for embedded engines"))
	default:
		b.embedded = !given
	}
	lookup := os.LookupEnv
	if b.embedded {
		lookup = app.NoEnv
	}
	path, _, err := app.ConfigFile(lookup, fl)
	if err != nil {
		return nil, err
	}
	if b.conf, err = app.LoadConfigFrom(path, lookup, fl); err != nil {
		return nil, err
	}
	if b.log, err = b.conf.Log.Logger(b.errOut); err != nil {
		return nil, err
	}
	for _, v := range os.Environ() {
		if !b.embedded || !strings.HasPrefix(v, "OUTBOX_") {
			b.program.Env = append(b.program.Env, v)
		}
	}
	if b.conf.Log.Level == "debug" {
		b.program.Log = b.errOut
	}
	fl.Visit(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Name, "scylla-") && f.Name != "scylla-keyspace" && f.Name != "scylla-metrics-port" || strings.HasPrefix(f.Name, "kafka-") || strings.HasPrefix(f.Name, "log-level") || f.Name == "config" || f.Name == "context" {
			v := f.Value.String()
			if s, ok := f.Value.(pflag.SliceValue); ok {
				v = strings.Join(s.GetSlice(), ",")
			}
			b.forward = append(b.forward, "--"+f.Name+"="+v)
		}
	})
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	b.name = "outbox_bench_" + hex.EncodeToString(id[:])
	return b, nil
}

func (b *benchmark) run(ctx context.Context) error {
	b.report = bench.Report{Head: b.head()}
	for _, part := range []func(context.Context) error{b.measureLatency, b.measureDrain, b.measureRestart} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return b.print(&b.report, b.report.Counts.OK())
}

// print prints a report. It returns an error without text if the result is not ok.
func (b *benchmark) print(r bench.Printed, ok bool) (err error) {
	switch b.output {
	case "json":
		err = json.NewEncoder(b.out).Encode(r)
	case "markdown":
		err = bench.WriteMarkdown(b.out, r)
	default:
		err = bench.WriteText(b.out, r)
	}
	if err == nil && !ok {
		err = cli.QuietError{}
	}
	return err
}

// start starts the embedded engines, unless external ones are used, and the client.
func (b *benchmark) start(teardown *daemon.Teardown) (err error) {
	if b.embedded && b.onDisk {
		if b.dataDir, err = os.MkdirTemp("", "outbox-bench-"); err != nil {
			return err
		}
		teardown.Add("data of the engines", func() error { return os.RemoveAll(b.dataDir) })
	}
	if b.embedded {
		if err := b.startDatabase(teardown); err != nil {
			return err
		}
		b.broker, err = b.program.Start("embedded broker", enginesReady("kafka"),
			"engines", "--data-dir", b.dataDir, "--cql-addr", "", "--kafka-addr", "127.0.0.1:0", "--log-format", "json")
		if err != nil {
			return err
		}
		teardown.Add("embedded broker", b.broker.Stop)
		b.conf.Kafka.Seeds = []string{b.broker.Attr("kafka")}
		b.forward = append(b.forward, "--kafka-seeds", b.broker.Attr("kafka"))
	}
	if b.client, err = b.conf.Kafka.Client(); err != nil {
		return err
	}
	teardown.AddFunc("kafka client", b.client.Close)
	return nil
}

// enginesReady is the log line of engines that are ready, with the address of one and the URL of metrics.
func enginesReady(engine string) bench.Ready {
	return bench.Ready{Message: "embedded engines running, not for production", Attrs: []string{engine, "metrics"}}
}

// serving is the log line of an API that serves.
var serving = bench.Ready{Message: "serving", Attrs: []string{"addr", "ops"}}

// startDatabase starts an embedded database, which this benchmark and its processes use
// from then on.
func (b *benchmark) startDatabase(teardown *daemon.Teardown, args ...string) (err error) {
	b.database, err = b.program.Start("embedded database", enginesReady("cql"),
		append([]string{"engines", "--data-dir", b.dataDir, "--cql-addr", "127.0.0.1:0", "--tokens", fmt.Sprint(benchTokens), "--tablet-interval", "100ms", "--node-costs=" + strconv.FormatBool(b.nodeCosts), "--log-format", "json"}, args...)...)
	if err != nil {
		return err
	}
	teardown.Add("embedded database", b.database.Stop)
	if b.nodeCosts {
		b.nodes = bench.Nodes{b.database.Attr("metrics")}
	}
	conf := *b.conf
	conf.Scylla.Hosts = []string{b.database.Attr("cql")}
	const hosts = "--scylla-hosts="
	others := slices.DeleteFunc(slices.Clone(b.forward), func(arg string) bool { return strings.HasPrefix(arg, hosts) })
	b.conf, b.forward = &conf, append(others, hosts+b.database.Attr("cql"))
	return nil
}

// place is the place of one measurement: a keyspace of its own, and topics.
type place struct {
	bench    *benchmark
	keyspace string
	topics   []string
	control  []string // control topics of the relays
	table    outbox.Table
	relay    string // the name of the relay that was started last
	session  *gocql.Session
	made     time.Time // a moment before the table was
}

// newPlace creates a keyspace with the schema.
func (b *benchmark) newPlace(ctx context.Context) (*place, error) {
	b.made++
	p := &place{bench: b, keyspace: fmt.Sprintf("%s_%d", b.name, b.made), made: time.Now()}
	admin, err := b.conf.Scylla.Session("")
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	o := b.conf.SchemaOptions(nil)
	o.Keyspace, o.Components = p.keyspace, schema.Components()
	switch {
	case b.tablets > 0:
		o.Tablets = schema.TabletsOn
		if err := b.makeKeyspace(ctx, admin, o); err != nil {
			return nil, err
		}
	case b.embedded || b.vnodes:
		o.Tablets = schema.TabletsOff
	}
	if err := schema.Migrate(ctx, admin, o); err != nil {
		return nil, err
	}
	if p.session, err = b.conf.Scylla.Session(p.keyspace); err != nil {
		return nil, err
	}
	if p.table, err = outbox.NewTable(p.keyspace, b.conf.Relay.Table); err != nil {
		return nil, err
	}
	return p, p.splitInto(ctx, b.tablets)
}

// makeKeyspace makes a keyspace whose tables have one tablet each: with the default of
// ScyllaDB all tables together have too many, and each gets fewer than it asks for.
func (b *benchmark) makeKeyspace(ctx context.Context, admin *gocql.Session, o schema.Options) error {
	var text strings.Builder
	if err := schema.Print(&text, o); err != nil {
		return err
	}
	create := strings.Replace(schema.Statements(text.String())[0], "'enabled': true", "'enabled': true, 'initial': 1", 1)
	if err := admin.Query(create).WithContext(ctx).Exec(); err != nil {
		return fmt.Errorf("make keyspace %s: %w", o.Keyspace, err)
	}
	return nil
}

// tabletPatience limits the wait for the tablets of a table: the database looks at the
// sizes each minute, and new streams begin 65 s later.
const tabletPatience = 5 * time.Minute

// splitInto asks for so many tablets of the table, and waits for as many streams; 0 is as
// many as the database gives it. Where it gives fewer, reports show their number.
func (p *place) splitInto(ctx context.Context, tablets int) error {
	if tablets < 2 {
		return nil
	}
	alter := fmt.Sprintf("ALTER TABLE %s.%s WITH tablets = {'min_tablet_count': %d}", p.keyspace, p.bench.conf.Relay.Table, tablets)
	if err := p.session.Query(alter).WithContext(ctx).Exec(); err != nil {
		return fmt.Errorf("ask for %d tablets: %w", tablets, err)
	}
	for end := time.Now().Add(tabletPatience); ; {
		s, err := p.streams(ctx)
		if err != nil || len(s.Current) == tablets {
			return err
		}
		if time.Now().After(end) {
			p.bench.progress("the table has %d streams instead of %d", len(s.Current), tablets)
			return nil
		}
		if err := stoppable(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// streams reads the streams of the table.
func (p *place) streams(ctx context.Context) (bench.Streams, error) {
	return bench.ReadStreams(ctx, p.session, p.keyspace, p.bench.conf.Relay.Table, p.made)
}

// remove drops the keyspace and the topics.
func (p *place) remove(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	err := p.session.Query("DROP KEYSPACE " + p.keyspace).WithContext(ctx).Exec()
	sessions.Close(p.session)
	if err != nil {
		return fmt.Errorf("drop keyspace %s: %w", p.keyspace, err)
	}
	topics := append(p.topics, p.control...)
	if len(topics) == 0 {
		return nil
	}
	if _, err := kadm.NewClient(p.bench.client).DeleteTopics(ctx, topics...); err != nil {
		return fmt.Errorf("delete topics of %s: %w", p.keyspace, err)
	}
	return nil
}

// topic creates a topic.
func (p *place) topic(ctx context.Context) (string, error) {
	name := fmt.Sprintf("%s_%d", p.keyspace, len(p.topics)+1)
	r, err := kadm.NewClient(p.bench.client).CreateTopic(ctx, int32(relay.Defaults().Partitions), -1, nil, name)
	if err = errors.Join(err, r.Err); err != nil {
		return "", fmt.Errorf("make topic %s: %w", name, err)
	}
	p.topics = append(p.topics, name)
	return name, nil
}

// startRelay starts a relay, which publishes the whole table to its topic at its first start. Its
// hints, if it takes any, are signed with key.
func (p *place) startRelay(topic, key string, args ...string) (*bench.Child, error) {
	b := p.bench
	if p.relay != topic { // a relay refuses a table that another one has published
		if err := p.session.Query("TRUNCATE relay_checkpoints").Exec(); err != nil {
			return nil, fmt.Errorf("forget the relay before: %w", err)
		}
		p.relay = topic
	}
	if control := share.ControlTopic(app.GroupName(topic)); !slices.Contains(p.control, control) {
		p.control = append(p.control, control)
	}
	args = append(slices.Concat([]string{"bench", "relay"}, b.forward), append([]string{
		"--scylla-keyspace", p.keyspace, "--relay-name", topic, "--relay-topic", topic,
		"--ops-addr", "127.0.0.1:0", "--ops-profiles=" + strconv.FormatBool(b.profiles != ""), "--log-format", "json",
	}, args...)...)
	program := b.program
	program.Env = append(slices.Clone(program.Env), "OUTBOX_HINTS_KEY="+key)
	return program.Start("relay", bench.Ready{Message: "relay running", Attrs: []string{"ops", "hints"}}, args...)
}

// startPeer starts scylla-cdc-go with franz-go.
func (p *place) startPeer(args ...string) (*bench.Child, error) {
	b := p.bench
	args = append(slices.Concat([]string{"bench", "peer"}, b.forward), append([]string{
		"--scylla-keyspace", p.keyspace, "--ops-addr", "127.0.0.1:0", "--ops-profiles=" + strconv.FormatBool(b.profiles != ""), "--log-format", "json",
	}, args...)...)
	return b.program.Start("scylla-cdc-go with franz-go", bench.Ready{Message: "peer running", Attrs: []string{"ops"}}, args...)
}

// consume consumes a topic until the returned function is called.
func (b *benchmark) consume(ctx context.Context, a *bench.Arrivals, topic string) (stop func(), err error) {
	client, err := b.conf.Kafka.Client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { a.Consume(ctx, client); close(done) }()
	return func() { cancel(); <-done; client.Close() }, nil
}

// numbering returns numbered events of a type, with payloads of a size.
type numbering func(typ string, size int) *bench.Events

// apart numbers events so that two of an aggregate are spread numbers apart.
func apart(spread int) numbering {
	return func(typ string, size int) *bench.Events { return bench.NewEvents(typ, spread, size) }
}

// underLoad is a place with a load for it, and with a consumer.
type underLoad struct {
	*place
	name     string // of the topic
	load     *bench.Load
	arrivals *bench.Arrivals
	stop     func() // stops the consumer
}

// underLoad creates a place with a load, which the caller runs.
func (b *benchmark) underLoad(ctx context.Context, rate float64, d time.Duration, number numbering) (_ *underLoad, err error) {
	u := &underLoad{stop: func() {}}
	if u.place, err = b.newPlace(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, u.remove(ctx))
		}
	}()
	if u.name, err = u.topic(ctx); err != nil {
		return nil, err
	}
	events := number(u.name, b.payload)
	u.load = &bench.Load{Session: u.session, Table: u.table, Events: events, Rate: rate, Duration: d}
	u.arrivals = bench.NewArrivals(events, u.load.Total())
	stop, err := b.consume(ctx, u.arrivals, u.name)
	if err != nil {
		return nil, err
	}
	u.stop = stop
	return u, nil
}

// remove stops the consumer and removes the place.
func (u *underLoad) remove(ctx context.Context) error {
	u.stop()
	return u.place.remove(ctx)
}

// usages are the resources used by the processes and by the whole machine.
type usages struct {
	process, database, broker, self bench.Usage
	engine                          bench.Usage // the process of the embedded database
	busy                            time.Duration
}

// others returns how many processors everything else on the machine kept busy.
func (u usages) others(since usages) float64 {
	d := u.self.At.Sub(since.self.At).Seconds()
	if u.busy == 0 || d <= 0 {
		return 0
	}
	ours := u.process.CPU + u.engine.CPU + u.broker.CPU + u.self.CPU - since.process.CPU - since.engine.CPU - since.broker.CPU - since.self.CPU
	return max(0, (u.busy-since.busy-ours).Seconds()/d)
}

func (b *benchmark) usages(ctx context.Context, processes ...*bench.Child) usages {
	u := usages{self: bench.Self()}
	for _, p := range processes {
		u.process = u.process.Plus(p.Usage())
	}
	u.busy, _ = bench.Busy()
	if b.embedded {
		u.engine, u.broker = b.database.Usage(), b.broker.Usage()
		u.database = u.engine
	}
	if len(b.nodes) > 0 {
		var err error
		if u.database, err = b.nodes.Usage(ctx); err != nil {
			b.log.Warn("the processor time of the database is not known", "err", err)
		}
	}
	return u
}

// findNodes finds out whether the nodes report their processor time, unless the embedded
// database is measured as a process, and describes it.
func (b *benchmark) findNodes(ctx context.Context) {
	switch {
	case b.embedded && b.nodeCosts:
		b.about = nodeCostsAbout // startDatabase knows the node
		return
	case b.embedded:
		return
	}
	for _, host := range b.conf.Scylla.Hosts {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		b.nodes = append(b.nodes, "http://"+net.JoinHostPort(host, strconv.Itoa(b.metricsPort)))
	}
	if _, err := b.nodes.Usage(ctx); err != nil {
		b.progress("the processor time of the database is not known: %v", err)
		b.nodes, b.about = nil, "The processor time of the database is not known: its nodes were not reached at their Prometheus port."
		return
	}
	b.about = fmt.Sprintf("The processor time of the database is %s of the nodes in --scylla-hosts.", bench.BusyMetric)
}

// nodeCostsAbout describes the embedded database with the costs of a node.
const nodeCostsAbout = "Requests to the database take the time that they were measured to take on a ScyllaDB node, and its processor time is the sum of these times."

// head describes the measurement, the machine and the database.
func (b *benchmark) head() bench.Head {
	m := bench.ThisMachine()
	m.Database = b.about
	return bench.Head{Machine: m, Runs: b.runs, Embedded: b.embedded, Rate: b.rate, Payload: b.payload}
}

// profile takes a processor profile of a child, if profiles are enabled, until the
// returned function is called.
func (b *benchmark) profile(ctx context.Context, of *bench.Child, name string, d time.Duration) (wait func() error) {
	if b.profiles == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() {
		name := strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return '-'
		}, name)
		done <- bench.Profile(ctx, of.Attr("ops"), filepath.Join(b.profiles, name+".pprof"), d)
	}()
	return func() error { return <-done }
}

// progress prints a line about the progress.
func (b *benchmark) progress(format string, args ...any) { fmt.Fprintf(b.errOut, format+"\n", args...) }
