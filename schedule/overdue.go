package schedule

import (
	"math"
	"time"

	"github.com/gocql/gocql"
)

// knowledge is what a scheduler knows of due messages.
type knowledge int

const (
	unknown   knowledge = iota // the due messages could not be read
	known                      // all due messages are in memory
	elsewhere                  // another scheduler has the lease, or this one has ended
)

// owed is the oldest due message that is no longer in memory and not in the
// outbox: its release failed, or the lease ended. It counts until it is in the
// outbox, or until all due messages were read again.
type owed struct {
	id    gocql.UUID
	at    time.Time // due time; zero for none
	noted time.Time
}

// overdue returns the age in seconds of the oldest due message that is not in
// the outbox. It is 0 only if no message is known to be overdue, and NaN while
// the due messages could not be read.
func (s *Scheduler) overdue(now time.Time) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var most time.Duration
	if !s.owed.at.IsZero() {
		most = now.Sub(s.owed.at)
	}
	for _, at := range s.known {
		most = max(most, now.Sub(at))
	}
	if most <= 0 && s.knowledge == unknown {
		return math.NaN()
	}
	return max(most, 0).Seconds()
}

// owe records a due message that leaves memory without being in the outbox.
func (s *Scheduler) owe(id gocql.UUID, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oweLocked(id, at)
}

func (s *Scheduler) oweLocked(id gocql.UUID, at time.Time) {
	if s.knowledge != elsewhere && (s.owed.at.IsZero() || s.owed.id == id || at.Before(s.owed.at)) {
		s.owed = owed{id, at, time.Now()}
	}
}

// paid removes a message that is in the outbox or no longer exists.
func (s *Scheduler) paid(id gocql.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owed.id == id {
		s.owed = owed{}
	}
}

// recordScan records the result of a scan that started at began; all reports that
// it covered every due message.
func (s *Scheduler) recordScan(began time.Time, all bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.knowledge == elsewhere: // the lease was lost during the scan
	case err != nil:
		s.knowledge = unknown
	default:
		s.knowledge = known
		if all && s.owed.noted.Before(began) {
			s.owed = owed{}
		}
	}
}

// recordLease records whether this scheduler has the lease.
func (s *Scheduler) recordLease(mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !mine:
		s.knowledge, s.owed = elsewhere, owed{} // the holder of the lease reports overdue messages
	case s.knowledge == elsewhere:
		s.knowledge = unknown // until the first scan
	}
}

// recordLeaseEnd records that the lease has ended and its new holder is unknown.
func (s *Scheduler) recordLeaseEnd() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.knowledge == known {
		s.knowledge = unknown
	}
}
