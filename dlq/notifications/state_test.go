package notifications

import (
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// deadLetters returns n dead letters that failed one after the other, a millisecond
// apart.
func deadLetters(n int, from time.Time) []dlq.DeadLetter {
	out := make([]dlq.DeadLetter, n)
	for i := range out {
		at := from.Add(time.Duration(i) * time.Millisecond)
		out[i] = dlq.DeadLetter{EventID: gocql.UUIDFromTime(at), FirstFailedAt: at}
	}
	return out
}

// counts counts the new ones, and ends the poll at now.
func (st *state) counts(some []dlq.DeadLetter, now time.Time) (n int) {
	for i := range some {
		if st.isNew(&some[i]) {
			n++
		}
	}
	st.Mark = now
	st.settle(now.Add(-overlap))
	return n
}

// However many dead letters fail in the same moment, each is counted once, over several
// polls and a change of duty.
func TestState_CountsEachOnceInAStorm(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	for name, n := range map[string]int{"more than are kept": keptSeen + 1, "more than memory takes": maxSeen + 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storm := deadLetters(n, begin)
			end := storm[n-1].FirstFailedAt.Add(time.Second)
			st := newState(begin)
			if got := st.counts(storm, end); got != n {
				t.Fatalf("%d counted of %d", got, n)
			}
			for poll := 1; poll <= 3; poll++ {
				text, err := st.text()
				if err != nil {
					t.Fatal(err)
				}
				next, err := parseState(text)
				if err != nil {
					t.Fatal(err)
				}
				now := end.Add(time.Duration(poll) * time.Second)
				more := deadLetters(1, now.Add(-time.Millisecond))
				for who, s := range map[string]*state{"the same": st, "another": next} {
					if got := s.counts(append(more, storm...), now); got != 1 {
						t.Errorf("poll %d: %s counted %d, want the one that is new", poll, who, got)
					}
				}
				if poll == 2 {
					st = next
				}
			}
		})
	}
	// A dead letter that is stored late is counted by a state that contains all others.
	st := newState(begin)
	storm := deadLetters(keptSeen+2, begin)
	st.counts(storm[1:], begin.Add(time.Minute))
	if _, err := st.text(); err != nil {
		t.Fatal(err)
	}
	if got := st.counts(storm, begin.Add(2*time.Minute)); got != 1 {
		t.Errorf("%d counted of one that was stored late", got)
	}
}
