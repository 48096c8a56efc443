package backfill

import (
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// Gap is a time in which the CDC log may not have recorded events: it was altered, dropped,
// or CDC was off.
type Gap struct {
	// From and Until bound the write times of the events.
	From, Until time.Time
	// Scanned reports that the outbox table is scanned for them. Otherwise they are in the
	// table only.
	Scanned bool
	// Possible reports that another change of the table explains its alteration.
	Possible bool
}

// OpenGap is the beginning of a gap that was found and that no scan covers yet. It outlives the
// Backfill that found it. It is safe for concurrent use; the zero value has none.
type OpenGap struct {
	mu   sync.Mutex
	from time.Time
}

func (o *OpenGap) begin(t time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.from = checkpoint.Earliest(o.from, t)
}

func (o *OpenGap) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.from = time.Time{}
}

// Since returns the beginning, zero without a gap.
func (o *OpenGap) Since() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.from
}

// gapWatch finds the gaps of the log of a relay that runs.
type gapWatch struct {
	facts cdclog.TableInfo
	// columns are the columns of the table and of its log.
	columns string
	// seen is when the log was last known to be complete, and read the oldest position then.
	seen, read time.Time
	// open is the gap that has begun, nil without one; its Until is zero while CDC is off.
	open *Gap
}

// observe takes the state of the table at a time, whether its log records events, and the oldest
// position. It returns whether a gap has begun or became longer. It begins a confidence window
// before the log was last known to be complete: a row that is stored later may be dated as much
// earlier.
func (w *gapWatch) observe(facts cdclog.TableInfo, columns string, records bool, now, position time.Time, window time.Duration) bool {
	before := w.facts
	facts.MadeAfter(before.Seen())
	changed := facts.Altered.After(before.Altered) || facts.Logged.After(before.Logged)
	explained := columns != w.columns && facts.SameOptions(&before)
	w.facts, w.columns = facts, columns
	if w.open == nil && !changed && records {
		w.seen, w.read = now, position
		return false
	}
	if w.open == nil {
		w.open = &Gap{From: w.seen.Add(-window), Possible: records && explained}
		changed = true
	} else if changed && !explained {
		w.open.Possible = false
	}
	if facts.Logged.After(before.Logged) { // with the unread part of the former log
		w.open.From = checkpoint.Earliest(w.open.From, w.read)
	}
	w.open.Until = time.Time{}
	if until, ok := facts.Unlogged(time.Time{}); ok && records {
		w.open.Until = until
	}
	return changed
}

// due reports whether CDC is on again and the rows of the gap are visible in the table.
func (w *gapWatch) due(now time.Time, window time.Duration) bool {
	return w.open != nil && !w.open.Until.IsZero() && !w.open.Until.After(now.Add(-window))
}
