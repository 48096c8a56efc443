package subscriptions

import (
	"fmt"

	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
)

// Skip is a range of offsets that was passed over without a delivery, because the records did
// not exist any more. Count is the number of offsets that were neither settled nor stored. It is kept
// as long as the subscription.
type Skip = client.Skip

// The reasons of skips.
const (
	// SkipDeleted: the topic had deleted the records, by its retention or by DeleteRecords.
	SkipDeleted = "deleted"
	// SkipTopicDeleted: the topic was deleted and created again.
	SkipTopicDeleted = "topic_deleted"
)

// FormatSkip returns the range and its reason.
func FormatSkip(k *Skip) string {
	if k.Reason == SkipTopicDeleted {
		return fmt.Sprintf("%s/%d: the topic was deleted; what it had from offset %d on was not delivered", k.Topic, k.Partition, k.From)
	}
	return fmt.Sprintf("%s/%d: %d offsets from %d to %d were not delivered: the topic has deleted them", k.Topic, k.Partition, k.Count, k.From, k.To-1)
}
