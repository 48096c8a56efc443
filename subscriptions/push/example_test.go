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
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/engine"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/push"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// loyalty adds points to customers for their orders.
type loyalty struct{ done chan<- string }

// CanHandle rejects orders of guests.
func (l loyalty) CanHandle(e push.Event) bool {
	var order struct {
		Customer string `json:"customer_id"`
	}
	return json.Unmarshal(e.Data, &order) == nil && order.Customer != ""
}

// Process adds the points. It may be called again for the same order, after a
// failure or a crash; DeliveryID identifies the repetition.
func (l loyalty) Process(ctx context.Context, e push.Event) error {
	if e.Attempt == 1 {
		return errors.New("the loyalty service is busy") // retried after Backoff
	}
	l.done <- fmt.Sprintf("%s of %s, attempt %d: %s", e.Type, e.AggregateID, e.Attempt, e.Data)
	return nil
}

// A plugin in Go implements CanHandle and Process. This subscription delivers large orders
// to it. PluginsOnly leaves other subscriptions to 'outbox subscriptions'.
func Example() {
	session, seeds, stop := embedded("OrderCreated")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	resources, err := store.Open(session, schema.DefaultKeyspace)
	must(err)
	deadLetters, err := dlq.Open(session, schema.DefaultKeyspace)
	must(err)
	done := make(chan string, 1)
	e, err := engine.New(engine.Config{
		Kafka: []kgo.Opt{kgo.SeedBrokers(seeds...)}, Store: resources, DeadLetters: deadLetters,
		Push: push.Destinations{Plugins: map[string]push.Plugin{"loyalty": loyalty{done}}}, PluginsOnly: true,
	})
	must(err)
	_, err = e.Put(ctx, subscriptions.Subscription{
		Name: "points-for-big-orders", Topics: []string{"OrderCreated"}, Filter: `double(data.total) >= 1000.0`, Start: subscriptions.StartEarliest,
		Backoff: 10 * time.Millisecond, Push: &subscriptions.Push{To: "loyalty"},
	}, "example")
	must(err) // names each bad field
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()

	publish(seeds, "OrderCreated", "order-1", `{"customer_id":"","total":"5000.00"}`)
	publish(seeds, "OrderCreated", "order-2", `{"customer_id":"c-7","total":"12.00"}`)
	publish(seeds, "OrderCreated", "order-3", `{"customer_id":"c-7","total":"1250.00"}`)
	fmt.Println(<-done)

	cancel() // waits for calls in flight
	fmt.Println(<-ended)
	// Output:
	// OrderCreated of order-3, attempt 2: {"customer_id":"c-7","total":"1250.00"}
	// <nil>
}

// embedded starts a database and a broker in this process.
func embedded(topics ...string) (*gocql.Session, []string, func()) {
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
