package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// Defaults of Scan.
const (
	DefaultRanges   = 512
	DefaultParallel = 4
)

// Scan reads an outbox table by token range.
type Scan struct {
	// Session is the session of the database. Required.
	Session *gocql.Session
	// Table is the outbox table, with its keyspace unless it is that of the session.
	// Required.
	Table string
	// Topic returns the topic of an event; an error makes the row unreadable. Required.
	Topic func(e *outbox.Event) (string, error)
	// SkipAggregateType skips rows of this aggregate type. Empty skips none.
	SkipAggregateType string
	// Since skips rows that were written before, except the last of them in each
	// aggregate. Zero skips none.
	Since time.Time
	// Ranges is the number of token ranges. Default DefaultRanges.
	Ranges int
	// Parallel is the number of ranges that are read concurrently. Default
	// DefaultParallel.
	Parallel int
	// Rate is the maximum number of rows per second; 0 means no limit.
	Rate int

	// table has the columns, which Verification sets. The zero value has the columns of
	// outbox_messages.
	table        outbox.Table
	rows, ranges atomic.Int64
}

// Range contains the rows of a token range.
type Range struct {
	Number     int
	Rows       []Row
	Unreadable []Unreadable
}

// Rows returns the number of rows read so far.
func (s *Scan) Rows() int64 { return s.rows.Load() }

// Done returns the number of completely read ranges.
func (s *Scan) Done() int64 { return s.ranges.Load() }

// Into scans the whole table into l.
func (s *Scan) Into(ctx context.Context, l *Ledger) error {
	return s.Run(ctx, nil, func(r Range) error {
		l.AddUnreadable(r.Unreadable...)
		return l.AddRows(r.Rows...)
	})
}

const (
	// pageRows is the number of rows of a page, the unit of the rate limit.
	pageRows = 1000
	// scanAttempts is the number of attempts to read a range.
	scanAttempts = 6
	scanRetryMin = 200 * time.Millisecond
	scanRetryMax = 5 * time.Second
)

// Run passes every range except those in done to take. Several goroutines call take; its
// error ends the scan. A range that fails is read again from its start before it is
// passed to take.
func (s *Scan) Run(ctx context.Context, done map[int]bool, take func(Range) error) error {
	if err := s.defaultTable(); err != nil {
		return err
	}
	ranges := s.rangeCount()
	parallel := s.Parallel
	if parallel == 0 {
		parallel = DefaultParallel
	}
	limit := rate.NewLimiter(rate.Inf, pageRows)
	if s.Rate > 0 {
		limit = rate.NewLimiter(rate.Limit(s.Rate), min(pageRows, s.Rate))
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for n := range ranges {
		if done[n] {
			s.ranges.Add(1)
			continue
		}
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			r, err := s.retry(ctx, n, limit)
			if err != nil {
				return err
			}
			s.ranges.Add(1)
			return take(r)
		})
	}
	return g.Wait()
}

// defaultTable sets the columns of outbox_messages if they are not known.
func (s *Scan) defaultTable() (err error) {
	if s.table.Name() == "" {
		keyspace, name, ok := strings.Cut(s.Table, ".")
		if !ok {
			keyspace, name = "", s.Table
		}
		s.table, err = outbox.NewTable(keyspace, name)
	}
	return err
}

func (s *Scan) rangeCount() int {
	if s.Ranges == 0 {
		return DefaultRanges
	}
	return s.Ranges
}

// retry reads a range until it succeeds, with back-off.
func (s *Scan) retry(ctx context.Context, n int, limit *rate.Limiter) (Range, error) {
	for attempt := 1; ; attempt++ {
		r, err := s.read(ctx, n, limit)
		if err == nil {
			return r, nil
		}
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
		if attempt == scanAttempts || isRefused(err) {
			return r, fmt.Errorf("scan %s: %w", s.Table, err)
		}
		if err := retry.Wait(ctx, retry.Backoff(scanRetryMin, scanRetryMax, attempt)); err != nil {
			return r, err
		}
	}
}

// isRefused reports whether the server will never execute the statement.
func isRefused(err error) bool {
	switch cqlcode.Of(err) {
	case gocql.ErrCodeSyntax, gocql.ErrCodeInvalid, gocql.ErrCodeUnauthorized, gocql.ErrCodeConfig, gocql.ErrCodeCredentials:
		return true
	}
	return errors.Is(err, gocql.ErrSessionClosed)
}

// bounds returns the tokens of range n: those above after, up to upTo. No key has the
// lowest token.
func bounds(n, ranges int) (after, upTo int64) {
	step := math.MaxUint64 / uint64(ranges)
	after = math.MinInt64 + int64(uint64(n)*step)
	if n == ranges-1 {
		return after, math.MaxInt64
	}
	return after, math.MinInt64 + int64(uint64(n+1)*step)
}

func (s *Scan) read(ctx context.Context, n int, limit *rate.Limiter) (Range, error) {
	after, upTo := bounds(n, s.rangeCount())
	out, before, since := Range{Number: n}, Row{}, int64(math.MinInt64) // before is the last skipped row
	if !s.Since.IsZero() {
		since = s.Since.UnixMicro()
	}
	err := s.walk(ctx, after, upTo, limit, func(row *Row, bad *Unreadable) error {
		switch {
		case bad != nil:
			out.Unreadable = append(out.Unreadable, *bad)
			return nil
		case row.Written < since:
			before = *row
			return nil
		case before.Aggregate == row.Aggregate:
			out.Rows = append(out.Rows, before)
		}
		before = Row{}
		out.Rows = append(out.Rows, *row)
		return nil
	})
	return out, err
}

// walk calls each for every row between two tokens, by aggregate and sequence; bad is not
// nil for a row that is not an event. An error of each ends the walk.
func (s *Scan) walk(ctx context.Context, after, upTo int64, limit *rate.Limiter, each func(row *Row, bad *Unreadable) error) error {
	outline := rows.Outline(s.table)
	if !rows.Descending(outline) {
		stmt, args := rows.SelectByToken(outline, after, upTo)
		return s.walkRows(ctx, limit, each, stmt, args...)
	}
	// The rows of each aggregate are read in their order, which is not that of the table.
	stmt, args := rows.SelectAggregates(outline, after, upTo)
	iter := s.Session.Query(stmt, args...).WithContext(ctx).PageSize(limit.Burst()).Idempotent(true).Iter()
	for aggregate, ok := rows.ScanAggregate(outline, iter); ok; aggregate, ok = rows.ScanAggregate(outline, iter) {
		stmt, args := rows.SelectByKey(outline, &outbox.Event{AggregateID: aggregate}, math.MinInt64, math.MaxInt64)
		if err := s.walkRows(ctx, limit, each, stmt, args...); err != nil {
			_ = iter.Close() // the scan was stopped
			return err
		}
	}
	return iter.Close()
}

// walkRows is walk for the rows of a statement of the outline of the table.
func (s *Scan) walkRows(ctx context.Context, limit *rate.Limiter, each func(row *Row, bad *Unreadable) error, stmt string, args ...any) error {
	var (
		seq         *int64 // nil where static columns have outlived the events
		typeWritten int64  // of the event type, for a row without an event id
		written     int64
		waiting     int
		err         error
	)
	of := cmp.Or(rows.Column(s.table, "event_type"), rows.Column(s.table, "payload"))
	stmt = "SELECT " + rows.Column(s.table, "seq") + ", WRITETIME(" + of + "), " + strings.TrimPrefix(stmt, "SELECT ")
	iter := s.Session.Query(stmt, args...).WithContext(ctx).PageSize(limit.Burst()).Idempotent(true).Iter()
	outline := rows.Outline(s.table)
	sc := rows.NewScanner(outline)
	for err == nil && iter.Scan(append([]any{&seq, &typeWritten, &written}, sc.Dest()...)...) {
		s.rows.Add(1)
		if waiting++; waiting >= limit.Burst() {
			err = limit.WaitN(ctx, waiting)
			waiting = 0
		}
		e, problem := sc.Event()
		if err != nil || seq == nil || s.SkipAggregateType != "" && e.AggregateType == s.SkipAggregateType {
			continue
		}
		row := Row{Event: e.ID, Aggregate: e.AggregateID, Seq: *seq, Written: written}
		if problem == nil {
			row.Topic, problem = s.Topic(&e)
		}
		var bad *Unreadable
		if problem != nil {
			bad = &Unreadable{row.Aggregate, row.Seq, describeProblem(problem), s.deadLetterIDs(&row, typeWritten)}
		}
		err = each(&row, bad)
	}
	if err != nil {
		_ = iter.Close() // the scan was stopped
		return err
	}
	if err := iter.Close(); err != nil {
		return err
	}
	return limit.WaitN(ctx, waiting)
}

// describeProblem returns why a row is not an event.
func describeProblem(err error) string {
	if e, ok := errors.AsType[*rows.RowError](err); ok {
		return e.Column + " " + e.Problem
	}
	return err.Error()
}

// find returns the time of the write of a row, in microseconds; ok is false if there is none, or
// it is another event.
func (s *Scan) find(ctx context.Context, r *Row) (written int64, ok bool, err error) {
	if r.Seq < 1 {
		return 0, false, nil
	}
	outline := rows.Outline(s.table)
	stmt, args, err := rows.SelectPartition(outline, &outbox.Event{AggregateID: r.Aggregate, Sequence: r.Seq})
	if err != nil || stmt == "" {
		return 0, false, err
	}
	var ttl *int
	iter := s.Session.Query(stmt, args...).WithContext(ctx).Idempotent(true).Iter()
	for sc := rows.NewScanner(outline); iter.Scan(append([]any{&written, &ttl}, sc.Dest()...)...); {
		e, _ := sc.Event() // the id counts
		if ok = e.ID == r.Event; ok {
			break
		}
	}
	return written, ok, iter.Close()
}

// rowsAtOnce is the number of rows without an event id and with number 0 in one write that are
// distinguished: the relay derives the id of each dead letter from its index among them.
const rowsAtOnce = 8

// deadLetterIDs returns the possible ids of the dead letter of an unreadable row: the event
// id of the row, or the ids that the relay derives for a row without one.
func (s *Scan) deadLetterIDs(row *Row, written int64) (ids []gocql.UUID) {
	if !row.Event.IsZero() {
		return []gocql.UUID{row.Event.UUID()}
	}
	ids = append(ids, rows.RowID(s.Table, row.Aggregate.String(), row.Seq, 0, 0).UUID())
	for n := range rowsAtOnce {
		ids = append(ids, rows.RowID(s.Table, row.Aggregate.String(), row.Seq, written, n).UUID())
	}
	return ids
}
