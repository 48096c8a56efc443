package engine

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// BenchmarkOneKey measures the rate of the messages of one key over loopback: with runs of
// 1,000, one message at a time, and as a group of the client alone that commits each poll.
func BenchmarkOneKey(b *testing.B) {
	for _, perKey := range []int{1000, 1} {
		b.Run("per_key="+strconv.Itoa(perKey), func(b *testing.B) {
			broker := benchBroker(b)
			db := newMemory()
			s := subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Start: subscriptions.StartEarliest}.WithDefaults()
			if _, err := db.Put(b.Context(), s, ""); err != nil {
				b.Fatal(err)
			}
			e, err := New(Config{Kafka: []kgo.Opt{kgo.SeedBrokers(broker.ListenAddrs()...)}, Store: db, DeadLetters: db})
			if err != nil {
				b.Fatal(err)
			}
			ctx, stop := context.WithCancel(b.Context())
			done := make(chan error)
			go func() { done <- e.Run(ctx) }()
			receive := func() int {
				out, err := e.Receive(ctx, "s", subscriptions.Receive{Max: 1000, MaxPerKey: perKey, Wait: time.Second})
				if err != nil {
					return 0 // it starts
				}
				actions := make([]subscriptions.Settle, len(out))
				for i := range out {
					actions[i] = subscriptions.Settle{Action: subscriptions.ActionAck, Receipt: out[i].Receipt}
				}
				results, err := e.Settle(ctx, "s", actions)
				for i := range results {
					if err != nil || results[i].Code != subscriptions.CodeOK {
						b.Fatalf("%v, %+v", err, results[i])
					}
				}
				return len(out)
			}
			for receive() == 0 {
			}
			b.ResetTimer()
			for n := 0; n < b.N; {
				n += receive()
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			stop()
			if err := <-done; err != nil {
				b.Error(err)
			}
		})
	}
	b.Run("franz-go", func(b *testing.B) {
		broker := benchBroker(b)
		client, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("a"), kgo.DisableAutoCommit())
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		poll := func() int {
			n := client.PollRecords(b.Context(), 1000).NumRecords()
			if err := client.CommitUncommittedOffsets(b.Context()); err != nil {
				b.Fatal(err)
			}
			return n
		}
		for poll() == 0 {
		}
		b.ResetTimer()
		for n := 0; n < b.N; {
			n += poll()
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	})
}

// benchBroker returns a broker with b.N messages of one key, and some for the start.
func benchBroker(b *testing.B) *kfake.Cluster {
	b.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(broker.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	records := make([]*kgo.Record, b.N+2000)
	for i := range records {
		records[i] = event("a", "k", strconv.Itoa(i))
	}
	if err := client.ProduceSync(b.Context(), records...).FirstErr(); err != nil {
		b.Fatal(err)
	}
	return broker
}
