package subscriptions

import (
	"regexp"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/glob"
)

// Place is the place of a record in a topic.
type Place struct {
	Topic     string
	Partition int32
	Offset    int64
	// At is the write time of the record.
	At time.Time
}

// ProgressState is the state of a message in a subscription.
type ProgressState string

// The states of a message in a subscription.
const (
	// ProgressWaiting: it was not delivered yet, or can be delivered again.
	ProgressWaiting ProgressState = "waiting"
	// ProgressProcessing: it is leased, or its acknowledgement is not durable yet.
	ProgressProcessing ProgressState = "processing"
	// ProgressDelayed: a delivery failed or was delayed; it waits for its next one.
	ProgressDelayed ProgressState = "delayed"
	// ProgressCompleted: it was acknowledged.
	ProgressCompleted ProgressState = "completed"
	// ProgressDeadLettered: it is a dead letter, or was one until an operator closed it.
	ProgressDeadLettered ProgressState = "dead_lettered"
	// ProgressSkipped: it is not delivered, because of a seek, a purge or the start of
	// the subscription.
	ProgressSkipped ProgressState = "skipped"
	// ProgressSettled: it is not delivered again; it is not known any more whether it was
	// acknowledged or skipped.
	ProgressSettled ProgressState = "settled"
	// ProgressNotSelected: types or filter of the subscription do not select it.
	ProgressNotSelected ProgressState = "not_selected"
	// ProgressUnknown: the state could not be read.
	ProgressUnknown ProgressState = "unknown"
)

// Progress is the state of a message in a subscription.
//
// No write records the end of a message. The owner of its partition remembers the last
// messages that ended; of the others it knows a time before which they had ended. So a
// completed message has either ProcessedAt or ProcessedBefore.
type Progress struct {
	Subscription string        `json:"subscription"`
	State        ProgressState `json:"state" enum:"waiting,processing,delayed,completed,dead_lettered,skipped,settled,not_selected,unknown" doc:"settled: not delivered again, either acknowledged or skipped. skipped: by a seek, a purge or the start of the subscription"`
	Attempts     int           `json:"attempts,omitempty" doc:"Number of deliveries, with the one in flight"`
	LeaseUntil   time.Time     `json:"lease_until,omitzero" doc:"End of the lease while it is processing"`
	NextAttempt  time.Time     `json:"next_attempt,omitzero" doc:"Time of the next delivery while it is delayed"`
	ProcessedAt  time.Time     `json:"processed_at,omitzero" doc:"Time of the acknowledgement by the clock of the partition's owner"`
	// ProcessedBefore replaces ProcessedAt once the owner has forgotten it.
	ProcessedBefore time.Time `json:"processed_before,omitzero" doc:"It ended at or before this time; the exact time is not known any more"`
	DeadLetter      string    `json:"dead_letter_id,omitempty" format:"uuid" doc:"Its dead letter"`
	Error           string    `json:"error,omitempty" doc:"Reason of the last failed delivery"`
	Detail          string    `json:"detail,omitempty" doc:"What the state does not express"`
	Owner           string    `json:"owner,omitempty" doc:"Instance that owns the partition, whose memory contains the state; absent if the state is that of the database and of Kafka"`
}

// SelectsTopic reports whether the subscription reads a topic.
func (s *Subscription) SelectsTopic(topic string) bool {
	names, patterns := s.TopicRegexps()
	if !patterns {
		return slices.Contains(names, topic)
	}
	return len(topic) > 0 && topic[0] != '_' && slices.ContainsFunc(names, func(n string) bool {
		ok, err := regexp.MatchString(n, topic)
		return ok && err == nil
	})
}

// SelectsType reports whether the subscription selects an event type.
func (s *Subscription) SelectsType(typ string) bool {
	return len(s.Types) == 0 || slices.ContainsFunc(s.Types, func(p string) bool { return glob.Match(p, typ) })
}
