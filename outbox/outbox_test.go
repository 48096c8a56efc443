package outbox

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
)

var (
	testID        = ID{uuid: gocql.UUID{0x01, 0x8f, 1, 2, 3, 4, 0x70, 6, 0x87, 8, 9, 10, 11, 12, 13, 14}}
	testAggregate = ID{uuid: gocql.UUID{0xab, 0xcd, 1, 2, 3, 4, 0x40, 6, 0x87, 8, 9, 10, 11, 12, 13, 0xff}}
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
	return a.ID == b.ID && a.AggregateID == b.AggregateID && a.Sequence == b.Sequence &&
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
		{"topic header", func(e *Event) { e.Headers = map[string]string{HeaderTopic: "other"} }, []string{`Headers["outbox-topic"]`}},
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
	if want := "INSERT INTO outbox_messages (" + DefaultTable.layout.list + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"; got.Stmt != want {
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
		{shop.WithTTL(maxTTL), "shop.outbox_messages", ") USING TTL 630720000"},
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
		if err != nil || !strings.Contains(cas, ") IF NOT EXISTS") || len(args) != strings.Count(cas, "?") || slices.Contains(args, any(gocql.UnsetValue)) {
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
	first, again := NameID(testID.uuid, "a", "b"), NameID(testID.uuid, "a", "b")
	if first != again {
		t.Errorf("NameID gave %s, then %s", first, again)
	}
	seen := map[ID]bool{}
	for _, names := range [][]string{{"ab", "c"}, {"a", "bc"}, {"abc"}, {"abc", ""}, {}, {""}} {
		id := NameID(testID.uuid, names...)
		if seen[id] || id.uuid.Version() != 5 {
			t.Errorf("NameID(%q) = %s: seen before, or not version 5", names, id)
		}
		seen[id] = true
	}
	if NameID(testAggregate.uuid, "a") == NameID(testID.uuid, "a") {
		t.Error("NameID ignores the namespace")
	}
}

func TestNewID_GrowsWithTime(t *testing.T) {
	t.Parallel()
	last := NewID()
	for range 1000 {
		id := NewID()
		if id.String() <= last.String() || id.uuid.Version() != 7 {
			t.Fatalf("NewID() = %s after %s, want a later UUIDv7", id, last)
		}
		last = id
	}
}

// An id is one value, however it was made, and an argument in the type of its column.
func TestID(t *testing.T) {
	t.Parallel()
	const canonical = "abcd0102-0304-4006-8708-090a0b0c0dff"
	for _, same := range [][2]ID{
		{testAggregate, IDFromText(canonical)},
		{testAggregate, IDFromUUID([16]byte(testAggregate.UUID()))},
		{IDFromInt(-7), IDFromText("-7")},
		{ID{}, IDFromText("")},
		{ID{}, IDFromUUID(gocql.UUID{})},
	} {
		if same[0] != same[1] || same[0].String() != same[1].String() || same[0].UUID() != same[1].UUID() {
			t.Errorf("%v is not %v", same[0], same[1])
		}
	}
	for _, tt := range []struct {
		id                   ID
		text                 string
		uuid, zero           bool
		fits, fitsNot, other columnType
	}{
		{testAggregate, canonical, true, false, typeUUID, typeBigint, typeText},
		{IDFromText("order 7"), "order 7", false, false, typeText, typeUUID, ""},
		{IDFromText(strings.ToUpper(canonical)), strings.ToUpper(canonical), false, false, typeText, typeTimeUUID, ""},
		{IDFromInt(1 << 40), "1099511627776", false, false, typeBigint, typeInt, typeText},
		{IDFromInt(-7), "-7", false, false, typeInt, typeUUID, typeText},
		{IDFromInt(-7), "-7", false, false, typeInt, typeTextMap, ""},
	} {
		if tt.id.String() != tt.text || tt.id.IsUUID() != tt.uuid || tt.id.IsZero() != tt.zero {
			t.Errorf("%q: IsUUID() = %t, IsZero() = %t", tt.id, tt.id.IsUUID(), tt.id.IsZero())
		}
		if text, err := tt.id.MarshalText(); err != nil || string(text) != tt.text {
			t.Errorf("MarshalText() = %s, %v, want %s", text, err, tt.text)
		}
		for _, typ := range []columnType{tt.fits, tt.other} {
			if typ == "" {
				continue
			}
			data, err := gocql.Marshal(cqlType(t, typ), tt.id)
			var got ID
			if again := gocql.Unmarshal(cqlType(t, typ), data, &got); err != nil || again != nil || got != tt.id {
				t.Errorf("%s through a %s: %v, %v, %v", tt.id, typ, got, err, again)
			}
		}
		if _, err := gocql.Marshal(cqlType(t, tt.fitsNot), tt.id); err == nil || !strings.Contains(err.Error(), "column of type") {
			t.Errorf("%s in a %s: %v, want an error", tt.id, tt.fitsNot, err)
		}
	}
	got := testID
	if data, err := gocql.Marshal(cqlType(t, typeUUID), ID{}); data != nil || err != nil {
		t.Errorf("the zero id is stored as %v, %v, want null", data, err)
	} else if err := gocql.Unmarshal(cqlType(t, typeUUID), nil, &got); err != nil || !got.IsZero() {
		t.Errorf("null is read as %v, %v", got, err)
	}
}
