package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox/internal/attempt"
)

// Defaults of AppenderConfig.
const (
	DefaultAttemptTimeout = 3 * time.Second
	DefaultBudget         = 10 * time.Second
)

// MaxConflictEvents limits ConflictError.Events.
const MaxConflictEvents = 100

// AppenderConfig configures an Appender. The zero value is usable.
type AppenderConfig struct {
	// Consistency is the level of the writes. Default LOCAL_QUORUM, which the relay needs at
	// least.
	Consistency gocql.Consistency
	// LocalSerial limits the agreement to the data center of the session (LOCAL_SERIAL). All
	// processes that write to the table must then be in it.
	LocalSerial bool
	// AttemptTimeout limits one attempt of one statement. Budget limits the attempts of one
	// call; a last read, and Settle, may follow. Defaults DefaultAttemptTimeout and
	// DefaultBudget.
	AttemptTimeout, Budget time.Duration
	// RowTTL is how long the rows of events exist. Default: that of Table.WithTTL, else
	// default_time_to_live of the table.
	RowTTL time.Duration
	// Attempt, if set, runs each attempt of a statement: for a circuit breaker, a limit,
	// metrics or a trace. It calls statement at most once and returns its error; without a
	// call of statement, nothing is sent. It must be safe for concurrent use.
	Attempt func(ctx context.Context, statement func(context.Context) error) error
}

// Appender stores the next event of an aggregate for one of several concurrent writers. It has
// no state of aggregates and is safe for concurrent use, also by several processes.
//
// The protocol, which programs in other languages execute as CQL, is docs/protocol.md.
type Appender struct {
	session *gocql.Session
	table   Table
	cfg     AppenderConfig
	since   string // selects the events of an aggregate from a number on
}

// NewAppender returns an Appender of events in t, which needs sequence numbers. It compares the
// columns of the table with the columns of t, and reads its default TTL. The error names a
// missing table or the field to correct, or is a *MappingError for each column that differs.
func NewAppender(ctx context.Context, session *gocql.Session, t Table, cfg AppenderConfig) (*Appender, error) {
	switch {
	case session == nil:
		return nil, errNoSession
	case t.usable() != nil:
		return nil, t.usable()
	case !t.Numbered():
		return nil, fmt.Errorf("outbox: table %s has no column for sequence numbers: write its events with Append", t)
	}
	if err := t.layout.appendable(t.String()); err != nil {
		return nil, err
	}
	for name, d := range map[string]time.Duration{"AttemptTimeout": cfg.AttemptTimeout, "Budget": cfg.Budget, "RowTTL": cfg.RowTTL} {
		if d < 0 {
			return nil, fmt.Errorf("outbox: AppenderConfig.%s %s is negative: use a positive duration, or 0 for the default", name, d)
		}
	}
	switch cfg.Consistency {
	case gocql.Any: // the zero value; ANY stores a hint alone
		cfg.Consistency = gocql.LocalQuorum
	case gocql.LocalQuorum, gocql.Quorum, gocql.EachQuorum, gocql.All:
	default:
		return nil, fmt.Errorf("outbox: AppenderConfig.Consistency %s is less than LOCAL_QUORUM, which the relay needs at least: use LOCAL_QUORUM, QUORUM, EACH_QUORUM or ALL, or leave it empty", consistencyName(cfg.Consistency))
	}
	cfg.AttemptTimeout = cmp.Or(cfg.AttemptTimeout, DefaultAttemptTimeout)
	cfg.Budget = cmp.Or(cfg.Budget, DefaultBudget)
	cfg.RowTTL = cmp.Or(cfg.RowTTL, t.ttl)
	if cfg.Attempt == nil {
		cfg.Attempt = attemptAlone
	}
	// Without ORDER BY: a serial read against the clustering order of the table fails.
	l := t.layout
	since := "SELECT " + l.list + " FROM " + t.String() + " WHERE " + l.columns[fieldAggregateID].where() + " AND " + quote(l.columns[fieldSequence].name) + " >= ?"
	a := &Appender{session: session, table: t, cfg: cfg, since: since}
	if err := a.readTable(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// consistencyName returns the name of a level; that of gocql panics for an unknown one.
func consistencyName(c gocql.Consistency) string {
	if text, err := c.MarshalText(); err == nil {
		return string(text)
	}
	return fmt.Sprintf("%#x", uint16(c))
}

// errNoSession reports a nil session.
var errNoSession = errors.New("outbox: the session is nil: pass an open gocql session")

// errZeroAppender reports an Appender that NewAppender has not made.
var errZeroAppender = errors.New("outbox: the Appender is its zero value: use NewAppender")

// usable returns the error of an Appender that NewAppender has not made.
func (a *Appender) usable() error {
	if a == nil || a.session == nil {
		return errZeroAppender
	}
	return nil
}

// attemptAlone is AppenderConfig.Attempt of nothing but the statement.
func attemptAlone(ctx context.Context, statement func(context.Context) error) error {
	return statement(ctx)
}

// readTable compares the table with its description, and reads its TTL if none is configured.
func (a *Appender) readTable(ctx context.Context) error {
	var columns []Column
	var seconds int
	keyspace := cmp.Or(a.table.keyspace, a.session.Query("").Keyspace())
	start := *a // no breaker or metrics of events
	start.cfg.Attempt = attemptAlone
	err := start.repeat(ctx, func(ctx context.Context) (err error) {
		columns, err = ReadColumns(ctx, a.session, keyspace, a.table.name)
		if err == nil && len(columns) > 0 && a.cfg.RowTTL == 0 {
			err = a.session.Query("SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?", keyspace, a.table.name).
				WithContext(ctx).Idempotent(true).Scan(&seconds)
		}
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("outbox: read the schema of table %s: %w", a.table, err)
	case len(columns) == 0:
		return fmt.Errorf("outbox: table %s does not exist in keyspace %q: create it, or name another with NewTable", a.table, keyspace)
	}
	a.cfg.RowTTL = cmp.Or(a.cfg.RowTTL, time.Duration(seconds)*time.Second)
	return a.table.layout.fits(a.table.String(), columns)
}

// AppendOptions are what AppendNext can be told about the caller's rows. The zero value is
// right for every first attempt.
type AppendOptions struct {
	// SearchFrom is the Sequence of the first attempt to store this event, if it may have been
	// stored under a smaller number than Event.Sequence: by a process that repeats the request
	// of another one and has computed the event again. Zero means Event.Sequence.
	SearchFrom int64
	// VersionWrittenAt is when version Event.Sequence-1 of the caller's rows was written, by
	// any clock that is right to hours. With it, AppendNext detects that the event of this
	// version is missing, and needs one statement in place of two for most events.
	VersionWrittenAt time.Time
}

// Appended is the result of AppendNext.
type Appended struct {
	// Event is the event in the outbox.
	Event Event
	// Repeated reports that an earlier attempt, of this call or another one, has stored it.
	Repeated bool
}

// ConflictError reports that other writers have taken the number of an event. Nothing was
// stored. The caller's rows lack the changes of Events: apply them, compute the event again
// from the result, and append it.
type ConflictError struct {
	// Event is the refused event.
	Event Event
	// Events are the events of the aggregate from Event.Sequence on, in their order, at most
	// MaxConflictEvents. They are stored and will be published.
	Events []Event
}

// Error implements error.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("outbox: event %d of %s exists: apply the events that were stored in the meantime, compute the event again and append it", e.Event.Sequence, e.Event.AggregateID)
}

// GapError reports that an event is missing though the rows of its version are young: the
// other half of a logged batch. Nothing was stored. Rebuild the event from the rows, store it
// with Settle, and repeat.
//
// Rebuild it with the ID that the batch gave it: the database may still apply the other half of the
// batch, which then writes the same event again. Under another ID it would be a second event with
// that number. So choose an ID that the rows contain, or that NameID derives from them.
type GapError struct {
	// Event is the refused event; the missing one has the number Event.Sequence-1.
	Event Event
}

// Error implements error.
func (e *GapError) Error() string {
	return fmt.Sprintf("outbox: event %d of %s is missing, though rows of version %d exist: rebuild it from them with the ID that their batch gave it, store it with Settle, and append event %d again",
		e.Event.Sequence-1, e.Event.AggregateID, e.Event.Sequence-1, e.Event.Sequence)
}

// UnknownOutcomeError reports that an event may be stored now, later or never. Repeat the call
// with the same event; a process that computes the event again keeps its ID and sets
// AppendOptions.SearchFrom.
type UnknownOutcomeError struct {
	Event Event
	// Err is the error of the last attempt.
	Err error
}

// Error implements error.
func (e *UnknownOutcomeError) Error() string {
	return fmt.Sprintf("outbox: outcome unknown of event %d of %s: repeat it with the same event: %v", e.Event.Sequence, e.Event.AggregateID, e.Err)
}

// Unwrap returns Err.
func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// AppendNext stores e as event e.Sequence of its aggregate if that number is free. Compute e
// from your own rows at version e.Sequence-1: that is the expected revision. Sequence 1 means
// that the aggregate does not exist.
//
// AppendNext executes its own statements, because a conditional statement cannot share a batch
// with rows of other tables or partitions. So the event decides and your rows follow: after
// success, write them from Appended.Event, by statements that can be repeated, late and by
// several processes: USING TIMESTAMP of a fixed base plus Sequence where nothing else writes
// these rows, or UPDATE … IF version = n. A process that dies in between leaves rows that lag;
// the next writer receives a *ConflictError with the missing events and applies them first.
// Rows that nobody changes again lag until somebody applies the events, which exist for the
// TTL of the outbox: Sweep does it in time.
//
// Use AppendNext for all events of an aggregate, except that event 1 of a new random id may be
// Appended to a logged batch.
//
// Repeating AppendNext with the same e.ID stores it once, as long as its row exists. Errors:
// *InvalidEventError; *ConflictError; *GapError; *UnknownOutcomeError. After any other error
// this call has stored nothing, but an earlier one whose outcome was unknown may have.
func (a *Appender) AppendNext(ctx context.Context, e Event, o AppendOptions) (Appended, error) {
	if err := a.usable(); err != nil {
		return Appended{}, err
	}
	args, err := a.table.arguments(e, time.Now())
	if err != nil {
		return Appended{}, err
	}
	return a.decide(ctx, e, o, func(ctx context.Context) (bool, error) { return a.insert(ctx, a.table.insertIfNotExists, args) })
}

// Find does what AppendNext does up to its insert: it stores nothing. Call it before you refuse
// a change because of your rows: they may lag behind other events, or contain this very change
// if an earlier attempt has stored it. e needs its ID, its aggregate and its Sequence.
//
// stored reports whether the event is stored. If it is not and err is nil, your rows at version
// e.Sequence-1 are the last ones. It returns the errors of AppendNext.
func (a *Appender) Find(ctx context.Context, e Event, o AppendOptions) (r Appended, stored bool, err error) {
	if err := a.usable(); err != nil {
		return Appended{}, false, err
	}
	if err := a.table.invalid(&e, a.table.validatePlace); err != nil {
		return Appended{}, false, err
	}
	r, err = a.decide(ctx, e, o, nil)
	return r, r.Repeated, err
}

// decide is AppendNext with an attempt to insert e, and Find without one.
func (a *Appender) decide(ctx context.Context, e Event, o AppendOptions, insert func(context.Context) (applied bool, err error)) (Appended, error) {
	budget, cancel := context.WithTimeout(ctx, a.cfg.Budget)
	defer cancel()
	p := a.plan(&e, o, time.Now())
	p.read = p.read || insert == nil
	unknown := false
	failed := func(err error) (Appended, error) {
		if unknown {
			return Appended{}, &UnknownOutcomeError{Event: e, Err: err}
		}
		return Appended{}, fmt.Errorf("outbox: event %d of %s: nothing was stored: %w", e.Sequence, e.AggregateID, err)
	}
	for attempts := 1; ; attempts++ {
		if p.read {
			found, err := a.readSince(budget, &e, p.from, a.attempt)
			switch v, i := p.judge(found, &e); {
			case attempt.Invalid(err), notSent(err) && !unknown:
				return failed(err)
			case err != nil:
				if ended := attempt.Pause(budget, attempts); ended != nil {
					return failed(errors.Join(err, ended))
				}
				continue
			case v == verdictGap:
				return Appended{}, &GapError{Event: e}
			case v != verdictFree:
				return a.settle(ctx, &e, found, v, i)
			}
		}
		if insert == nil {
			return Appended{}, nil
		}
		p.read = true // what follows an insert without a success is decided by reading
		applied, err := insert(budget)
		switch {
		case applied:
			return Appended{Event: e, Repeated: unknown}, nil
		case err == nil: // somebody was first, or an earlier attempt of this event
			continue
		case attempt.Invalid(err):
			return failed(err)
		case !notSent(err) && !attempt.NotExecuted(err):
			unknown = true
		}
		if !unknown {
			return failed(err)
		}
		if ended := attempt.Pause(budget, attempts); ended != nil {
			// The last attempt may have been decided.
			if found, again := a.readSince(ctx, &e, p.from, a.attempt); again == nil {
				if v, i := p.judge(found, &e); v == verdictStored || v == verdictConflict {
					return a.settle(ctx, &e, found, v, i)
				}
			}
			return failed(errors.Join(err, ended))
		}
	}
}

// insert executes one attempt of a conditional insert.
func (a *Appender) insert(ctx context.Context, stmt string, args []any) (applied bool, err error) {
	err = a.attempt(ctx, func(ctx context.Context) (err error) {
		applied, err = a.query(ctx, stmt, args...).Consistency(a.cfg.Consistency).SerialConsistency(attempt.Serial(a.cfg.LocalSerial)).MapScanCAS(make(map[string]any))
		return err
	})
	return applied && err == nil, err
}

// plan is what AppendNext reads and concludes.
type plan struct {
	// read is whether the events are read before the insert, and from where.
	read bool
	from int64
	// search is the smallest number that the event can have.
	search int64
	// previous is whether the event before must exist.
	previous bool
}

// plan decides what is read first. The insert's own condition finds every event under the
// number, and completes an undecided one. It cannot find that all of this number's successors
// but not itself exist, or that both have expired: that the caller's version is older than
// the TTL. Nothing after a version that is younger than half of it has expired. Event 1 alone
// may come from a logged batch, of which half can be missing; every other event precedes its
// rows.
func (a *Appender) plan(e *Event, o AppendOptions, now time.Time) plan {
	p := plan{from: e.Sequence, search: e.Sequence}
	if o.SearchFrom > 0 {
		p.search = min(p.search, o.SearchFrom)
		p.from = p.search
	}
	young := !o.VersionWrittenAt.IsZero() && (a.cfg.RowTTL == 0 || now.Sub(o.VersionWrittenAt).Abs() < a.cfg.RowTTL/2)
	p.read = !young || e.Sequence == 2 || p.from < e.Sequence
	if young && e.Sequence > 1 && p.read {
		p.previous = true
		p.from = min(p.from, e.Sequence-1)
	}
	return p
}

type verdict int

const (
	verdictFree     verdict = iota // the number is free
	verdictStored                  // the event is stored, at the returned index
	verdictConflict                // other events have the numbers from the returned index on
	verdictGap                     // the event before is missing
)

// judge compares the events that were read, in their order, with the plan.
func (p plan) judge(found []Event, e *Event) (verdict, int) {
	for i := range found {
		if found[i].Sequence >= p.search && found[i].ID == e.ID {
			return verdictStored, i
		}
	}
	i := slices.IndexFunc(found, func(f Event) bool { return f.Sequence >= e.Sequence })
	switch {
	case i >= 0:
		return verdictConflict, i
	case p.previous && !slices.ContainsFunc(found, func(f Event) bool { return f.Sequence == e.Sequence-1 }):
		return verdictGap, 0
	}
	return verdictFree, 0
}

// settle settles the last event that was read, and returns the result for the event at an
// index. Only the last one can be the event of a writer that never learned that it was decided:
// every other one was settled before its successor was computed from it, and one that the
// caller's rows contain before it was applied to them.
func (a *Appender) settle(ctx context.Context, e *Event, found []Event, v verdict, i int) (Appended, error) {
	if last := found[len(found)-1]; last.Sequence >= e.Sequence {
		switch err := a.Settle(ctx, last); {
		case err != nil && v == verdictConflict:
			return Appended{}, fmt.Errorf("outbox: event %d of %s: nothing was stored, its number is taken: %w", e.Sequence, e.AggregateID, err)
		case err != nil:
			return Appended{}, &UnknownOutcomeError{Event: *e, Err: err}
		}
	}
	if v == verdictConflict {
		return Appended{}, &ConflictError{Event: *e, Events: found[i:min(len(found), i+MaxConflictEvents)]}
	}
	return Appended{Event: found[i], Repeated: true}, nil
}

// Since returns the events of of's aggregate from a number on, in their order, by a read at the
// serial consistency: it includes every event that is stored, and decides an open insert. The
// caller settles the last event before it writes anything that follows from it. of needs its
// aggregate alone.
func (a *Appender) Since(ctx context.Context, of *Event, from int64) ([]Event, error) {
	if err := a.usable(); err != nil {
		return nil, err
	}
	if err := a.table.invalid(of, a.table.validateAggregate); err != nil {
		return nil, err
	}
	return a.readSince(ctx, of, from, a.attempt)
}

// readSince is Since, executed by attempt or repeat.
func (a *Appender) readSince(ctx context.Context, of *Event, from int64, execute func(context.Context, func(context.Context) error) error) ([]Event, error) {
	args := append(a.table.layout.columns[fieldAggregateID].arguments(of.AggregateID), from)
	var found []Event
	var bad error // no failure of the database
	err := execute(ctx, func(ctx context.Context) error {
		found, bad = nil, nil
		iter := a.query(ctx, a.since, args...).Consistency(gocql.Consistency(attempt.Serial(a.cfg.LocalSerial))).Iter()
		for sc := a.table.scanner(); iter.Scan(sc.Dest()...); {
			e, err := sc.Event()
			if row, ok := errors.AsType[*rowError](err); ok && a.hasPlace(row) {
				e, err = row.Event, nil
			}
			bad = cmp.Or(bad, err)
			found = append(found, e)
		}
		return iter.Close()
	})
	if err = cmp.Or(err, bad); err != nil {
		return nil, fmt.Errorf("outbox: read the events of %s from number %d on: %w", of.AggregateID, from, err)
	}
	slices.SortFunc(found, func(a, b Event) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return found, nil
}

// hasPlace reports whether only headers or the time of delivery are wrong in a row. Its event, of
// another writer, becomes a dead letter, but has its number: the next one continues behind it.
func (a *Appender) hasPlace(row *rowError) bool {
	columns := &a.table.layout.columns
	return row.Column == columns[fieldHeaders].name || row.Column == columns[fieldDeliverAt].name
}

// Settle writes an event that the outbox contains once more, with the time of the database, so
// that the relay reads it: the row of an event whose writer never learned that it was decided
// may have a time that the relay has passed. The relay publishes an event once, however often
// it is written.
//
// Settle compares nothing: it overwrites another event that has the number of e. Pass what Since
// has returned, or the event rebuilt after a *GapError with the ID of the missing event. e needs
// its ID, its aggregate and its Sequence.
func (a *Appender) Settle(ctx context.Context, e Event) error {
	if err := a.usable(); err != nil {
		return err
	}
	args, err := a.table.arguments(e, time.Time{})
	if err != nil {
		return err
	}
	err = a.repeat(ctx, func(ctx context.Context) error {
		return a.query(ctx, a.table.insert, args...).Consistency(a.cfg.Consistency).DefaultTimestamp(false).Exec()
	})
	if err != nil {
		return fmt.Errorf("outbox: write event %d of %s once more: %w", e.Sequence, e.AggregateID, err)
	}
	return nil
}

// repeat attempts a statement until it succeeds, within the budget. The statement must be
// harmless to repeat.
func (a *Appender) repeat(ctx context.Context, statement func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Budget)
	defer cancel()
	for attempts := 1; ; attempts++ {
		err := a.attempt(ctx, statement)
		if err == nil || attempt.Invalid(err) || errors.Is(err, errNotCalled) {
			return err
		}
		if ended := attempt.Pause(ctx, attempts); ended != nil {
			return errors.Join(err, ended)
		}
	}
}

// attempt runs one attempt of a statement.
func (a *Appender) attempt(ctx context.Context, statement func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.AttemptTimeout)
	defer cancel()
	sent := false
	var failed error
	err := a.cfg.Attempt(ctx, func(ctx context.Context) error {
		sent = true
		failed = statement(ctx)
		return failed
	})
	if !sent {
		return &notSentError{cmp.Or(err, errNotCalled)}
	}
	return cmp.Or(err, failed) // not every one returns the error of its statement
}

// errNotCalled reports an AppenderConfig.Attempt that hides that it sends nothing.
var errNotCalled = errors.New("outbox: AppenderConfig.Attempt has returned nil without a call of statement: call it, or return the reason why not")

// notSentError is the error of an AppenderConfig.Attempt that has not called its statement.
type notSentError struct{ err error }

func (e *notSentError) Error() string { return e.err.Error() }
func (e *notSentError) Unwrap() error { return e.err }

func notSent(err error) bool {
	_, ok := errors.AsType[*notSentError](err)
	return ok
}

func (a *Appender) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return a.session.Query(stmt, args...).WithContext(ctx).RetryPolicy(attempt.Never{})
}
