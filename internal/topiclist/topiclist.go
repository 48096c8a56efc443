// Package topiclist lists topics, and distinguishes one that no broker knows from one that some do not know yet.
package topiclist

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// askTimeout limits the request to one broker about topics that another one does not know.
const askTimeout = 2 * time.Second

// IsAbsent reports whether the brokers do not know a topic.
func IsAbsent(details kadm.TopicDetails, topic string) bool {
	d, ok := details[topic]
	return !ok || errors.Is(d.Err, kerr.UnknownTopicOrPartition)
}

// All describes the topics that exist. A client also lists topics that no broker knows, for seconds after it
// was asked for them.
func All(ctx context.Context, adm *kadm.Client) (kadm.TopicDetails, error) {
	all, err := adm.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the topics: %w", err)
	}
	maps.DeleteFunc(all, func(topic string, _ kadm.TopicDetail) bool { return IsAbsent(all, topic) })
	return all, nil
}

// List describes topics. A broker whose metadata are behind does not know topics that exist: a topic is
// absent if no broker knows it, and more than half of them have answered. Otherwise it returns an error.
func List(ctx context.Context, client *kgo.Client, topics ...string) (kadm.TopicDetails, error) {
	adm := kadm.NewClient(client)
	details, err := adm.ListTopics(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("list the topics: %w", err)
	}
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		if IsAbsent(details, topic) {
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = kmsg.StringPtr(topic)
			req.Topics = append(req.Topics, t)
		}
	}
	if len(req.Topics) == 0 {
		return details, nil
	}
	brokers, err := adm.ListBrokers(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the brokers: %w", err)
	}
	answered := 0
	for _, b := range brokers {
		asked, cancel := context.WithTimeout(ctx, askTimeout)
		resp, err := req.RequestWith(asked, client.Broker(int(b.NodeID)))
		cancel()
		if err != nil {
			continue
		}
		answered++
		for _, t := range resp.Topics {
			if t.Topic != nil && t.ErrorCode != kerr.UnknownTopicOrPartition.Code {
				return nil, fmt.Errorf("topic %s is known to broker %d and not to another one: retry when all brokers know it", *t.Topic, b.NodeID)
			}
		}
	}
	if 2*answered <= len(brokers) {
		return nil, fmt.Errorf("%d of %d brokers answer whether topic %s exists, which takes more than half of them: retry", answered, len(brokers), *req.Topics[0].Topic)
	}
	return details, nil
}
