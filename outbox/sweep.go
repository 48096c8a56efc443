package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// SweepTableName is the table, in the keyspace of the outbox, in which Sweep notes its
	// progress: the migrations of outbox_messages create it.
	SweepTableName = "outbox_sweeps"
	// sweepParts are the parts of the token ring. Each is swept and noted on its own, so that a
	// process that starts again continues, and several share the work.
	sweepParts = 64
	// sweepBegun is the part whose time is that of the first sweep: parts without a time wait
	// since then.
	sweepBegun = -1
	sweepPage  = 1000
	// sweepRetries is how often a part that failed is tried again in the time of a pass.
	sweepRetries = 200
	// unboundedSweep takes the place of the TTL where rows do not expire.
	unboundedSweep = 7 * 24 * time.Hour
	// maxSweepErrors is how many errors of a part are returned; others are counted.
	maxSweepErrors = 10
	// maxSweepFailing is the time that the failing aggregates of a part may take before the next
	// part is tried: the database is away. Aggregates that can never be applied fail at once, and
	// must not keep the sweep from those behind them.
	maxSweepFailing = time.Minute
)

// Rows are the caller's rows of aggregates, as Sweep needs them.
type Rows struct {
	// AggregateType is the type of the aggregates; required. Other aggregates are skipped.
	AggregateType string
	// Version returns the version of the rows of an aggregate: the Sequence of the last event
	// that they contain, 0 if there are none. last is the last event of the aggregate, without
	// payload and headers.
	Version func(ctx context.Context, last Event) (int64, error)
	// Apply applies an event to the rows, as after AppendNext: it can be repeated, late and by
	// several processes.
	Apply func(ctx context.Context, e Event) error
}

// Swept is the result of Sweep.
type Swept struct {
	// Aggregates is the number of aggregates that were compared with their rows, Events the
	// number of events that were applied because rows lagged.
	Aggregates, Events int
	// Complete is a time: every event that was stored before it is in the rows. It is zero
	// before the first pass has ended.
	Complete time.Time
	// Next is when to call Sweep again.
	Next time.Time
	// Late reports that a part was not swept for longer than the rows of events exist, also
	// because no sweep of it has ever ended. Events may have expired before they were applied, and
	// their numbers may be given again.
	Late bool
}

// Sweep compares the aggregates of the outbox with the caller's rows, and rolls rows that lag
// forward: it settles and applies the events that they lack. Without it, rows that nobody reads
// or changes lag until the event has expired; the next change then gets its number again.
//
// Each aggregate is compared once in a quarter of the TTL of the events, so that half of the TTL
// is enough. Sweep does the work that is due, one statement at a time, and returns; call it
// again at Swept.Next, also after an error. The progress is in SweepTableName. So it continues
// where another process has ended, and several at once share the work; comparing an aggregate
// twice is harmless.
//
// It reads the outbox once per pass, and the rows of each aggregate of it. The table must have
// one partition for each aggregate. An error joins the errors of single parts; the other parts were swept.
func (a *Appender) Sweep(ctx context.Context, r Rows) (Swept, error) {
	switch {
	case a.usable() != nil:
		return Swept{}, a.usable()
	case r.AggregateType == "" || r.Version == nil || r.Apply == nil:
		return Swept{}, errors.New("outbox: sweep: set AggregateType, Version and Apply of Rows")
	case !a.table.byAggregate():
		return Swept{}, fmt.Errorf("outbox: sweep: an aggregate has several partitions in table %s: its partition key must be the column of the aggregate", a.table)
	}
	ttl := cmp.Or(a.cfg.RowTTL, unboundedSweep)
	period := ttl / 4
	var s Swept
	var errs []error
	failed := make(map[int]bool)
	for {
		swept, begun, err := a.sweptParts(ctx, r.AggregateType)
		if err != nil {
			return s, err
		}
		now := time.Now()
		if begun.IsZero() {
			begun = now
			if err := a.noteSweep(ctx, r.AggregateType, sweepBegun, begun); err != nil {
				return s, err
			}
		}
		var due []int
		for part, at := range swept {
			if now.Sub(at).Abs() >= period && !failed[part] {
				due = append(due, part)
			}
		}
		if len(due) == 0 {
			oldest := slices.MinFunc(swept, time.Time.Compare)
			s.Complete, s.Next = oldest, oldest.Add(period)
			if len(failed) > 0 {
				s.Next = now.Add(period / sweepRetries)
			}
			return s, errors.Join(errs...)
		}
		// By chance, so that several processes have different ones.
		part := due[rand.N(len(due))]
		since := swept[part]
		if since.IsZero() {
			since = begun
		}
		s.Late = s.Late || now.Sub(since) > ttl
		err = a.sweepPart(ctx, r, part, &s)
		if err == nil {
			err = a.noteSweep(ctx, r.AggregateType, part, now)
		}
		if ctx.Err() != nil {
			return s, context.Cause(ctx)
		}
		if err != nil {
			failed[part] = true
			errs = append(errs, err)
		}
	}
}

// sweptParts returns when the sweep of each part began that ended last, and when the first sweep
// began.
func (a *Appender) sweptParts(ctx context.Context, aggregateType string) (swept []time.Time, begun time.Time, err error) {
	swept = make([]time.Time, sweepParts)
	err = a.repeat(ctx, func(ctx context.Context) error {
		iter := a.query(ctx, "SELECT part, swept_at FROM "+a.sweepTable()+" WHERE table_name = ? AND aggregate_type = ?", a.table.name, aggregateType).
			Consistency(a.cfg.Consistency).Iter()
		var at time.Time
		for part := 0; iter.Scan(&part, &at); {
			switch {
			case part == sweepBegun:
				begun = at
			case part >= 0 && part < sweepParts:
				swept[part] = at
			}
		}
		return iter.Close()
	})
	if err != nil {
		return nil, begun, fmt.Errorf("outbox: read the progress of sweeps in %s, which outbox schema migrate creates: %w", a.sweepTable(), err)
	}
	return swept, begun, nil
}

func (a *Appender) noteSweep(ctx context.Context, aggregateType string, part int, began time.Time) error {
	err := a.repeat(ctx, func(ctx context.Context) error {
		return a.query(ctx, "INSERT INTO "+a.sweepTable()+" (table_name, aggregate_type, part, swept_at) VALUES (?, ?, ?, ?)", a.table.name, aggregateType, part, began).
			Consistency(a.cfg.Consistency).DefaultTimestamp(false).Exec()
	})
	if err != nil {
		return fmt.Errorf("outbox: note the sweep of part %d in %s: %w", part, a.sweepTable(), err)
	}
	return nil
}

func (a *Appender) sweepTable() string {
	if a.table.keyspace == "" {
		return SweepTableName
	}
	return a.table.keyspace + "." + SweepTableName
}

// tokenRange returns the tokens of a part: above after, up to upTo.
func tokenRange(part int) (after, upTo int64) {
	const width = 1 << 64 / sweepParts
	after = math.MinInt64 + int64(part)*width
	if part == sweepParts-1 {
		return after, math.MaxInt64
	}
	return after, after + width
}

// sweepPart compares the aggregates of one part of the token ring.
func (a *Appender) sweepPart(ctx context.Context, r Rows, part int, s *Swept) error {
	outline := a.table.outline()
	after, upTo := tokenRange(part)
	var errs []error
	more, failing := 0, time.Duration(0)
	compare := func(last Event) {
		s.Aggregates++
		began := time.Now()
		events, err := a.rollForward(ctx, r, last)
		s.Events += events
		switch {
		case err == nil:
			return
		case len(errs) < maxSweepErrors:
			errs = append(errs, fmt.Errorf("outbox: sweep %s %s: %w", r.AggregateType, last.AggregateID, err))
		default:
			more++
		}
		failing += time.Since(began)
	}
	var last Event
	for page := []byte(nil); ; {
		var found []Event
		var next []byte
		err := a.repeat(ctx, func(ctx context.Context) error {
			found = nil
			iter := a.query(ctx, outline.byToken, after, upTo).Consistency(a.cfg.Consistency).PageSize(sweepPage).PageState(page).Iter()
			next = iter.PageState()
			var written int64
			for sc := outline.scanner(); iter.Scan(append([]any{&written}, sc.Dest()...)...); {
				// A row that is no event, such as static columns alone, is nobody's change.
				if e, err := sc.Event(); err == nil && e.AggregateType == r.AggregateType {
					found = append(found, e)
				}
			}
			return iter.Close()
		})
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("outbox: read part %d of %s: %w", part, a.table, err))...)
		}
		for _, e := range found {
			switch {
			case e.AggregateID != last.AggregateID && last.Sequence > 0:
				compare(last)
				last = e
			case e.Sequence > last.Sequence:
				last = e
			}
		}
		page = next
		if len(page) == 0 || failing > maxSweepFailing {
			break
		}
	}
	if last.Sequence > 0 {
		compare(last)
	}
	if more > 0 {
		errs = append(errs, fmt.Errorf("outbox: sweep %s: %d more aggregates of part %d failed", r.AggregateType, more, part))
	}
	return errors.Join(errs...)
}

// rollForward applies the events that the rows of last's aggregate lack, and returns how many.
func (a *Appender) rollForward(ctx context.Context, r Rows, last Event) (applied int, err error) {
	version, err := r.Version(ctx, last)
	if err != nil || version >= last.Sequence {
		return 0, err
	}
	events, err := a.readSince(ctx, &last, version+1, a.repeat)
	if err != nil || len(events) == 0 { // expired since
		return 0, err
	}
	if err := a.Settle(ctx, events[len(events)-1]); err != nil {
		return 0, err
	}
	for i, e := range events {
		if err := r.Apply(ctx, e); err != nil {
			return i, err
		}
	}
	return len(events), nil
}
