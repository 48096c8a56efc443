package backfill

import (
	"context"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// Reasons for a scan.
const (
	FirstStart = "first_start"
	Outrun     = "log_outrun"
	Unlogged   = "log_altered"
	Forced     = "forced"
)

// The oldest rows of the log expire while they are read, so a scan replaces the log
// well before: a position older than cdclog.OutrunAfter of the CDC ttl counts as outrun,
// and a scan covers rows older than backfillTakes of it. The difference prevents a scan
// directly after another one.
const backfillTakes = 7. / 8

// decision is the state from which a start decides whether a scan is needed.
type decision struct {
	now time.Time
	// ahead is how far the clock of this host is ahead, not negative: the sweep reader takes
	// rows for expired by that clock.
	ahead time.Duration
	facts cdclog.TableInfo
	// firstAge is how far back a relay without checkpoints starts.
	firstAge time.Duration
	// window is the confidence window: younger rows may not be visible yet.
	window time.Duration
	auto   bool
	forced time.Time // requested and not done; zero if none
	// ran is true if the relay ran before; position is then the oldest position of its
	// streams.
	ran      bool
	position time.Time
	// floor is the time up to which earlier scans cover the rows.
	floor time.Time
	// published is the time since when relays with another number of shards may have
	// published rows, zero if none did.
	published time.Time
	// empty is true if the table has no rows.
	empty bool
}

// decide returns the scan that is needed, or nil.
//
// A first start needs none if the log still contains everything that was ever written to
// the table: the log was created with the table and never altered, and neither is older
// than the ttl of the log; or rows expire no later than in the log; or the table is empty.
// The last two also require a log as old as the table.
//
// A later start needs one if its position is older than the log keeps rows, or than the
// last change of the log: the ttl of the rows before it is unknown, and they may be
// missing. The last begins a confidence window before the position, which may have been saved
// after the change and before the relay found it.
func (n *decision) decide() *checkpoint.Scan {
	row := func(reason string, from, until, mark time.Time) *checkpoint.Scan {
		r := &checkpoint.Scan{
			Started: n.now.Truncate(time.Millisecond), Reason: reason, State: checkpoint.ScanRunning,
			Until: until.Truncate(time.Millisecond), Mark: mark.Truncate(time.Millisecond), Ranges: Ranges,
		}
		if !from.IsZero() {
			r.From = from.Truncate(time.Millisecond)
		}
		return r
	}
	var out *checkpoint.Scan
	switch {
	case !n.ran:
		until := n.keeps()
		changed, altered := n.facts.Unlogged(until)
		fromTheFirst := n.facts.MadeWithTable() && !altered
		if altered {
			until = changed
		}
		out = row(FirstStart, time.Time{}, until, checkpoint.Earliest(n.published, n.now))
		young := fromTheFirst && (n.facts.Created.After(until) || n.facts.RowTTL > 0 && !n.now.Add(-n.facts.RowTTL).Before(until))
		switch {
		case young || n.empty:
			out.State = checkpoint.ScanNotNeeded
		case !n.auto:
			// The sweep reader reads the rows of the log, even if others are missing.
			out.State, out.Until = checkpoint.ScanNotNeeded, n.now.Add(-max(n.firstAge, n.facts.CDCTTL)).Truncate(time.Millisecond)
		}
	case !n.auto:
	case n.unlogged():
		until, _ := n.facts.Unlogged(n.position)
		from := n.position.Add(-n.window)
		out = row(Unlogged, from, checkpoint.Later(until, n.keeps()), from)
	case n.facts.Outruns(n.position, n.latest()):
		out = row(Outrun, n.position, n.keeps(), n.position)
	}
	switch {
	case n.forced.IsZero():
		return out
	case !n.ran && n.auto && out.State != checkpoint.ScanRunning: // the log has all events
		out.Forced = n.forced
		return out
	}
	until := n.now.Add(-n.window)
	asked := row(Forced, n.forced, until, n.forced)
	asked.Forced = n.forced
	if !n.forced.Before(until) {
		asked.Until, asked.State = n.floor, checkpoint.ScanDone // no row is in the requested time
	}
	if out == nil {
		return asked
	}
	if out.State != checkpoint.ScanRunning { // rows from out.Until on are not published yet
		asked.From, asked.Until = checkpoint.Earliest(asked.From, out.Until), checkpoint.Later(asked.Until, out.Until)
		return asked
	}
	asked.Cover(out)
	return asked
}

// settlesIn returns how long a first start has to wait before it can decide: until all rows
// that the log may lack because it was created or altered are visible in the table. A scan
// before that would miss some, and the sweep reader starts after them. It is 0 or less if
// there is nothing to wait for.
func (n *decision) settlesIn() time.Duration {
	until, altered := n.facts.Unlogged(n.keeps())
	if n.ran || !n.auto || !altered {
		return 0
	}
	return until.Add(n.window).Sub(n.now)
}

// unlogged reports whether rows are missing from the log, and all of them are visible in
// the table. Before that a scan would miss some.
func (n *decision) unlogged() bool {
	until, ok := n.facts.Unlogged(n.position)
	return ok && !until.After(n.now.Add(-n.window))
}

// keeps returns the time before which the log may be incomplete.
func (n *decision) keeps() time.Time {
	age := n.facts.CDCTTL
	if age == 0 || !n.ran && age > n.firstAge {
		age = n.firstAge
	}
	until := n.latest().Add(-part(age, backfillTakes))
	if visible := n.now.Add(-n.window); n.ahead > 0 && until.After(visible) {
		return visible
	}
	return until
}

// latest returns the time by which rows of the log count as expired.
func (n *decision) latest() time.Time { return n.now.Add(n.ahead) }

// part returns the fraction of d.
func part(d time.Duration, of float64) time.Duration { return time.Duration(float64(d) * of) }

// isEmpty reports whether the table has no rows.
func (b *Backfill) isEmpty(ctx context.Context) (bool, error) {
	iter := b.cfg.Session.Query("SELECT " + rows.Column(b.table, "aggregate_id") + " FROM " + b.cfg.TableKeyspace + "." + b.cfg.Table + " LIMIT 1").
		WithContext(ctx).Idempotent(true).Iter()
	_, found := rows.ScanAggregate(b.table, iter)
	return !found, iter.Close()
}
