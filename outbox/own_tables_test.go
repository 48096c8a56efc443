package outbox

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"gopkg.in/inf.v0"
)

// shop is a table as services have it: a tenant before the order, names with capitals, headers
// as JSON, a number and a text for times, a topic and a key of their own.
func shop() []Column {
	return columns("tenant text is "+KindPartitionKey, "orderId bigint is "+KindPartitionKey, "n int is "+KindClustering,
		"eventId uuid", "kind text", "body text", "meta text", "at bigint", "due text", "topic text", "route text",
		"ok boolean", "tiny tinyint", "level smallint", "price decimal", "seen timestamp")
}

var shopMapping = Mapping{
	Columns: map[string]string{
		"aggregate_id": "tenant, orderId", "seq": "n", "event_id": "eventId", "event_type": "kind", "payload": "body",
		"headers": "meta", "created_at": "at", "deliver_at": "due",
	},
	AggregateType: "order",
	RecordHeaders: map[string]string{
		HeaderTopic: "topic", HeaderPartitionKey: "route", "ok": "ok", "tiny": "tiny", "level": "level", "price": "price", "seen": "seen",
	},
}

// A row of such a table is read by both readers of the relay, and what Append writes is read
// back.
func TestMapping_TableOfAService(t *testing.T) {
	t.Parallel()
	table, err := shopMapping.Table("shop", "orders", shop())
	if err != nil {
		t.Fatal(err)
	}
	at := time.UnixMilli(1_700_000_000_123).UTC()
	n := func(t gocql.Type) gocql.TypeInfo { return gocql.NewNativeType(4, t, "") }
	cells, raw := make(cells), make(map[string][]byte)
	for name, c := range map[string]struct {
		info gocql.TypeInfo
		v    any
	}{
		"tenant": {n(gocql.TypeVarchar), "acme"}, "orderId": {n(gocql.TypeBigInt), int64(42)}, "n": {n(gocql.TypeInt), 7},
		"eventId": {n(gocql.TypeUUID), testID.uuid}, "kind": {n(gocql.TypeVarchar), "Placed"}, "body": {n(gocql.TypeVarchar), "{}"},
		"meta": {n(gocql.TypeVarchar), `{"traceparent":"x","n":3,"none":null,"outbox-topic":"of the row"}`},
		"at":   {n(gocql.TypeBigInt), at.UnixMicro()}, "due": {n(gocql.TypeVarchar), "2023-11-14T23:13:20.123+01:00"},
		"topic": {n(gocql.TypeVarchar), "placed"}, "route": {n(gocql.TypeVarchar), "eu"},
		"ok": {n(gocql.TypeBoolean), true}, "tiny": {n(gocql.TypeTinyInt), int8(-3)}, "level": {n(gocql.TypeSmallInt), int16(-300)},
		"price": {n(gocql.TypeDecimal), inf.NewDec(-1250, 2)}, "seen": {n(gocql.TypeTimestamp), at},
	} {
		data, err := gocql.Marshal(c.info, c.v)
		if err != nil {
			t.Fatal(err)
		}
		v, err := c.info.NewWithError()
		if err != nil {
			t.Fatal(err)
		}
		if err := gocql.Unmarshal(c.info, data, v); err != nil {
			t.Fatal(err)
		}
		cells[name], raw[name] = v, data
	}
	want := Event{
		ID: testID, AggregateID: IDFromText("acme:42"), Sequence: 7, AggregateType: "order", Type: "Placed", Payload: []byte("{}"), ContentType: DefaultContentType,
		CreatedAt: at, DeliverAt: at, Headers: map[string]string{
			"traceparent": "x", "n": "3", HeaderTopic: "placed", HeaderPartitionKey: "eu",
			"ok": "true", "tiny": "-3", "level": "-300", "price": "-12.50", "seen": "2023-11-14T22:13:20.123Z",
		},
	}
	scan := func() (Event, error) {
		s := table.scanner()
		dest := s.Dest()
		names := strings.Split(table.layout.list, ", ")
		if len(names) != len(dest) {
			t.Fatalf("%d destinations for %s", len(dest), table.layout.list)
		}
		for i, name := range names {
			name = strings.Trim(name, `"`)
			info := gocql.TypeInfo(n(gocql.TypeVarchar))
			if name == "price" {
				info = n(gocql.TypeDecimal)
			}
			switch d := dest[i].(type) {
			case gocql.Unmarshaler:
				err = d.UnmarshalCQL(info, raw[name])
			case *gocql.UUID:
				*d = gocql.UUID(raw[name])
			case *string:
				*d = string(raw[name])
			case *[]byte:
				*d = raw[name]
			default:
				t.Fatalf("column %s has the destination %T", name, d)
			}
			if err != nil {
				t.Fatalf("column %s: %v", name, err)
			}
		}
		return s.Event()
	}
	for name, read := range map[string]func() (Event, error){"tail": scan, "sweep": func() (Event, error) { return table.fromRow(cells) }} {
		got, err := read()
		if err != nil || !equal(got, want) || !got.DeliverAt.Equal(at) || string(got.Key()) != "eu" {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}

	b := &gocql.Batch{}
	stored := want
	stored.DeliverAt = time.Time{}
	stored.CreatedAt = time.Now().UTC().Truncate(time.Millisecond)
	stored.Headers = map[string]string{"traceparent": "x"}
	if err := table.Append(b, stored); err != nil {
		t.Fatal(err)
	}
	hidden := stored
	hidden.Headers = map[string]string{HeaderTopic: "other"}
	if err := table.Append(&gocql.Batch{}, hidden); err == nil || !strings.Contains(err.Error(), `Headers["outbox-topic"]`) {
		t.Errorf("Append() of a topic in the headers = %v, want the header named", err)
	}
	back, ok, err := table.decode(b.Entries[0].Stmt, b.Entries[0].Args)
	if err != nil || !ok || !equal(back, stored) {
		t.Errorf("%s reads as %+v, %t, %v, want %+v", b.Entries[0].Stmt, back, ok, err, stored)
	}
	stmt, args := table.selectByKey(&want, 1, 9)
	if !strings.Contains(stmt, `WHERE "tenant" = ? AND "orderId" = ? AND "n" >= ?`) || !slices.Equal(args, []any{"acme", int64(42), int64(1), int64(9)}) {
		t.Errorf("selectByKey() = %s %v", stmt, args)
	}
	if stmt, _ := table.selectAggregates(0, 1); !strings.Contains(stmt, `SELECT DISTINCT "tenant", "orderId" FROM shop.orders WHERE token("tenant", "orderId") > ?`) {
		t.Errorf("selectAggregates() = %s", stmt)
	}
	if stmt, args, err := table.selectPartition(&want); err != nil || !strings.Contains(stmt, `"tenant" = ? AND "orderId" = ? AND "n" = ?`) || !slices.Equal(args, []any{"acme", int64(42), int64(7)}) {
		t.Errorf("selectPartition() = %s %v, %v", stmt, args, err)
	}
	for _, id := range []ID{IDFromText("acme"), IDFromText("acme:x"), testAggregate} {
		bad := want
		bad.AggregateID = id
		if err := table.Append(b, bad); err == nil || !strings.Contains(err.Error(), "does not fit the columns tenant, orderId") {
			t.Errorf("Append() of aggregate %s: %v", id, err)
		}
		if stmt, _, err := table.selectPartition(&bad); stmt != "" || err != nil {
			t.Errorf("aggregate %s is searched in the table: %s, %v", id, stmt, err)
		}
	}
	outline := table.outline()
	if names := outline.layout.headers; len(names) != 1 || names[0].key != HeaderTopic {
		t.Errorf("the outline has the record headers %v, want the topic, by which a verification finds the record", names)
	}
}

// A value that is no headers, no time, or no part of an aggregate names its column.
func TestMapping_ValuesOfAServiceThatAreNone(t *testing.T) {
	t.Parallel()
	table, err := shopMapping.Table("shop", "orders", shop())
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		value  any
		column string
		want   string
	}{
		"headers in a list":  {ptr(`["a"]`), "meta", "is no JSON object"},
		"a time in words":    {ptr("tomorrow"), "due", "write times as RFC 3339 has them"},
		"a tenant with part": {ptr("ac:me"), "tenant", "contains :, which separates it"},
		"no tenant":          {ptr(""), "tenant, orderId", "is null or zero"},
	} {
		row := cells{
			"tenant": ptr("acme"), "orderId": ptr(int64(42)), "n": ptr(7), "eventId": ptr(testID.uuid), "kind": ptr("Placed"), "body": ptr("{}"), "meta": (*string)(nil),
			"at": ptr(int64(1)), "due": (*string)(nil), "topic": (*string)(nil), "route": (*string)(nil), "ok": (*bool)(nil), "tiny": (*int8)(nil), "level": (*int16)(nil),
			"price": (*inf.Dec)(nil), "seen": (*time.Time)(nil),
		}
		if e, err := table.fromRow(row); err != nil || len(e.Headers) > 0 {
			t.Fatalf("a row with nulls: %+v, %v", e, err)
		}
		row[strings.TrimSuffix(tt.column, ", orderId")] = tt.value
		_, err := table.fromRow(row)
		var bad *rowError
		if !errors.As(err, &bad) || bad.Column != tt.column || !strings.Contains(bad.Problem, tt.want) {
			t.Errorf("%s: %v, want column %s and %q", name, err, tt.column, tt.want)
		}
	}
}

// Numbers since 1970 are times by their size, texts with and without an offset.
func TestTimeOf(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 18, 0, 0, 123e6, time.UTC)
	for text, want := range map[string]time.Time{
		"1796061600": at.Truncate(time.Second), "1796061600123": at, "1796061600123456": at, "1796061600123456789": at, "-1": time.Unix(-1, 0).UTC(), "": {},
	} {
		if got, problem := parseTime(typeBigint, text); !got.Equal(want) || problem != "" {
			t.Errorf("the number %q is %s, %s, want %s", text, got, problem, want)
		}
	}
	for _, text := range []string{"2026-11-30T18:00:00.123Z", "2026-11-30T18:00:00.123456", "2026-11-30 18:00:00.123", "2026-11-30 19:00:00.123+01:00"} {
		if got, problem := parseTime(typeText, text); !got.Equal(at) || problem != "" {
			t.Errorf("the text %q is %s, %s, want %s", text, got, problem, at)
		}
	}
}

// The error of a table contains all of its problems, each with its fix.
func TestMapping_NamesAllProblems(t *testing.T) {
	t.Parallel()
	m := Mapping{
		Columns:       map[string]string{"aggregate_id": "tenant, no", "payload": "n", "seq": "-"},
		RecordHeaders: map[string]string{"tags": "tags", "missing": "gone"},
	}
	_, err := m.Table("shop", "box", columns("tenant text is "+KindPartitionKey, "n int", "tags set<text>", "event_id uuid", "event_type text"))
	for _, want := range []string{
		"column no is missing", "column aggregate_type is missing", "column n has type int, which cannot hold payload",
		"column tags has type set<text>", "column gone of record header", "shop.box",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Table() error lacks %q:\n%v", want, err)
		}
	}
	// Columns of the partition key beside the aggregate may belong to it.
	_, err = Mapping{Preset: PresetDebezium}.Table("shop", "box", debezium("tenant text is "+KindPartitionKey))
	if err == nil || !strings.Contains(err.Error(), `map aggregate_id to "aggregateid, tenant"`) {
		t.Errorf("with a tenant in the partition key, the error is %v", err)
	}
	// In this order, ordered by the writes.
	if _, err := (Mapping{Preset: PresetDebezium, Columns: map[string]string{"aggregate_id": "tenant,aggregateid"}}).Table("shop", "box", debezium("tenant text is "+KindPartitionKey)); err != nil {
		t.Errorf("with the tenant in the aggregate: %v", err)
	}
}

// Insert sets what Append sets, whatever the columns: several of an aggregate, times that are
// numbers or texts, and fields of one column. Its values are of standard types, and fit the columns.
func TestTable_InsertIntoOwnTables(t *testing.T) {
	t.Parallel()
	timed := IDFromUUID(gocql.UUIDFromTime(time.UnixMilli(1_700_000_000_000)))
	uuids := columns("tenant uuid is "+KindPartitionKey, "id timeuuid is "+KindPartitionKey, "seq bigint is "+KindClustering,
		"event_id int", "event_type text", "payload blob", "created_at text", "deliver_at bigint", "content_type text", "headers map<text, text>")
	for name, of := range map[string]struct {
		mapping   Mapping
		columns   []Column
		id        ID
		aggregate string
	}{
		"debezium":    {Mapping{Preset: PresetDebezium, Columns: map[string]string{"created_at": "id"}}, debezium(), timed, "order-42"},
		"numbers":     {numbersMapping, numbers(), IDFromInt(-7), "42"},
		"a tenant":    {shopMapping, shop(), testID, "acme:42"},
		"two UUIDs":   {Mapping{Columns: map[string]string{"aggregate_id": "tenant, id"}, AggregateType: "order"}, uuids, IDFromInt(3), testID.String() + ":" + timed.String()},
		"the default": {Mapping{}, nil, testID, "order-42"},
	} {
		table, err := DefaultTable, error(nil)
		if of.columns != nil {
			table, err = of.mapping.Table("shop", "box", of.columns)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, changed := range []func(*Event){
			func(*Event) {},
			func(e *Event) { e.Payload = nil },
			func(e *Event) {
				if table.layout.columns[fieldHeaders].name != "" {
					e.Headers = map[string]string{"a": "b"}
				}
				if table.layout.columns[fieldDeliverAt].name != "" {
					e.DeliverAt = e.CreatedAt.Add(time.Second)
				}
			},
		} {
			e := Event{ID: of.id, AggregateID: IDFromText(of.aggregate), AggregateType: cmp.Or(of.mapping.AggregateType, "order"), Type: "Placed", Payload: []byte(`{}`), CreatedAt: time.Now()}
			if table.Numbered() {
				e.Sequence = 7
			}
			changed(&e)
			b := &gocql.Batch{}
			if err := table.Append(b, e); err != nil {
				t.Fatal(err)
			}
			stmt, args, err := table.Insert(e)
			if err != nil {
				t.Fatal(err)
			}
			got, want := stored(t, table, stmt, args), stored(t, table, b.Entries[0].Stmt, b.Entries[0].Args)
			if !maps.EqualFunc(got, want, bytes.Equal) {
				t.Errorf("%s: Insert stores %q, Append %q", name, got, want)
			}
			for _, v := range args {
				switch v.(type) {
				case [16]byte, string, int64, []byte, time.Time, map[string]string:
				default:
					t.Errorf("%s: %s has an argument of type %T", name, stmt, v)
				}
			}
		}
	}
}

// stored returns the value of each column that an INSERT sets.
func stored(t *testing.T, table Table, stmt string, args []any) map[string][]byte {
	t.Helper()
	list, ok := strings.CutPrefix(stmt, "INSERT INTO "+table.String()+" (")
	list, values, closed := strings.Cut(list, ") VALUES (")
	names := strings.Split(list, ", ")
	if !ok || !closed || len(names) != len(args) || strings.Count(values, "?") != len(args) {
		t.Fatalf("%s has %d arguments", stmt, len(args))
	}
	types := make(map[string]columnType)
	for _, c := range table.layout.columns {
		for _, p := range c.each() {
			types[quote(p.name)] = p.typ
		}
	}
	out := make(map[string][]byte)
	for i, name := range names {
		typ, ok := types[name]
		if !ok {
			t.Fatalf("%s: no field has the column %s", stmt, name)
		}
		if args[i] == gocql.UnsetValue {
			continue
		}
		data, err := gocql.Marshal(cqlType(t, typ), args[i])
		if err != nil {
			t.Fatalf("%s: argument %d: %v", stmt, i+1, err)
		}
		out[name] = data
	}
	return out
}
