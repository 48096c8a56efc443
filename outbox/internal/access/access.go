// Package access gives package rows the unexported parts of package outbox, which it cannot
// import from there.
package access

import (
	"fmt"
	"time"

	"github.com/gocql/gocql"
)

// Outbox is the *Functions[outbox.Table, outbox.Event, outbox.ID, outbox.Mapping] of package
// outbox, which sets it when a program starts.
var Outbox any

// Functions are the functions of package rows that need unexported parts of package outbox: a
// Table T, an Event E, an ID I and a Mapping M. Package rows has their comments.
type Functions[T, E, I, M any] struct {
	Adds             func(t T, r Row) bool
	ByAggregate      func(t T) bool
	BytesToken       func(t T, id []byte) int64
	CheckDelay       func(t T, e *E, written time.Time) error
	Column           func(t T, name string) string
	Columns          func(t T) string
	Decode           func(t T, stmt string, args []any) (e E, ok bool, err error)
	Descending       func(t T) bool
	EventHeader      func(key string) bool
	FromRow          func(t T, r Row) (E, error)
	IDHeaders        func(m M) []string
	NewScanner       func(t T) Scanner[E]
	Outline          func(t T) T
	RowToken         func(t T, r Row) (token int64, ok bool)
	ScanAggregate    func(t T, iter *gocql.Iter) (I, bool)
	SelectAggregates func(t T, after, upTo int64) (stmt string, args []any)
	SelectByKey      func(t T, of *E, from, to int64) (stmt string, args []any)
	SelectByToken    func(t T, after, upTo int64) (stmt string, args []any)
	SelectPartition  func(t T, of *E) (stmt string, args []any, err error)
	TextToken        func(t T, id string) int64
	Token            func(t T, aggregate I) int64
}

// Row is rows.Row.
type Row = interface {
	GetValue(column string) (any, bool)
}

// Scanner is rows.Scanner.
type Scanner[E any] interface {
	Dest() []any
	Event() (E, error)
	Adds() bool
}

// RowError is rows.RowError.
type RowError[E any] struct {
	Column   string
	Problem  string
	Mismatch bool
	Event    E
}

// Error contains the column and the problem.
func (e *RowError[E]) Error() string { return "outbox: column " + e.Column + " " + e.Problem }

// UnknownKeyError is rows.UnknownKeyError.
type UnknownKeyError struct {
	Table, Column string
	Problem       string
}

// Error contains the table, the column and the problem.
func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("outbox table %s: its rows are found by column %s, %s", e.Table, e.Column, e.Problem)
}
