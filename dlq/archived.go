package dlq

import "errors"

var (
	// ErrArchive is in the chain of errors of the archive itself.
	ErrArchive = errors.New("the archive")
	// ErrNoCopy says that a purged letter cannot be restored: it went to no archive,
	// or its object has expired or is damaged.
	ErrNoCopy = errors.New("there is no copy of the letter")
	// ErrBusy says that another process sweeps.
	ErrBusy = errors.New("another process sweeps the dead letters just now")
)

// Swept is what a sweep did.
type Swept struct {
	// Archived counts letters by what they were before they were moved.
	Archived map[Status]int
	// Held are failed letters that stay because others are parked behind them, and
	// Changed those that somebody changed meanwhile.
	Held, Changed int
	// Objects were written, and Expired ones removed; Forgotten are outlines.
	Objects, Expired, Forgotten int
}
