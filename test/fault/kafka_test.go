//go:build peers

package fault

import (
	"context"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/chaos"
	"github.com/scylla-outbox/scylla-outbox/test/harness"
	"github.com/scylla-outbox/scylla-outbox/test/peers"
)

// The same over a real Apache Kafka, which is killed too and recovers its log. Between the kills the
// broker begins to date the records of the topics itself, and ends.
func TestPeerKafka_ProcessesKilledDuringALoad(t *testing.T) {
	nightly(t)
	dir := t.TempDir()
	broker := peers.StartKafka(t, peers.Config{Dir: dir, Heap: "512m"})
	port := parsePort(t, broker.Addr)
	addrs := harness.FreeAddrs(t, 4)
	s := &storm{cql: addrs[0], kafka: broker.Addr, api: addrs[1], admin: addrs[3], lines: 160 * kills(t), rate: 70}
	database := harness.Start(t, "engines", "engines", "--data-dir", t.TempDir(), "--cql-addr", s.cql, "--tokens", "16")
	orders := startOrders(t, s.cql, s.api, s.admin)
	relay := startRelay(t, s.cql, s.kafka, addrs[2])
	running := func() bool {
		c, err := net.Dial("tcp", broker.Addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	dated := 0
	s.victims = []*chaos.Victim{ // together as many as the default number of kills
		process("database", database, 3), process("relay", relay, 3),
		{
			Name: "kafka", Slow: true, Running: running,
			Kill: func() {
				if err := broker.Kill(); err != nil {
					t.Error(err)
				}
			},
			Restart: func() { broker = peers.StartKafka(t, peers.Config{Dir: dir, Heap: "512m", Port: port}) },
		},
		{
			Name: "clock of the records", Running: func() bool { return true }, Weight: 3,
			Kill: func() { // while the broker is down, it cannot; the relay creates the topics
				harness.Until(t, "the broker to date the records of both topics", func() bool {
					done := dateRecords(t, broker.Addr, "LogAppendTime")
					if done {
						dated++
					}
					return done || !running()
				})
			},
			Restart: func() { dateRecords(t, broker.Addr, "CreateTime") },
		},
	}
	s.run(t)
	if dated == 0 {
		t.Error("the broker never dated the records of both topics: this shows nothing")
	}
	relay.Stop()
	orders.Stop()
	database.Stop()
}

// Instances share shards by the consumer groups of a real Apache Kafka, whose
// coordinator decides when one of them has failed.
func TestPeerKafka_RelaysThatShare(t *testing.T) {
	nightly(t)
	broker := peers.StartKafka(t, peers.Config{Dir: t.TempDir(), Heap: "512m"})
	addrs := harness.FreeAddrs(t, 6)
	s := &storm{cql: addrs[0], kafka: broker.Addr, api: addrs[1], admin: addrs[2]}
	database := harness.Start(t, "engines", "engines", "--data-dir", t.TempDir(), "--cql-addr", s.cql, "--tokens", "16")
	shareAndDie(t, s, addrs[3:], 2)
	database.Stop()
}

// The same consumers over a real Apache Kafka, whose coordinator reassigns the partitions of
// killed owners.
func TestPeerKafka_SubscriptionOwnersKilled(t *testing.T) {
	nightly(t)
	broker := peers.StartKafka(t, peers.Config{Dir: t.TempDir(), Heap: "512m"})
	cql := harness.FreeAddrs(t, 1)[0]
	database := harness.Start(t, "engines", "engines", "--data-dir", t.TempDir(), "--cql-addr", cql, "--tokens", "4")
	harness.Reachable(t, cql)
	killOwners(t, cql, broker.Addr)
	database.Stop()
}

// dateRecords sets whether the broker or the producer dates the records of the topics, and reports
// whether the broker ran and did.
func dateRecords(t *testing.T, addr, by string) bool {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	altered, err := kadm.NewClient(client).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "message.timestamp.type", Value: &by}}, topics...)
	return err == nil && !slices.ContainsFunc(altered, func(a kadm.AlterConfigsResponse) bool { return a.Err != nil })
}

// nightly skips a test whose scenario test-fault runs with an embedded broker.
func nightly(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-nightly runs it")
	}
}

func parsePort(t *testing.T, addr string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
