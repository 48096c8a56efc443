package dlq

import "errors"

var (
	// ErrArchive is in the chain of errors of the archive itself.
	ErrArchive = errors.New("the archive")
	// ErrNoCopy reports that a purged dead letter cannot be restored: it has no copy,
	// or the object has expired or is damaged.
	ErrNoCopy = errors.New("no copy of the dead letter")
	// ErrBusy reports that another process sweeps.
	ErrBusy = errors.New("another process is sweeping the dead letters")
)

// Swept is the result of a sweep.
type Swept struct {
	// Archived counts the dead letters that were moved to the archive, or deleted
	// without one, by their previous status.
	Archived map[Status]int
	// Held counts failed dead letters that remain because they block others, and
	// Changed the ones that changed during the sweep.
	Held, Changed int
	// Objects were written, and Expired ones removed because their time was over; Orphans are
	// objects removed that an earlier sweep had not finished.
	Objects, Expired []string
	Orphans          int
	// Forgotten are outlines, and Payloads payloads of events, removed because their time was over.
	Forgotten, Payloads int
}
