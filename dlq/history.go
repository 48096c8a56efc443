package dlq

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/gocql/gocql"
)

// Change is one line of a dead letter's history. The transaction of the change stores
// it.
type Change struct {
	// Version is the version after the change.
	Version int64 `json:"version"`
	// ID distinguishes concurrent changes.
	ID     gocql.UUID `json:"id"`
	At     time.Time  `json:"at"`
	Action Action     `json:"action"`
	// By is the relay's owner name or the operator's.
	By   string `json:"by,omitempty"`
	From Status `json:"from,omitempty"`
	To   Status `json:"to"`
	// Why is the operator's reason or the error of a replay.
	Why string `json:"why,omitempty"`
	// Outcome is the result of the change.
	Outcome string `json:"outcome,omitempty"`
	// Class is the error class of a replay that failed.
	Class string `json:"class,omitempty"`
	// Job is the bulk job that made the change, zero without one.
	Job gocql.UUID `json:"job,omitzero"`
}

// maxHistory limits the history of a dead letter; older lines are removed.
const maxHistory = 1000

func (c Change) text() string {
	b, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("dlq: a history line of plain fields cannot be marshalled: %v", err))
	}
	return string(b)
}
