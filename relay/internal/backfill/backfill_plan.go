package backfill

import (
	"context"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// Why a scan is made.
const (
	FirstStart = "first_start"
	Outrun     = "log_outrun"
	Forced     = "forced"
)

// The log's oldest rows expire while they are read, so a scan takes over well
// before: backfillDue is the part of the CDC ttl after which a position counts
// as outrun, and backfillTakes the part of it that the log keeps answering for.
// What lies between keeps a start from making a scan right after another one.
const (
	Due           = 15. / 16
	backfillTakes = 7. / 8
)

// decision is what a start knows when it decides whether a scan is needed.
type decision struct {
	now   time.Time
	facts cdclog.TableInfo
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
		fromTheFirst := !n.facts.Created.IsZero() && !n.facts.Logged.IsZero() && n.facts.Logged.Sub(n.facts.Created) < time.Minute
		if !fromTheFirst && n.facts.Logged.After(until) {
			until = n.facts.Logged.Add(time.Second)
		}
		out = row(FirstStart, time.Time{}, until, checkpoint.Earliest(n.published, n.now))
		young := fromTheFirst && (n.facts.Created.After(until) || n.facts.RowTTL > 0 && !n.now.Add(-n.facts.RowTTL).Before(until))
		switch {
		case young || n.empty:
			out.State = checkpoint.ScanNotNeeded
		case !n.auto:
			// The sweep reads what the log has, whatever is missing.
			out.State, out.Until = checkpoint.ScanNotNeeded, n.now.Add(-max(n.firstAge, n.facts.CDCTTL)).Truncate(time.Millisecond)
		}
	case n.facts.CDCTTL > 0 && n.position.Before(n.now.Add(-Part(n.facts.CDCTTL, Due))):
		if n.auto {
			out = row(Outrun, n.position, n.keeps(), n.position)
		}
	}
	if n.forced.IsZero() {
		return out
	}
	until := n.now.Add(-n.window)
	asked := row(Forced, n.forced, until, n.forced)
	asked.Forced = n.forced
	if !n.forced.Before(until) {
		asked.Until, asked.State = n.floor, checkpoint.ScanDone // nothing is as old
	}
	if out == nil || out.State != checkpoint.ScanRunning {
		if out != nil && asked.Until.Before(out.Until) {
			asked.Until = out.Until
		}
		return asked
	}
	asked.Cover(out)
	return asked
}

// keeps is until when the log cannot be relied on.
func (n *decision) keeps() time.Time {
	age := n.facts.CDCTTL
	if age == 0 || !n.ran && age > n.firstAge {
		age = n.firstAge
	}
	return n.now.Add(-Part(age, backfillTakes))
}

func Part(d time.Duration, of float64) time.Duration { return time.Duration(float64(d) * of) }

// isEmpty says whether the table has no row.
func (b *Backfill) isEmpty(ctx context.Context) (bool, error) {
	iter := b.cfg.Session.Query("SELECT aggregate_id FROM " + b.cfg.TableKeyspace + "." + b.cfg.Table + " LIMIT 1").
		WithContext(ctx).Idempotent(true).Iter()
	var id []byte
	found := iter.Scan(&id)
	return !found, iter.Close()
}
