package dlq

import (
	"time"
)

// Hold is the reason for which the relay does not replay dead letters of a table now: a
// condition that does not hold, or a canary that failed again.
type Hold struct {
	// Rule is the rule of the dead letters, and FailureKey their failure key; empty for
	// all of the rule.
	Rule, FailureKey string
	// Reason describes the hold in plain words.
	Reason string
	// Since is the beginning of the hold, and Until its end; zero if it does not end at
	// a fixed time.
	Since, Until time.Time
}

// of reports whether the hold applies to the dead letter.
func (h *Hold) of(l *DeadLetter) bool {
	return h.Rule == l.Rule && (h.FailureKey == "" || h.FailureKey == l.FailureKey)
}
