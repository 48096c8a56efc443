package outbox

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox/internal/access"
)

func TestTable_SelectPartition(t *testing.T) {
	t.Parallel()
	text := Event{AggregateID: IDFromText("cart 7"), ID: IDFromText("x-1"), AggregateType: "cart"}
	number := Event{AggregateID: IDFromInt(42), ID: testID}
	plain := Event{AggregateID: testAggregate, ID: testID, Sequence: 3}
	payloadOnly := columns("aggregateid text is "+KindPartitionKey, "id text is "+KindClustering, "payload text")
	for _, tt := range []struct {
		name    string
		mapping Mapping
		columns []Column
		of      Event
		stmt    string
		args    []any
		unknown string // the column of an *access.UnknownKeyError
	}{
		{
			"outbox_messages",
			Mapping{},
			nil, plain,
			"SELECT WRITETIME(event_id), TTL(event_id), aggregate_id, seq, event_id, aggregate_type, event_type, created_at FROM k.box WHERE aggregate_id = ? AND seq = ?",
			[]any{testAggregate.String(), int64(3)},
			"",
		},
		{
			"outbox_messages, without a number",
			Mapping{},
			nil,
			Event{AggregateID: testAggregate},
			"SELECT WRITETIME(event_id), TTL(event_id), aggregate_id, seq, event_id, aggregate_type, event_type, created_at FROM k.box WHERE aggregate_id = ?",
			[]any{testAggregate.String()},
			"",
		},
		{
			"Debezium's",
			Mapping{Preset: PresetDebezium},
			debezium(), text,
			`SELECT WRITETIME("type"), TTL("type"), "aggregateid", "id", "aggregatetype", "type" FROM k.box WHERE "aggregateid" = ?`,
			[]any{"cart 7"},
			"",
		},
		{
			"a UUID in text",
			Mapping{Preset: PresetDebezium},
			debezium(), plain,
			`SELECT WRITETIME("type"), TTL("type"), "aggregateid", "id", "aggregatetype", "type" FROM k.box WHERE "aggregateid" = ?`,
			[]any{testAggregate.String()},
			"",
		},
		{
			"only the payload is no key",
			Mapping{Preset: PresetDebezium, AggregateType: "a", Type: "b"},
			payloadOnly, text,
			`SELECT WRITETIME(payload), TTL(payload), "aggregateid", "id" FROM k.box WHERE "aggregateid" = ?`,
			[]any{"cart 7"},
			"",
		},
		{
			"by the event",
			Mapping{Preset: PresetDebezium, Unordered: true},
			columns("id text is "+KindPartitionKey, "aggregateid text", "aggregatetype text", "type text", "payload text"),
			Event{ID: text.ID},
			`SELECT WRITETIME("type"), TTL("type"), "aggregateid", "id", "aggregatetype", "type" FROM k.box WHERE "id" = ?`,
			[]any{"x-1"},
			"",
		},
		{
			"by type and aggregate",
			Mapping{Preset: PresetDebezium},
			columns("aggregatetype text is "+KindPartitionKey, "aggregateid text is "+KindPartitionKey, "id text is "+KindClustering, "type text", "payload text"), text,
			`SELECT WRITETIME("type"), TTL("type"), "aggregateid", "id", "aggregatetype", "type" FROM k.box WHERE "aggregatetype" = ? AND "aggregateid" = ?`,
			[]any{"cart", "cart 7"},
			"",
		},
		{
			"numbers", numbersMapping, numbers(), number,
			`SELECT WRITETIME("id"), TTL("id"), "customer", "n", "id", "what", "happened" FROM k.box WHERE "customer" = ?`,
			[]any{int64(42)},
			"",
		},
		{"a text is no number", numbersMapping, numbers(), text, "", nil, ""},
		{"a UUID is no number", numbersMapping, numbers(), plain, "", nil, ""},
		{"a text is no UUID", Mapping{Preset: PresetDebezium}, columns("aggregateid uuid is "+KindPartitionKey, "id text is "+KindClustering, "aggregatetype text", "type text", "payload text"), text, "", nil, ""},
		{"without an aggregate", Mapping{Preset: PresetDebezium}, debezium(), Event{ID: testID}, "", nil, "aggregateid"},
		{
			"without its type",
			Mapping{Preset: PresetDebezium},
			columns("aggregatetype text is "+KindPartitionKey, "aggregateid text is "+KindPartitionKey, "id text is "+KindClustering, "type text", "payload text"), plain, "", nil, "aggregatetype",
		},
		{"a day", Mapping{Preset: PresetDebezium, Unordered: true}, debezium("day date is " + KindPartitionKey), text, "", nil, "day"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			table, err := NewTable("k", "box")
			if tt.columns != nil {
				table, err = tt.mapping.Table("k", "box", tt.columns)
			}
			if err != nil {
				t.Fatal(err)
			}
			stmt, args, err := table.outline().selectPartition(&tt.of)
			if stmt != tt.stmt || !reflect.DeepEqual(args, tt.args) {
				t.Errorf("SelectPartition() =\n%s %v, want\n%s %v", stmt, args, tt.stmt, tt.args)
			}
			unknown, _ := errors.AsType[*access.UnknownKeyError](err)
			if (tt.unknown == "") != (err == nil) || unknown != nil && unknown.Column != tt.unknown {
				t.Errorf("SelectPartition() error = %v, want one of column %q", err, tt.unknown)
			}
			if want := len(table.outline().scanner().Dest()); want != len(table.outline().layout.fields) {
				t.Errorf("scanner() has %d columns", want)
			}
		})
	}
}

// SelectByKey names the order that its callers need: a table may have the other one.
func TestTable_SelectByKey(t *testing.T) {
	t.Parallel()
	for _, descending := range []bool{false, true} {
		table, err := Mapping{}.Table("k", "box", []Column{
			{Name: "aggregate_id", Type: "uuid", Kind: KindPartitionKey},
			{Name: "seq", Type: "int", Kind: KindClustering, Descending: descending},
			{Name: "event_id", Type: "uuid", Kind: KindRegular},
			{Name: "aggregate_type", Type: "text", Kind: KindRegular},
			{Name: "event_type", Type: "text", Kind: KindRegular},
			{Name: "payload", Type: "blob", Kind: KindRegular},
		})
		if err != nil {
			t.Fatal(err)
		}
		stmt, args := table.selectByKey(&Event{AggregateID: IDFromUUID(gocql.UUID{1})}, math.MinInt64, math.MaxInt64)
		want := "SELECT writetime(event_id), aggregate_id, seq, event_id, aggregate_type, event_type, payload FROM k.box" +
			" WHERE aggregate_id = ? AND seq >= ? AND seq < ? ORDER BY seq ASC"
		if stmt != want || !slices.Equal(args, []any{gocql.UUID{1}, int64(math.MinInt32), int64(math.MaxInt32)}) {
			t.Errorf("SelectByKey() =\n%s %v, want\n%s with the limits of int", stmt, args, want)
		}
		if table.layout.columns[fieldSequence].descending != descending {
			t.Errorf("Descending() = %t, want %t", table.layout.columns[fieldSequence].descending, descending)
		}
	}
}
