package capture

import "time"

const (
	// tailMaxHintSpacing is the most time between the end of a reading by hints and the next one,
	// which gathers the hints that come in quick succession; Settings.TailHintInterval is the least,
	// and may be more.
	tailMaxHintSpacing = 10 * time.Millisecond
	// tailQuickRows is how many rows a group may have within its overlap for each reading to go
	// back by it.
	tailQuickRows = 50
	// tailMinQuick is how far back a quick reading goes at least.
	tailMinQuick = time.Millisecond
	// tailQuickStep and tailLateShare adapt the overlap of quick readings to the lateness that
	// one of tailLateShare rows has: each later row adds that many steps, each other one takes one.
	tailQuickStep = 10 * time.Microsecond
	tailLateShare = 100
)

// tailQuick decides how far back the readings of a group go, for a table with numbers.
//
// Each row is read again by all readings that begin within the overlap after it: ten times at 500
// readings per second and an overlap of 20 ms. So where these are many rows, a reading goes back by
// the overlap only if none did for that long, from the begin of the last one that did. The others
// are quick: they go back as far as most rows are late. A later row is found after one more overlap
// at most, and its aggregate waits.
//
// The zero value is not usable. The group's goroutine alone uses it.
type tailQuick struct {
	overlap int64 // of a quick reading, in microseconds
	rows    int   // within the group's overlap
}

func newTailQuick() tailQuick { return tailQuick{overlap: (5 * time.Millisecond).Microseconds()} }

// goesDeep reports whether a reading goes back by the group's overlap, where the last one that did
// began since ago. Times are in microseconds.
func (q *tailQuick) goesDeep(since, overlap int64) bool {
	return q.rows <= tailQuickRows || since >= overlap
}

// learn adapts to a row that was written late before the last reading began, which did not show
// it; late is negative if it was written after that. Times are in microseconds.
func (q *tailQuick) learn(late, overlap int64) {
	step := -tailQuickStep.Microseconds()
	if late > q.overlap {
		step *= 1 - tailLateShare
	}
	q.overlap = min(max(q.overlap+step, tailMinQuick.Microseconds()), overlap)
}

// spacing returns how long hints are gathered after a reading by hints, least or more: where readings are
// quick, half of their overlap, so that they read a row again three times at most.
func (q *tailQuick) spacing(least time.Duration) time.Duration {
	if q.rows <= tailQuickRows {
		return least
	}
	return max(least, min(time.Duration(q.overlap)*time.Microsecond/2, tailMaxHintSpacing))
}
