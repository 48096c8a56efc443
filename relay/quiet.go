package relay

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// quietPerSecond is how many streams are looked at in a second at most.
const quietPerSecond = 100

// quiet moves the positions of streams without rows that the library says nothing of.
//
// It reads the streams of a vnode together, and tells of a window without rows only
// if there were none in any of them. So where one of them always has some, the others
// would stay where they were last for as long as that goes on: a start would read the
// topics back to there, and in the end a scan of the table would begin, because the log
// is about to lose what is behind such a position, which is nothing.
//
// What is older than the confidence window is visible, here as for the library, so a
// stream is moved there if a query finds nothing in it. One that stands so far back
// that rows may have expired behind it stays: the library may have read them and wait
// for room. Errors cost nothing but time.
type quiet struct {
	session *gocql.Session
	facts   func(context.Context) (cdclog.TableInfo, error)
	stmt    string
	streams *checkpoint.Streams
	window  time.Duration // the confidence window
	every   time.Duration
	limiter *rate.Limiter
	log     *slog.Logger
}

func newQuiet(cfg *Config, table *outbox.Table, s *checkpoint.Streams) *quiet {
	return &quiet{
		session: cfg.Session, streams: s, window: cfg.ConfidenceWindow, every: cfg.IdleCheckpoint, log: cfg.Logger,
		limiter: rate.NewLimiter(quietPerSecond, 1),
		facts: func(ctx context.Context) (cdclog.TableInfo, error) {
			return cdclog.ReadTableInfo(ctx, cfg.Session, cfg.TableKeyspace, cfg.Table)
		},
		stmt: `SELECT "cdc$time" FROM ` + table.String() + `_scylla_cdc_log WHERE "cdc$stream_id" = ?` +
			` AND "cdc$time" > ? AND "cdc$time" <= ? LIMIT 1 BYPASS CACHE`,
	}
}

// run looks now and then until ctx ends.
func (q *quiet) run(ctx context.Context) error {
	for retry.Wait(ctx, q.every) == nil {
		if err := q.look(ctx); err != nil && ctx.Err() == nil {
			q.log.Debug("cannot look whether streams that say nothing have rows; trying again", "err", err)
		}
	}
	return context.Cause(ctx)
}

// look moves the streams that are behind and have nothing. An error is that of the last
// stream that could not be read.
func (q *quiet) look(ctx context.Context) (failed error) {
	facts, err := q.facts(ctx)
	if err != nil && !errors.Is(err, cdclog.ErrCDCOptions) {
		return err
	}
	// The tail reads streams next to each other together, and may wait for all of those.
	all := q.streams.All()
	slices.SortFunc(all, func(a, b *checkpoint.Stream) int { return cdclog.CompareStreams(a.ID, b.ID) })
	for _, p := range all {
		now := time.Now()
		upTo := now.Add(-q.window)
		from, ok := p.Quiescent()
		if !ok || from.Time().After(upTo.Add(-q.every)) {
			continue
		}
		if facts.CDCTTL > 0 && from.Time().Before(now.Add(-backfill.Part(facts.CDCTTL, backfill.Due))) {
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
			failed = err // those of other replicas move
		case none:
			p.PassQuiet(from, to)
		}
	}
	return failed
}

// nothing says whether a stream has no row behind from and up to to. Query.Scan would
// say so too where the first page ends among rows that are expired.
func (q *quiet) nothing(ctx context.Context, p *checkpoint.Stream, from, to gocql.UUID) (bool, error) {
	iter := q.session.Query(q.stmt, []byte(p.ID), from, to).WithContext(ctx).
		Consistency(gocql.LocalQuorum).Idempotent(true).Iter()
	var found gocql.UUID
	some := iter.Scan(&found)
	err := iter.Close()
	return !some && err == nil, err
}
