package outbox

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
)

var (
	testID        = gocql.UUID{0x01, 0x8f, 1, 2, 3, 4, 0x70, 6, 0x87, 8, 9, 10, 11, 12, 13, 14}
	testAggregate = gocql.UUID{0xab, 0xcd, 1, 2, 3, 4, 0x40, 6, 0x87, 8, 9, 10, 11, 12, 13, 0xff}
)

func testEvent() Event {
	return Event{
		ID: testID, AggregateID: testAggregate, Sequence: 7,
		AggregateType: "order", Type: "OrderCreated",
		Payload:   []byte(`{"id":1}`),
		Headers:   map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "a": "ü"},
		CreatedAt: time.Date(2011, 10, 14, 12, 0, 0, 5e6, time.UTC),
	}
}

// equal compares events; an empty content type is the default one.
func equal(a, b Event) bool {
	if a.ContentType == "" {
		a.ContentType = DefaultContentType
	}
	if b.ContentType == "" {
		b.ContentType = DefaultContentType
	}
	return a.ID == b.ID && a.IDText == b.IDText && a.AggregateText == b.AggregateText && a.AggregateID == b.AggregateID && a.Sequence == b.Sequence &&
		a.AggregateType == b.AggregateType && a.Type == b.Type && string(a.Payload) == string(b.Payload) &&
		a.ContentType == b.ContentType && maps.Equal(a.Headers, b.Headers) &&
		a.CreatedAt.UnixMilli() == b.CreatedAt.UnixMilli() && a.DeliverAt.Equal(b.DeliverAt)
}

func TestEvent_ValidateNamesEveryField(t *testing.T) {
	t.Parallel()
	if e := testEvent(); e.Validate() != nil {
		t.Fatalf("Validate() = %v, want nil", e.Validate())
	}
	tests := []struct {
		name   string
		change func(*Event)
		want   []string
	}{
		{"zero", func(e *Event) { *e = Event{} }, []string{"ID", "AggregateID", "Sequence", "AggregateType", "Type", "CreatedAt"}},
		{"negative sequence", func(e *Event) { e.Sequence = -1 }, []string{"Sequence"}},
		{"control character", func(e *Event) { e.Type = "a\nb" }, []string{"Type"}},
		{"replacement character is text", func(e *Event) { e.Type = "a\uFFFDb" }, nil},
		{"invalid UTF-8", func(e *Event) { e.AggregateType = "\xff" }, []string{"AggregateType"}},
		{"long name", func(e *Event) { e.Type = strings.Repeat("x", MaxNameBytes+1) }, []string{"Type"}},
		{"content type", func(e *Event) { e.ContentType = "a\x00" }, []string{"ContentType"}},
		{"year", func(e *Event) { e.CreatedAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, []string{"CreatedAt"}},
		{"payload too large", func(e *Event) { e.Payload = make([]byte, MaxEventBytes) }, []string{"Payload"}},
		{"reserved header", func(e *Event) { e.Headers = map[string]string{"CE_id": "x"} }, []string{`Headers["CE_id"]`}},
		{"fact of a delivery", func(e *Event) { e.Headers = map[string]string{"Outbox-Attempts": "2"} }, []string{`Headers["Outbox-Attempts"]`}},
		{"content-type header", func(e *Event) { e.Headers = map[string]string{"Content-Type": "x"} }, []string{`Headers["Content-Type"]`}},
		{"empty header key", func(e *Event) { e.Headers = map[string]string{"": "x"} }, []string{`Headers[""]`}},
		{"binary header", func(e *Event) { e.Headers = map[string]string{"k": "\xff"} }, []string{`Headers["k"]`}},
		{"empty payload", func(e *Event) { e.Payload = nil }, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := testEvent()
			tt.change(&e)
			err := e.Validate()
			var got []string
			var bad *InvalidEventError
			if errors.As(err, &bad) {
				for _, f := range bad.Fields {
					got = append(got, f.Field)
					if f.Problem == "" || f.Fix == "" || !strings.Contains(err.Error(), f.Fix) {
						t.Errorf("field %s: problem %q, fix %q, not both in %q", f.Field, f.Problem, f.Fix, err)
					}
				}
			}
			if strings.Join(got, " ") != strings.Join(tt.want, " ") {
				t.Errorf("Validate() names %q, want %q", got, tt.want)
			}
		})
	}
}

func TestAppend_AddsOneStatement(t *testing.T) {
	t.Parallel()
	b := &gocql.Batch{}
	b.Query("INSERT INTO invoices (id) VALUES (?)", 1)
	if err := Append(b, testEvent()); err != nil {
		t.Fatal(err)
	}
	if len(b.Entries) != 2 {
		t.Fatalf("batch has %d statements, want 2", len(b.Entries))
	}
	got := b.Entries[1]
	if want := "INSERT INTO outbox_messages (" + Columns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"; got.Stmt != want {
		t.Errorf("statement = %q, want %q", got.Stmt, want)
	}
	if n := strings.Count(got.Stmt, "?"); n != len(got.Args) {
		t.Errorf("%d arguments for %d markers", len(got.Args), n)
	}
	if got.Args[9] != gocql.UnsetValue {
		t.Errorf("zero DeliverAt is bound to %v, want unset", got.Args[9])
	}
}

func TestAppend_LeavesBatchAloneOnError(t *testing.T) {
	t.Parallel()
	b := &gocql.Batch{}
	err := Append(b, Event{})
	var bad *InvalidEventError
	if !errors.As(err, &bad) || len(b.Entries) != 0 {
		t.Errorf("Append() = %v with %d statements, want *InvalidEventError with none", err, len(b.Entries))
	}
}

func TestTable_Statements(t *testing.T) {
	t.Parallel()
	shop, err := NewTable("shop", "")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		table  Table
		name   string
		suffix string
	}{
		{DefaultTable, "outbox_messages", ")"},
		{shop, "shop.outbox_messages", ")"},
		{shop.WithTTL(48 * time.Hour), "shop.outbox_messages", ") USING TTL 172800"},
		{shop.WithTTL(48 * time.Hour).WithTTL(0), "shop.outbox_messages", ")"},
		{shop.WithTTL(1 << 62), "shop.outbox_messages", ") USING TTL 630720000"},
	}
	for _, tt := range tests {
		b := &gocql.Batch{}
		if err := tt.table.Append(b, testEvent()); err != nil {
			t.Fatal(err)
		}
		stmt := b.Entries[0].Stmt
		if !strings.HasPrefix(stmt, "INSERT INTO "+tt.name+" (") || !strings.HasSuffix(stmt, tt.suffix) {
			t.Errorf("statement = %q, want table %s and end %q", stmt, tt.name, tt.suffix)
		}
		cas, args, err := tt.table.InsertIfNotExists(testEvent())
		if err != nil || !strings.Contains(cas, ") IF NOT EXISTS") || len(args) != 10 {
			t.Errorf("InsertIfNotExists() = %q, %d arguments, %v", cas, len(args), err)
		}
		// The grammar of ScyllaDB requires the condition before USING.
		if i, j := strings.Index(cas, "IF NOT EXISTS"), strings.Index(cas, "USING"); j >= 0 && j < i {
			t.Errorf("USING is before the condition: %q", cas)
		}
	}
	for _, name := range []string{"Upper", "a-b", "1a", strings.Repeat("x", 49), `"q"`} {
		if _, err := NewTable(name, "t"); err == nil {
			t.Errorf("NewTable(%q, …) = nil, want an error", name)
		}
		if _, err := NewTable("", name); err == nil {
			t.Errorf("NewTable(…, %q) = nil, want an error", name)
		}
	}
}

func TestNameID(t *testing.T) {
	t.Parallel()
	first, again := NameID(testID, "a", "b"), NameID(testID, "a", "b")
	if first != again {
		t.Errorf("NameID gave %s, then %s", first, again)
	}
	seen := map[gocql.UUID]bool{}
	for _, names := range [][]string{{"ab", "c"}, {"a", "bc"}, {"abc"}, {"abc", ""}, {}, {""}} {
		id := NameID(testID, names...)
		if seen[id] || id.Version() != 5 {
			t.Errorf("NameID(%q) = %s: seen before, or not version 5", names, id)
		}
		seen[id] = true
	}
	if NameID(testAggregate, "a") == NameID(testID, "a") {
		t.Error("NameID ignores the namespace")
	}
}

func TestNewID_GrowsWithTime(t *testing.T) {
	t.Parallel()
	last := NewID()
	for range 1000 {
		id := NewID()
		if id.String() <= last.String() || id.Version() != 7 {
			t.Fatalf("NewID() = %s after %s, want a later UUIDv7", id, last)
		}
		last = id
	}
}
