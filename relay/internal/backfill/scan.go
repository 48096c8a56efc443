package backfill

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

// scanRange passes the rows of range n to the publisher, and retries while the database
// is unavailable. It returns when all rows are passed on, acknowledged or not.
func (b *Backfill) scanRange(ctx context.Context, n int) error {
	if !b.older.IsOpen(n) {
		return nil
	}
	settled, end := b.settler(n)
	s := &rangeScan{backfill: b, settled: settled}
	part := b.older.Part(n)
	for failures := 0; ; {
		err := s.read(ctx, max(part.After, s.from()), part.UpTo)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if failure.Classify(err) == failure.Fatal || errors.Is(err, failure.ErrStopping) {
			return err
		}
		if s.progress {
			failures = 0
		}
		failures++
		b.stuck(err)
		b.log.Warn("cannot scan the outbox table; retrying", "range", n, "attempt", failures, "err", err)
		if err := retry.Wait(ctx, retry.Backoff(b.cfg.RetryMin, 5*time.Second, failures)); err != nil {
			return err
		}
	}
	b.stuck(nil)
	b.older.Close(n)
	end()
	return nil
}

// rangeScan is the scan of one range. After a failed read it continues at the last row
// that was passed on, because acknowledged events are not kept in memory.
type rangeScan struct {
	backfill *Backfill
	settled  func() publish.Settlement
	progress bool

	begun     bool
	aggregate outbox.ID // the last one that was started
	seq       int64     // its last row that was passed on
	token     int64
	hand      publish.OlderHandover
	release   func()
}

// from returns the token after which the next read starts: the last aggregate is read
// again.
func (s *rangeScan) from() int64 {
	s.progress = false
	if !s.begun {
		return math.MinInt64
	}
	return s.token - 1
}

func (s *rangeScan) read(ctx context.Context, after, upTo int64) (err error) {
	b := s.backfill
	defer func() {
		if err == nil {
			s.leave()
		} else if s.release != nil {
			// Some rows of the aggregate are not passed on; other readers must find it
			// unscanned.
			b.older.Note(s.aggregate, s.seq)
			s.release()
			s.release = nil
		}
	}()
	stmt, args := rows.SelectByToken(b.table, after, upTo)
	if !rows.Descending(b.table) {
		return s.pass(ctx, stmt, args...)
	}
	// The rows of each aggregate are read in their order, which is not that of the table.
	stmt, args = rows.SelectAggregates(b.table, after, upTo)
	iter := b.query(ctx, stmt, args...)
	for aggregate, ok := rows.ScanAggregate(b.table, iter); ok; aggregate, ok = rows.ScanAggregate(b.table, iter) {
		stmt, args := rows.SelectByKey(b.table, &outbox.Event{AggregateID: aggregate}, math.MinInt64, math.MaxInt64)
		if err := s.pass(ctx, stmt, args...); err != nil {
			_ = iter.Close() // the scan stops; the result of the query does not matter
			return err
		}
	}
	return iter.Close()
}

// query reads pages of rows.
func (b *Backfill) query(ctx context.Context, stmt string, args ...any) *gocql.Iter {
	return b.cfg.Session.Query(stmt, args...).WithContext(ctx).Consistency(gocql.LocalQuorum).Idempotent(true).
		PageSize(b.page()).Prefetch(0).Iter()
}

// pass passes on the rows of a statement, the rows of an aggregate in sequence.
func (s *rangeScan) pass(ctx context.Context, stmt string, args ...any) (err error) {
	b := s.backfill
	iter := b.query(ctx, stmt, args...)
	defer func() {
		if e := iter.Close(); err == nil {
			err = e
		}
	}()
	sc := rows.NewScanner(b.table)
	var written int64
	for iter.Scan(append([]any{&written}, sc.Dest()...)...) {
		if err := b.limiter.Wait(ctx); err != nil {
			return context.Cause(ctx)
		}
		e := cdclog.ScanEvent(&b.table, sc, written)
		if e.Empty() {
			continue // the static columns of a partition without events
		}
		again, err := s.enter(ctx, e.AggregateID, e.Sequence)
		if err != nil {
			return err
		}
		if again {
			continue
		}
		b.read.Add(1)
		if e.Err != nil {
			b.unreadable.Add(1)
		}
		before, knew := s.hand.Handed, s.hand.Known
		row := cdclog.BadRow(&b.table, e, 0)
		if err := s.hand.Row(ctx, &row, s.settled); err != nil {
			return err
		}
		s.seq, s.progress = e.Sequence, true
		b.handed.Add(s.hand.Handed - before)
		b.known.Add(s.hand.Known - knew)
	}
	return nil
}

// page returns the page size: at most the number of rows allowed per second.
func (b *Backfill) page() int {
	if n := b.cfg.BackfillRowsPerSecond; n > 0 {
		return max(1, min(n, backfillPage))
	}
	return backfillPage
}

// enter starts or continues an aggregate; again reports that an earlier read passed on
// the row.
func (s *rangeScan) enter(ctx context.Context, aggregate outbox.ID, seq int64) (again bool, err error) {
	b := s.backfill
	if s.begun && aggregate == s.aggregate {
		if s.release == nil {
			if s.release, err = b.publisher.Claim(ctx, aggregate.UUID()); err != nil {
				return false, err
			}
			s.hand.Ahead = max(s.hand.Ahead, b.older.AcceptedUpTo(aggregate))
		}
		return seq <= s.seq, nil
	}
	s.leave()
	if s.release, err = b.publisher.Claim(ctx, aggregate.UUID()); err != nil {
		return false, err
	}
	s.begun, s.aggregate, s.token, s.seq = true, aggregate, rows.Token(b.table, aggregate), 0
	s.hand = publish.OlderHandover{Publisher: b.publisher, Older: b.older, Ahead: b.older.AcceptedUpTo(aggregate)}
	return false, nil
}

// leave marks the aggregate as scanned.
func (s *rangeScan) leave() {
	if s.release == nil {
		return
	}
	s.backfill.older.Scanned(s.aggregate)
	s.release()
	s.release = nil
}
