package stream

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// fixture is a hub on a broker in memory, with a producer.
type fixture struct {
	*Hub
	broker   *kfake.Cluster
	producer *kgo.Client
	stop     func()
}

func setup(t testing.TB, change ...func(*Config)) *fixture {
	t.Helper()
	broker := world.StartBroker(t, kfake.SeedTopics(3, "a", "b"), kfake.AllowAutoTopicCreation())
	seeds := kgo.SeedBrokers(broker.ListenAddrs()...)
	producer, err := kgo.NewClient(seeds, kgo.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(producer.Close)
	b := &fixture{broker: broker, producer: producer}
	b.Hub, b.stop = startHub(t, broker, change...)
	return b
}

// startHub runs a hub; several on one broker are several processes.
func startHub(t testing.TB, broker *kfake.Cluster, change ...func(*Config)) (h *Hub, stop func()) {
	t.Helper()
	cfg := Config{Topics: Topics{Patterns: []string{"*"}}, Kafka: []kgo.Opt{kgo.SeedBrokers(broker.ListenAddrs()...), kgo.FetchMaxWait(100 * time.Millisecond), kgo.MetadataMinAge(20 * time.Millisecond)}, Refresh: 50 * time.Millisecond}
	for _, f := range change {
		f(&cfg)
	}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := h.Run(ctx); err != nil {
			t.Errorf("Run() = %v", err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return h, stop
}

// produce publishes n events of a topic, numbered from first.
func (b *fixture) produce(t testing.TB, topic string, first, n int) {
	t.Helper()
	for i := first; i < first+n; i++ {
		e := outbox.Event{
			ID: outbox.NewID(), AggregateID: outbox.IDFromText("thing-" + strconv.Itoa(i%5)), Sequence: 1, AggregateType: "thing", Type: "Type" + strconv.Itoa(i%2),
			Payload: []byte(`{"n":` + strconv.Itoa(i) + `}`), CreatedAt: time.Now(),
		}
		r := &kgo.Record{Topic: topic, Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")}
		if err := b.producer.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// number is the n of an event.
func number(t testing.TB, event []byte) int {
	t.Helper()
	var e struct{ Data struct{ N int } }
	if err := json.Unmarshal(event, &e); err != nil {
		t.Fatalf("event %s: %v", event, err)
	}
	return e.Data.N
}

// patience is how long a test waits for what only a defect withholds.
const patience = 30 * time.Second

func (b *fixture) subscribe(t testing.TB, f Filter, from Position) *Subscription {
	t.Helper()
	s, err := b.Subscribe(t.Context(), f, from)
	if err != nil {
		t.Fatalf("Subscribe() = %v", err)
	}
	return s
}

// read reads n events and counts each number.
func read(t testing.TB, s *Subscription, n int) map[int]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	seen := map[int]int{}
	for range n {
		e, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("Next() = %v after %d of %d", err, len(seen), n)
		}
		seen[number(t, e)]++
	}
	return seen
}

// idle checks that no further event arrives.
func idle(t testing.TB, s *Subscription) {
	t.Helper()
	if e, err := s.nextWithin(t.Context(), 300*time.Millisecond); !errors.Is(err, errIdle) {
		t.Errorf("Next() = %s, %v, want nothing", e, err)
	}
}
