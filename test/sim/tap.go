package sim

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// partition is one of a topic's.
type partition struct {
	topic  string
	number int32
}

// record is an event as it stands in a topic.
type record struct {
	outbox.Event
	partition
	offset int64
	// producer is which life of a relay wrote it: each has an id of its own.
	producer int64
	// at is when the broker had it. The clock of the record itself is the
	// producer's.
	at time.Time
}

// tap is a consumer beside the broker that notes when each record came in. No
// outage of the network keeps it from doing so.
type tap struct {
	t      *testing.T
	client *kgo.Client
	done   chan struct{}

	mu      sync.Mutex
	records []record
	reached map[partition]int64
}

func startTap(t *testing.T, k *kafka, topics ...string) *tap {
	t.Helper()
	offsets := make(map[string]map[int32]kgo.Offset)
	for _, topic := range topics {
		offsets[topic] = make(map[int32]kgo.Offset)
		for p := range int32(partitions) {
			offsets[topic][p] = kgo.NewOffset().AtStart()
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokerAddr), kgo.Dialer(k.virtual.DialContext),
		kgo.ConsumePartitions(offsets), kgo.FetchMaxWait(time.Minute))
	if err != nil {
		t.Fatalf("tap the broker: %v", err)
	}
	p := &tap{t: t, client: client, done: make(chan struct{}), reached: make(map[partition]int64)}
	go p.run()
	return p
}

func (p *tap) run() {
	defer close(p.done)
	for {
		fetches := p.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		now := time.Now()
		p.mu.Lock()
		for r := range fetches.RecordsAll() {
			e, _, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
			if err != nil {
				p.t.Errorf("%s[%d]@%d: %v", r.Topic, r.Partition, r.Offset, err)
			}
			in := partition{r.Topic, r.Partition}
			p.records = append(p.records, record{Event: e, partition: in, offset: r.Offset, producer: r.ProducerID, at: now})
			p.reached[in] = r.Offset + 1
		}
		p.mu.Unlock()
	}
}

// all waits until it has everything that is in the topics now, and returns it
// in the order in which it came.
func (p *tap) all(k *kafka, topics []string) []record {
	ends := k.ends(topics)
	for deadline := time.Now().Add(time.Hour); ; time.Sleep(time.Second) {
		p.mu.Lock()
		behind := false
		for in, end := range ends {
			behind = behind || p.reached[in] < end
		}
		records := slices.Clone(p.records)
		p.mu.Unlock()
		if !behind {
			return records
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("the topics could not be read to their ends %v; %v is reached", ends, p.reached)
		}
	}
}

func (p *tap) close() {
	p.client.Close()
	<-p.done
}
