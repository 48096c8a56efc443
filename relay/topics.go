package relay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

func validTopic(name string) bool {
	return topicName.MatchString(name) && name != "." && name != ".."
}

func expandTopic(template, eventType, aggregateType string) string {
	return strings.NewReplacer("${event_type}", eventType, "${aggregate_type}", aggregateType,
		"{event_type}", eventType, "{aggregate_type}", aggregateType).Replace(template)
}

// topicOf is the topic that a message names itself, of others that of the map,
// else of the template.
func (c *Config) topicOf(e *outbox.Event) (string, error) {
	if e.AggregateType == outbox.MessageAggregate {
		if !validTopic(e.Type) {
			return e.Type, &TopicError{EventType: e.Type, AggregateType: e.AggregateType, Topic: e.Type}
		}
		return e.Type, nil
	}
	if t, ok := c.Topics[e.Type]; ok {
		return t, nil
	}
	t := expandTopic(c.TopicTemplate, e.Type, e.AggregateType)
	if !validTopic(t) {
		return t, &TopicError{EventType: e.Type, AggregateType: e.AggregateType, Topic: t}
	}
	return t, nil
}

// maxTopicNames bounds the names that are kept; event types are few.
const maxTopicNames = 1000

type topicKey struct{ event, aggregate string }

type topicEntry struct {
	name string
	err  error
}

// topic is topicOf, remembered. Called locked.
func (p *publisher) topic(e *outbox.Event) (string, error) {
	k := topicKey{e.Type, e.AggregateType}
	t, ok := p.topicNames[k]
	if !ok {
		t.name, t.err = p.cfg.topicOf(e)
		if len(p.topicNames) >= maxTopicNames {
			clear(p.topicNames)
		}
		p.topicNames[k] = t
	}
	return t.name, t.err
}

// topics makes missing topics and knows how large their batches may be.
type topics struct {
	admin       *kadm.Client // set before the first ensure
	partitions  int32
	replication int16
	limit       int32

	mu  sync.RWMutex
	max map[string]int32 // topics known to exist
	// deleted are those that were, until they are made again.
	deleted map[string]bool
}

func newTopics(cfg *Config) *topics {
	return &topics{
		partitions: cfg.Partitions, replication: cfg.Replication, limit: cfg.MaxRecordBytes,
		max: make(map[string]int32), deleted: make(map[string]bool),
	}
}

// known says whether the topic was seen to exist.
func (t *topics) known(topic string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, ok := t.max[topic]
	return ok
}

// maxBytes is the largest batch for the topic.
func (t *topics) maxBytes(topic string) int32 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if n, ok := t.max[topic]; ok {
		return n
	}
	return t.limit
}

// forget takes back that the topic exists: the broker says that it does not, so
// somebody deleted it. The next event for it makes it again.
func (t *topics) forget(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.max, topic)
	t.deleted[topic] = true
}

// wasDeleted reports, once, that the topic was forgotten.
func (t *topics) wasDeleted(topic string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.deleted[topic]
	delete(t.deleted, topic)
	return was
}

// ensure makes the topic if it is missing.
func (t *topics) ensure(ctx context.Context, topic string) error {
	details, err := t.admin.ListTopics(ctx, topic)
	if err != nil {
		return fmt.Errorf("look up topic %s: %w", topic, err)
	}
	if err := details[topic].Err; errors.Is(err, kerr.UnknownTopicOrPartition) {
		_, err := t.admin.CreateTopic(ctx, t.partitions, t.replication, nil, topic)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
	} else if err != nil {
		return fmt.Errorf("look up topic %s: %w", topic, err)
	}
	limit := t.limit
	if n, ok := t.messageBytes(ctx, topic); ok {
		limit = min(limit, n)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.max[topic] = limit
	return nil
}

// messageBytes asks for the topic's max.message.bytes. A relay that may not
// read the configuration does without.
func (t *topics) messageBytes(ctx context.Context, topic string) (int32, bool) {
	rc, err := t.admin.DescribeTopicConfigs(ctx, topic)
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
