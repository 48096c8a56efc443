package dlq

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

// The strategies: who replays a dead letter, and when. A StrategyRule uses one of the
// first five; the relay gives the last to blocked dead letters.
const (
	// StrategyImmediate: the relay, after 1, 5, 15, 30 and 60 minutes.
	StrategyImmediate = "immediate"
	// StrategyScheduled: the relay, in off-peak windows.
	StrategyScheduled = "scheduled"
	// StrategyConditional: the relay, when named conditions hold.
	StrategyConditional = "conditional"
	// StrategyManual: the relay, after an operator's request.
	StrategyManual = "manual"
	// StrategyBreakerClose: the relay, as soon as the breaker admits requests; such
	// dead letters are also its probes.
	StrategyBreakerClose = "breaker_close"
	// StrategyFollow: the relay, once the dead letter before it is settled.
	StrategyFollow = "follow"
)

// Strategies are all strategies.
var Strategies = []string{
	StrategyImmediate, StrategyScheduled, StrategyConditional, StrategyManual, StrategyBreakerClose, StrategyFollow,
}

// FailureKey is the same for equal errors: of one class and code, and with
// messages that differ in numbers, ids and addresses only.
func FailureKey(class, code, text string) string {
	h := fnv.New64a()
	for word := range strings.FieldsSeq(text) {
		if strings.ContainsAny(word, "0123456789") {
			word = "#"
		}
		_, _ = h.Write([]byte(word + " ")) // never fails
	}
	return fmt.Sprintf("%s/%s/%08x", class, code, uint32(h.Sum64()))
}

// times returns n in words.
func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// WaitsFor describes in plain words the reason why the dead letter waits at now; empty
// for one that is not open. holds are the ones of its table: without them the result
// depends on the dead letter alone.
func (l *DeadLetter) WaitsFor(holds []Hold, now time.Time) string {
	switch l.Status {
	case Blocked:
		return "an earlier event of its aggregate is a dead letter"
	case Processing:
		if now.Before(l.ClaimedUntil) {
			return "being replayed by " + l.ClaimedBy
		}
		return "the claim of " + l.ClaimedBy + " expired; the next worker claims it"
	case Failed, Suspended:
		if l.Waiting != "" {
			return "an operator: " + l.Waiting
		}
		return "an operator"
	case Pending:
	default:
		return ""
	}
	if l.NextAttempt.After(now) {
		return "its time, " + l.NextAttempt.UTC().Format(time.RFC3339)
	}
	for i := range holds {
		if h := &holds[i]; h.of(l) {
			return h.Reason
		}
	}
	if l.Strategy == StrategyBreakerClose {
		return "the breaker to admit requests"
	}
	return "its turn"
}
