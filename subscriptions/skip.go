package subscriptions

import (
	"fmt"
	"time"
)

// Skip is a range of offsets that was passed over without a delivery, because the records did
// not exist any more. It is kept as long as the subscription.
type Skip struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// Generation is that of the position.
	Generation int64 `json:"generation"`
	// From is the first offset, To the one after the last. To is From if the end is unknown: that
	// of a deleted topic.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Count is the number of offsets that were neither settled nor stored; 0 if it is unknown.
	Count  int64     `json:"count"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	// AcknowledgedAt and AcknowledgedBy are those of the operator who has taken notice.
	AcknowledgedAt time.Time `json:"acknowledged_at,omitzero"`
	AcknowledgedBy string    `json:"acknowledged_by,omitempty"`
}

// The reasons of skips.
const (
	// SkipDeleted: the topic had deleted the records, by its retention or by DeleteRecords.
	SkipDeleted = "deleted"
	// SkipTopicDeleted: the topic was deleted and created again.
	SkipTopicDeleted = "topic_deleted"
)

// String returns the range and its reason.
func (k *Skip) String() string {
	if k.Reason == SkipTopicDeleted {
		return fmt.Sprintf("%s/%d: the topic was deleted; what it had from offset %d on was not delivered", k.Topic, k.Partition, k.From)
	}
	return fmt.Sprintf("%s/%d: %d offsets from %d to %d were not delivered: the topic has deleted them", k.Topic, k.Partition, k.Count, k.From, k.To-1)
}
