package push_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/plugin"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/push"
)

// loyalty adds points to customers for their orders.
type loyalty struct{ done chan<- string }

// CanHandle rejects orders of guests.
func (l loyalty) CanHandle(e plugin.Event) bool {
	var order struct {
		Customer string `json:"customer_id"`
	}
	return json.Unmarshal(e.Data, &order) == nil && order.Customer != ""
}

// Process adds the points. It may be called again for the same order, after a
// failure or a crash; DeliveryID identifies the repetition.
func (l loyalty) Process(ctx context.Context, e plugin.Event) error {
	if e.Attempt == 1 {
		return errors.New("the loyalty service is busy") // retried after Backoff
	}
	l.done <- fmt.Sprintf("%s of %s, attempt %d: %s", e.Type, e.AggregateID, e.Attempt, e.Data)
	return nil
}

// A plugin in Go implements CanHandle and Process. This program stores a subscription that
// delivers large orders to it. Other subscriptions are left to 'outbox subscriptions'.
func Example() {
	session, seeds, stop := startEmbedded("OrderCreated")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	done, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- push.Run(ctx, push.Config{
			Session: session, Kafka: []kgo.Opt{kgo.SeedBrokers(seeds...)},
			Plugins: map[string]plugin.Plugin{"loyalty": loyalty{done}},
			Subscriptions: []subscriptions.Subscription{{
				Name: "points-for-big-orders", Topics: []string{"OrderCreated"}, Filter: `double(data.total) >= 1000.0`, Start: subscriptions.StartEarliest,
				Backoff: 10 * time.Millisecond, Push: &subscriptions.Push{To: "loyalty"},
			}},
		})
	}()

	publish(seeds, "OrderCreated", "order-1", `{"customer_id":"","total":"5000.00"}`)
	publish(seeds, "OrderCreated", "order-2", `{"customer_id":"c-7","total":"12.00"}`)
	publish(seeds, "OrderCreated", "order-3", `{"customer_id":"c-7","total":"1250.00"}`)
	fmt.Println(<-done)

	cancel() // Run waits for the calls in progress
	fmt.Println(<-ended)
	// Output:
	// OrderCreated of order-3, attempt 2: {"customer_id":"c-7","total":"1250.00"}
	// <nil>
}

// startEmbedded starts a database and a broker in this process.
func startEmbedded(topics ...string) (*gocql.Session, []string, func()) {
	node, err := scyllafake.Start(scyllatest.Config())
	must(err)
	admin, err := scyllatest.Cluster(node, "").CreateSession()
	must(err)
	must(schema.Migrate(context.Background(), admin, schema.Options{}))
	admin.Close()
	session, err := scyllatest.Cluster(node, schema.DefaultKeyspace).CreateSession()
	must(err)
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, topics...))
	must(err)
	return session, broker.ListenAddrs(), func() {
		session.Close()
		broker.Close()
		must(node.Close())
	}
}

// publish writes a record like the relay.
func publish(seeds []string, topic, aggregate, payload string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	must(err)
	defer client.Close()
	must(client.ProduceSync(context.Background(), &kgo.Record{
		Topic: topic, Key: []byte(aggregate), Value: []byte(payload),
		Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte("event-of-" + aggregate)}, {Key: "ce_type", Value: []byte(topic)}, {Key: "ce_subject", Value: []byte(aggregate)}},
	}).FirstErr())
}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
