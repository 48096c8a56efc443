package sim

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// partition is a partition of a topic.
type partition struct {
	topic  string
	number int32
	// made is how often the topic was deleted before.
	made int
}

// record is an event in a topic.
type record struct {
	outbox.Event
	partition
	offset int64
	// producer is the producer id, unique for each run of a relay.
	producer int64
	// at is the time when the broker stored it. The record's timestamp is that of the
	// producer's clock.
	at time.Time
	// gone is the time when it was deleted, with its topic or by DeleteRecords; zero if it
	// was not.
	gone time.Time
}

// tap is a consumer that records when each record was stored. Faults of the network do
// not affect it.
type tap struct {
	t       *testing.T
	dial    func(context.Context, string, string) (net.Conn, error)
	running sync.WaitGroup

	mu      sync.Mutex
	clients []*kgo.Client
	topics  []string
	made    map[string]int // how often a topic was deleted
	records []record
	reached map[partition]int64
	ends    map[partition][]endOffset
	trimmed map[partition]bool // partitions of which records were deleted
	foreign int                // records of other producers
}

// endOffset is the end of a partition after a produce request.
type endOffset struct {
	offset int64
	at     time.Time
}

// tapWait is the fetch wait time of the tap; no other client uses the same value.
const tapWait = time.Minute

func startTap(t *testing.T, k *kafka, topics ...string) *tap {
	t.Helper()
	p := &tap{
		t: t, dial: k.virtual.DialContext, made: make(map[string]int),
		reached: make(map[partition]int64), ends: make(map[partition][]endOffset), trimmed: make(map[partition]bool),
	}
	p.follow(topics...)
	k.executed = func(created []string) {
		for _, topic := range created {
			p.follow(topic)
		}
		p.observe(k)
	}
	return p
}

// observe saves the current ends of the topics. A client reads the records of a new topic
// or of one that had no leader up to a minute after they were stored, so its time of
// arrival is not that of the record.
func (p *tap) observe(k *kafka) {
	p.mu.Lock()
	topics := slices.Clone(p.topics)
	p.mu.Unlock()
	ends, now := k.ends(topics), time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for in, end := range ends {
		in.made = p.made[in.topic]
		seen := p.ends[in]
		if len(seen) == 0 && end > 0 || len(seen) > 0 && seen[len(seen)-1].offset < end {
			p.ends[in] = append(seen, endOffset{end, now})
		}
	}
}

// storedAt returns when a record that was read at a time was stored.
func (p *tap) storedAt(r record) time.Time {
	for _, end := range p.ends[r.partition] {
		if r.offset < end.offset && end.at.Before(r.at) {
			return end.at
		}
	}
	return r.at
}

// follow makes the tap read topics from their beginnings. Each call uses its own client:
// a running fetch ends only after tapWait.
func (p *tap) follow(topics ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.topics, topics[0]) {
		p.refreshLocked() // its creation was refused before
		return
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokerAddr), kgo.Dialer(p.dial), kgo.ConsumeTopics(topics...), kgo.FetchMaxWait(tapWait), kgo.DisableClientMetrics(),
		kgo.AllowAutoTopicCreation()) // which the broker does not permit: only the tap's requests for metadata ask for it
	if err != nil {
		p.t.Errorf("tap the broker: %v", err)
		return
	}
	p.topics, p.clients = append(p.topics, topics...), append(p.clients, client)
	made := maps.Clone(p.made)
	p.running.Go(func() { p.run(client, made) })
}

// refresh makes the tap refresh its metadata.
func (p *tap) refresh() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refreshLocked()
}

func (p *tap) refreshLocked() {
	for _, c := range p.clients {
		c.ForceMetadataRefresh()
	}
}

// run reads with a client. made is how often each topic was deleted before.
func (p *tap) run(client *kgo.Client, made map[string]int) {
	for {
		fetches := client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		now := time.Now()
		p.mu.Lock()
		for r := range fetches.RecordsAll() {
			in := partition{r.Topic, r.Partition, made[r.Topic]}
			p.reached[in] = r.Offset + 1
			if !ofRelay(r) {
				p.foreign++
				continue
			}
			e, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
			if err != nil {
				p.t.Errorf("%s[%d]@%d: %v", r.Topic, r.Partition, r.Offset, err)
			}
			stored := record{Event: e.Event, partition: in, offset: r.Offset, producer: r.ProducerID, at: now}
			stored.at = p.storedAt(stored)
			p.records = append(p.records, stored)
		}
		p.mu.Unlock()
	}
}

// all waits until the tap has read the topics to their current ends, and returns the
// records in the order in which they were stored.
func (p *tap) all(k *kafka) []record {
	ends := p.currentEnds(k)
	for deadline := time.Now().Add(time.Hour); ; time.Sleep(time.Second) {
		p.mu.Lock()
		behind := false
		for in, end := range ends {
			behind = behind || p.reached[in] < end
		}
		records := slices.Clone(p.records)
		p.mu.Unlock()
		if !behind {
			slices.SortStableFunc(records, func(a, b record) int { return a.at.Compare(b.at) })
			return records
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("failed to read the topics to their ends %v; reached %v", ends, p.reached)
		}
	}
}

// currentEnds returns the ends of the topics that it reads, of these topics only if any are
// named.
func (p *tap) currentEnds(k *kafka, of ...string) map[partition]int64 {
	p.mu.Lock()
	topics, made := slices.Clone(p.topics), maps.Clone(p.made)
	p.mu.Unlock()
	if len(of) > 0 {
		topics = slices.DeleteFunc(topics, func(t string) bool { return !slices.Contains(of, t) })
	}
	out := make(map[partition]int64)
	for in, end := range k.ends(topics) {
		in.made = made[in.topic]
		out[in] = end
	}
	return out
}

func (p *tap) close() {
	for _, c := range p.clients {
		c.Close()
	}
	p.running.Wait()
}
