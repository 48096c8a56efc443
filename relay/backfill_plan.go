package relay

import (
	"context"
	"time"
)

// Why a scan is made.
const (
	backfillFirstStart = "first_start"
	backfillOutrun     = "log_outrun"
	backfillForced     = "forced"
)

// The log's oldest rows expire while they are read, so a scan takes over well
// before: backfillDue is the part of the CDC ttl after which a position counts
// as outrun, and backfillTakes the part of it that the log keeps answering for.
// What lies between keeps a start from making a scan right after another one.
const (
	backfillDue   = 15. / 16
	backfillTakes = 7. / 8
)

// backfillNeed is what a start knows when it decides whether a scan is needed.
type backfillNeed struct {
	now   time.Time
	facts tableFacts
	// firstAge is how far back a relay starts that never ran.
	firstAge time.Duration
	// window is the confidence window: what is younger may not be visible yet.
	window time.Duration
	auto   bool
	forced time.Time // asked for and not done yet; zero if not
	// ran says that the relay ran before, and then position is the oldest one of
	// its streams.
	ran      bool
	position time.Time
	// floor is until when earlier scans answer.
	floor time.Time
	// published is since when others may have published rows, zero if nobody has:
	// relays of another number of shards.
	published time.Time
	// empty says that the table has no row.
	empty bool
}

// decide returns the scan that is needed, nil if none is.
//
// A first start needs none if everything that was ever written to the table is
// in its log still: the log was made with the table, and neither is older than
// the log keeps rows; or rows live no longer than the log keeps them; or there
// are none. The last two need the log to be as old as the table too.
func (n *backfillNeed) decide() *backfillRow {
	row := func(reason string, from, until, mark time.Time) *backfillRow {
		r := &backfillRow{
			started: n.now.Truncate(time.Millisecond), reason: reason, state: backfillRunning,
			until: until.Truncate(time.Millisecond), mark: mark.Truncate(time.Millisecond), ranges: backfillRanges,
		}
		if !from.IsZero() {
			r.from = from.Truncate(time.Millisecond)
		}
		return r
	}
	var out *backfillRow
	switch {
	case !n.ran:
		until := n.keeps()
		fromTheFirst := !n.facts.created.IsZero() && !n.facts.logged.IsZero() && n.facts.logged.Sub(n.facts.created) < time.Minute
		if !fromTheFirst && n.facts.logged.After(until) {
			until = n.facts.logged.Add(time.Second)
		}
		out = row(backfillFirstStart, time.Time{}, until, earliest(n.published, n.now))
		young := fromTheFirst && (n.facts.created.After(until) || n.facts.rowTTL > 0 && !n.now.Add(-n.facts.rowTTL).Before(until))
		switch {
		case young || n.empty:
			out.state = backfillNone
		case !n.auto:
			// The sweep reads what the log has, whatever is missing.
			out.state, out.until = backfillNone, n.now.Add(-max(n.firstAge, n.facts.cdcTTL)).Truncate(time.Millisecond)
		}
	case n.facts.cdcTTL > 0 && n.position.Before(n.now.Add(-part(n.facts.cdcTTL, backfillDue))):
		if n.auto {
			out = row(backfillOutrun, n.position, n.keeps(), n.position)
		}
	}
	if n.forced.IsZero() {
		return out
	}
	until := n.now.Add(-n.window)
	asked := row(backfillForced, n.forced, until, n.forced)
	asked.forced = n.forced
	if !n.forced.Before(until) {
		asked.until, asked.state = n.floor, backfillDone // nothing is as old
	}
	if out == nil || out.state != backfillRunning {
		if out != nil && asked.until.Before(out.until) {
			asked.until = out.until
		}
		return asked
	}
	asked.cover(out)
	return asked
}

// keeps is until when the log cannot be relied on.
func (n *backfillNeed) keeps() time.Time {
	age := n.facts.cdcTTL
	if age == 0 || !n.ran && age > n.firstAge {
		age = n.firstAge
	}
	return n.now.Add(-part(age, backfillTakes))
}

func part(d time.Duration, of float64) time.Duration { return time.Duration(float64(d) * of) }

// cover makes r answer for what o does too.
func (r *backfillRow) cover(o *backfillRow) {
	r.from, r.mark = earlierOf(r.from, o.from), earlierOf(r.mark, o.mark)
	r.until = lastOf(r.until, o.until)
	if r.forced.IsZero() {
		r.forced = o.forced
	}
	r.read, r.out = r.read+o.read, r.out+o.out
}

func earlierOf(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// isEmpty says whether the table has no row.
func (b *backfill) isEmpty(ctx context.Context) (bool, error) {
	iter := b.cfg.Session.Query("SELECT aggregate_id FROM " + b.cfg.TableKeyspace + "." + b.cfg.Table + " LIMIT 1").
		WithContext(ctx).Idempotent(true).Iter()
	var id []byte
	found := iter.Scan(&id)
	return !found, iter.Close()
}
