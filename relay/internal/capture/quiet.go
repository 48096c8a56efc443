package capture

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// quietPerSecond is the maximum number of streams queried per second.
const quietPerSecond = 100

// Quiet advances the positions of streams without rows that the library does not report.
//
// The library reads the streams of a vnode together, and reports a window without rows
// only if none of them has any. If one of them always has rows, the positions of the
// others would not advance: a start would read the topics back to there, and finally a
// scan of the table would start, because the log is about to lose the rows after such a
// position, of which there are none.
//
// A stream is not advanced past the end of its generation: the rows of the next ones are
// not read yet, and they must count as lag and be read back.
//
// Rows older than the confidence window are visible, here as for the library, so a
// stream is advanced to there if a query finds no row. A stream that is so far behind
// that rows after its position may have expired is not advanced: the library may have
// read them and wait for capacity. Errors only cause delay.
type Quiet struct {
	session *gocql.Session
	source  cdclog.Generations
	facts   func(context.Context) (cdclog.TableInfo, error)
	stmt    string
	streams *checkpoint.Streams
	window  time.Duration // the confidence window
	every   time.Duration
	limiter *rate.Limiter
	log     *slog.Logger
	clock   *dbclock.Clock
}

// NewQuiet returns a Quiet for the streams of the table's log, whose generations source returns.
func NewQuiet(cfg *Config, table *outbox.Table, source cdclog.Generations, s *checkpoint.Streams) *Quiet {
	return &Quiet{
		session: cfg.Session, source: source, streams: s, window: cfg.ConfidenceWindow, every: cfg.IdleCheckpoint, log: cfg.Logger, clock: cfg.Clock,
		limiter: rate.NewLimiter(quietPerSecond, 1),
		facts: func(ctx context.Context) (cdclog.TableInfo, error) {
			return cdclog.ReadTableInfo(ctx, cfg.Session, cfg.TableKeyspace, cfg.Table)
		},
		stmt: `SELECT "cdc$time" FROM ` + table.String() + `_scylla_cdc_log WHERE "cdc$stream_id" = ?` +
			` AND "cdc$time" > ? AND "cdc$time" <= ? LIMIT 1 BYPASS CACHE`,
	}
}

// Run checks the streams at every interval until ctx ends.
func (q *Quiet) Run(ctx context.Context) error {
	for retry.Wait(ctx, q.every) == nil {
		if err := q.look(ctx); err != nil && ctx.Err() == nil {
			q.log.Debug("cannot query quiet streams; retrying", "err", err)
		}
	}
	return context.Cause(ctx)
}

// look advances the streams that lag and have no rows. It returns the error of the last
// stream that could not be read.
func (q *Quiet) look(ctx context.Context) (failed error) {
	facts, err := q.facts(ctx)
	if err != nil && !errors.Is(err, cdclog.ErrCDCOptions) {
		return err
	}
	starts, err := q.source.Times(ctx)
	if err != nil {
		return err
	}
	// The tail reader reads adjacent streams together, and may wait for all of them.
	all := q.streams.All()
	slices.SortFunc(all, func(a, b *checkpoint.Stream) int { return cdclog.CompareStreams(a.ID, b.ID) })
	for _, p := range all {
		now := q.clock.Now()
		upTo := now.Add(-q.window)
		for _, start := range starts {
			if start.After(p.Generation()) && start.Before(upTo) {
				upTo = start
			}
		}
		from, ok := p.Quiescent()
		if !ok || from.Time().After(upTo.Add(-q.every)) {
			continue
		}
		if facts.Outruns(from.Time(), now) {
			continue
		}
		if err := q.limiter.Wait(ctx); err != nil {
			return err
		}
		to := gocql.MinTimeUUID(upTo)
		switch none, err := q.nothing(ctx, p, from, to); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			failed = err // streams of other replicas advance
		case none:
			p.PassQuiet(from, to)
		}
	}
	return failed
}

// nothing reports whether a stream has no row after from, up to to. Query.Scan would
// also report none if the first page ends within expired rows.
func (q *Quiet) nothing(ctx context.Context, p *checkpoint.Stream, from, to gocql.UUID) (bool, error) {
	iter := q.session.Query(q.stmt, []byte(p.ID), from, to).WithContext(ctx).
		Consistency(gocql.LocalQuorum).Idempotent(true).Iter()
	var found gocql.UUID
	some := iter.Scan(&found)
	err := iter.Close()
	return !some && err == nil, err
}
