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

// Catalog creates missing topics and contains the batch limits of known ones. It is safe for
// concurrent use.
type Catalog struct {
	// Admin is set before the first Ensure.
	Admin       *kadm.Client
	partitions  int32
	replication int16
	limit       int32

	mu  sync.RWMutex
	max map[string]int32 // topics known to exist
	// ids contains the ids of topics that were found, zero if the broker has none.
	ids map[string]kadm.TopicID
	// strange contains topics whose id a broker did not know, until they are found again.
	strange map[string]bool
}

// NewCatalog returns an empty catalog. It creates topics with these numbers of partitions
// and replicas; limit is the size limit of a batch, which a topic can lower.
func NewCatalog(partitions int32, replication int16, limit int32) *Catalog {
	return &Catalog{
		partitions: partitions, replication: replication, limit: limit,
		max: make(map[string]int32), ids: make(map[string]kadm.TopicID), strange: make(map[string]bool),
	}
}

// Known reports whether the topic is known to exist.
func (t *Catalog) Known(topic string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, ok := t.max[topic]
	return ok
}

// MaxBytes returns the size limit of a batch for the topic.
func (t *Catalog) MaxBytes(topic string) int32 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if n, ok := t.max[topic]; ok {
		return n
	}
	return t.limit
}

// Forget removes a topic that a broker does not know. It was deleted, or the broker does
// not know it yet. The next event for it checks, and creates the topic if it is missing.
// strange means that the broker does not know the id.
func (t *Catalog) Forget(topic string, strange bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.max, topic)
	if strange {
		t.strange[topic] = true
	}
}

// Found is the state of a topic on the broker.
type Found struct {
	limit      int32 // of a batch
	Partitions int
	id         kadm.TopicID
	made       bool // created by this call
}

// Ensure creates the topic if it is missing.
func (t *Catalog) Ensure(ctx context.Context, topic string) (found Found, err error) {
	details, err := t.Admin.ListTopics(ctx, topic)
	if err != nil {
		return found, fmt.Errorf("look up topic %s: %w", topic, err)
	}
	if err := details[topic].Err; errors.Is(err, kerr.UnknownTopicOrPartition) {
		made, err := t.Admin.CreateTopic(ctx, t.partitions, t.replication, nil, topic)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return found, fmt.Errorf("create topic %s: %w", topic, topicRefusal(err))
		}
		found.made, found.id, found.Partitions = err == nil, made.ID, max(int(made.NumPartitions), 0)
	} else if err != nil {
		return found, fmt.Errorf("look up topic %s: %w", topic, err)
	} else {
		found.id, found.Partitions = details[topic].ID, len(details[topic].Partitions)
	}
	found.limit = t.limit
	if n, ok := t.MessageBytes(ctx, topic); ok {
		found.limit = min(found.limit, n)
	}
	return found, nil
}

// topicRefusal returns the error of a failed creation. A broker may report missing rights
// to create topics, and limits on them, with codes that otherwise concern the cluster.
func topicRefusal(err error) error {
	if failure.Classify(err) == failure.Permanent || errors.Is(err, kerr.ClusterAuthorizationFailed) {
		return &failure.RefusedError{Err: err}
	}
	return err
}

// Replaced reports whether the topic differs from the known one of the same name, and
// whether a broker did not know the id of the known one.
func (t *Catalog) Replaced(topic string, found *Found) (other, strange bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	none := kadm.TopicID{}
	id, seen := t.ids[topic]
	return seen && (found.made || id != none && found.id != none && id != found.id), t.strange[topic]
}

// Know records that the topic exists: events may be sent to it.
func (t *Catalog) Know(topic string, found *Found) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.max[topic] = found.limit
	if _, seen := t.ids[topic]; !seen || found.id != (kadm.TopicID{}) {
		t.ids[topic] = found.id
	}
	delete(t.strange, topic)
}

// MessageBytes returns the topic's max.message.bytes, false if the relay is not allowed
// to read the configuration.
func (t *Catalog) MessageBytes(ctx context.Context, topic string) (int32, bool) {
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
