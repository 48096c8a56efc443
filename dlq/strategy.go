package dlq

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

// The strategies: who replays a letter, and when. A StrategyRule names one of the first
// five; the relay gives the last to letters that stand behind others.
const (
	// StrategyImmediate: the relay, after 1, 5, 15, 30 and 60 minutes.
	StrategyImmediate = "immediate"
	// StrategyScheduled: the relay, in off-peak windows.
	StrategyScheduled = "scheduled"
	// StrategyConditional: the relay, when named conditions hold.
	StrategyConditional = "conditional"
	// StrategyManual: the relay, when an operator says so.
	StrategyManual = "manual"
	// StrategyBreakerClose: the relay, as soon as the breaker lets something
	// through; such letters are also its probes.
	StrategyBreakerClose = "breaker_close"
	// StrategyFollow: the relay, once the letter before it is settled.
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

// times is n in words, for people.
func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// WaitsFor says in plain words what the letter waits for at now; empty for one
// that is not open. holds are those of the letter's table: without them it says
// only what the letter itself knows.
func (l *DeadLetter) WaitsFor(holds []Hold, now time.Time) string {
	switch l.Status {
	case Parked:
		return "an earlier event of its aggregate is a dead letter"
	case Processing:
		if now.Before(l.ClaimedUntil) {
			return "its replay is under way, by " + l.ClaimedBy
		}
		return "the claim of " + l.ClaimedBy + " ran out; the next worker takes it"
	case Failed, Manual:
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
		return "the breaker to let something through"
	}
	return "its turn"
}
