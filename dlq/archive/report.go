package archive

import (
	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// Report is what a sweep did.
type Report struct {
	// Archived counts letters by what they were before they were moved.
	Archived map[dlq.Status]int `json:"archived"`
	// Objects were written.
	Objects []string `json:"objects"`
	// Held are failed letters that stay because others are parked behind them.
	Held int `json:"held"`
	// Changed are letters that somebody changed meanwhile; they stay.
	Changed int `json:"changed"`
	// Expired are objects removed because their time was over, Forgotten outlines.
	Expired   []string `json:"expired"`
	Forgotten int      `json:"forgotten"`
	// Orphans are objects removed that a sweep before had not finished.
	Orphans int `json:"orphans"`
}
