package notifications

import (
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// letters are n that died one after the other, a millisecond apart, from a time on.
func letters(n int, from time.Time) []dlq.DeadLetter {
	out := make([]dlq.DeadLetter, n)
	for i := range out {
		at := from.Add(time.Duration(i) * time.Millisecond)
		out[i] = dlq.DeadLetter{EventID: gocql.UUIDFromTime(at), FirstFailedAt: at}
	}
	return out
}

// counts counts those that are new, and ends the look at now.
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

// However many die at once, each is counted once, look after look, and by who takes
// over in between.
func TestState_CountsEachOnceInAStorm(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	for name, n := range map[string]int{"more than are kept": keptSeen + 1, "more than memory takes": maxSeen + 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storm := letters(n, begin)
			end := storm[n-1].FirstFailedAt.Add(time.Second)
			st := newState(begin)
			if got := st.counts(storm, end); got != n {
				t.Fatalf("%d counted of %d", got, n)
			}
			for look := 1; look <= 3; look++ {
				text, err := st.text()
				if err != nil {
					t.Fatal(err)
				}
				next, err := parseState(text)
				if err != nil {
					t.Fatal(err)
				}
				now := end.Add(time.Duration(look) * time.Second)
				more := letters(1, now.Add(-time.Millisecond))
				for who, s := range map[string]*state{"the same": st, "another": next} {
					if got := s.counts(append(more, storm...), now); got != 1 {
						t.Errorf("look %d: %s counted %d, want the one that is new", look, who, got)
					}
				}
				if look == 2 {
					st = next
				}
			}
		})
	}
	// What is stored late is counted by who knows all others.
	st := newState(begin)
	storm := letters(keptSeen+2, begin)
	st.counts(storm[1:], begin.Add(time.Minute))
	if _, err := st.text(); err != nil {
		t.Fatal(err)
	}
	if got := st.counts(storm, begin.Add(2*time.Minute)); got != 1 {
		t.Errorf("%d counted of one that was stored late", got)
	}
}
