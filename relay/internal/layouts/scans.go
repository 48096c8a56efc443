package layouts

import (
	"context"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// followScans takes over the scans of the outbox table, finished and unfinished, for the
// portion of own: the positions of before may be behind rows that only a scan publishes.
func followScans(ctx context.Context, own *progress, before []*progress, now time.Time) error {
	mine, err := own.scans.Load(ctx)
	if err != nil {
		return err
	}
	rows := make([][]checkpoint.Scan, len(before))
	for i, b := range before {
		if rows[i], err = b.scans.Load(ctx); err != nil {
			return err
		}
	}
	active := checkpoint.Unfinished(mine)
	known := func(r *checkpoint.Scan) bool {
		return slices.ContainsFunc(mine, func(m checkpoint.Scan) bool { return m.Started.Equal(r.Started) })
	}
	done := doneScans(rows)
	if done != nil && !known(done) {
		if err := own.scans.Begin(ctx, done, nil); err != nil {
			return err
		}
	}
	row := unfinishedScans(own.Tokens, before, rows)
	if row == nil || known(row) {
		return nil
	}
	if done != nil && row.Started.Equal(done.Started) {
		row.Started = row.Started.Add(time.Millisecond) // it names the row
	}
	ranges := row.Done
	row.Done = nil
	if active != nil {
		row.Cover(active)
		ranges = nil
	}
	if err := own.scans.Begin(ctx, row, active); err != nil {
		return err
	}
	if len(ranges) == 0 {
		return nil
	}
	return own.scans.Advance(ctx, row, ranges)
}

// doneScans returns a scan that covers the rows that the finished scans of all shards
// cover, nil if one of them has none.
func doneScans(rows [][]checkpoint.Scan) *checkpoint.Scan {
	out := &checkpoint.Scan{State: checkpoint.ScanNotNeeded, Reason: backfill.FirstStart, Ranges: backfill.Ranges}
	for i, of := range rows {
		var until time.Time
		for _, row := range of {
			if row.State == checkpoint.ScanRunning {
				continue
			}
			until, out.Started = checkpoint.Later(until, row.Until), checkpoint.Later(out.Started, row.Started)
			if row.State == checkpoint.ScanDone {
				out.State, out.Reason = checkpoint.ScanDone, row.Reason
			}
			asked := func(r checkpoint.Scan) bool { return r.State != checkpoint.ScanRunning && r.Forced.Equal(row.Forced) }
			if !row.Forced.IsZero() && !slices.ContainsFunc(rows, func(o []checkpoint.Scan) bool { return !slices.ContainsFunc(o, asked) }) {
				out.Forced = checkpoint.Later(out.Forced, row.Forced)
			}
		}
		if until.IsZero() {
			return nil
		}
		if i == 0 || until.Before(out.Until) {
			out.Until = until
		}
	}
	out.Mark = out.Started
	return out
}

// unfinishedScans returns a scan of a range of tokens that covers the unfinished ones of
// before, nil without one. Ranges in which they have no rows left are done.
func unfinishedScans(own cdclog.TokenRange, before []*progress, rows [][]checkpoint.Scan) *checkpoint.Scan {
	var out *checkpoint.Scan
	var open []cdclog.TokenRange
	mark := time.Time{}
	for i, of := range rows {
		mark = checkpoint.Earliest(mark, before[i].first)
		for _, row := range of {
			mark = checkpoint.Earliest(mark, row.Mark)
			if row.State != checkpoint.ScanRunning {
				continue
			}
			if out == nil {
				out = &checkpoint.Scan{
					Started: row.Started, Reason: row.Reason, State: checkpoint.ScanRunning, Forced: row.Forced,
					From: row.From, Until: row.Until, Mark: row.Mark, Ranges: backfill.Ranges,
				}
			} else {
				out.Started = checkpoint.Later(out.Started, row.Started)
				out.Cover(&row)
			}
			for n := range row.Ranges {
				if !slices.Contains(row.Done, n) {
					open = append(open, before[i].Tokens.Part(n, row.Ranges))
				}
			}
		}
	}
	if out == nil {
		return nil
	}
	// Rows at the edges of ranges were published long ago by other shards, but not before
	// the rows were written, and not before these shards began.
	if out.From.IsZero() {
		out.Mark = checkpoint.Earliest(out.Mark, mark)
	} else {
		out.Mark = checkpoint.Earliest(out.Mark, out.From)
	}
	out.Read, out.Published = 0, 0
	for n := range out.Ranges {
		part := own.Part(n, out.Ranges)
		if !slices.ContainsFunc(open, part.Meets) {
			out.Done = append(out.Done, n)
		}
	}
	return out
}
