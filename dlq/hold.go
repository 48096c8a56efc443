package dlq

import (
	"time"
)

// Hold is what keeps letters of a table from being replayed now, as the relay
// sees it: a condition that does not hold, or a canary that died again.
type Hold struct {
	// Rule is that of the letters, and FailureKey theirs, empty for all of the rule.
	Rule, FailureKey string
	// Reason says what keeps them, in plain words.
	Reason string
	// Since is when it began, and Until when it ends by itself; zero if time alone
	// does not decide.
	Since, Until time.Time
}

// of says that the hold is one of the letter.
func (h *Hold) of(l *DeadLetter) bool {
	return h.Rule == l.Rule && (h.FailureKey == "" || h.FailureKey == l.FailureKey)
}
