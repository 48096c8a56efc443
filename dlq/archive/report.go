package archive

import (
	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// Report is the result of a sweep.
type Report struct {
	// Archived counts the dead letters that were moved to the archive, or deleted
	// without one, by their previous status.
	Archived map[dlq.Status]int `json:"archived"`
	// Objects were written.
	Objects []string `json:"objects"`
	// Held counts failed dead letters that remain because they block others.
	Held int `json:"held"`
	// Changed counts dead letters that changed concurrently; they remain.
	Changed int `json:"changed"`
	// Expired are objects removed because their time was over, Forgotten outlines.
	Expired   []string `json:"expired"`
	Forgotten int      `json:"forgotten"`
	// Orphans are objects removed that a sweep before had not finished.
	Orphans int `json:"orphans"`
	// Payloads are payloads of events removed because their time was over.
	Payloads int `json:"payloads"`
}
