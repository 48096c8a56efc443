package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// maxRows is the number of rows of a partition that are read.
const maxRows = 10_000

// searchRows searches the outbox tables for the event's row, by what is known of the
// event so far. Errors of tables are added to noRow.
func (b *biographer) searchRows(ctx context.Context) bool {
	b.noRow = nil
	missing := func(format string, args ...any) { b.noRow = append(b.noRow, fmt.Sprintf(format, args...)) }
	looked := false
	var unsearched []string
	for _, table := range b.tables {
		if b.deadLetter != nil && b.deadLetter.Table != table.String() {
			continue
		}
		found, err := b.searchTable(ctx, table)
		unknown, byUnknown := errors.AsType[*rows.UnknownKeyError](err)
		switch {
		case found:
			return true
		case byUnknown && b.body.AggregateID == "":
			unsearched = append(unsearched, table.String())
		case byUnknown:
			missing("Its row was not searched in %s: a search needs column %s, %s.", table, unknown.Column, unknown.Problem)
		case errors.Is(err, errManyRows):
			missing("Only the first %d rows of its partition of %s were read.", maxRows, table)
		case err != nil:
			missing("%s was not read: %v.", table, err)
		default:
			looked = true
		}
	}
	if len(unsearched) > 0 {
		missing("Its row was not searched in %s, because the aggregate is unknown: add ?aggregate_id=.", strings.Join(unsearched, ", "))
	}
	if looked {
		missing("It has no outbox row: it was never stored, or its TTL has expired.")
	}
	if b.deadLetter != nil && b.noRow == nil {
		missing("Its outbox row was not searched: table %s is unknown to this server.", b.deadLetter.Table)
	}
	return false
}

var errManyRows = errors.New("too many rows")

// searchTable searches a table for the event's row.
func (b *biographer) searchTable(ctx context.Context, of Table) (found bool, err error) {
	e := b.sought()
	err = b.readPartition(ctx, of, &e, func(row *storedRow) bool {
		if found = row.ID.UUID() == e.ID.UUID(); found { // that of a text may be what is known of it
			b.addRowStep(row)
		}
		return !found
	})
	if found {
		return true, nil
	}
	return false, err
}

// storedRow is a row of an outbox table without its content. One that is not an event has its
// readable columns, including its id.
type storedRow struct {
	outbox.Event
	table        string
	written, ttl int64
	bad          error // why it is not an event
}

// readPartition calls each for the rows of the partition of an event until it returns false. The error
// is errManyRows if there are more than the first maxRows.
func (b *biographySources) readPartition(ctx context.Context, of Table, e *outbox.Event, each func(*storedRow) bool) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	columns, err := outbox.ReadColumns(ctx, b.session, of.Keyspace, of.Name)
	if err != nil {
		return err
	}
	if len(columns) == 0 {
		return errors.New("there is no such table")
	}
	table, err := of.Mapping.Table(of.Keyspace, of.Name, columns)
	if err != nil {
		return err
	}
	table = rows.Outline(table)
	stmt, args, err := rows.SelectPartition(table, e)
	if err != nil || stmt == "" {
		return err
	}
	iter := b.session.Query(stmt+" LIMIT ?", append(args, maxRows)...).WithContext(ctx).Idempotent(true).Iter()
	scanner := rows.NewScanner(table)
	row := storedRow{table: table.String()}
	n, more := 0, true
	for more && iter.Scan(append([]any{&row.written, &row.ttl}, scanner.Dest()...)...) {
		n++
		row.Event, row.bad = scanner.Event()
		more = each(&row)
	}
	if err := iter.Close(); err != nil {
		return fmt.Errorf("read its rows: %w", err)
	}
	if more && n == maxRows {
		return errManyRows
	}
	return nil
}

// sought returns the known columns of the event whose row is searched.
func (b *biographer) sought() outbox.Event {
	e := outbox.Event{Sequence: b.body.Sequence, Type: b.body.EventType, AggregateType: b.aggregateType}
	e.ID = outbox.IDFromText(cmp.Or(b.body.EditOf, b.text)) // of an edit the row is that of the original
	if b.deadLetter != nil {
		e.ID, e.AggregateType = outbox.IDFromUUID(b.deadLetter.EventID), b.deadLetter.AggregateType
		if text := b.deadLetter.Metadata["id_text"]; text != "" {
			e.ID = outbox.IDFromText(text)
		}
	}
	e.AggregateID = outbox.IDFromText(b.body.AggregateID)
	return e
}

// addRowStep adds the step of the event's row.
func (b *biographer) addRowStep(row *storedRow) {
	b.body.AggregateID, b.body.EventType, b.body.Sequence = row.AggregateID.String(), row.Type, row.Sequence
	st := BiographyStep{Kind: "stored", What: "stored", Source: "outbox row in " + row.table, At: row.at()}
	if st.At != nil {
		b.at = *st.At
	}
	if st.Detail = row.Type; row.Sequence > 0 {
		st.Detail += fmt.Sprintf(", sequence %d", row.Sequence)
	}
	st.Detail += fmt.Sprintf(" of %s %s", row.AggregateType, row.AggregateID.String())
	if !row.CreatedAt.IsZero() {
		st.Detail += "; created at " + row.CreatedAt.UTC().Format(time.RFC3339Nano)
	}
	st.Detail += row.state()
	b.add(st)
}

// at returns the time when the row was written, in the precision of records; nil if it is unknown.
func (r *storedRow) at() *time.Time {
	if r.written <= 0 {
		return nil
	}
	return when(time.UnixMicro(r.written).Truncate(time.Millisecond))
}

// state returns when the row expires, and why it is not an event.
func (r *storedRow) state() (text string) {
	if r.ttl > 0 {
		text += "; the row expires at " + time.Now().Add(time.Duration(r.ttl)*time.Second).UTC().Format(time.RFC3339)
	}
	if r.bad != nil {
		text += fmt.Sprintf("; not an event: %v", r.bad)
	}
	return text
}
