package sim

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
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
	t       *testing.T
	dial    func(context.Context, string, string) (net.Conn, error)
	running sync.WaitGroup

	mu      sync.Mutex
	clients []*kgo.Client
	topics  []string
	records []record
	reached map[partition]int64
}

// tapWait is how long the tap waits for records. Nobody else waits so long.
const tapWait = time.Minute

func startTap(t *testing.T, k *kafka, topics ...string) *tap {
	t.Helper()
	p := &tap{t: t, dial: k.virtual.DialContext, reached: make(map[partition]int64)}
	p.follow(topics...)
	k.announce = func(topic string) { p.follow(topic) }
	return p
}

// follow has the tap read topics from their beginnings. Each time has a client of its
// own: what is under way does not end before tapWait.
func (p *tap) follow(topics ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.topics, topics[0]) {
		p.refreshLocked() // its creation was refused before
		return
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokerAddr), kgo.Dialer(p.dial), kgo.ConsumeTopics(topics...), kgo.FetchMaxWait(tapWait))
	if err != nil {
		p.t.Errorf("tap the broker: %v", err)
		return
	}
	p.topics, p.clients = append(p.topics, topics...), append(p.clients, client)
	p.running.Go(func() { p.run(client) })
}

// refresh has the tap learn anew who leads what.
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

func (p *tap) run(client *kgo.Client) {
	for {
		fetches := client.PollFetches(context.Background())
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
func (p *tap) all(k *kafka) []record {
	p.mu.Lock()
	topics := slices.Clone(p.topics)
	p.mu.Unlock()
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
	for _, c := range p.clients {
		c.Close()
	}
	p.running.Wait()
}
