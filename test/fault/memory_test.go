//go:build fault && linux

package fault

import (
	"context"
	"io"
	"log"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/procfs"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/harness"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

const (
	// memoryBound is the maximum memory of the relay, for any number of waiting
	// events.
	memoryBound = 200e6
	// defaultWaiting is the number of waiting events of the test in CI;
	// FAULT_EVENTS=1000000 is the documented number.
	defaultWaiting = 40_000
	// afterOutage is how long the outage continues after the last write.
	afterOutage = 5 * time.Second
)

// The broker fails, and more events are written than the relay may hold or
// write as dead letters. The memory of the relay stays below its bound, during
// the outage and afterwards; then every event is in the topic, once, in order.
func TestFault_MemoryWhileTheBrokerIsAway(t *testing.T) {
	waiting := int64(seeds.Number(t, "FAULT_EVENTS", defaultWaiting))
	t.Logf("FAULT_EVENTS=%d", waiting)
	addrs := harness.FreeAddrs(t, 3)
	cql, kafka, admin := addrs[0], addrs[1], addrs[2]
	harness.Start(t, "database", "engines", "--cql-addr", cql, "--tokens", "64")
	broker := harness.Start(t, "broker", "engines", "--data-dir", t.TempDir(), "--cql-addr", "", "--kafka-addr", kafka)
	harness.Reachable(t, cql)
	harness.Reachable(t, kafka)
	harness.Must(t, "schema", "migrate", "--scylla-hosts", cql)
	relay := startRelay(t, cql, kafka, admin, "--relay-breaker-open", "5s")
	harness.Reachable(t, admin)

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	session := connect(t, cql)
	table, err := outbox.NewTable("outbox", "outbox_messages")
	if err != nil {
		t.Fatal(err)
	}
	const before = 1000 // events before the outage
	events := bench.NewEvents("Waiting", 256, 512)
	first := bench.NewEvents("Before", 256, 512)
	write := func(e *bench.Events, n int64) {
		t.Helper()
		if err := bench.WriteBacklog(ctx, session, table, e, n, func(int64) {}); err != nil {
			t.Fatal(err)
		}
	}
	write(first, before)
	consume(t, ctx, kafka, first, before)

	broker.Kill()
	began := time.Now()
	write(events, waiting)
	t.Logf("%d events written in %s without a broker", waiting, time.Since(began).Round(time.Second))
	time.Sleep(afterOutage)
	away := peak(t, relay)
	broker.Restart()
	harness.Reachable(t, kafka)
	began = time.Now()
	consume(t, ctx, kafka, events, waiting)
	after := peak(t, relay)
	t.Logf("drained in %s; the relay's peak was %.0f MB without the broker, %.0f MB with the draining", time.Since(began).Round(time.Second), away/1e6, after/1e6)
	if after >= memoryBound {
		t.Errorf("the relay used %.0f MB, want less than %.0f", after/1e6, memoryBound/1e6)
	}
	if !relay.Running() {
		t.Error("the relay ended by itself")
	}
	relay.Stop()
}

// consume waits until the topic has n events, and fails the test unless each
// occurs once and in the order of its aggregate.
func consume(t *testing.T, ctx context.Context, kafka string, events *bench.Events, n int64) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka), kgo.ConsumeTopics(events.Type()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.UnknownTopicRetries(-1))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	arrivals := bench.NewArrivals(events, n)
	done := make(chan struct{})
	go func() { arrivals.Consume(ctx, client); close(done) }()
	err = arrivals.Wait(ctx, n, harness.Patience)
	cancel()
	<-done
	client.Close()
	if c := arrivals.Counts(n); err != nil || !c.OK() {
		t.Errorf("topic %s: %d of %d events lost, %d double, %d out of order, %v, want none", events.Type(), c.Lost(), c.Written, c.Doubles, c.Disorder, err)
	}
}

// connect connects to the database.
func connect(t *testing.T, cql string) *gocql.Session {
	t.Helper()
	host, port, err := net.SplitHostPort(cql)
	if err != nil {
		t.Fatal(err)
	}
	cluster := gocql.NewCluster(host)
	cluster.Port, _ = strconv.Atoi(port)
	cluster.Keyspace = "outbox"
	cluster.Timeout, cluster.ConnectTimeout = harness.Patience, harness.Patience
	cluster.Logger = log.New(io.Discard, "", 0)
	session, err := cluster.CreateSession()
	if err != nil {
		t.Fatalf("connect to the database: %v", err)
	}
	t.Cleanup(session.Close)
	return session
}

// peak returns the maximum resident memory of the process in bytes.
func peak(t *testing.T, p *harness.Process) float64 {
	t.Helper()
	proc, err := procfs.NewProc(p.PID())
	if err != nil {
		t.Fatal(err)
	}
	status, err := proc.NewStatus()
	if err != nil {
		t.Fatal(err)
	}
	return float64(status.VmHWM)
}
