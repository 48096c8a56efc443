package testkit

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/pflag"

	"github.com/scylla-outbox/scylla-outbox/devkit/chaos"
	"github.com/scylla-outbox/scylla-outbox/devkit/engines"
	"github.com/scylla-outbox/scylla-outbox/devkit/processes"
	"github.com/scylla-outbox/scylla-outbox/devkit/processes/processtest"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/ports"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// Patience is the maximum wait of a check for progress.
const Patience = processes.Patience

// Options are the options of Start. The zero value is an outbox_messages in the keyspace outbox,
// and a relay of it.
type Options struct {
	// Schema are files with CQL statements, which Start executes before the relay starts, such
	// as the tables of the service. Comments are allowed.
	Schema []string
	// Relay is the configuration file (YAML) of the relay. Its connections and access (scylla,
	// except scylla.keyspace, kafka, http, hints, log) have no effect. Empty is a relay of
	// outbox_messages in the keyspace outbox.
	Relay string
	// NoRelay starts no relay.
	NoRelay bool
	// Version is the release that the database emulates: 2026.1 or 2025.4, with tablets, or 5.1,
	// with vnodes. Default 2026.1. Another one ends the test.
	Version string
}

// Process is a program that a test can kill and start again. Its methods are not safe for
// concurrent use.
type Process = processes.Process

// Kit is a running database, broker and relay. Its methods are safe for concurrent use unless
// they kill processes.
type Kit struct {
	// CQL and Kafka are the addresses of the database and of the broker, as host:port. The
	// database needs no user, and the broker neither TLS nor SASL.
	CQL, Kafka string
	// Relay is the relay; nil with Options.NoRelay.
	Relay *Process

	t       testing.TB
	rnd     *rand.Rand
	engines engines.Engines
	produce *produceFaults
	conf    *app.Config
	tables  []relay.Config
	session *gocql.Session // in the keyspace of the relay
	records *records
}

// tokens keeps the number of CDC streams, and so the cost of reading them, small.
const tokens = 16

// Start starts a database and a broker in memory, and a relay, which end with the test. The
// database has the tables of the relay, in the keyspace of its configuration, and the tables
// of the schema. A failure ends the test.
func Start(t testing.TB, o Options) *Kit {
	t.Helper()
	k := &Kit{t: t, rnd: seeds.Rand(t), produce: newProduceFaults()}
	k.engines = engines.Engines{
		CQLAddr: "127.0.0.1:0", KafkaAddr: "127.0.0.1:0", Version: o.Version, Tokens: tokens, Listener: k.produce.listen,
	}
	log := slog.New(slog.DiscardHandler)
	teardown := &daemon.Teardown{Logger: log}
	t.Cleanup(func() {
		if err := teardown.Run(); err != nil {
			t.Error(err)
		}
	})
	if err := k.engines.Start(teardown, log); err != nil {
		t.Fatal(err)
	}
	k.CQL, k.Kafka, k.produce.broker = k.engines.CQLAddr, k.engines.KafkaAddr, k.engines.Broker
	k.configure(o, log)
	k.follow(teardown)
	if !o.NoRelay {
		k.Relay = k.startRelay(o.Relay)
	}
	return k
}

// configure reads the configuration of the relay and creates the tables.
func (k *Kit) configure(o Options, log *slog.Logger) {
	k.t.Helper()
	var err error
	if k.conf, err = engines.Settings(o.Relay, pflag.NewFlagSet("relay", pflag.ContinueOnError)); err != nil {
		k.t.Fatal(err)
	}
	k.conf.Scylla.Hosts, k.conf.Kafka.Seeds = []string{k.CQL}, []string{k.Kafka}
	if k.tables, err = k.conf.RelayConfigs(); err != nil {
		k.t.Fatal(err)
	}
	admin, err := k.conf.Scylla.Session("")
	if err != nil {
		k.t.Fatal(err)
	}
	defer sessions.Close(admin)
	if err := schema.Migrate(k.t.Context(), admin, k.conf.SchemaOptions(log)); err != nil {
		k.t.Fatal(err)
	}
	for _, path := range o.Schema {
		text, err := os.ReadFile(path)
		if err != nil {
			k.t.Fatal(err)
		}
		for _, statement := range schema.Statements(string(text)) {
			if err := admin.Query(statement).Exec(); err != nil {
				k.t.Fatalf("%s: %v\n%s", path, err, statement)
			}
		}
	}
	if k.session, err = k.conf.Scylla.Session(k.conf.Scylla.Keyspace); err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { sessions.Close(k.session) })
}

// Build compiles the program in a folder, with the go.mod of that folder, and returns its path.
func Build(t testing.TB, dir string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", dir, "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the program in %s: %v\n%s", dir, err, out)
	}
	return path
}

// Run starts a program, such as the service that is tested. The end of the test kills it; a
// failed test shows the end of its standard error.
func (k *Kit) Run(name, path string, args ...string) *Process {
	k.t.Helper()
	return processtest.Start(k.t, name, path, nil, args)
}

// KillDuring kills processes with SIGKILL at random moments, n times in all, and starts them
// again. In the meantime it calls work, again and again, until the kills have ended. A process
// that ends by itself fails the test.
func (k *Kit) KillDuring(n int, work func(), ps ...*Process) {
	k.t.Helper()
	kills := chaos.Kills{Number: n, Pause: 1500 * time.Millisecond, Down: 700 * time.Millisecond}
	for i, p := range ps {
		kills.Victims = append(kills.Victims, &chaos.Victim{Name: fmt.Sprint("process ", i+1), Running: p.Running, Kill: p.Kill, Restart: p.Restart})
	}
	ended := make(chan error, 1)
	go func() { ended <- kills.Run(k.t.Context(), rand.New(rand.NewPCG(seeds.Of(k.t), 1))) }()
	for {
		work()
		select {
		case err := <-ended:
			if err != nil {
				k.t.Error(err)
			}
			return
		default:
		}
	}
}

// Until waits until ok returns true. It calls ok every few milliseconds, and ends the test after
// Patience.
func (k *Kit) Until(what string, ok func() bool) {
	k.t.Helper()
	for end := time.Now().Add(Patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			k.t.Fatalf("waited for %s in vain", what)
		}
	}
}

// FreeAddr returns an address on loopback, as host:port, that stays free while a process that
// listens there is started again.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addrs, err := ports.Take(1)
	if err != nil {
		t.Fatal(err)
	}
	return addrs[0]
}
