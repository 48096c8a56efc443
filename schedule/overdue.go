package schedule

import (
	"math"
	"time"

	"github.com/gocql/gocql"
)

// sight is what a scheduler can say of messages that are due.
type sight int

const (
	blind     sight = iota // the database does not say what is due
	sees                   // it does, and what is due is in memory
	elsewhere              // another scheduler has the lease, or this one has ended
)

// owed is the oldest message that was to be out and is in memory no more: it could
// not be released, or the lease ended. It counts until it is out, or until all that
// is due was read again.
type owed struct {
	id    gocql.UUID
	at    time.Time // when it was due; zero for none
	noted time.Time
}

// overdue is for how many seconds the oldest message that this scheduler knows of
// should be out by now. It is 0 only if it knows that none should: NaN where the
// database has not said what is due.
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
	if most <= 0 && s.sight == blind {
		return math.NaN()
	}
	return max(most, 0).Seconds()
}

// owe notes a message that is let go of and is not out.
func (s *Scheduler) owe(id gocql.UUID, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oweLocked(id, at)
}

func (s *Scheduler) oweLocked(id gocql.UUID, at time.Time) {
	if s.sight != elsewhere && (s.owed.at.IsZero() || s.owed.id == id || at.Before(s.owed.at)) {
		s.owed = owed{id, at, time.Now()}
	}
}

// paid is told of a message that is out, or is none any more.
func (s *Scheduler) paid(id gocql.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owed.id == id {
		s.owed = owed{}
	}
}

// looked is told how a look that began then ended; all says that it went over
// everything that can be due.
func (s *Scheduler) looked(began time.Time, all bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.sight == elsewhere: // the lease was lost meanwhile
	case err != nil:
		s.sight = blind
	default:
		s.sight = sees
		if all && s.owed.noted.Before(began) {
			s.owed = owed{}
		}
	}
}

// leased is told whether this scheduler has the lease, by the database.
func (s *Scheduler) leased(mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !mine:
		s.sight, s.owed = elsewhere, owed{} // it tells what is overdue
	case s.sight == elsewhere:
		s.sight = blind // until the first look
	}
}

// unleased is told that the lease has ended and nobody said whose it is.
func (s *Scheduler) unleased() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sight == sees {
		s.sight = blind
	}
}
