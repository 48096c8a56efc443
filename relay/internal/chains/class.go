package chains

import (
	"github.com/gocql/gocql"
	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// Error classes of dead letters.
const (
	ClassBreakerOpen  = "breaker_open"       // the breaker was open
	ClassAttemptsUsed = "attempts_used"      // no attempt succeeded
	ClassTooLarge     = "record_too_large"   // the record exceeds the limit of the topic or the broker
	ClassTopicInvalid = "topic_invalid"      // the topic's name is not valid
	ClassTopicRefused = "topic_not_allowed"  // no permission to write to or create the topic
	ClassUndecodable  = dlq.ClassUndecodable // the row cannot be decoded as an event, or is due too late
	ClassRefused      = "refused"            // the broker refused the record for another reason
	ClassBehind       = "behind"             // an earlier event of the aggregate is a dead letter
	ClassInterrupted  = "interrupted"        // a previous instance began to write a dead letter and did not finish
)

// IsSpillClass reports whether dead letters of the class count for the spill limit.
func IsSpillClass(class string) bool {
	return class == ClassBreakerOpen || class == ClassAttemptsUsed
}

// AtOfEntry returns when a dead letter is replayed, as Ref.At; asked means that an
// operator requested the replay.
func AtOfEntry(e *dlq.ChainEntry, asked bool) int64 {
	switch e.Status {
	case dlq.Suspended, dlq.Failed:
		return AtOperator
	case dlq.Processing:
		return e.ClaimedUntil.UnixMilli()
	case dlq.Blocked:
		return AtOnce
	}
	if !asked && (e.Strategy == dlq.StrategyBreakerClose || e.Strategy == "" && e.ErrorClass == ClassBreakerOpen) {
		return AtBreaker
	}
	if asked || e.NextAttempt.IsZero() { // the clock of the operator's host may be ahead
		return AtOnce
	}
	return e.NextAttempt.UnixMilli()
}

// ByItself reports whether a dead letter is of a row without a number in its aggregate,
// or without an aggregate: it is an aggregate of its own (badRow). The relay of the
// row's stream writes it. The relay of the shard of its id replays it, because only its
// id is known.
func ByItself(event gocql.UUID, aggregate string) bool { return aggregate == event.String() }
