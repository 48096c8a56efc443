package topics

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// Catalog creates missing topics and contains the known state of the others. It is safe for
// concurrent use.
type Catalog struct {
	// Admin is set before the first Find.
	Admin       *kadm.Client
	partitions  int32
	replication int16
	limit       int32

	mu    sync.RWMutex
	known map[string]entry
}

// entry is a topic that exists, or did.
type entry struct {
	Found
	// current reports that the topic was looked up since a broker last did not know it.
	current bool
}

// NewCatalog returns an empty catalog. It creates topics with these numbers of partitions
// and replicas; limit is the size limit of a batch, which a topic can lower.
func NewCatalog(partitions int32, replication int16, limit int32) *Catalog {
	return &Catalog{partitions: partitions, replication: replication, limit: limit, known: make(map[string]entry)}
}

// Known reports whether the topic is known to exist.
func (t *Catalog) Known(topic string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.known[topic].current
}

// MaxBytes returns the size limit of a batch for the topic.
func (t *Catalog) MaxBytes(topic string) int32 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if n := t.known[topic].Limit; n > 0 {
		return n
	}
	return t.limit
}

// Expect records that the topic was published to by an earlier process: it exists, unless
// somebody has deleted it.
func (t *Catalog) Expect(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.known[topic]; !ok {
		t.known[topic] = entry{}
	}
}

// Forget makes the next event of the topic look it up again, and create it if it is
// missing: its state on the broker is not the known one.
func (t *Catalog) Forget(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.known[topic]; ok {
		e.current = false
		t.known[topic] = e
	}
}

// Found is the state of a topic on the broker.
type Found struct {
	Limit      int32 // of a batch
	Partitions int
	ID         kadm.TopicID // zero if the broker has none
	made       bool         // created by this call
}

// Replaces reports whether f is another topic than before, of the same name. A broker
// without topic ids shows that only for a topic that this process creates, or that has fewer
// partitions.
func (f *Found) Replaces(before *Found) bool {
	none := kadm.TopicID{}
	if before.ID == none || f.ID == none {
		return f.made || f.Partitions < before.Partitions
	}
	return f.made || before.ID != f.ID
}

// ErrNotKnownYet means that a topic exists, and that the broker that was asked does not know
// it yet.
var ErrNotKnownYet = fmt.Errorf("not all brokers know the topic yet: %w", kerr.TopicAlreadyExists)

// Find looks the topic up and creates it if it is missing. Whether it is missing is decided by
// the creation: a broker whose metadata are old does not know an existing topic either.
func (t *Catalog) Find(ctx context.Context, topic string) (found Found, err error) {
	details, err := t.Admin.ListTopics(ctx, topic)
	if err != nil {
		return found, fmt.Errorf("look up topic %s: %w", topic, err)
	}
	if err := details[topic].Err; errors.Is(err, kerr.UnknownTopicOrPartition) {
		made, err := t.Admin.CreateTopic(ctx, t.partitions, t.replication, nil, topic)
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return found, fmt.Errorf("look up topic %s: %w", topic, ErrNotKnownYet)
		} else if err != nil {
			return found, fmt.Errorf("create topic %s: %w", topic, topicRefusal(err))
		}
		found.made, found.ID, found.Partitions = true, made.ID, max(int(made.NumPartitions), 0)
	} else if err != nil {
		return found, fmt.Errorf("look up topic %s: %w", topic, err)
	} else {
		found.ID, found.Partitions = details[topic].ID, len(details[topic].Partitions)
	}
	found.Limit = t.MaxBytes(topic)
	if n, ok := t.messageBytes(ctx, topic); ok {
		found.Limit = min(t.limit, n)
	}
	return found, nil
}

// topicRefusal returns the error of a failed creation. A broker may report missing rights
// to create topics, and limits on them, with codes that otherwise concern the cluster.
func topicRefusal(err error) error {
	if failure.Classify(err) == failure.Permanent || errors.Is(err, kerr.ClusterAuthorizationFailed) || errors.Is(err, kerr.PolicyViolation) {
		return &failure.RefusedError{Err: err}
	}
	return err
}

// Know records that the topic exists: events may be sent to it. It reports whether it is
// another topic than an earlier one of the name.
func (t *Catalog) Know(topic string, found *Found) (recreated bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, seen := t.known[topic]
	e := entry{*found, true}
	if e.made = false; seen && e.ID == (kadm.TopicID{}) {
		e.ID = before.ID
	}
	t.known[topic] = e
	return seen && found.Replaces(&before.Found)
}

// messageBytes returns the topic's max.message.bytes, false if the relay is not allowed
// to read the configuration.
func (t *Catalog) messageBytes(ctx context.Context, topic string) (int32, bool) {
	rc, err := t.Admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return 0, false
	}
	for _, r := range rc {
		if r.Name != topic || r.Err != nil {
			continue
		}
		for _, c := range r.Configs {
			if c.Key != "max.message.bytes" || c.Value == nil {
				continue
			}
			if n, err := strconv.ParseInt(*c.Value, 10, 32); err == nil && n > 0 {
				return int32(n), true
			}
		}
	}
	return 0, false
}
