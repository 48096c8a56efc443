package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schema"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

// With a frozen node the tail publishes events less than a second after their commit.
func TestRelay_TailWithOneNodeFrozen(t *testing.T) {
	inBubble(t, func(w *world) {
		var network kfake.VirtualNetwork
		broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(network.Listen), kfake.SeedTopics(3, "OrderCreated"))
		if err != nil {
			w.Fatal(err)
		}
		defer broker.Close()
		kafka := kgo.Dialer(network.DialContext)
		r, err := relay.New(relay.Config{
			Session: w.session, Keyspace: schema.DefaultKeyspace, Brokers: []string{"127.0.0.1:9092"}, Kafka: []kgo.Opt{kafka},
			Settings:  relay.Settings{PublishSettings: relay.PublishSettings{Partitions: 3}},
			LoadMeter: testworld.Idle{},
		})
		if err != nil {
			w.Fatal(err)
		}
		ctx, stop := context.WithCancel(w.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		arrived, closeConsumer := consume(w.T, kgo.SeedBrokers("127.0.0.1:9092"), kafka, kgo.ConsumeTopics("OrderCreated"))
		s, err := orders.New(w.session, orders.Config{})
		if err != nil {
			w.Fatal(err)
		}
		time.Sleep(10 * time.Second) // the tail reads
		w.after(2*time.Second, func() { w.db.Freeze(1) })
		c := w.every(100*time.Millisecond, 12*time.Second, func(ctx context.Context, _ int) error {
			r, err := s.Create(ctx, newOrder(), orders.WriteOptions{})
			if err != nil {
				return err
			}
			committed := time.Now()
			for arrived(r.Order.ID.String()).IsZero() {
				if time.Since(committed) > time.Minute {
					return fmt.Errorf("order %s is not published after a minute", r.Order.ID)
				}
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		})
		w.mustBeQuick(c)
		stop()
		if err := <-ended; err != nil {
			w.Errorf("Run() = %v", err)
		}
		closeConsumer()
	})
}

// consume returns when the first record of a key has arrived.
func consume(t *testing.T, opts ...kgo.Opt) (arrived func(key string) time.Time, stop func()) {
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	first := map[string]time.Time{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			fs := cl.PollFetches(context.Background())
			if fs.IsClientClosed() {
				return
			}
			mu.Lock()
			fs.EachRecord(func(r *kgo.Record) {
				if _, ok := first[string(r.Key)]; !ok {
					first[string(r.Key)] = time.Now()
				}
			})
			mu.Unlock()
		}
	}()
	return func(key string) time.Time {
			mu.Lock()
			defer mu.Unlock()
			return first[key]
		}, func() {
			cl.Close()
			<-done
		}
}
