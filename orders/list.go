package orders

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// Bounds of a page of List.
const (
	DefaultPageSize = 50
	MaxPageSize     = 100
)

// Summary is an order as a list shows it.
type Summary struct {
	ID        gocql.UUID `json:"id" format:"uuid" doc:"The order's id"`
	Version   int64      `json:"version" doc:"Counts the changes, 1 when created"`
	Status    Status     `json:"status" enum:"placed,confirmed,shipped,cancelled"`
	Invoice   string     `json:"invoice,omitempty" doc:"The caller's own reference"`
	Country   string     `json:"country"`
	PlacedAt  time.Time  `json:"placed_at"`
	Currency  string     `json:"currency" doc:"ISO 4217"`
	Total     Money      `json:"total" doc:"Sum of quantity times unit price"`
	Lines     int        `json:"lines" doc:"Number of lines"`
	CreatedAt time.Time  `json:"created_at"`
	UpdatedAt time.Time  `json:"updated_at"`
}

// ListQuery selects orders.
type ListQuery struct {
	// CustomerID is the customer of the orders; orders of guests are not listed.
	CustomerID string
	// Since and Until bound the time an order was placed, Since included and Until not;
	// nil does not.
	Since, Until *time.Time
	// Limit is the maximum page size; zero means DefaultPageSize. At most
	// MaxPageSize.
	Limit int
	// Cursor is Page.Next of the previous page, with the same other fields; empty
	// for the first.
	Cursor string
}

// Page is a part of a list.
type Page struct {
	Orders []Summary
	// Next is the cursor of the next page; empty on the last page.
	Next string
}

// List returns the orders of a customer by the time they were placed, newest
// first. Orders that are added or removed between two pages do not cause other
// orders to be repeated or omitted.
//
// List reads the list tables only: an order whose writer failed between
// deciding and applying a change is returned in its old state until the order
// is read. Errors are *InvalidError, *OverloadedError and *UnavailableError.
func (s *Service) List(ctx context.Context, q ListQuery) (Page, error) {
	start, err := q.start()
	if err != nil {
		return Page{}, err
	}
	_, leave, err := s.guard.Enter(ctx, 1)
	if err != nil {
		return Page{}, err
	}
	defer leave()
	limit := cmp.Or(q.Limit, DefaultPageSize)
	first := 0
	if q.Since != nil {
		first = monthPartition(*q.Since)
	}
	months, err := s.store.months(ctx, q.CustomerID, first, monthPartition(start.at), limit+2)
	if err != nil {
		return Page{}, s.unavailable(ctx, gocql.UUID{}, false, err)
	}
	var p Page
	for _, month := range months {
		rows, err := s.store.listMonth(ctx, q.CustomerID, month, start, limit+1-len(p.Orders))
		if err != nil {
			return Page{}, s.unavailable(ctx, gocql.UUID{}, false, err)
		}
		for i := range rows {
			switch {
			case q.Since != nil && rows[i].PlacedAt.Before(*q.Since):
				return p, nil
			case len(p.Orders) == limit:
				last := &p.Orders[limit-1]
				p.Next = cursor{last.PlacedAt, last.ID}.String()
				return p, nil
			}
			p.Orders = append(p.Orders, rows[i])
		}
	}
	return p, nil
}

// endOfTime is after every order: years have four digits.
var endOfTime = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

// start returns the start of the page, or an *InvalidError.
func (q *ListQuery) start() (cursor, error) {
	var bad InvalidError
	checkText(&bad, "query.customer_id", q.CustomerID, 1, MaxReference)
	checkTime(&bad, "query.since", q.Since)
	checkTime(&bad, "query.until", q.Until)
	if q.Limit < 0 || q.Limit > MaxPageSize {
		bad.Add("query.limit", fmt.Sprintf("must be from 1 to %d", MaxPageSize))
	}
	c := cursor{at: endOfTime}
	if q.Until != nil {
		c.at = millis(q.Until.Add(time.Millisecond - 1)) // rounded up: the part of the millisecond before Until is included
	}
	if q.Cursor != "" {
		got, err := parseCursor(q.Cursor)
		if err != nil {
			bad.Add("query.cursor", httpapi.ProblemCursor)
		} else if got.at.Before(c.at) {
			c = got
		}
	}
	return c, bad.OrNil()
}

// cursor is a position in a list: older orders follow, and at the same time
// those with a smaller id.
type cursor struct {
	at time.Time
	id gocql.UUID
}

// String is the form in which callers get it.
func (c cursor) String() string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 24), uint64(c.at.UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(append(b, c.id[:]...))
}

var errCursor = errors.New("orders: no cursor")

func parseCursor(s string) (cursor, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != 24 {
		return cursor{}, errCursor
	}
	// No order is outside of these years; a month would not fit its column.
	ms := min(max(int64(binary.BigEndian.Uint64(b)), time.Time{}.UnixMilli()), endOfTime.UnixMilli())
	c := cursor{at: time.UnixMilli(ms).UTC()}
	copy(c.id[:], b[8:])
	return c, nil
}

// monthPartition is the partition of an order placed at t.
func monthPartition(t time.Time) int {
	t = t.UTC()
	return t.Year()*100 + int(t.Month())
}
