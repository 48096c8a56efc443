package backfill

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/older"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
)

const (
	// Ranges is the number of token ranges of a scan. After a crash the started ranges
	// are scanned again, so each is a small part of the table.
	Ranges = 256
	// backfillPage is the maximum page size of the scan.
	backfillPage = 500
	// backfillSays is how often the progress of the scan is logged.
	backfillSays = 30 * time.Second
	// backfillWatch is how often the remaining time of the log is checked.
	backfillWatch = time.Minute
)

// ErrOutrun makes the relay restart: log rows that it has not read are about to expire.
var ErrOutrun = errors.New("unread rows of the CDC log are about to expire")

// ErrUnlogged makes the relay restart: the log was altered, and may lack events.
var ErrUnlogged = errors.New("the CDC log was altered and may lack events")

// Backfill scans the outbox table for events that the CDC log may no longer contain, and
// passes them to the publisher.
//
// A scan covers all rows written from row.From until row.Until; in every stream the
// sweep reader starts after that, so no row is covered twice. The scan is saved before
// it has an effect, and a range of tokens is saved as done when all its events are
// acknowledged. Before a start continues a scan it reads the topics back to the start of
// the scan, row.Mark, and skips the events in them. So a crash at any moment loses
// nothing and repeats nothing.
//
// It can only scan a table that is Numbered.
type Backfill struct {
	cfg       *Config
	log       *slog.Logger
	store     *checkpoint.Scans
	streams   *checkpoint.Streams
	publisher *publish.Publisher
	readback  *readback.Reader
	older     *older.Rows
	limiter   *rate.Limiter
	table     outbox.Table
	arc       cdclog.TokenRange // tokens to scan

	mu       sync.Mutex
	row      *checkpoint.Scan // the running scan, nil if none
	saved    int              // its ranges that are saved as done
	finished []int            // acknowledged ranges that are not saved yet
	more     chan struct{}
	facts    cdclog.TableInfo
	position time.Time // oldest position; initially that at the start
	watch    gapWatch
	alone    bool // no other part runs until a part of the scan is done
	lastErr  error
	lost     sync.Once // guards the log message about missing events

	read, known, handed, unreadable atomic.Int64
}

// New returns the Backfill of one start. own contains the aggregates to scan.
func New(cfg *Config, table outbox.Table, own *cdclog.Portion, s *checkpoint.Streams, p *publish.Publisher, back *readback.Reader) *Backfill {
	b := &Backfill{
		cfg: cfg, log: cfg.Logger, streams: s, publisher: p, readback: back, table: table, arc: own.Tokens,
		store:   checkpoint.NewScans(cfg.Session, cfg.Keyspace, cfg.ShardName, cfg.TableKeyspace+"."+cfg.Table, cfg.Fence),
		limiter: rate.NewLimiter(rate.Inf, 1), more: make(chan struct{}, 1),
	}
	if n := cfg.BackfillRowsPerSecond; n > 0 {
		b.limiter = rate.NewLimiter(rate.Limit(n), max(1, n/100))
	}
	return b
}

// Decide determines whether a scan is needed, saves it, and sets the start of the sweep
// reader. It retries while the database is unavailable. At a first start soon after the log
// was created or altered it waits until the rows before that are visible.
func (b *Backfill) Decide(ctx context.Context) error {
	for {
		var settles time.Duration
		err := b.readback.Retry(ctx, func() (err error) {
			settles, err = b.tryDecide(ctx)
			return err
		})
		if err != nil || settles <= 0 {
			return err
		}
		b.log.Info("the table or its CDC log was altered a moment ago; the first start waits until all events written before are visible",
			"for", settles, "confidence_window", b.cfg.ConfidenceWindow)
		if err := retry.Wait(ctx, settles); err != nil {
			return err
		}
	}
}

// tryDecide is Decide once, or returns how long to wait before a decision is possible.
func (b *Backfill) tryDecide(ctx context.Context) (settles time.Duration, err error) {
	if !b.table.Numbered() {
		if began, err := b.beganFrom(ctx); err != nil {
			return 0, err
		} else if !began {
			return 0, &outbox.MappingError{
				Table: b.table.String(), Problem: "cannot be scanned: it has no sequence numbers",
				Fix: "omit --backfill-from; the relay reads the events of the CDC log",
			}
		}
		return 0, b.cannotScan(ctx)
	}
	all, err := b.store.Load(ctx)
	if err != nil {
		return 0, err
	}
	need, err := b.readNeed(ctx, all)
	if err != nil {
		return 0, err
	}
	if settles := need.settlesIn(); settles > 0 {
		return settles, nil
	}
	if need.ran && !need.auto && need.facts.Outruns(need.position, need.latest()) {
		b.log.Error("unpublished events expired in the CDC log and backfill is off: events are missing from the topics",
			"position", need.position.UTC(), "cdc_ttl", need.facts.CDCTTL, "setting", "relay.backfill")
	}
	active, err := b.activate(ctx, need.decide(), all)
	if err != nil {
		return 0, err
	}
	if active != nil && !need.auto && active.Forced.IsZero() {
		b.log.Error("scan of the outbox table unfinished and backfill off: events are missing from the topics",
			"written_until", active.Until.UTC(), "setting", "relay.backfill")
		active = nil
	}
	b.mu.Lock()
	b.row = active
	if active != nil {
		b.saved = len(active.Done)
	}
	b.mu.Unlock()
	position := need.position
	if active != nil {
		position = checkpoint.Later(position, active.Until) // the scan covers the rows before
	}
	b.begin(need.facts, position, need.now, need.ran)
	return 0, nil
}

// beganFrom reports whether no time is requested, or the one at which the relay began after
// another: it may be up to a confidence window later.
func (b *Backfill) beganFrom(ctx context.Context) (bool, error) {
	if b.cfg.From.IsZero() {
		return true, nil
	}
	_, first, err := b.readback.Store.Start(ctx)
	after := b.cfg.From.Truncate(time.Millisecond).Sub(first)
	return !first.IsZero() && after >= 0 && after <= b.cfg.ConfidenceWindow, err
}

// begin sets the state of the log at the start. If the relay ran before and the log was
// altered after the position, the log has a gap.
func (b *Backfill) begin(facts cdclog.TableInfo, position, now time.Time, ran bool) {
	w := gapWatch{facts: facts, seen: now, read: position}
	if until, ok := facts.Unlogged(position); ok && ran {
		w.open = &Gap{From: position, Until: until, Possible: !facts.Logged.After(position)}
	}
	b.mu.Lock()
	b.facts, b.position, b.watch = facts, position, w
	b.mu.Unlock()
	b.streams.EndHold() // of an earlier decision of this start
	b.openGap(w.open)
}

// openGap holds the positions before a gap until it is scanned, or reports it.
func (b *Backfill) openGap(g *Gap) {
	if g == nil {
		return
	}
	if g.Scanned = b.scans(); g.Scanned {
		b.streams.HoldBefore(g.From)
		b.cfg.Open.begin(g.From) // positions may be past it
	}
	if !g.Until.IsZero() {
		report := *g
		report.From = g.From.Add(-b.cfg.ConfidenceWindow) // as decide
		b.cfg.Report(report)
	}
}

// scans reports whether gaps of the log are scanned.
func (b *Backfill) scans() bool { return b.table.Numbered() && b.cfg.auto() }

// Observe takes the state of the table, and whether its log records events. It returns
// ErrUnlogged once a gap of the log is to be scanned.
func (b *Backfill) Observe(facts cdclog.TableInfo, columns string, records bool) error {
	now := b.cfg.Clock.Now()
	position, ok := b.streams.OldestPosition()
	b.mu.Lock()
	if !ok {
		position = b.position
	}
	changed := b.watch.observe(facts, columns, records, now, position, b.cfg.ConfidenceWindow)
	// Rows keep the ttl with which they were written.
	if ttl := facts.CDCTTL; b.facts.CDCTTL == 0 || ttl > 0 && ttl < b.facts.CDCTTL {
		b.facts.CDCTTL = ttl
	}
	open := b.watch.open
	due := b.watch.due(now, b.cfg.ConfidenceWindow)
	if due {
		b.watch.open, b.watch.seen = nil, now
	}
	b.mu.Unlock()
	if changed {
		b.openGap(open)
	}
	if due && b.scans() {
		return ErrUnlogged
	}
	return nil
}

// cannotScan determines the remaining time of the CDC log for a table that cannot be
// scanned, and logs if it is too short: after a long downtime, or at a first start with
// a log that is older than its rows.
func (b *Backfill) cannotScan(ctx context.Context) error {
	facts, err := cdclog.ReadTableInfo(ctx, b.cfg.Session, b.cfg.TableKeyspace, b.cfg.Table)
	if err != nil && !errors.Is(err, cdclog.ErrCDCOptions) {
		return err
	}
	generation, first, err := b.readback.Store.Start(ctx)
	if err != nil {
		return err
	}
	var position time.Time
	if !generation.IsZero() || !first.IsZero() { // it ran before
		if position, err = b.readback.Mark(ctx); err != nil {
			return err
		}
		if facts.Outruns(checkpoint.Later(position, facts.Logged), b.cfg.Clock.Latest()) {
			b.reportLost(position, facts.CDCTTL)
		}
	}
	b.begin(facts, position, b.cfg.Clock.Now(), !position.IsZero())
	return nil
}

// reportLost logs, once, that events written after position may be in the table only.
func (b *Backfill) reportLost(position time.Time, ttl time.Duration) {
	b.lost.Do(func() {
		b.log.Error("unpublished events expired in the CDC log, and a table without sequence numbers cannot be scanned: events may be missing from the topics",
			"position", position.UTC(), "cdc_ttl", ttl, "fix", "write the events since position again")
	})
}

// readNeed returns the state for the decision about a scan, given all earlier scans, and
// passes their coverage to the sweep reader and the read-back.
func (b *Backfill) readNeed(ctx context.Context, all []checkpoint.Scan) (need decision, err error) {
	need = decision{
		firstAge: b.cfg.FirstAge, window: b.cfg.ConfidenceWindow, auto: b.cfg.auto(),
		forced: b.cfg.From.Truncate(time.Millisecond), published: b.readback.AlsoSince,
	}
	need.facts, err = cdclog.ReadTableInfo(ctx, b.cfg.Session, b.cfg.TableKeyspace, b.cfg.Table)
	if errors.Is(err, cdclog.ErrCDCOptions) {
		b.log.Warn("cannot read the ttl of the CDC log", "assumed", need.facts.CDCTTL, "err", err)
	} else if err != nil {
		return need, err
	}
	for i := range all {
		need.floor = checkpoint.Later(need.floor, all[i].Until)
		if need.forced.Equal(all[i].Forced) {
			need.forced = time.Time{} // requested before
		}
		switch all[i].State {
		case checkpoint.ScanRunning:
			b.readback.Scanned = time.Now()
		case checkpoint.ScanDone, checkpoint.ScanReplaced:
			b.readback.Scanned = checkpoint.Later(b.readback.Scanned, all[i].Updated)
		}
	}
	b.startFrom(need.floor)
	generation, first, err := b.readback.Store.Start(ctx)
	if err != nil {
		return need, err
	}
	need.ran = len(all) > 0 || !generation.IsZero() || !first.IsZero()
	if len(all) > 0 {
		need.facts.MadeAfter(all[0].Started) // the newest decision is about a table of before
	}
	if !generation.IsZero() || !first.IsZero() {
		if need.position, err = b.readback.Mark(ctx); err != nil {
			return need, err
		}
	}
	need.position = checkpoint.Later(need.position, need.floor)
	if need.ran {
		need.position = checkpoint.Earliest(need.position, b.cfg.Open.Since())
	}
	// Before the table is read: what must be visible is then.
	need.now, need.ahead = b.cfg.Clock.Now(), max(b.cfg.Clock.Ahead(), 0)
	if !need.ran {
		if need.empty, err = b.isEmpty(ctx); err != nil {
			return need, err
		}
	}
	return need, nil
}

// activate saves row if it is not nil, and returns the scan to run, which may be one of
// all.
func (b *Backfill) activate(ctx context.Context, row *checkpoint.Scan, all []checkpoint.Scan) (active *checkpoint.Scan, err error) {
	active = checkpoint.Unfinished(all)
	if row == nil {
		if active != nil {
			b.log.Info("resuming a scan of the outbox table", "reason", active.Reason, "written_from", active.From.UTC(),
				"written_until", active.Until.UTC(), "ranges_done", len(active.Done), "ranges", active.Ranges)
		}
		return active, nil
	}
	var replaced *checkpoint.Scan
	if row.State == checkpoint.ScanRunning && active != nil {
		row.Cover(active)
		replaced = active
	}
	if len(all) > 0 && !row.Started.After(all[0].Started) {
		row.Started = all[0].Started.Add(time.Millisecond) // part of the primary key
	}
	if err := b.store.Begin(ctx, row, replaced); err != nil {
		return nil, err
	}
	b.startFrom(row.Until)
	if row.State != checkpoint.ScanRunning {
		return active, nil
	}
	b.cfg.Open.end()
	b.log.Warn("scanning the outbox table for events that the CDC log may not contain", "reason", row.Reason,
		"written_from", row.From.UTC(), "written_until", row.Until.UTC(), "rows_per_second", b.cfg.BackfillRowsPerSecond)
	return row, nil
}

// Since returns the oldest write time of the events to publish: rows of the log from
// position on, and rows of the scan. Zero is unlimited.
func (b *Backfill) Since(position time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.row != nil && b.row.State == checkpoint.ScanRunning && b.row.From.Before(position) {
		return b.row.From
	}
	return position
}

// startFrom makes the sweep reader start where the coverage of scans ends.
func (b *Backfill) startFrom(floor time.Time) {
	b.streams.StartFrom(floor)
	b.readback.Floor = floor
}

// Prepare reads which events the scan has published before. If there are more than
// memory allows, it scans the part of the table for which they are known, and the rest
// of the relay waits for that.
func (b *Backfill) Prepare(ctx context.Context) error {
	// The broker may have been unavailable for days.
	if err := b.Decide(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	row := b.row
	b.mu.Unlock()
	if row == nil {
		return nil
	}
	b.read.Store(row.Read)
	b.handed.Store(row.Published)
	b.older = older.New(b.table, row, b.arc, b.cfg.Share.Aggregates)
	for {
		known, err := b.readTopics(ctx, row)
		if err != nil {
			return err
		}
		if known == row.Ranges {
			b.publisher.SetOlder(b.older)
			return nil
		}
		b.log.Warn("too many published events since the start of the scan; other events wait for a part of the scan",
			"ranges", known)
		b.publisher.SetOlder(b.older)
		if err := b.scanAlone(ctx, known); err != nil {
			return err
		}
	}
}

// scanAlone scans the ranges before the given one, until they are saved as done.
func (b *Backfill) scanAlone(ctx context.Context, before int) error {
	b.setAlone(true)
	defer b.setAlone(false)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	saved := make(chan error, 1)
	go func() { saved <- b.saveFinished(ctx, before) }()
	for n := range before {
		if err := b.scanRange(ctx, n); err != nil {
			stop(err)
			<-saved
			return err
		}
	}
	return <-saved
}

func (b *Backfill) setAlone(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alone = on
}

// Run scans all ranges, and monitors the remaining time of the log, until ctx ends. An
// error is Fatal, ErrOutrun, or the cause of the end of ctx.
func (b *Backfill) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	b.mu.Lock()
	row := b.row
	b.mu.Unlock()
	if row != nil {
		wg.Go(func() {
			if err := b.saveFinished(ctx, row.Ranges); err != nil {
				stop(err)
			}
		})
		wg.Go(func() {
			for n := range row.Ranges {
				if err := b.scanRange(ctx, n); err != nil {
					stop(err)
					return
				}
			}
		})
	}
	every := min(backfillWatch, part(max(b.logFacts().CDCTTL, time.Minute), 1./64))
	said := time.Now()
	for retry.Wait(ctx, every) == nil {
		facts := b.logFacts()
		// By a clock that is further ahead each position would be outrun.
		now := checkpoint.Earliest(b.cfg.Clock.Latest(), b.cfg.Clock.Now().Add(facts.CDCTTL/2))
		if s := b.Status(); s.Running && time.Since(said) >= backfillSays {
			said = time.Now()
			b.log.Info("scanning the outbox table", "ranges_done", s.Done, "ranges", s.Ranges, "rows", s.Rows, "published", s.Published)
		}
		// The log has no rows of before its creation.
		switch position := checkpoint.Later(now.Add(b.Left(now)-facts.CDCTTL), facts.Logged); {
		case !facts.Outruns(position, now):
		case !b.table.Numbered():
			b.reportLost(position, facts.CDCTTL)
		case b.cfg.auto():
			return ErrOutrun
		}
	}
	return context.Cause(ctx)
}

// logFacts returns the known facts about the log, which Observe changes.
func (b *Backfill) logFacts() cdclog.TableInfo {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.facts
}

// Left returns the time until rows after the oldest position expire in the log, or the sweep
// reader takes them for expired if now is its Clock.Latest, and the
// CDC ttl while no stream was read yet. Between the streams of two generations it uses
// the last known position.
func (b *Backfill) Left(now time.Time) time.Duration {
	position, ok := b.streams.OldestPosition()
	b.mu.Lock()
	defer b.mu.Unlock()
	if ok {
		b.position = position
	}
	if b.position.IsZero() {
		return b.facts.CDCTTL
	}
	return b.facts.CDCTTL - now.Sub(b.position)
}

// settler returns a function that counts the events of a range; the range is finished
// when all are acknowledged and the scan has called end.
func (b *Backfill) settler(n int) (settled func() publish.Settlement, end func()) {
	var open atomic.Int64
	open.Store(1)
	end = func() {
		if open.Add(-1) > 0 {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.finished = append(b.finished, n)
		select {
		case b.more <- struct{}{}:
		default:
		}
	}
	return func() publish.Settlement { open.Add(1); return publish.OnSettled(end) }, end
}

// saveFinished saves ranges as done until all ranges before the given one are saved, or
// ctx ends.
func (b *Backfill) saveFinished(ctx context.Context, before int) error {
	failures := 0
	for {
		left, err := b.SaveDone(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && failure.Classify(err) == failure.Fatal:
			return err
		case err != nil:
			failures++
			b.log.Warn("cannot save the progress of the scan; retrying", "attempt", failures, "err", err)
			if err := retry.Wait(ctx, retry.Backoff(b.cfg.RetryMin, 5*time.Second, failures)); err != nil {
				return err
			}
			continue
		}
		failures = 0
		if left == 0 || !slices.ContainsFunc(seq(before), b.unsaved) {
			return nil
		}
		select {
		case <-b.more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func seq(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// unsaved reports whether range n is not saved as done.
func (b *Backfill) unsaved(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !slices.Contains(b.row.Done, n)
}

// SaveDone saves the finished ranges, and returns the number of unfinished ranges.
func (b *Backfill) SaveDone(ctx context.Context) (left int, err error) {
	b.mu.Lock()
	if b.row == nil {
		b.mu.Unlock()
		return 0, nil
	}
	row := *b.row
	ranges := slices.Clone(b.finished)
	b.mu.Unlock()
	row.Read, row.Published = b.read.Load(), b.handed.Load()
	left = row.Ranges - len(row.Done) - len(ranges)
	if left == 0 {
		row.State = checkpoint.ScanDone
	}
	if len(ranges) > 0 || left == 0 {
		if err := b.store.Advance(ctx, &row, ranges); err != nil {
			return left, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.row.State
	row.Done = append(slices.Clone(row.Done), ranges...)
	b.row, b.saved = &row, len(row.Done)
	b.finished = slices.Delete(b.finished, 0, len(ranges))
	if left == 0 && was != checkpoint.ScanDone {
		b.log.Info("scan of the outbox table finished", "reason", row.Reason, "rows", row.Read, "published", row.Published,
			"took", time.Since(row.Started).Round(time.Second))
	}
	return left, nil
}

// Status is the state of a scan of the outbox table.
type Status struct {
	// Running is true during a scan, and Alone while no other part of the relay runs
	// until a part of the scan is done.
	Running, Alone bool
	// Reason is first_start, log_outrun, log_altered or forced.
	Reason string
	// From and Until limit the write times of the rows; a zero From is unlimited.
	From, Until time.Time
	// Done of Ranges token ranges are scanned and all their events acknowledged.
	Done, Ranges int
	// Rows were read, and Published of them passed to the publisher, including those
	// before a restart.
	Rows, Published int64
	// Unreadable counts rows that cannot be decoded as events; they become dead letters.
	Unreadable int64
	// Err is the error that delays the scan, nil if none.
	Err error
}

// Status returns the state of the scan. It is zero for a nil Backfill, before the relay
// starts.
func (b *Backfill) Status() (s Status) {
	if b == nil {
		return s
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Rows, s.Published, s.Unreadable, s.Err, s.Alone = b.read.Load(), b.handed.Load(), b.unreadable.Load(), b.lastErr, b.alone
	if b.row != nil {
		s.Running, s.Reason, s.From, s.Until = b.row.State == checkpoint.ScanRunning, b.row.Reason, b.row.From, b.row.Until
		s.Done, s.Ranges = b.saved, b.row.Ranges
	}
	return s
}

func (b *Backfill) stuck(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lastErr = err
}
