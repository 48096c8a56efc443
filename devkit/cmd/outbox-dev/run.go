package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/gocql/gocql"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/scylla-outbox/scylla-outbox/devkit/engines"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/load"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/testdata"
)

const (
	// devTokens keeps the number of CDC streams, and the cost of reading idle ones,
	// small.
	devTokens = 16
	// devWindow is the confidence window of dev. There is one clock and no other
	// replica, so a row is late only by the time for which the order service repeats a
	// write with its first timestamp.
	devWindow = 20 * time.Second
	// devPoll is the interval between sweeps.
	devPoll = 250 * time.Millisecond
	// devRanges is the number of ranges in which the outbox is scanned.
	devRanges = 16
	// devPatience limits the wait for the start of the relay.
	devPatience = 5 * time.Second
	// devStall limits the wait for the next event.
	devStall = 30 * time.Second
	// loadedMarker is a file that exists once the sample orders are in the data
	// directory.
	loadedMarker = "sample-loaded"
	// loadID is the file with the id of the sample's load, so that an interrupted load
	// resumes with the same Idempotency-Keys.
	loadID = "sample-load-id"
)

// dev is everything in one process.
type dev struct {
	engines.Engines
	config   string // file; empty for none
	httpAddr string // of the order API
	msgAddr  string // of the messages API
	apiAddr  string // of the admin API
	apiToken string // its only one
	subsAddr string // of the subscriptions API
	adminURL string // of the ops listener
	window   time.Duration
	poll     time.Duration
	noHints  bool
	rate     float64
	file     string // the file to load; empty for the sample
	once     bool

	out, errOut io.Writer
	log         *slog.Logger
	conf        *app.Config
	session     *gocql.Session
	hints       net.PacketConn // receives hints for the relay, nil for none
	relays      *app.Sharing
	stopRelay   func() error
	ledger      *verify.Ledger
	consumer    *verify.Consumer
	tables      []string                              // of the relay
	topics      []string                              // of the orders' events
	ownTopics   []string                              // that the configuration names for other tables
	topicOf     func(e *outbox.Event) (string, error) // of orders
}

func newRunCommand() *cobra.Command {
	var level string
	d := dev{Engines: engines.Engines{Tokens: devTokens}}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run everything in one process: embedded engines, schema, APIs, relay, sample orders",
		Long: `Run everything in one process on loopback: a ScyllaDB-compatible server
(scyllafake), a Kafka broker (kfake), the schema, the relay, and the APIs of orders (the
example), messages, subscriptions and operators.
The command loads the sample orders through the API and then keeps running.

--config FILE adds the tables, topics, rules and other settings of a relay. Connections and
access stay those of this command: scylla (except scylla.keyspace), kafka, http, hints and
log of the file have no effect. The relay waits for a table that does not exist yet.

With --once it exits when everything loaded has been relayed, compares the topics
with the outbox, prints one JSON object, and exits with 1 if an event is lost,
double or out of order.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := d.settings(cmd.Flags())
			if err != nil {
				return err
			}
			c.Log.Level = level
			if d.log, err = c.Log.Logger(cmd.ErrOrStderr()); err != nil {
				return err
			}
			if d.rate < 0 {
				return cli.Usage(fmt.Errorf("--rate %g: use requests per second, or 0 for as fast as possible", d.rate))
			}
			if _, err := os.Stat(d.file); d.file != "" && err != nil {
				return load.NoFile(err)
			}
			d.conf, d.out, d.errOut = c, cmd.OutOrStdout(), cmd.ErrOrStderr()
			return d.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&d.config, "config", "", "configuration file (YAML) of a relay, with its tables, topics and rules")
	f.BoolVar(&d.once, "once", false, "exit when everything is relayed; print the reconciliation as JSON")
	f.StringVar(&d.file, "load", "", "file to load (JSON lines, also gzip) instead of the sample orders")
	f.StringVar(&d.Dir, "data-dir", ".outbox", "data directory; empty keeps data in memory")
	f.Float64Var(&d.rate, "rate", 0, "lines per second to load; 0 means as fast as possible")
	f.StringVar(&d.CQLAddr, "cql-addr", "127.0.0.1:9042", "address of the embedded database")
	f.StringVar(&d.KafkaAddr, "kafka-addr", "127.0.0.1:9092", "address of the embedded broker")
	f.StringVar(&d.httpAddr, "orders-addr", "127.0.0.1:8080", "address of the order API")
	f.String(app.FlagOpsAddr, app.OpsAddrs["relay"], "address of the ops listener (metrics and readiness); off disables it; none with --once")
	f.StringVar(&d.apiAddr, "admin-addr", "127.0.0.1:8090", "address of the admin API and its console; none with --once")
	f.StringVar(&d.msgAddr, "messages-addr", "127.0.0.1:8084", "address of the messages API and the event streams; none with --once")
	f.StringVar(&d.subsAddr, "subscriptions-addr", "127.0.0.1:8082", "address of the subscriptions API; none with --once")
	f.DurationVar(&d.window, "confidence-window", devWindow, "minimum age of a change before the sweep reads it")
	f.DurationVar(&d.poll, "tail-max-interval", relay.Defaults().TailMaxInterval, "maximum interval of the tail reader between reads of idle streams")
	f.Int("relay-shards", 1, "number of relay shards, all of them in this process")
	f.BoolVar(&d.noHints, "no-hints", false, "disable hints from the APIs to the relay")
	f.StringVar(&level, "log-level", "warn", "debug, info, warn or error")
	return cmd
}

// settings returns the settings of the file, with the engines, addresses and access of this
// process, and of its flags.
func (d *dev) settings(flags *pflag.FlagSet) (*app.Config, error) {
	c, err := engines.Settings(d.config, flags)
	if err != nil || d.config == "" {
		return c, err
	}
	c.Admin.OIDCIssuer, c.Admin.OIDCClientSecret = "", ""
	c.Relay.AddOrders(c.Scylla.Keyspace)
	d.msgAddr, d.apiAddr, d.subsAddr = c.Messages.Addr, c.Admin.Addr, c.Subscriptions.Addr
	if !flags.Changed("confidence-window") { // a file for a cluster has minutes
		d.window = min(d.window, c.Relay.ConfidenceWindow)
	}
	if !flags.Changed("tail-max-interval") {
		d.poll = c.Relay.TailMaxInterval
	}
	return c, nil
}

func (d *dev) run(ctx context.Context) (err error) {
	ctx = d.UntilFailed(ctx)
	teardown := daemon.Teardown{Logger: d.log}
	defer func() {
		if failed := d.Failure(ctx); failed != nil {
			err = failed // the cause of all other errors; the services cannot stop in order
			return
		}
		err = errors.Join(err, teardown.Run())
	}()
	if err := d.startAll(ctx, &teardown); err != nil {
		return err
	}
	if d.once {
		return d.runOnce(ctx)
	}
	d.printWhere()
	if err := d.loadSample(ctx); err != nil {
		return err
	}
	if ctx.Err() == nil {
		d.printTour()
	}
	<-ctx.Done()
	fmt.Fprintln(d.errOut, "\nstopping; data is kept in "+d.dirName())
	return nil
}

// startAll starts the engines and the services on them.
func (d *dev) startAll(ctx context.Context, teardown *daemon.Teardown) (err error) {
	if err := d.Start(teardown, d.log); err != nil {
		return err
	}
	d.conf.Scylla.Hosts = []string{d.CQLAddr}
	d.conf.Kafka.Seeds = []string{d.KafkaAddr}
	d.conf.OrdersAddr, d.conf.HTTP.DrainDelay = d.httpAddr, 0 // there is no load balancer
	if d.hints, err = d.listenForHints(ctx); err != nil {
		return err
	}
	if d.hints != nil {
		teardown.Add("hints", d.hints.Close)
	}

	admin, err := d.conf.Scylla.Session("")
	if err != nil {
		return err
	}
	o := d.conf.SchemaOptions(d.log)
	o.Components = schema.Components()
	err = schema.Migrate(ctx, admin, o)
	admin.Close()
	if err != nil {
		return err
	}
	reg := app.NewRegistry("run")
	d.conf.Observe(reg, d.log)
	if err := app.Trace(ctx, d.conf, "outbox-dev", d.log, teardown); err != nil {
		return err
	}
	if d.session, err = d.conf.Scylla.Session(d.conf.Scylla.Keyspace); err != nil {
		return err
	}
	teardown.AddFunc("scylla session", func() { sessions.Close(d.session) })

	if d.once {
		d.conf.Ops.Addr = app.OpsOff
	}
	// A registry of its own: the relay's metrics of its breaker have the label shard too.
	ofRelay := prometheus.NewRegistry()
	listener, err := app.ServeOps(ctx, d.conf, prometheus.Gatherers{reg, ofRelay}, d.log, teardown)
	if err != nil {
		return err
	}
	d.adminURL = listener.URL
	if err := d.startRelay(ctx, teardown, ofRelay); err != nil {
		return err
	}
	listener.Works(d.relays.Readiness())
	services, err := app.NewServices(ctx, d.conf, d.session, app.Parts{Messages: !d.once, Orders: true}, reg, d.log)
	if err != nil {
		return err
	}
	teardown.Add("services", services.Close)
	api, err := app.StartOrders(context.WithoutCancel(ctx), d.conf, d.session, services, reg, d.log, d.conf.ListenOrders)
	if err != nil {
		return err
	}
	d.httpAddr = api.Addr
	teardown.Add("order API", api.Shutdown)
	if !d.once {
		if err := d.startMessages(ctx, teardown, services, reg); err != nil {
			return err
		}
		if err := d.startAdmin(ctx, teardown, services, reg); err != nil {
			return err
		}
		if err := d.startSubscriptions(ctx, teardown, reg); err != nil {
			return err
		}
	}
	return d.awaitTail(ctx)
}

// awaitTail waits a short time for the tail reader, so that the first orders are as
// quick as all others. Without it they are only later.
func (d *dev) awaitTail(ctx context.Context) error {
	for end := time.Now().Add(devPatience); time.Now().Before(end) && !d.relays.Reading(); {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// loadInto loads the file, or the sample, through the API.
func (d *dev) loadInto(ctx context.Context) (load.LoadSummary, error) {
	l := load.NewLoader("http://"+d.httpAddr, d.rate, func(n int, err error) {
		fmt.Fprintf(d.errOut, "\rline %d skipped: %v\n", n, err)
	})
	before := d.ledger.Totals().Records
	progress := func(total int64) *cli.Progress {
		return cli.NewProgress(d.errOut, func() cli.Work {
			pending := l.Created.Load() + l.Cancelled.Load() - (d.ledger.Totals().Records - before)
			return cli.Work{Done: l.FinishedLines(), Total: total, Detail: fmt.Sprintf("relay: %d pending", max(0, pending))}
		})
	}
	if d.file == "" && !d.once {
		if err := d.sameRun(l); err != nil {
			return load.LoadSummary{}, err
		}
	}
	if d.file != "" {
		return l.LoadFile(ctx, d.file, progress(0))
	}
	r, err := load.Gunzip(bytes.NewReader(testdata.Orders))
	if err != nil {
		return load.LoadSummary{}, fmt.Errorf("sample orders: %w", err)
	}
	began := time.Now()
	err = load.Showing(ctx, progress(testdata.OrdersLines), func() error { return l.Load(ctx, r) })
	return l.Summary(time.Since(began)), err
}

// sameRun gives the loader the id of the sample's earlier load, if there was one.
func (d *dev) sameRun(l *load.Loader) error {
	if d.Dir == "" {
		return nil
	}
	path := filepath.Join(d.Dir, loadID)
	b, err := os.ReadFile(path)
	if err == nil {
		l.Run, err = uuid.ParseBytes(b)
	} else if errors.Is(err, os.ErrNotExist) {
		err = os.WriteFile(path, []byte(l.Run.String()), 0o644)
	}
	if err != nil {
		return fmt.Errorf("data directory %s: %s: %w", d.Dir, loadID, err)
	}
	return nil
}

// loadSample loads the selected file, or the sample, which is loaded into a new data
// directory only.
func (d *dev) loadSample(ctx context.Context) error {
	marker := filepath.Join(d.Dir, loadedMarker)
	if d.file == "" && d.Dir != "" {
		if _, err := os.Stat(marker); err == nil {
			fmt.Fprintln(d.out, "The sample orders were loaded by an earlier run; --load FILE loads more.")
			return nil
		}
	}
	began := time.Now()
	fmt.Fprintln(d.out, "Loading orders through the API:")
	sum, err := d.loadInto(ctx)
	if err != nil {
		return app.IgnoreStop(ctx, err)
	}
	if d.file == "" && d.Dir != "" {
		if err := os.WriteFile(marker, nil, 0o644); err != nil {
			return fmt.Errorf("data directory %s: %w", d.Dir, err)
		}
	}
	if err := d.settle(ctx); err != nil {
		return app.IgnoreStop(ctx, err)
	}
	r := reconcile(d.ledger, began)
	fmt.Fprintf(d.out, "%d orders created, %d cancelled, %d rejected in %.1f s; of %d events in the outbox %d are in the topics: %d lost, %d double, %d out of order.\n",
		sum.Created, sum.Cancelled, sum.Rejected, sum.Elapsed, r.Written, r.Published, r.Lost, r.Duplicates, r.OutOfOrder)
	fmt.Fprintf(d.out, "Commit to consumer: %.1f ms at the median, %.1f ms at the 99th percentile, at the rate of the loading.\n\n",
		r.Latency.P50, r.Latency.P99)
	return nil
}

// onceReport is what dev --once prints.
type onceReport struct {
	Created   int64 `json:"orders_created"`
	Cancelled int64 `json:"orders_cancelled"`
	Rejected  int64 `json:"rejected"`
	reconciliation
	Elapsed float64 `json:"elapsed_s"`
}

// runOnce loads, waits for the relay, stops it, and counts.
func (d *dev) runOnce(ctx context.Context) error {
	began := time.Now()
	sum, err := d.loadInto(ctx)
	if err != nil {
		return err
	}
	if err := d.settle(ctx); err != nil {
		return err
	}
	elapsed := time.Since(began)
	// The last requests of the relay might be duplicates: they count too.
	if err := d.stopRelay(); err != nil {
		return err
	}
	end, cancel := context.WithTimeout(ctx, devStall)
	defer cancel()
	if err := d.consumer.ToEnd(end); err != nil {
		return err
	}
	report := onceReport{
		Created: sum.Created, Cancelled: sum.Cancelled, Rejected: sum.Rejected,
		reconciliation: reconcile(d.ledger, began), Elapsed: float64(elapsed.Milliseconds()) / 1000,
	}
	if err := json.NewEncoder(d.out).Encode(report); err != nil {
		return err
	}
	if !report.ok() {
		return cli.QuietError{}
	}
	return nil
}

// settle scans the outbox and waits until its events of orders are in the topics, or none
// has come for devStall.
func (d *dev) settle(ctx context.Context) error {
	scan := verify.Scan{Session: d.session, Table: outbox.DefaultTableName, Topic: d.topicOf, SkipAggregateType: outbox.MessageAggregate, Ranges: devRanges}
	if err := scan.Into(ctx, d.ledger); err != nil {
		return err
	}
	best, since := int64(-1), time.Now()
	for {
		t := d.ledger.Totals()
		if t.Both == t.Rows {
			return nil
		}
		if t.Both > best {
			best, since = t.Both, time.Now()
		}
		if time.Since(since) > devStall+d.window {
			fmt.Fprintf(d.errOut, "gave up: %d of %d events arrived, none in the last %s\n", t.Both, t.Rows, devStall)
			if ready, detail := d.relays.Readiness()(); !ready {
				text, err := json.Marshal(detail)
				fmt.Fprintln(d.errOut, "relay:", string(text))
				return err
			}
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
