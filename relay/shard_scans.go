package relay

import (
	"context"
	"slices"
	"time"
)

// followScans takes over what scans of the outbox table answer for, done and not, in
// the part of it that own has: their relays' positions may have passed the rows.
func followScans(ctx context.Context, own *reached, before []*reached, now time.Time) error {
	mine, err := own.scans.load(ctx)
	if err != nil {
		return err
	}
	rows := make([][]backfillRow, len(before))
	for i, b := range before {
		if rows[i], err = b.scans.load(ctx); err != nil {
			return err
		}
	}
	active := unfinished(mine)
	known := func(r *backfillRow) bool {
		return slices.ContainsFunc(mine, func(m backfillRow) bool { return m.started.Equal(r.started) })
	}
	done := doneScans(rows)
	if done != nil && !known(done) {
		if err := own.scans.begin(ctx, done, nil); err != nil {
			return err
		}
	}
	row := unfinishedScans(own.arc, before, rows)
	if row == nil || known(row) {
		return nil
	}
	if done != nil && row.started.Equal(done.started) {
		row.started = row.started.Add(time.Millisecond) // it names the row
	}
	ranges := row.done
	row.done = nil
	if active != nil {
		row.cover(active)
		ranges = nil
	}
	if err := own.scans.begin(ctx, row, active); err != nil {
		return err
	}
	if len(ranges) == 0 {
		return nil
	}
	return own.scans.advance(ctx, row, ranges)
}

// doneScans is a scan of before that answers for what finished scans of all of them
// answer for; nil if one of them has none.
func doneScans(rows [][]backfillRow) *backfillRow {
	out := &backfillRow{state: backfillNone, reason: backfillFirstStart, ranges: backfillRanges}
	for i, of := range rows {
		var until time.Time
		for _, row := range of {
			if row.state == backfillRunning {
				continue
			}
			until, out.started = lastOf(until, row.until), lastOf(out.started, row.started)
			if row.state == backfillDone {
				out.state, out.reason = backfillDone, row.reason
			}
			asked := func(r backfillRow) bool { return r.state != backfillRunning && r.forced.Equal(row.forced) }
			if !row.forced.IsZero() && !slices.ContainsFunc(rows, func(o []backfillRow) bool { return !slices.ContainsFunc(o, asked) }) {
				out.forced = lastOf(out.forced, row.forced)
			}
		}
		if until.IsZero() {
			return nil
		}
		if i == 0 || until.Before(out.until) {
			out.until = until
		}
	}
	out.mark = out.started
	return out
}

// unfinishedScans is a scan of an arc that covers the unfinished ones of before; nil
// if there is none. Ranges of which no rows are left to them are done.
func unfinishedScans(own arc, before []*reached, rows [][]backfillRow) *backfillRow {
	var out *backfillRow
	var open []arc
	mark := time.Time{}
	for i, of := range rows {
		mark = earliest(mark, before[i].first)
		for _, row := range of {
			mark = earliest(mark, row.mark)
			if row.state != backfillRunning {
				continue
			}
			if out == nil {
				out = &backfillRow{
					started: row.started, reason: row.reason, state: backfillRunning, forced: row.forced,
					from: row.from, until: row.until, mark: row.mark, ranges: backfillRanges,
				}
			} else {
				out.started = lastOf(out.started, row.started)
				out.cover(&row)
			}
			for n := range row.ranges {
				if !slices.Contains(row.done, n) {
					open = append(open, before[i].arc.part(n, row.ranges))
				}
			}
		}
	}
	if out == nil {
		return nil
	}
	// At the edges of ranges are rows that others have published long ago: not
	// before they were written, and not before they began.
	if out.from.IsZero() {
		out.mark = earliest(out.mark, mark)
	} else {
		out.mark = earliest(out.mark, out.from)
	}
	out.read, out.out = 0, 0
	for n := range out.ranges {
		part := own.part(n, out.ranges)
		if !slices.ContainsFunc(open, part.meets) {
			out.done = append(out.done, n)
		}
	}
	return out
}
