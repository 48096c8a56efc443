// Command seed writes dead letters and records of a topic, so that the admin API has
// data when test/api/run tests it against its description.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

func main() {
	addr := flag.String("cql", "", "address of the database")
	broker := flag.String("kafka", "", "address of the broker")
	flag.Parse()
	if err := run(context.Background(), *addr); err != nil {
		log.Fatal(err)
	}
	if err := publish(context.Background(), *broker); err != nil {
		log.Fatal(err)
	}
}

// publish writes records to a topic that the admin API may read.
func publish(ctx context.Context, broker string) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.DefaultProduceTopic("OrderCreated"))
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := kadm.NewClient(c).CreateTopic(ctx, 2, 1, nil, "OrderCreated"); err != nil {
		return err
	}
	for i := range 20 {
		r := &kgo.Record{Key: []byte(strconv.Itoa(i)), Value: fmt.Appendf(nil, `{"n":%d}`, i), Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte("application/json")}}}
		if err := c.ProduceSync(ctx, r).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	c := gocql.NewCluster(host)
	if c.Port, err = strconv.Atoi(port); err != nil {
		return err
	}
	c.Keyspace, c.Timeout = schema.DefaultKeyspace, 10*time.Second
	s, err := c.CreateSession()
	if err != nil {
		return err
	}
	defer s.Close()
	store, err := dlq.Open(s, schema.DefaultKeyspace)
	if err != nil {
		return err
	}
	for i := range 40 {
		aggregate := gocql.MustRandomUUID()
		l := dlq.DeadLetter{
			Table: "outbox.outbox_messages", EventID: gocql.MustRandomUUID(), AggregateID: aggregate.String(), AggregateType: "order",
			EventType: "OrderCreated", Sequence: 1, Payload: []byte(`{"n":1}`), ContentType: "application/json",
			CreatedAt: time.Now().Add(-time.Hour), WrittenAt: time.Now().Add(-time.Hour).UnixMicro(), Topic: "OrderCreated",
			Status: []dlq.Status{dlq.Suspended, dlq.Pending}[i%2], ErrorClass: []string{"record_too_large", "breaker_open", "behind"}[i%3],
			ErrorCode: "MESSAGE_TOO_LARGE", ErrorText: "record of 1234567 bytes is too large", ErrorChain: []string{"produce", "too large"},
			Attempts: 1, Strategy: dlq.StrategyManual, Metadata: map[string]string{"breaker": "closed"},
		}
		if _, err := store.Write(ctx, &l); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, l.EventID)
	}
	return nil
}
