package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
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
	Topic func(eventType, aggregateType string) (string, error)
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

	// descending is true if the table has the highest number of an aggregate first.
	descending   bool
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
		if attempt == scanAttempts || refused(err) {
			return r, fmt.Errorf("scan %s: %w", s.Table, err)
		}
		if err := retry.Wait(ctx, retry.Backoff(scanRetryMin, scanRetryMax, attempt)); err != nil {
			return r, err
		}
	}
}

// refused reports whether the server will never execute the statement.
func refused(err error) bool {
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
	const tokens = " WHERE token(aggregate_id) > ? AND token(aggregate_id) <= ?"
	rows := "SELECT aggregate_id, seq, event_id, aggregate_type, event_type, WRITETIME(event_id), WRITETIME(event_type) FROM " + s.Table
	if !s.descending {
		return s.walkRows(ctx, limit, each, rows+tokens, after, upTo)
	}
	iter := s.Session.Query("SELECT DISTINCT aggregate_id FROM "+s.Table+tokens, after, upTo).
		WithContext(ctx).PageSize(limit.Burst()).Idempotent(true).Iter()
	var aggregate gocql.UUID
	for iter.Scan(&aggregate) {
		if err := s.walkRows(ctx, limit, each, rows+" WHERE aggregate_id = ? ORDER BY seq ASC", aggregate); err != nil {
			_ = iter.Close() // the scan was stopped
			return err
		}
	}
	return iter.Close()
}

// walkRows is walk for the rows of a statement.
func (s *Scan) walkRows(ctx context.Context, limit *rate.Limiter, each func(row *Row, bad *Unreadable) error, stmt string, args ...any) error {
	iter := s.Session.Query(stmt, args...).WithContext(ctx).PageSize(limit.Burst()).Idempotent(true).Iter()
	var (
		row                      Row
		seq                      *int64 // nil where static columns have outlived the events
		eventType, aggregateType string
		typeWritten              int64 // of the event type, for a row without an event id
		waiting                  int
		err                      error
	)
	for err == nil && iter.Scan(&row.Aggregate, &seq, &row.Event, &aggregateType, &eventType, &row.Written, &typeWritten) {
		s.rows.Add(1)
		if waiting++; waiting >= limit.Burst() {
			err = limit.WaitN(ctx, waiting)
			waiting = 0
		}
		if err != nil || seq == nil || s.SkipAggregateType != "" && aggregateType == s.SkipAggregateType {
			continue
		}
		row.Seq = *seq
		var bad *Unreadable
		if problem := s.complete(&row, eventType, aggregateType); problem != "" {
			bad = &Unreadable{row.Aggregate, row.Seq, problem, s.deadLetterIDs(&row, typeWritten)}
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

// rowsAtOnce is the number of rows without an event id and with number 0 in one write that are
// distinguished: the relay derives the id of each dead letter from its index among them.
const rowsAtOnce = 8

// deadLetterIDs returns the possible ids of the dead letter of an unreadable row: the event
// id of the row, or the ids that the relay derives for a row without one.
func (s *Scan) deadLetterIDs(row *Row, written int64) (ids []gocql.UUID) {
	if row.Event != (gocql.UUID{}) {
		return []gocql.UUID{row.Event}
	}
	ids = append(ids, outbox.RowID(s.Table, row.Aggregate.String(), row.Seq, 0, 0).UUID())
	for n := range rowsAtOnce {
		ids = append(ids, outbox.RowID(s.Table, row.Aggregate.String(), row.Seq, written, n).UUID())
	}
	return ids
}

// complete sets the derived members of a row. It returns the problem of a row that is not
// an event, and otherwise an empty string.
func (s *Scan) complete(row *Row, eventType, aggregateType string) string {
	switch {
	case row.Event == gocql.UUID{}:
		return "event_id is null or zero"
	case row.Seq < 1:
		return fmt.Sprintf("seq is %d", row.Seq)
	case eventType == "":
		return "event_type is null or empty"
	}
	var err error
	if row.Topic, err = s.Topic(eventType, aggregateType); err != nil {
		return err.Error()
	}
	return ""
}
