package capture

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// toleratedLag is the lag of the tail reader up to which the sweep reader does not yield.
	toleratedLag = 20 * time.Millisecond
	// leastShare is the least share of the sweep reader, and leastRows the rows per second that
	// it reads at least.
	leastShare = 1. / 16
	leastRows  = 1000
	// Between the first and the second value of the ids in the dedup index, as a fraction of their
	// limit, and of the age of the oldest row that is not swept, as a fraction of the ttl of the
	// log, the least share grows to all.
	pressingIDs, urgentIDs = 1. / 2, 3. / 4
	pressingAge, urgentAge = 1. / 4, 1. / 2
	// turnsUpdated is the interval at which the share is computed.
	turnsUpdated = 100 * time.Millisecond
	// lagForgotten is how long the tail reader's lag counts after its last reading.
	lagForgotten = 5 * time.Second
)

// readingState contains the values on which the share of the sweep reader depends.
type readingState struct {
	lag        time.Duration // of the tail reader: from when a reading is due until it ends
	ids, limit int           // in the dedup index until they are swept; no limit if that is 0
	age, ttl   time.Duration // of the oldest row that is not swept, and of the log; rows do not expire if ttl is 0
	// unpublished reports that the tail reader left rows to the sweep reader that may not be swept.
	unpublished bool
}

// sweepShare returns the share of the rows that tail and sweep reader read which the sweep reader
// may have read, above 0; 1 is no limit. Nothing waits for the rows that it yields: they are
// published, unless the tail reader has left some. The share falls as the lag of the tail reader grows,
// and grows as the ids of published rows approach their limit or the rows the end of their ttl.
func sweepShare(s readingState) float64 {
	share := 1.
	if s.lag > toleratedLag && !s.unpublished {
		share = max(leastShare, float64(toleratedLag)/float64(s.lag))
	}
	least := func(part, whole, from, to float64) {
		if whole > 0 {
			share = max(share, min(1, leastShare+(1-leastShare)*(part/whole-from)/(to-from)))
		}
	}
	least(float64(s.ids), float64(s.limit), pressingIDs, urgentIDs)
	least(float64(s.age), float64(s.ttl), pressingAge, urgentAge)
	return share
}

// sweepRate returns how many rows per second a share of the reads is, beside a tail reader that
// reads that many.
func sweepRate(share, tailRows float64) rate.Limit {
	if share >= 1 {
		return rate.Inf
	}
	return rate.Limit(max(leastRows, tailRows*share/(1-share)))
}

// Turns makes a sweep reader yield to the tail reader of the same relay while the latter lags, as
// where the database or the processors have more to do than they can. Only rows that are published
// already take a turn: nothing waits for them, while the tail reader's aggregates may wait for one
// that is not. All streams take turns of one row each, in the order in which they ask.
//
// It is safe for concurrent use. A nil Turns never waits.
type Turns struct {
	rows *rate.Limiter

	mu        sync.Mutex
	lag       time.Duration // mean of the last readings
	last      time.Time     // end of the last one
	due       map[*tailGroup]time.Time
	read      int // rows by the tail reader since
	since     time.Time
	tailRows  float64 // per second before that
	updated   time.Time
	lastShare float64
	urgent    bool // the share would be full at any lag
}

// NewTurns returns Turns of a relay without readings.
func NewTurns() *Turns {
	return &Turns{rows: rate.NewLimiter(rate.Inf, 1), due: make(map[*tailGroup]time.Time), lastShare: 1}
}

// begin records that a reading of the group begins that was due at a time.
func (t *Turns) begin(g *tailGroup, due, now time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if due.After(now) || due.IsZero() {
		due = now
	}
	t.due[g] = due
}

// end records that the group's reading has ended and found so many rows.
func (t *Turns) end(g *tailGroup, rows int, now time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lag = t.lagAt(now)
	t.lag += (now.Sub(t.due[g]) - t.lag) / 8
	delete(t.due, g)
	t.last = now
	if t.read += rows; now.Sub(t.since) >= time.Second {
		t.tailRows = float64(t.read) / now.Sub(t.since).Seconds()
		t.read, t.since = 0, now
	}
}

// Lag returns the lag of the tail reader: how long a reading takes from when it is due, false if there
// was none lately.
func (t *Turns) Lag(now time.Time) (lag time.Duration, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lagAt(now), now.Sub(t.last) <= lagForgotten || len(t.due) > 0
}

// lagAt returns the lag, with that of the readings under way. t.mu is locked.
func (t *Turns) lagAt(now time.Time) time.Duration {
	lag := t.lag
	if now.Sub(t.last) > lagForgotten {
		lag = 0
	}
	for _, due := range t.due {
		lag = max(lag, (now.Sub(due)-lag)/8)
	}
	return lag
}

// isOutdated reports whether the share has to be computed again, and records that it is.
func (t *Turns) isOutdated(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.updated) < turnsUpdated {
		return false
	}
	t.updated = now
	return true
}

// update computes the share. s.lag is not used.
func (t *Turns) update(s readingState, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.lag = t.lagAt(now)
	t.lastShare = sweepShare(s)
	s.lag = math.MaxInt64
	t.urgent = sweepShare(s) >= 1
	t.rows.SetLimit(sweepRate(t.lastShare, t.tailRows))
}

// share returns the last share.
func (t *Turns) share() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastShare
}

// isUrgent reports whether the share would be full at any lag.
func (t *Turns) isUrgent() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.urgent
}

// take waits for the turn of one row. If ctx ends first, it returns the cause.
func (t *Turns) take(ctx context.Context) error {
	if err := t.rows.Wait(ctx); err != nil {
		return context.Cause(ctx)
	}
	return nil
}
