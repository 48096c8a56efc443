package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"
)

// Defaults of FenceConfig.
const (
	DefaultColumn      = "applied_seq"
	DefaultIDColumn    = "applied_id"
	DefaultEpochColumn = "applied_epoch"
)

// maxTTL is the maximum of CQL: 20 years of 365 days.
const maxTTL = 630_720_000 * time.Second

// FenceConfig configures a Fence. Only Table is required.
type FenceConfig struct {
	// Keyspace and Table are the consumer's own table, as the schema stores their
	// names. The partitions of the table are the aggregates. An empty Keyspace
	// means that of the session.
	Keyspace, Table string
	// Column is the column of the mark, of type bigint: static, or regular in a
	// table without clustering columns. Default DefaultColumn.
	Column string
	// IDColumn is a column of type text, of the same kind as Column, for the id of the last
	// applied event. Where the table has it, Apply distinguishes a repeated event from
	// another one with the same number. Default DefaultIDColumn, if the table has it and Column is
	// DefaultColumn.
	IDColumn string
	// EpochColumn is a column of type bigint, of the same kind as Column, for the epoch of the last
	// applied event. Without it Apply refuses events with an Epoch. Default DefaultEpochColumn, if
	// the table has it and Column is DefaultColumn.
	EpochColumn string
	// Order defines which event may follow which. Default FromOne.
	Order Order
	// TTL is how long a mark is kept after the last event of its aggregate, in
	// whole seconds. It must exceed the time after which an event can still be
	// delivered. It needs FromAny or Increasing: with FromOne the next event of an
	// aggregate without a mark would wait for event 1 for ever. Default 0: no TTL,
	// also in a table with default_time_to_live.
	TTL time.Duration
	// LocalSerial limits the agreement to the data center of the session
	// (LOCAL_SERIAL). All processes that write to the table must then be in it.
	LocalSerial bool
}

// Order defines which event of an aggregate may follow which.
type Order int

const (
	// FromOne applies events 1, 2, 3 …; every other event is a gap.
	FromOne Order = iota
	// FromAny applies any event first, and then each next number. It is for
	// consumers that do not begin at the start of the topics. Events that are
	// delivered later and precede the first one count as duplicates.
	FromAny
	// Increasing applies every event whose number is larger than that of the last
	// one. It is for consumers that read some of an aggregate's events only, for
	// example one of several topics. It detects no gaps: an event that is
	// delivered after a later one counts as a duplicate, and its effect is lost.
	Increasing
)

// Outcome is the result of Apply.
type Outcome int

const (
	// Unknown is the Outcome of a call that returns an error.
	Unknown Outcome = iota
	// Applied: this call applied the effect. If the response of the database was
	// lost, another delivery of the same event may have applied it instead.
	Applied
	// Duplicate: the effect was applied before this call, or it is obsolete: the last applied
	// event is of a later epoch.
	Duplicate
)

// String returns the name of the outcome, for logs and metrics.
func (o Outcome) String() string {
	switch o {
	case Applied:
		return "applied"
	case Duplicate:
		return "duplicate"
	}
	return "unknown"
}

// GapError reports that earlier events of the aggregate are missing. Apply has
// changed nothing.
type GapError struct {
	// Table and Key are the partition.
	Table string
	Key   Key
	// Want is the number that must come next: 1, or that after the last applied event.
	Want int64
	// Sequence is the number of the refused event.
	Sequence int64
}

// Error implements error.
func (e *GapError) Error() string {
	return fmt.Sprintf("inbox: event %d of %s %v: event %d must come first; deliver that event, or pass over missing events with Skip", e.Sequence, e.Table, e.Key, e.Want)
}

// ConflictError reports that another event with the same number and epoch was applied: the source
// has given the number twice, as two writers that overwrite each other do, or a source that was
// restored from a backup and has not begun an epoch. Apply has changed nothing.
type ConflictError struct {
	// Table is that of the fence, Event the refused event.
	Table string
	Event Event
	// Applied is the id of the event that was applied.
	Applied string
}

// Error implements error.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("inbox: event %d of %s %v has the id %s, and the applied one has the id %s: find out which of both the source contains before you continue, or pass over it with Skip; if its database was restored, outbox schema new-epoch begins an epoch",
		e.Event.Sequence, e.Table, e.Event.Key, e.Event.ID, e.Applied)
}

// ErrCondition is returned by Apply if a statement of the effect has a condition
// that is not satisfied. Neither the effect nor the mark is applied.
var ErrCondition = errors.New("a condition of the effect is not satisfied")

// Key is the partition key of an aggregate: a value for each of its columns, in
// their order, of types that gocql converts to the types of the columns. The
// text form of a UUID is accepted for uuid.
type Key []any

// Event identifies an event of a source.
type Event struct {
	// Key is the aggregate.
	Key Key
	// Sequence is the event's number in it.
	Sequence int64
	// Epoch is the event's epoch: outbox.Record has it. It is compared before Sequence, because
	// the numbers of a source begin again in an epoch.
	Epoch int64
	// ID is the event's id, for the IDColumn. Without it a repeated number is a duplicate.
	ID string
}

// Fence applies the events of aggregates once and in order. It has no state in
// memory and is safe for concurrent use, also by several processes.
type Fence struct {
	session *gocql.Session
	table   *table
	cfg     FenceConfig
	keys    []string

	equal, less, read string // statements
}

// NewFence returns a fence over the table of cfg. It reads the schema, and
// returns an error with the fix, such as the ALTER TABLE statement, if the table
// cannot contain the mark.
func NewFence(ctx context.Context, session *gocql.Session, cfg FenceConfig) (*Fence, error) {
	cfg.Column = cmp.Or(cfg.Column, DefaultColumn)
	if cfg.Order < FromOne || cfg.Order > Increasing {
		return nil, fmt.Errorf("inbox: FenceConfig.Order %d is unknown: use FromOne, FromAny or Increasing", cfg.Order)
	}
	if cfg.TTL < 0 || cfg.TTL > maxTTL || cfg.TTL%time.Second != 0 {
		return nil, fmt.Errorf("inbox: FenceConfig.TTL %s: use whole seconds, at most %s; 0 keeps marks for ever", cfg.TTL, maxTTL)
	}
	if cfg.TTL > 0 && cfg.Order == FromOne {
		return nil, fmt.Errorf("inbox: FenceConfig.TTL %s: an aggregate whose mark has expired would wait for event 1; set Order to FromAny or Increasing, or TTL to 0", cfg.TTL)
	}
	t, err := describe(ctx, session, "FenceConfig", cfg.Keyspace, cfg.Table)
	if err != nil {
		return nil, err
	}
	if err := t.checkMark(cfg.Column); err != nil {
		return nil, err
	}
	for _, c := range []struct {
		setting, preset, typ string
		name                 *string
	}{{"IDColumn", DefaultIDColumn, "text", &cfg.IDColumn}, {"EpochColumn", DefaultEpochColumn, "bigint", &cfg.EpochColumn}} {
		// The mark of another source has columns of its own.
		if _, ok := t.columns[c.preset]; ok && cfg.Column == DefaultColumn {
			*c.name = cmp.Or(*c.name, c.preset)
		}
		if *c.name == "" {
			continue
		}
		if err := t.checkColumn(c.setting, *c.name, c.typ); err != nil {
			return nil, err
		}
	}
	f := &Fence{session: session, table: t, cfg: cfg, keys: t.of(kindKey)}
	f.prepare()
	return f, nil
}

// usable returns the error of a Fence that NewFence has not made.
func (f *Fence) usable() error {
	if f == nil || f.session == nil {
		return errors.New("inbox: the Fence is its zero value: use NewFence")
	}
	return nil
}

// checkMark reports why the column cannot contain the mark.
func (t *table) checkMark(name string) error {
	if len(t.columns) == 0 {
		return fmt.Errorf("inbox: FenceConfig.Table: %s does not exist: create it, or name the consumer's own table", t)
	}
	return t.checkColumn("Column", name, "bigint")
}

// checkColumn reports why a column cannot contain what a setting of FenceConfig names.
func (t *table) checkColumn(setting, name, typ string) error {
	want := t.markKind()
	c, ok := t.columns[name]
	switch {
	case !ok:
		return fmt.Errorf("inbox: FenceConfig.%s: %s has no column %s; run %s", setting, t, plain(name), t.add(name, typ))
	case c.kind != want || c.typ != typ:
		other := name + "_mark"
		return fmt.Errorf("inbox: FenceConfig.%s: %s of %s is a %s column of type %s, and must be %s of type %s; run %s and set %s to %q",
			setting, plain(name), t, c.kind, c.typ, want, typ, t.add(other, typ), setting, other)
	}
	return nil
}

// markKind is the kind of a column that each partition has once.
func (t *table) markKind() string {
	if len(t.of(kindClustering)) > 0 {
		return kindStatic
	}
	return kindRegular
}

// add returns the statement that adds a column that each partition has once.
func (t *table) add(name, typ string) string {
	if t.markKind() == kindStatic {
		typ += " static"
	}
	return fmt.Sprintf("ALTER TABLE %s ADD %s %s", t, plain(name), typ)
}

// prepare writes the statements. The driver takes the routing of a batch from its
// first statement, so it has the key.
func (f *Fence) prepare() {
	var key, list strings.Builder
	for i, k := range f.keys {
		if i > 0 {
			key.WriteString(" AND ")
		}
		key.WriteString(quote(k) + " = ?")
		list.WriteString(quote(k) + ", ")
	}
	mark := quote(f.cfg.Column)
	columns, epoch := []string{mark}, ""
	if f.cfg.EpochColumn != "" {
		columns = append(columns, quote(f.cfg.EpochColumn))
		epoch = " AND " + columns[1] + " = ?"
	}
	if f.cfg.IDColumn != "" {
		columns = append(columns, quote(f.cfg.IDColumn))
	}
	// TTL 0 overrides default_time_to_live.
	update := fmt.Sprintf("UPDATE %s USING TTL %d SET %s = ? WHERE %s IF %s", f.table.cql(), f.cfg.TTL/time.Second, strings.Join(columns, " = ?, "), key.String(), mark)
	f.equal, f.less = update+" = ?"+epoch, update+" < ?"+epoch
	// DISTINCT reads no rows of the partition, however many there are.
	f.read = "SELECT DISTINCT " + list.String()
	if f.table.columns[f.cfg.Column].kind == kindRegular {
		f.read = "SELECT "
	}
	f.read += strings.Join(columns, ", ") + " FROM " + f.table.cql() + " WHERE " + key.String()
}

// Apply applies the effect of an event, unless it was applied before. effect adds its statements
// to b; Apply calls it once and executes them with the update of the mark, in one conditional
// batch, at the consistency of the session. Everything else that effect sets in b is ignored; a
// nil effect, or one without statements, changes the mark only. An error of effect is returned
// and changes nothing.
//
// Apply returns Applied or Duplicate; both mean that the offset of the event may
// be committed. It returns a *GapError if earlier events are missing, a *ConflictError if
// another event with this number and epoch was the last one that was applied, and ErrCondition if
// the effect has a condition of its own that is not satisfied.
//
// The first event of a later epoch is applied after any event, also if its number was given
// before, but not if an earlier number is missing.
//
// After a timeout the outcome is unknown. Apply then reads the mark at the serial
// consistency and retries with pauses, until ctx ends, at most ten times; repetition cannot
// apply an effect twice. After any error the event can be delivered again.
func (f *Fence) Apply(ctx context.Context, e Event, effect func(b *gocql.Batch) error) (Outcome, error) {
	if err := f.usable(); err != nil {
		return Unknown, err
	}
	s := step{Event: e, order: f.cfg.Order}
	if effect != nil {
		b := f.session.NewBatch(gocql.LoggedBatch)
		if err := effect(b); err != nil {
			return Unknown, err
		}
		s.entries = b.Entries
	}
	return f.advance(ctx, s)
}

// Skip passes over the events of an aggregate up to e: they count as applied, without an effect.
// It is for events that will never be delivered, such as discarded dead letters, and for
// aggregates whose state comes from a snapshot. A mark that is already as high stays.
func (f *Fence) Skip(ctx context.Context, e Event) error {
	if err := f.usable(); err != nil {
		return err
	}
	_, err := f.advance(ctx, step{Event: e, order: Increasing})
	return err
}

// Last returns the last applied event of an aggregate, with Sequence 0 if there is none; Epoch
// and ID need their columns. It reads at the serial consistency, so that it includes every effect
// that a call of Apply has reported.
func (f *Fence) Last(ctx context.Context, key Key) (Event, error) {
	if err := f.usable(); err != nil {
		return Event{}, err
	}
	if err := f.checkKey(key); err != nil {
		return Event{}, err
	}
	have, id, err := f.last(ctx, key)
	if err != nil {
		return Event{}, fmt.Errorf("inbox: read the mark of %s %v: %w", f.table, key, err)
	}
	e := Event{Key: slices.Clone(key), ID: id}
	e.Sequence, e.Epoch, _ = have.last()
	return e, nil
}

// check refuses an event that no partition can have.
func (f *Fence) check(e *Event) error {
	if err := f.checkKey(e.Key); err != nil {
		return err
	}
	problem := ""
	switch {
	case e.Sequence < 1:
		problem = "numbers begin at 1; use Once for events without numbers"
	case e.Epoch < 0:
		problem = fmt.Sprintf("its epoch is %d", e.Epoch)
	case e.Epoch > 0 && f.cfg.EpochColumn == "":
		column, and := DefaultEpochColumn, "restart"
		if f.cfg.Column != DefaultColumn {
			column = f.cfg.Column + "_epoch"
			and = fmt.Sprintf("set EpochColumn to %q", column)
		}
		problem = fmt.Sprintf("it is of epoch %d, and the mark has no column for epochs: run %s and %s", e.Epoch, f.table.add(column, "bigint"), and)
	default:
		return nil
	}
	return fmt.Errorf("inbox: event %d of %s %v: %s", e.Sequence, f.table, e.Key, problem)
}

// checkKey refuses a key that no partition has. gocql's error for the text of a
// UUID cannot be distinguished from an unknown outcome.
func (f *Fence) checkKey(key Key) error {
	if len(key) != len(f.keys) {
		return fmt.Errorf("inbox: the key %v has %d values: %s needs %d (%s)", key, len(key), f.table, len(f.keys), strings.Join(f.keys, ", "))
	}
	for i, k := range f.keys {
		text, ok := key[i].(string)
		if id, is := key[i].(fmt.Stringer); is { // outbox.ID, or a UUID of any package
			text, ok = id.String(), true
		}
		if typ := f.table.columns[k].typ; !ok || typ != "uuid" && typ != "timeuuid" {
			continue
		}
		if _, err := gocql.ParseUUID(text); err != nil {
			return fmt.Errorf("inbox: the key %v: column %s of %s is a UUID: %w", key, plain(k), f.table, err)
		}
	}
	return nil
}
