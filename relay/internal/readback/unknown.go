package readback

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// agreeFor is how long the brokers have to agree that a topic does not exist before the
	// relay believes it. A start waits as long for it as for other unreadable partitions.
	agreeFor = Patience
	// agreeAgain is the maximum interval between two answers that count as one agreement.
	agreeAgain = time.Minute
	// askTimeout limits the request to one broker about an unknown topic.
	askTimeout = 2 * time.Second
)

// unknownTopics decides which topics do not exist.
//
// A broker that starts, or has lost its controller, does not know topics that exist. Its
// answer UNKNOWN_TOPIC_OR_PARTITION proves nothing: a topic to which the relay published is
// deleted once no broker has known it for agreeFor. It is safe for concurrent use.
type unknownTopics struct {
	mu    sync.Mutex
	since map[string]agreement
}

// agreement is how long no broker has known a topic.
type agreement struct {
	since, last time.Time
	over        bool // it lasted for agreeFor
}

func newUnknownTopics() *unknownTopics { return &unknownTopics{since: make(map[string]agreement)} }

// isDeleted records whether the brokers agree now that a topic does not exist, and reports
// whether they have agreed for agreeFor. The nil value reports false.
func (u *unknownTopics) isDeleted(topic string, agree bool, now time.Time) bool {
	if u == nil {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	a, ok := u.since[topic]
	switch {
	case !agree:
		delete(u.since, topic)
		return false
	case !ok, !a.over && now.Sub(a.last) > agreeAgain:
		a = agreement{since: now}
	}
	a.last, a.over = now, a.over || now.Sub(a.since) >= agreeFor
	u.since[topic] = a
	return a.over
}

// describeTopics requests the metadata of topics. A topic that the responding broker does not
// know is described by another one that knows it. agree contains the topics that none of them
// knows, where more than half of the brokers have answered.
func describeTopics(ctx context.Context, client *kgo.Client, topics []string) (details map[string]kmsg.MetadataResponseTopic, agree map[string]bool, err error) {
	details = make(map[string]kmsg.MetadataResponseTopic)
	if len(topics) == 0 {
		return details, nil, nil
	}
	resp, err := describeAt(ctx, client.Request, topics, details)
	if err != nil {
		return nil, nil, err
	}
	unknown := unknownIn(details)
	answered := 0
	for _, b := range resp.Brokers {
		if len(unknown) == 0 {
			break
		}
		asked, cancel := context.WithTimeout(ctx, askTimeout)
		_, err := describeAt(asked, client.Broker(int(b.NodeID)).RetriableRequest, unknown, details)
		cancel()
		if err == nil {
			answered++
		}
		unknown = unknownIn(details)
	}
	agree = make(map[string]bool)
	for _, topic := range unknown {
		agree[topic] = 2*answered > len(resp.Brokers)
	}
	return details, agree, nil
}

// describeAt adds the metadata of topics, by one broker, to details.
func describeAt(ctx context.Context, request func(context.Context, kmsg.Request) (kmsg.Response, error), topics []string, details map[string]kmsg.MetadataResponseTopic) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, t := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(t)
		req.Topics = append(req.Topics, rt)
	}
	r, err := request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := r.(*kmsg.MetadataResponse)
	for _, t := range resp.Topics {
		if t.Topic != nil {
			details[*t.Topic] = t
		}
	}
	return resp, nil
}

// unknownIn returns the topics that the broker does not know.
func unknownIn(details map[string]kmsg.MetadataResponseTopic) (topics []string) {
	for topic, t := range details {
		if isUnknown(kerr.ErrorForCode(t.ErrorCode)) {
			topics = append(topics, topic)
		}
	}
	return topics
}

func isUnknown(err error) bool { return errors.Is(err, kerr.UnknownTopicOrPartition) }

// errUnknownTopic is the state of a topic of which the brokers do not agree yet that it does
// not exist.
var errUnknownTopic = fmt.Errorf("a topic of the relay is expected to exist: %w", kerr.UnknownTopicOrPartition)
