package backfill

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
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

// gapWatch finds the gaps of the log of a relay that runs.
type gapWatch struct {
	facts cdclog.TableInfo
	// columns are those of the table and of its log.
	columns string
	// seen is when the log was last known to be complete.
	seen time.Time
	// open is the gap that has begun, nil without one; its Until is zero while CDC is off.
	open *Gap
}

// observe takes the state of the table at a time, and whether its log records events. It
// returns whether a gap has begun or became longer.
func (w *gapWatch) observe(facts cdclog.TableInfo, columns string, records bool, now time.Time) bool {
	before := w.facts
	changed := facts.Altered.After(before.Altered) || facts.Logged.After(before.Logged)
	explained := columns != w.columns && facts.SameOptions(&before)
	w.facts, w.columns = facts, columns
	if w.open == nil && !changed && records {
		w.seen = now
		return false
	}
	if w.open == nil {
		w.open = &Gap{From: w.seen, Possible: records && explained}
		changed = true
	} else if changed && !explained {
		w.open.Possible = false
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
