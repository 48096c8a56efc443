package outbox

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
)

// columns makes the columns of a table from "name type" and "name type kind".
func columns(specs ...string) []Column {
	positions := make(map[string]int)
	out := make([]Column, len(specs))
	for i, s := range specs {
		name, rest, _ := strings.Cut(s, " ")
		typ, kind, ok := strings.Cut(rest, " is ")
		c := Column{Name: name, Type: typ, Kind: kind, Position: -1}
		if !ok {
			c.Kind = KindRegular
		} else {
			c.Position = positions[kind]
			positions[kind]++
		}
		out[i] = c
	}
	return out
}

// debezium is the outbox table of Debezium's documentation, with a key for ScyllaDB.
func debezium(more ...string) []Column {
	return columns(append([]string{
		"aggregateid text is " + KindPartitionKey, "id timeuuid is " + KindClustering,
		"aggregatetype text", "type text", "payload text",
	}, more...)...)
}

// numbers is a table with integers for ids.
func numbers() []Column {
	return columns("customer bigint is "+KindPartitionKey, "n int is "+KindClustering, "id int", "what ascii", "body blob",
		"happened timeuuid", "meta map<text, text>", "processed_by text")
}

var numbersMapping = Mapping{
	Columns: map[string]string{
		"aggregate_id": "customer", "seq": "n", "event_id": "id", "event_type": "what", "payload": "body",
		"created_at": "happened", "headers": "meta",
	},
	AggregateType: "customer",
}

func TestMapping_Table(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		mapping  Mapping
		columns  []Column
		list     string
		insert   string
		numbered bool
	}{
		{
			"debezium",
			Mapping{Preset: PresetDebezium},
			debezium("unknown inet"),
			`"aggregateid", "id", "aggregatetype", "type", payload`, `"aggregateid", "id", "aggregatetype", "type", payload`, false,
		},
		{
			"numbers", numbersMapping, numbers(),
			`"customer", "n", "id", "what", "body", "meta", "happened"`, `"customer", "n", "id", "what", "body", "meta", "happened"`, true,
		},
		{
			"one column for two fields",
			Mapping{Preset: PresetDebezium, Columns: map[string]string{"created_at": "id"}},
			debezium(),
			`"aggregateid", "id", "aggregatetype", "type", payload, "id"`, `"aggregateid", "id", "aggregatetype", "type", payload`, false,
		},
		{
			"optional columns are omitted",
			Mapping{},
			columns(
				"aggregate_id uuid is "+KindPartitionKey, "seq bigint is "+KindClustering, "event_id uuid", "aggregate_type text", "event_type text", "payload blob"),
			"aggregate_id, seq, event_id, aggregate_type, event_type, payload", "aggregate_id, seq, event_id, aggregate_type, event_type, payload", true,
		},
		{
			"the partition may hold the aggregate type too",
			Mapping{Preset: PresetDebezium},
			columns(
				"aggregatetype text is "+KindPartitionKey, "aggregateid uuid is "+KindPartitionKey, "id uuid is "+KindClustering, "type text", "payload blob"),
			`"aggregateid", "id", "aggregatetype", "type", payload`, `"aggregateid", "id", "aggregatetype", "type", payload`, false,
		},
		{
			"unordered",
			Mapping{Preset: PresetDebezium, Unordered: true},
			columns(
				"id uuid is "+KindPartitionKey, "aggregatetype text", "aggregateid text", "type text", "payload text"),
			`"aggregateid", "id", "aggregatetype", "type", payload`, `"aggregateid", "id", "aggregatetype", "type", payload`, false,
		},
	} {
		table, err := tt.mapping.Table("shop", "box", tt.columns)
		if err != nil {
			t.Errorf("%s: Table() error = %v", tt.name, err)
			continue
		}
		if table.layout.list != tt.list || table.Numbered() != tt.numbered || !strings.HasPrefix(table.insert, "INSERT INTO shop.box ("+tt.insert+") VALUES (?") {
			t.Errorf("%s: columns %s, numbered %t, %s", tt.name, table.layout.list, table.Numbered(), table.insert)
		}
	}
}

// headers is Debezium's preset with a record header.
func headers(key, column string) Mapping {
	return Mapping{Preset: PresetDebezium, RecordHeaders: map[string]string{key: column}}
}

func TestMapping_NamesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		mapping Mapping
		columns []Column
		column  string
		want    string // in the text
	}{
		{"preset", Mapping{Preset: "kafka"}, debezium(), "", "use default or debezium"},
		{"unknown field", Mapping{Columns: map[string]string{"id": "x"}}, debezium(), "id", "map one of aggregate_id, seq"},
		{"empty column", Mapping{Columns: map[string]string{"seq": ""}}, debezium(), "seq", `or write "-"`},
		{"aggregate type with a line end", Mapping{AggregateType: "a\nb"}, debezium(), "AggregateType", "printable"},
		{"no such column", Mapping{Preset: PresetDebezium, Columns: map[string]string{"headers": "meta"}}, debezium(), "meta", "map headers to one of aggregateid, id"},
		{"needed column", Mapping{Preset: PresetDebezium, Columns: map[string]string{"payload": "-"}}, debezium(), "payload", "map payload to one of"},
		{"the id is the number", Mapping{Columns: map[string]string{"seq": "version", "event_id": "version"}, AggregateType: "a", Type: "b"}, columns("aggregate_id text is "+KindPartitionKey, "version int is "+KindClustering, "payload text"), "version", "map event_id to a column whose values are unique in the table"},
		{"no numbers", Mapping{}, columns("aggregate_id uuid is " + KindPartitionKey), "seq", `or to "-" if the table has no numbers`},
		{"no type", Mapping{Preset: PresetDebezium, Columns: map[string]string{"event_type": "-"}}, debezium(), "event_type", "or set the event type of all rows"},
		{"a column of another type", Mapping{Preset: PresetDebezium, Columns: map[string]string{"payload": "x"}}, debezium("x int"), "x", "type int, which cannot hold payload: map payload to a column of type blob or text"},
		{"a static column", Mapping{Preset: PresetDebezium, Columns: map[string]string{"event_type": "x"}}, debezium("x text is " + KindStatic), "x", "is static"},
		{"events of an aggregate apart", Mapping{Preset: PresetDebezium}, columns(
			"id uuid is "+KindPartitionKey, "aggregatetype text", "aggregateid text", "type text", "payload text"), "id", "PRIMARY KEY (aggregateid, …), or set the table to unordered"},
		{"partitions by time", Mapping{Preset: PresetDebezium}, debezium("day date is " + KindPartitionKey), "day", "several CDC streams"},
		{"aggregates of a type together", Mapping{Preset: PresetDebezium}, columns(
			"aggregatetype text is "+KindPartitionKey, "aggregateid text is "+KindClustering, "id uuid", "type text", "payload text"), "aggregatetype", "partition key"},
		{"numbers without a key", Mapping{Preset: PresetDebezium, Columns: map[string]string{"seq": "n"}}, debezium("n bigint"), "n", `the primary key is ((aggregateid), id)`},
		{"a record header of the relay", headers("ce_id", "id"), debezium(), "", `record header "ce_id", which the relay sets: choose a key`},
		{"a record header without a name", headers("", "id"), debezium(), "", "is empty: use a short printable key"},
		{"a record header with a line end", headers("a\nb", "id"), debezium(), "", "use a short printable key"},
		{"a record header without a column", headers("id", ""), debezium(), "", "name a column of the table, or remove the header"},
		{"a record header of no such column", headers("eventType", "event"), debezium(), "event", `of record header "eventType" is missing: name one of aggregateid, id`},
		{"a record header of another type", headers("tags", "x"), debezium("x set<text>"), "x", `type set<text>, which record header "tags" cannot have: name a column of type uuid, timeuuid, text`},
		{"a record header of a static column", headers("tenant", "x"), debezium("x text is " + KindStatic), "x", "that each row has"},
	} {
		_, err := tt.mapping.Table("shop", "box", tt.columns)
		var bad *MappingError
		if !errors.As(err, &bad) || bad.Column != tt.column || !strings.Contains(err.Error(), tt.want) || bad.Fix == "" || bad.Table != "shop.box" {
			t.Errorf("%s: Table() error = %v (column %q), want column %q and %q", tt.name, err, bad.Column, tt.column, tt.want)
		}
	}
}

// cqlTypes are gocql's types of columns that these tests use.
func cqlType(t *testing.T, c columnType) gocql.TypeInfo {
	t.Helper()
	n := func(t gocql.Type) gocql.TypeInfo { return gocql.NewNativeType(4, t, "") }
	switch c {
	case typeUUID:
		return n(gocql.TypeUUID)
	case typeTimeUUID:
		return n(gocql.TypeTimeUUID)
	case typeText:
		return n(gocql.TypeVarchar)
	case typeBigint:
		return n(gocql.TypeBigInt)
	case typeInt:
		return n(gocql.TypeInt)
	case typeBlob:
		return n(gocql.TypeBlob)
	case typeTimestamp:
		return n(gocql.TypeTimestamp)
	}
	return gocql.CollectionType{NativeType: gocql.NewNativeType(4, gocql.TypeMap, ""), Key: n(gocql.TypeVarchar), Elem: n(gocql.TypeVarchar)}
}

// The tail's scanner and the sweep's row reader both read the rows of Append.
func TestTable_ReadsWhatAppendWrites(t *testing.T) {
	t.Parallel()
	timed := gocql.UUIDFromTime(time.UnixMilli(1_700_000_000_000))
	at := time.UnixMilli(1_700_000_000_123).UTC()
	for _, tt := range []struct {
		name    string
		mapping Mapping
		columns []Column
		event   Event
	}{
		{"debezium", Mapping{Preset: PresetDebezium}, debezium(), Event{
			ID: IDFromUUID(timed), AggregateID: IDFromText("order-42"), AggregateType: "order", Type: "OrderCreated", Payload: []byte(`{}`), CreatedAt: at,
		}},
		{"a UUID as text", Mapping{Preset: PresetDebezium, Columns: map[string]string{"created_at": "id"}}, debezium(), Event{
			ID: IDFromUUID(timed), AggregateID: testAggregate, AggregateType: "order", Type: "OrderCreated", Payload: []byte(`{}`), CreatedAt: timed.Time(),
		}},
		{"numbers", numbersMapping, numbers(), Event{
			ID: IDFromInt(-7), AggregateID: IDFromInt(9000000000), Sequence: 3, AggregateType: "customer", Type: "Moved", Payload: []byte{1}, CreatedAt: at,
			Headers: map[string]string{"a": "b"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			table, err := tt.mapping.Table("shop", "box", tt.columns)
			if err != nil {
				t.Fatal(err)
			}
			b := &gocql.Batch{}
			if err := table.Append(b, tt.event); err != nil {
				t.Fatal(err)
			}
			want := tt.event
			if table.layout.columns[fieldCreatedAt].name == "" {
				want.CreatedAt = time.Time{}
			}
			stored, row := make(map[string][]byte), make(cells)
			for i, f := range table.layout.written {
				c := table.layout.columns[f]
				info := cqlType(t, c.typ)
				data, err := gocql.Marshal(info, b.Entries[0].Args[i])
				if err != nil {
					t.Fatalf("marshal %s: %v", c.name, err)
				}
				v, err := info.NewWithError()
				if err != nil {
					t.Fatal(err)
				}
				if err := gocql.Unmarshal(info, data, v); err != nil {
					t.Fatal(err)
				}
				switch p := v.(type) {
				case *[]byte:
					row[c.name] = *p
				case *map[string]string:
					row[c.name] = *p
				default:
					row[c.name] = v
				}
				stored[c.name] = data
			}
			s := table.scanner()
			for i, d := range s.Dest() {
				c := table.layout.columns[table.layout.fields[i]]
				if err := gocql.Unmarshal(cqlType(t, c.typ), stored[c.name], d); err != nil {
					t.Fatalf("scan %s: %v", c.name, err)
				}
			}
			if !s.Adds() {
				t.Error("Adds() = false for a whole row")
			}
			if got, err := s.Event(); err != nil || !equal(got, want) {
				t.Errorf("scan = %+v, %v, want %+v", got, err, want)
			}
			if got, err := table.fromRow(row); err != nil || !equal(got, want) || !table.adds(row) {
				t.Errorf("FromRow() = %+v, %v, want %+v", got, err, want)
			}
			hs := AppendHeaders[Header](nil, &want, "/s")
			got, err := FromRecord(want.Key(), want.Payload, hs)
			if err != nil || !equal(got.Event, want) {
				t.Errorf("FromRecord() = %+v, %v, want %+v", got, err, want)
			}
		})
	}
}

// A row that is not an event returns an error with the readable fields.
func TestTable_KeepsWhatCanBeRead(t *testing.T) {
	t.Parallel()
	table, err := Mapping{Preset: PresetDebezium}.Table("shop", "box", debezium())
	if err != nil {
		t.Fatal(err)
	}
	row := cells{"aggregateid": ptr("42"), "id": ptr(testID.uuid), "aggregatetype": ptr("order"), "type": (*string)(nil), "payload": ptr("{}")}
	_, err = table.fromRow(row)
	var bad *rowError
	if !errors.As(err, &bad) || bad.Column != "type" || bad.Event.AggregateID != IDFromInt(42) || bad.Event.ID != testID || string(bad.Event.Payload) != "{}" {
		t.Errorf("FromRow() error = %+v, want column type, and the other fields", err)
	}
	if table.adds(row) {
		t.Error("Adds() = true for an update without a type")
	}
}

func TestTable_AppendNamesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	deb, err := Mapping{Preset: PresetDebezium}.Table("shop", "box", debezium())
	if err != nil {
		t.Fatal(err)
	}
	num, err := numbersMapping.Table("shop", "box", numbers())
	if err != nil {
		t.Fatal(err)
	}
	day, err := Mapping{Preset: PresetDebezium, Unordered: true}.Table("shop", "box", debezium("day date is "+KindPartitionKey))
	if err != nil {
		t.Fatal(err)
	}
	typed, err := Mapping{Preset: PresetDebezium, Columns: map[string]string{"event_type": NoColumn}, Type: "b"}.Table("shop", "box", debezium())
	if err != nil {
		t.Fatal(err)
	}
	tenants, err := Mapping{Preset: PresetDebezium, Columns: map[string]string{"headers": "meta"}, RecordHeaders: map[string]string{"tenant": "tenant", "kind": "type"}}.
		Table("shop", "box", debezium("meta text", "tenant text"))
	if err != nil {
		t.Fatal(err)
	}
	good := Event{ID: IDFromUUID(gocql.TimeUUID()), AggregateID: IDFromText("42"), AggregateType: "a", Type: "b", CreatedAt: time.Now()}
	numbered := good
	numbered.Sequence, numbered.ID, numbered.AggregateType = 1, IDFromInt(1), "customer"
	for _, tt := range []struct {
		name   string
		table  Table
		event  Event
		change func(*Event)
		want   string
	}{
		{"good", deb, good, func(*Event) {}, ""},
		{"good numbers", num, numbered, func(*Event) {}, ""},
		{"a number", deb, good, func(e *Event) { e.Sequence = 1 }, "the table has no column for it"},
		{"no number", num, numbered, func(e *Event) { e.Sequence = 0 }, "number the events"},
		{"the last number of an int", num, numbered, func(e *Event) { e.Sequence = 1<<31 - 1 }, ""},
		{"too large a number of an event", num, numbered, func(e *Event) { e.Sequence = 1 << 31 }, "Sequence is 2147483648: use a table whose column n is a bigint"},
		{"bytes in a text", deb, good, func(e *Event) { e.Payload = []byte{0xff} }, "Payload is not valid UTF-8: encode it as text, or use a table whose column payload is a blob"},
		{"bytes in a blob", num, numbered, func(e *Event) { e.Payload = []byte{0xff} }, ""},
		{"no aggregate", deb, good, func(e *Event) { e.AggregateID = ID{} }, "AggregateID is zero"},
		{"text for a number", num, numbered, func(e *Event) { e.AggregateID = IDFromText("x") }, "column customer is a bigint"},
		{"too large a number", num, numbered, func(e *Event) { e.ID = IDFromInt(3000000000) }, "column id is a int"},
		{"a UUID for a number", num, numbered, func(e *Event) { e.AggregateID = testAggregate }, "column customer is a bigint"},
		{"text for a UUID", deb, good, func(e *Event) { e.ID = IDFromText("x") }, "column id is a timeuuid"},
		{"a random UUID for a timeuuid", deb, good, func(e *Event) { e.ID = testID }, "column id is a timeuuid"},
		{"headers without a column", deb, good, func(e *Event) { e.Headers = map[string]string{"traceparent": "x"} }, "the table has no column for headers"},
		{"no headers without a column", deb, good, func(e *Event) { e.Headers = map[string]string{} }, ""},
		{"a delivery time without a column", deb, good, func(e *Event) { e.DeliverAt = e.CreatedAt }, "DeliverAt is set: leave it zero: the table has no column for it"},
		{"a content type without a column", deb, good, func(e *Event) { e.ContentType = "text/plain" }, `set it to "application/json": the table has no column for it`},
		{"the content type of a table without a column", deb, good, func(e *Event) { e.ContentType = DefaultContentType }, ""},
		{"another type of aggregate than the table's", num, numbered, func(e *Event) { e.AggregateType = "order" }, `AggregateType is "order": set it to "customer"`},
		{"another type than the table's", typed, good, func(e *Event) { e.Type = "a" }, `Type is "a": set it to "b"`},
		{"the header of a column", tenants, good, func(e *Event) { e.Headers = map[string]string{"tenant": "acme", "kind": "b"} }, `Headers["tenant"] is that of column tenant`},
		{"the header of a field", tenants, good, func(e *Event) { e.Headers = map[string]string{"kind": "b"} }, ""},
		{"a key of no field", day, good, func(*Event) {}, "column day is part of the primary key"},
	} {
		e := tt.event
		tt.change(&e)
		err := tt.table.Append(&gocql.Batch{}, e)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: Append() error = %v, want %q", tt.name, err, tt.want)
		}
	}
}
