package engine

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// BenchmarkOneKey measures the rate of the messages of one key over loopback: with runs of
// 1,000, one message at a time, also if they were stored before, and as a group of the client alone
// that commits each poll.
func BenchmarkOneKey(b *testing.B) {
	for _, c := range []struct {
		perKey int
		stored bool
	}{{1000, false}, {1000, true}, {1, false}, {1, true}} {
		perKey := c.perKey
		b.Run(fmt.Sprintf("per_key=%d,stored=%t", perKey, c.stored), func(b *testing.B) {
			broker := benchBroker(b)
			db := newMemory()
			s := subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Start: subscriptions.StartEarliest}.WithDefaults()
			r, err := db.Put(b.Context(), s, "")
			if err != nil {
				b.Fatal(err)
			}
			if c.stored {
				db.keepAll(b, broker, store.Partition{Subscription: r.Incarnation(), Topic: "a"})
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

// keepAll stores all messages of a partition as ones that wait for an earlier one of their key.
func (m *memory) keepAll(b *testing.B, broker *kfake.Cluster, p store.Partition) {
	b.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...), kgo.ConsumeTopics(p.Topic))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	topics, err := adm.ListTopics(b.Context(), p.Topic)
	if err != nil {
		b.Fatal(err)
	}
	m.topicIDs[p], m.rows[p] = topics[p.Topic].ID, make(map[int64]store.Stored)
	for len(m.rows[p]) < b.N+2000 {
		client.PollFetches(b.Context()).EachRecord(func(r *kgo.Record) {
			m.rows[p][r.Offset] = store.Stored{Offset: r.Offset, Key: string(r.Key), State: store.StateBehind, FirstAt: r.Timestamp, Record: r}
		})
	}
	at := int64(len(m.rows[p]))
	var passed kadm.Offsets
	passed.Add(kadm.Offset{Topic: p.Topic, At: at, LeaderEpoch: -1, Metadata: (&position.Set{}).Encode(at, position.Origin{TopicID: topics[p.Topic].ID, Generation: 1})})
	if err := adm.CommitAllOffsets(b.Context(), p.Subscription, passed); err != nil {
		b.Fatal(err)
	}
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
