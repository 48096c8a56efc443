package publish

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// ValidTopic reports whether Kafka accepts the name of a topic.
func ValidTopic(name string) bool {
	return topicPattern.MatchString(name) && name != "." && name != ".."
}

// ExpandTopic returns the topic of an event by a template such as Config.TopicTemplate.
func ExpandTopic(template, eventType, aggregateType string) string {
	return strings.NewReplacer("${event_type}", eventType, "${aggregate_type}", aggregateType,
		"{event_type}", eventType, "{aggregate_type}", aggregateType).Replace(template)
}

// topicOf returns the topic of an event: a message contains its topic; the topic of any
// other event is in c.Topics, or else follows from the template.
func (c *Config) topicOf(e *outbox.Event) (string, error) {
	if e.AggregateType == outbox.MessageAggregate {
		if !ValidTopic(e.Type) {
			return e.Type, &failure.TopicError{EventType: e.Type, AggregateType: e.AggregateType, Topic: e.Type}
		}
		return e.Type, nil
	}
	if t, ok := c.Topics[e.Type]; ok {
		return t, nil
	}
	t := ExpandTopic(c.TopicTemplate, e.Type, e.AggregateType)
	if !ValidTopic(t) {
		return t, &failure.TopicError{EventType: e.Type, AggregateType: e.AggregateType, Topic: t}
	}
	return t, nil
}

// maxTopicNames bounds the cached names; event types are few.
const maxTopicNames = 1000

type topicKey struct{ event, aggregate string }

type topicEntry struct {
	name string
	err  error
}

// topic is topicOf with a cache. Called locked.
func (p *Publisher) topic(e *outbox.Event) (string, error) {
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

// TopicName returns the topic of an event.
func (p *Publisher) TopicName(e *outbox.Event) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.topic(e)
}

// topics creates missing topics and contains the batch limits of known ones.
type topics struct {
	admin       *kadm.Client // set before the first ensure
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

func newTopics(cfg *Config) *topics {
	return &topics{
		partitions: cfg.Partitions, replication: cfg.Replication, limit: cfg.MaxRecordBytes,
		max: make(map[string]int32), ids: make(map[string]kadm.TopicID), strange: make(map[string]bool),
	}
}

// known reports whether the topic is known to exist.
func (t *topics) known(topic string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, ok := t.max[topic]
	return ok
}

// maxBytes returns the size limit of a batch for the topic.
func (t *topics) maxBytes(topic string) int32 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if n, ok := t.max[topic]; ok {
		return n
	}
	return t.limit
}

// forget removes a topic that a broker does not know. It was deleted, or the broker does
// not know it yet. The next event for it checks, and creates the topic if it is missing.
// strange means that the broker does not know the id.
func (t *topics) forget(topic string, strange bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.max, topic)
	if strange {
		t.strange[topic] = true
	}
}

// foundTopic is the state of a topic on the broker.
type foundTopic struct {
	limit      int32 // of a batch
	partitions int
	id         kadm.TopicID
	made       bool // created by this call
}

// ensure creates the topic if it is missing.
func (t *topics) ensure(ctx context.Context, topic string) (found foundTopic, err error) {
	details, err := t.admin.ListTopics(ctx, topic)
	if err != nil {
		return found, fmt.Errorf("look up topic %s: %w", topic, err)
	}
	if err := details[topic].Err; errors.Is(err, kerr.UnknownTopicOrPartition) {
		made, err := t.admin.CreateTopic(ctx, t.partitions, t.replication, nil, topic)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return found, fmt.Errorf("create topic %s: %w", topic, topicRefusal(err))
		}
		found.made, found.id, found.partitions = err == nil, made.ID, max(int(made.NumPartitions), 0)
	} else if err != nil {
		return found, fmt.Errorf("look up topic %s: %w", topic, err)
	} else {
		found.id, found.partitions = details[topic].ID, len(details[topic].Partitions)
	}
	found.limit = t.limit
	if n, ok := t.messageBytes(ctx, topic); ok {
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

// replaced reports whether the topic differs from the known one of the same name, and
// whether a broker did not know the id of the known one.
func (t *topics) replaced(topic string, found *foundTopic) (other, strange bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	none := kadm.TopicID{}
	id, seen := t.ids[topic]
	return seen && (found.made || id != none && found.id != none && id != found.id), t.strange[topic]
}

// know records that the topic exists: events may be sent to it.
func (t *topics) know(topic string, found *foundTopic) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.max[topic] = found.limit
	if _, seen := t.ids[topic]; !seen || found.id != (kadm.TopicID{}) {
		t.ids[topic] = found.id
	}
	delete(t.strange, topic)
}

// messageBytes returns the topic's max.message.bytes, false if the relay is not allowed
// to read the configuration.
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

// topicPattern matches the names that Kafka allows.
var topicPattern = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
