package outbox

import (
	"fmt"
	"time"

	"github.com/gocql/gocql"
)

// Row is a row of the outbox table, or of its CDC log, as scylla-cdc-go's
// ChangeRow gives it: scalar values behind pointers that are nil for null.
type Row interface {
	// GetValue returns a column's value; false means there is no such column.
	GetValue(column string) (any, bool)
}

// FromRow reads an Event from a row that holds all of it: an insert's log row
// (delta full) or a postimage.
//
// The error names the column that is missing, null or of another type. Such a
// row can never become an event, so the error is permanent.
func FromRow(r Row) (Event, error) {
	var e Event
	var err error
	if e.AggregateID, err = required[gocql.UUID](r, "aggregate_id"); err != nil {
		return Event{}, err
	}
	if e.Sequence, err = required[int64](r, "seq"); err != nil {
		return Event{}, err
	}
	if e.ID, err = required[gocql.UUID](r, "event_id"); err != nil {
		return Event{}, err
	}
	if e.AggregateType, err = required[string](r, "aggregate_type"); err != nil {
		return Event{}, err
	}
	if e.Type, err = required[string](r, "event_type"); err != nil {
		return Event{}, err
	}
	if e.CreatedAt, err = required[time.Time](r, "created_at"); err != nil {
		return Event{}, err
	}
	if e.ContentType, err = optional[string](r, "content_type"); err != nil {
		return Event{}, err
	}
	if e.DeliverAt, err = optional[time.Time](r, "deliver_at"); err != nil {
		return Event{}, err
	}
	if e.Payload, err = optional[[]byte](r, "payload"); err != nil {
		return Event{}, err
	}
	if e.Headers, err = optional[map[string]string](r, "headers"); err != nil {
		return Event{}, err
	}
	return e, e.complete()
}

// complete fills in what a row may leave out and refuses what no row may hold.
func (e *Event) complete() error {
	switch {
	case e.ID == (gocql.UUID{}):
		return &RowError{Column: "event_id", Problem: "is null or zero"}
	case e.AggregateID == (gocql.UUID{}):
		return &RowError{Column: "aggregate_id", Problem: "is null or zero"}
	case e.Sequence < 1:
		return &RowError{Column: "seq", Problem: fmt.Sprintf("is %d", e.Sequence)}
	case e.Type == "":
		return &RowError{Column: "event_type", Problem: "is null or empty"}
	}
	if e.ContentType == "" {
		e.ContentType = DefaultContentType
	}
	if len(e.Headers) == 0 {
		e.Headers = nil
	}
	return nil
}

// RowError says why a row is not an event.
type RowError struct {
	Column  string
	Problem string
}

// Error names the column and what is wrong with it.
func (e *RowError) Error() string { return "outbox: column " + e.Column + " " + e.Problem }

func required[T any](r Row, column string) (T, error) {
	v, null, err := columnValue[T](r, column)
	if err == nil && null {
		err = &RowError{Column: column, Problem: "is null"}
	}
	return v, err
}

func optional[T any](r Row, column string) (T, error) {
	v, _, err := columnValue[T](r, column)
	return v, err
}

func columnValue[T any](r Row, column string) (v T, null bool, err error) {
	x, ok := r.GetValue(column)
	if !ok {
		return v, false, &RowError{Column: column, Problem: "is missing: this is not an outbox table"}
	}
	switch x := x.(type) {
	case nil:
		return v, true, nil
	case *T:
		if x == nil {
			return v, true, nil
		}
		return *x, false, nil
	case T:
		return x, false, nil
	}
	return v, false, &RowError{Column: column, Problem: fmt.Sprintf("has type %T, want %T", x, v)}
}

// Scanner reads events from rows of Columns without reflection. It is reused
// from row to row and not safe for concurrent use; the events it returns share
// nothing with it.
type Scanner struct {
	e       Event
	headers headerMap
	dest    [10]any
}

// Dest returns the destinations for Columns, in their order, for Iter.Scan. A
// query that reads more columns appends or prepends its own destinations.
func (s *Scanner) Dest() []any {
	// A scan leaves a destination as it was for no column, and gocql reuses a
	// byte slice that is there already; both must start empty.
	s.e, s.headers = Event{}, nil
	if s.dest[0] == nil {
		s.dest = [10]any{
			&s.e.AggregateID, &s.e.Sequence, &s.e.ID, &s.e.AggregateType, &s.e.Type,
			&s.e.Payload, &s.e.ContentType, &s.headers, &s.e.CreatedAt, &s.e.DeliverAt,
		}
	}
	return s.dest[:]
}

// Event returns the event of the row that was scanned last, or a *RowError.
// It resets the scanner for the next row.
func (s *Scanner) Event() (Event, error) {
	e := s.e
	e.Headers = s.headers
	s.e, s.headers = Event{}, nil
	return e, e.complete()
}
