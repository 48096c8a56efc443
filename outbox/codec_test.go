package outbox

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
)

// cells is a Row like that of scylla-cdc-go.
type cells map[string]any

func (c cells) GetValue(column string) (any, bool) { v, ok := c[column]; return v, ok }

func ptr[T any](v T) *T { return &v }

func testCells(e Event) cells {
	c := cells{
		"aggregate_id": ptr(e.AggregateID.String()), "seq": ptr(e.Sequence), "event_id": ptr(e.ID.uuid),
		"aggregate_type": ptr(e.AggregateType), "event_type": ptr(e.Type), "payload": e.Payload,
		"content_type": ptr(DefaultContentType), "headers": e.Headers,
		"created_at": ptr(e.CreatedAt), "deliver_at": (*time.Time)(nil),
	}
	if !e.DeliverAt.IsZero() {
		c["deliver_at"] = ptr(e.DeliverAt)
	}
	return c
}

func TestFromRow(t *testing.T) {
	t.Parallel()
	e := testEvent()
	e.DeliverAt = e.CreatedAt.Add(time.Hour)
	got, err := DefaultTable.fromRow(testCells(e))
	if err != nil || !equal(got, e) {
		t.Errorf("FromRow() = %+v, %v, want %+v", got, err, e)
	}

	tests := []struct {
		column string
		value  any
		want   string // "" means no error
	}{
		{"event_id", (*gocql.UUID)(nil), "event_id is null"},
		{"event_id", nil, "event_id is null"},
		{"event_id", ptr(gocql.UUID{}), "event_id is null or zero"},
		{"seq", ptr(int64(0)), "seq is 0"},
		{"seq", ptr(7), "seq has type *int, want int64"},
		{"created_at", (*time.Time)(nil), ""},
		{"event_type", ptr(""), "event_type is null or empty"},
		{"payload", []byte(nil), ""},
		{"content_type", (*string)(nil), ""},
		{"headers", map[string]string(nil), ""},
	}
	for _, tt := range tests {
		c := testCells(e)
		c[tt.column] = tt.value
		_, err := DefaultTable.fromRow(c)
		var bad *rowError
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s = %v: FromRow() error = %v, want nil", tt.column, tt.value, err)
		case tt.want != "" && (!errors.As(err, &bad) || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s = %v: FromRow() error = %v, want %q", tt.column, tt.value, err, tt.want)
		}
	}
	for column := range testCells(e) {
		c := testCells(e)
		delete(c, column)
		if _, err := DefaultTable.fromRow(c); err == nil || !strings.Contains(err.Error(), column+" is missing") {
			t.Errorf("FromRow() without %s = %v, want it named", column, err)
		}
	}
}

// columnTypes are the types of Columns.
var columnTypes = func() []gocql.TypeInfo {
	n := func(t gocql.Type) gocql.TypeInfo { return gocql.NewNativeType(4, t, "") }
	return []gocql.TypeInfo{
		n(gocql.TypeVarchar), n(gocql.TypeBigInt), n(gocql.TypeUUID), n(gocql.TypeVarchar), n(gocql.TypeVarchar), n(gocql.TypeBlob),
		n(gocql.TypeVarchar),
		gocql.CollectionType{NativeType: gocql.NewNativeType(4, gocql.TypeMap, ""), Key: n(gocql.TypeVarchar), Elem: n(gocql.TypeVarchar)},
		n(gocql.TypeTimestamp), n(gocql.TypeTimestamp),
	}
}()

// throughCQL marshals e as Append would and scans the bytes back.
func throughCQL(t *testing.T, s *scanner, e Event) (Event, error) {
	t.Helper()
	args := defaultLayout.values(&e)
	dest := s.Dest()
	if len(args) != len(columnTypes) || len(dest) != len(columnTypes) || len(strings.Split(defaultLayout.list, ",")) != len(columnTypes) {
		t.Fatalf("%d arguments and %d destinations for %d columns", len(args), len(dest), len(columnTypes))
	}
	for i, typ := range columnTypes {
		var data []byte
		if args[i] != gocql.UnsetValue {
			var err error
			if data, err = gocql.Marshal(typ, args[i]); err != nil {
				t.Fatalf("marshal column %d: %v", i, err)
			}
		}
		if err := gocql.Unmarshal(typ, data, dest[i]); err != nil {
			t.Fatalf("unmarshal column %d: %v", i, err)
		}
	}
	return s.Event()
}

func TestScanner_ReadsWhatAppendWrites(t *testing.T) {
	t.Parallel()
	full := testEvent()
	full.DeliverAt = full.CreatedAt.Add(time.Hour)
	full.ContentType = "application/avro"
	bare := testEvent()
	bare.Headers, bare.Payload = nil, nil

	s := DefaultTable.scanner()
	first, err := throughCQL(t, s, full)
	if err != nil || !equal(first, full) {
		t.Errorf("scan = %+v, %v, want %+v", first, err, full)
	}
	// The second row must neither inherit from the first nor change it.
	second, err := throughCQL(t, s, bare)
	if err != nil || !equal(second, bare) {
		t.Errorf("scan = %+v, %v, want %+v", second, err, bare)
	}
	if !equal(first, full) {
		t.Errorf("first event became %+v", first)
	}
	s.Dest()
	if _, err := s.Event(); err == nil {
		t.Error("a row of nulls is decoded as an event")
	}
}

func TestHeaderMap_RefusesGarbage(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		"\x00", "\x00\x00\x00\x01", "\xff\xff\xff\xff", "\x7f\xff\xff\xff\x00\x00\x00\x00",
		"\x00\x00\x00\x01\x00\x00\x00\x01a\x00\x00\x00\x05b", "\x00\x00\x00\x00x",
	} {
		var m headerMap
		if err := m.UnmarshalCQL(nil, []byte(data)); err == nil {
			t.Errorf("UnmarshalCQL(%q) = nil, want an error", data)
		}
	}
}

// kafkaHeader is made like kgo.RecordHeader.
type kafkaHeader struct {
	Key   string
	Value []byte
}

func TestHeaders_RoundTrip(t *testing.T) {
	t.Parallel()
	e := testEvent()
	hs := AppendHeaders[kafkaHeader](nil, &e, "/outbox/orders")
	want := []kafkaHeader{
		{"ce_id", []byte("018f0102-0304-7006-8708-090a0b0c0d0e")},
		{"ce_source", []byte("/outbox/orders")},
		{"ce_specversion", []byte("1.0")},
		{"ce_type", []byte("OrderCreated")},
		{"ce_subject", []byte("abcd0102-0304-4006-8708-090a0b0c0dff")},
		{"ce_time", []byte("2011-10-14T12:00:00.005Z")},
		{"ce_aggregatesequence", []byte("7")},
		{"ce_aggregatetype", []byte("order")},
		{"content-type", []byte("application/json")},
		{"a", []byte("ü")},
		{"traceparent", []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")},
	}
	if len(hs) != len(want) {
		t.Fatalf("AppendHeaders() = %q, want %q", hs, want)
	}
	other, buf := AppendHeadersTo(make([]kafkaHeader, 1, 40), []byte("before"), &e, "/another/source, which is longer")
	again, values := AppendHeadersTo(other[:1], buf[:6], &e, "/outbox/orders")
	if !reflect.DeepEqual(again[1:], hs) || string(values[:6]) != "before" || &again[1] != &other[1] || &values[0] != &buf[0] {
		t.Errorf("AppendHeadersTo() = %q in %q, want those of AppendHeaders in the same memory", again, values)
	}
	if key := e.AppendKey([]byte("key ")); string(key) != "key "+string(e.Key()) {
		t.Errorf("AppendKey() = %q, want it to end with %q", key, e.Key())
	}
	for i := range want {
		if hs[i].Key != want[i].Key || string(hs[i].Value) != string(want[i].Value) {
			t.Errorf("header %d = %s %q, want %s %q", i, hs[i].Key, hs[i].Value, want[i].Key, want[i].Value)
		}
	}
	got, err := FromRecord(e.Key(), e.Payload, hs)
	if err != nil || !equal(got.Event, e) || got.OriginalID != (ID{}) || got.Source != "/outbox/orders" {
		t.Errorf("FromRecord() = %+v, %q, %v, want %+v", got.Event, got.Source, err, e)
	}
	// Appending to one value must not run into the next.
	_ = append(hs[0].Value, "XXXX"...)
	if string(hs[4].Value) != "abcd0102-0304-4006-8708-090a0b0c0dff" {
		t.Errorf("ce_subject became %q", hs[4].Value)
	}
}

// An edited event has the id of its original. A row that was not validated may
// contain headers that the relay sets. A second ce_id would make a consumer
// mistake the event for another one.
func TestHeaders_LeaveOutWhatTheRelaySets(t *testing.T) {
	t.Parallel()
	for _, own := range []map[string]string{
		{"ce_id": "forged"},
		{"ce_id": "forged", "CE_Type": "forged", "content-type": "forged", "Content-Type": "forged", "ce_later": "forged"},
	} {
		e := testEvent()
		e.Headers = own
		plain := e
		plain.Headers = nil
		if got, want := AppendHeaders[Header](nil, &e, "/s"), AppendHeaders[Header](nil, &plain, "/s"); !slices.EqualFunc(got, want, func(a, b Header) bool {
			return a.Key == b.Key && string(a.Value) == string(b.Value)
		}) {
			t.Errorf("with own headers %v: %q, want %q", own, got, want)
		}
		own["kept"] = "1"
		if hs := AppendHeaders[Header](nil, &e, "/s"); hs[len(hs)-1].Key != "kept" {
			t.Errorf("with own headers %v: the last is %q, want kept", own, hs[len(hs)-1])
		}
	}
}

// A table without a column for the content type may have it among its headers.
func TestFromRow_ContentTypeAmongTheHeaders(t *testing.T) {
	t.Parallel()
	e := testEvent()
	row := testCells(e)
	row["headers"] = map[string]string{"content-type": "application/avro"}
	for _, name := range []string{"content-type", "Content-Type", "CONTENT-TYPE"} {
		row["headers"] = map[string]string{name: "application/avro", "x": "other"}
		for column, want := range map[*string]string{nil: "application/avro", ptr("text/plain"): "text/plain"} {
			row["content_type"] = column
			got, err := DefaultTable.fromRow(row)
			if err != nil || got.ContentType != want {
				t.Errorf("FromRow() with the header %s: content type = %q, %v, want %q", name, got.ContentType, err, want)
			}
		}
	}
	row["headers"] = map[string]string{"x": "other"}
	row["content_type"] = (*string)(nil)
	if got, err := DefaultTable.fromRow(row); err != nil || got.ContentType != DefaultContentType {
		t.Errorf("FromRow() without the header: content type = %q, %v", got.ContentType, err)
	}
}

// What Append refuses is refused from other writers too, with the column.
func TestFromRow_RefusesWhatAppendRefuses(t *testing.T) {
	t.Parallel()
	e := testEvent()
	long := strings.Repeat("x", MaxNameBytes+1)
	for want, change := range map[string]func(*Event){
		"column created_at is in the year 43754":             func(e *Event) { e.CreatedAt = time.UnixMicro(e.CreatedAt.UnixMicro() * 1000) },
		"column created_at is in the year -1":                func(e *Event) { e.CreatedAt = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) },
		"column event_type is 250 bytes long, more than 249": func(e *Event) { e.Type = long },
		"column event_type holds control characters":         func(e *Event) { e.Type = "a\n" },
		"column aggregate_type holds control characters":     func(e *Event) { e.AggregateType = "a\x00" },
		"column content_type holds control characters":       func(e *Event) { e.ContentType = "text/plain\r\nx: y" },
		`column headers has "ce_partitionkey", which is 250`: func(e *Event) { e.Headers = map[string]string{HeaderPartitionKey: long} },
		`column headers has "ce_partitionkey", which is emp`: func(e *Event) { e.Headers = map[string]string{HeaderPartitionKey: ""} },
		`column headers has the name "Ce_PartitionKey"`:      func(e *Event) { e.Headers = map[string]string{"Ce_PartitionKey": "k", "x": "y"} },
		`column headers has "", which is empty`:              func(e *Event) { e.Headers = map[string]string{"": "x"} },
		`column headers has "a\n", which holds control`:      func(e *Event) { e.Headers = map[string]string{"a\n": "x", "b\n": "x"} },
		`column headers has "ce_dataref", which is no ref`:   func(e *Event) { e.Headers, e.Payload = map[string]string{HeaderDataRef: "x"}, nil },
		"column deliver_at is in the year 43754":             func(e *Event) { e.DeliverAt = time.UnixMicro(e.CreatedAt.UnixMicro() * 1000) },
		"column deliver_at is in the year -1":                func(e *Event) { e.DeliverAt = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		e := e
		change(&e)
		if e.Validate() == nil {
			t.Errorf("Validate() = nil, want an error like %q", want)
		}
		cells := testCells(e)
		cells["content_type"] = ptr(e.ContentType)
		_, err := DefaultTable.fromRow(cells)
		bad, ok := errors.AsType[*rowError](err)
		if !ok || !strings.Contains(bad.Error(), want) || bad.Mismatch || bad.Event.ID != e.ID {
			t.Errorf("FromRow() = %v, want %q", bad, want)
		} else if _, err := json.Marshal([]time.Time{bad.Event.CreatedAt, bad.Event.DeliverAt}); err != nil {
			t.Errorf("FromRow() = %v: its times cannot be shown: %v", bad, err)
		}
	}
}

// A nil payload is stored as null, which is a record without a value, an empty one as empty.
func TestAppend_NullPayload(t *testing.T) {
	t.Parallel()
	e := testEvent()
	for _, payload := range [][]byte{nil, {}} {
		e.Payload = payload
		got := defaultLayout.values(&e)[5]
		if b, ok := got.([]byte); ok != (payload != nil) || len(b) > 0 || payload == nil && got != gocql.UnsetValue {
			t.Errorf("payload %#v is stored as %#v", payload, got)
		}
	}
}

func TestHeaders_NameTheOriginalOfAnEdit(t *testing.T) {
	t.Parallel()
	e := testEvent()
	for _, original := range []string{"018f0102-0304-7006-8708-090a0b0c0dff", "order 7"} {
		hs := append(AppendHeaders[kafkaHeader](nil, &e, "/outbox/orders"), kafkaHeader{HeaderOriginalID, []byte(original)})
		if got, err := FromRecord(e.Key(), e.Payload, hs); err != nil || !equal(got.Event, e) || got.OriginalID != IDFromText(original) {
			t.Errorf("FromRecord() = %+v, %v, want %+v in place of %s", got, err, e, original)
		}
	}
}

func TestHeaders_CarryAPartitionKey(t *testing.T) {
	t.Parallel()
	e := testEvent()
	e.Headers = map[string]string{HeaderPartitionKey: "customer-42"}
	if err := e.Validate(); err != nil {
		t.Fatalf("Validate() = %v", err)
	}
	if string(e.Key()) != "customer-42" {
		t.Errorf("Key() = %q, want the partition key", e.Key())
	}
	hs := AppendHeaders[Header](nil, &e, "/s")
	if got, err := FromRecord(e.Key(), e.Payload, hs); err != nil || !equal(got.Event, e) {
		t.Errorf("FromRecord() = %+v, %v, want %+v", got, err, e)
	}
	if _, err := FromRecord([]byte(e.AggregateID.String()), e.Payload, hs); err == nil || !strings.Contains(err.Error(), HeaderPartitionKey) {
		t.Errorf("FromRecord() with the aggregate's id as key = %v, want an error that names %s", err, HeaderPartitionKey)
	}
	for _, bad := range []string{"", "a\nb", strings.Repeat("k", MaxNameBytes+1)} {
		e.Headers[HeaderPartitionKey] = bad
		if err := e.Validate(); err == nil || !strings.Contains(err.Error(), HeaderPartitionKey) {
			t.Errorf("Validate() with partition key %q = %v", bad, err)
		}
	}
}

func TestFromRecord_NamesTheHeader(t *testing.T) {
	t.Parallel()
	e := testEvent()
	good := AppendHeaders[Header](nil, &e, "/s")
	change := func(key, value string) []Header {
		out := append([]Header(nil), good...)
		for i := range out {
			if out[i].Key == key {
				out[i].Value = []byte(value)
			}
		}
		return out
	}
	tests := []struct {
		key     string
		headers []Header
		want    string
	}{
		{string(e.Key()), nil, "ce_id is missing"},
		{string(e.Key()), good[1:], "ce_id is missing"},
		{string(e.Key()), append(good[:len(good):len(good)], good[0]), "ce_id is repeated"},
		{string(e.Key()), change("ce_id", ""), "ce_id is empty"},
		{string(e.Key()), change("ce_aggregatetype", ""), "ce_aggregatetype is empty"},
		{string(e.Key()), change("ce_aggregatesequence", "0"), "ce_aggregatesequence"},
		{string(e.Key()), append(good[:len(good):len(good)], good[6]), "ce_aggregatesequence"},
		{string(e.Key()), append(good[:len(good):len(good)], Header{"ce_epoch", []byte("0")}), "ce_epoch"},
		{string(e.Key()), append(good[:len(good):len(good)], Header{"ce_epoch", []byte("7")}, Header{"ce_epoch", []byte("7")}), "ce_epoch"},
		{string(e.Key()), change("ce_time", "yesterday"), "ce_time"},
		{string(e.Key()), change("ce_type", ""), "ce_type is empty"},
		{string(e.Key()), change("ce_specversion", "0.3"), "ce_specversion"},
		{"other", good, "ce_subject"},
	}
	for _, tt := range tests {
		_, err := FromRecord([]byte(tt.key), e.Payload, tt.headers)
		if !errors.Is(err, ErrNotAnEvent) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("FromRecord() error = %v, want ErrNotAnEvent naming %q", err, tt.want)
		}
	}
	epoch := append(good[:len(good):len(good)], Header{"ce_epoch", []byte("1800000000")})
	if got, err := FromRecord(e.Key(), e.Payload, epoch); err != nil || got.Epoch != 1_800_000_000 || !maps.Equal(got.Headers, e.Headers) {
		t.Errorf("an event of an epoch: %d with headers %q, %v", got.Epoch, got.Headers, err)
	}
	future := append(good[:len(good):len(good)], Header{"ce_future", []byte("/v9")})
	if got, err := FromRecord(e.Key(), e.Payload, future); err != nil || !maps.Equal(got.Headers, e.Headers) {
		t.Errorf("an attribute of a later version: headers %q, %v", got.Headers, err)
	}
}

func FuzzHeaders(f *testing.F) {
	f.Add("018f0102-0304-7006-8708-090a0b0c0d0e", "7", "2011-10-14T12:00:00.005Z", "T", "order", "k", "v")
	f.Add("", "", "", "", "", "", "")
	f.Fuzz(func(t *testing.T, id, seq, at, typ, aggregate, key, value string) {
		hs := []Header{
			{HeaderID, []byte(id)},
			{HeaderSource, []byte("/s")},
			{HeaderSpecVersion, []byte("1.0")},
			{HeaderType, []byte(typ)},
			{HeaderSubject, []byte(id)},
			{HeaderTime, []byte(at)},
			{HeaderSequence, []byte(seq)},
			{HeaderAggregateType, []byte(aggregate)},
			{key, []byte(value)},
		}
		e, err := FromRecord([]byte(strings.ToLower(id)), nil, hs)
		if err != nil {
			if !errors.Is(err, ErrNotAnEvent) {
				t.Fatalf("FromRecord() error = %v, want ErrNotAnEvent", err)
			}
			return
		}
		if e.Validate() != nil {
			return // a foreign record may contain values that Append rejects
		}
		// A decoded event is stable when written and read again.
		again, err := FromRecord(e.Key(), nil, AppendHeaders[Header](nil, &e.Event, e.Source))
		if err != nil || !equal(e.Event, again.Event) {
			t.Fatalf("read %+v, then %+v, %v", e, again, err)
		}
	})
}

func FuzzRow(f *testing.F) {
	f.Add(int64(1), int64(1318593600005), int64(0), "order", "OrderCreated", []byte("{}"), "traceparent", "00", "a", "b")
	f.Fuzz(func(t *testing.T, seq, created, deliver int64, aggregate, typ string, payload []byte, k1, v1, k2, v2 string) {
		e := Event{
			ID: testID, AggregateID: testAggregate, Sequence: seq, AggregateType: aggregate, Type: typ, Payload: payload,
			Headers: map[string]string{k1: v1, k2: v2}, CreatedAt: time.UnixMilli(created).UTC(),
		}
		if deliver != 0 {
			e.DeliverAt = time.UnixMilli(deliver).UTC()
		}
		if e.Validate() != nil {
			return
		}
		s := DefaultTable.scanner()
		got, err := throughCQL(t, s, e)
		if err != nil || !equal(got, e) {
			t.Fatalf("wrote %+v, read %+v, %v", e, got, err)
		}
	})
}

func FuzzHeaderMap(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\x00\x00\x00\x01a\x00\x00\x00\x01b"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m, again headerMap
		if m.UnmarshalCQL(nil, data) != nil {
			return
		}
		b, err := m.MarshalCQL(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.UnmarshalCQL(nil, b); err != nil || !maps.Equal(m, again) {
			t.Fatalf("read %q, then %q, %v", m, again, err)
		}
	})
}

func BenchmarkAppendHeaders(b *testing.B) {
	e := testEvent()
	b.ReportAllocs()
	dst := make([]Header, 0, 16)
	for b.Loop() {
		dst = AppendHeaders(dst[:0], &e, "/outbox/orders")
	}
}

// An aggregate of outbox_messages is any short text. A UUID has one spelling, that of
// IDFromUUID, for writers and for the rows of other writers.
func TestEvent_AggregateIDs(t *testing.T) {
	t.Parallel()
	upper := strings.ToUpper(testAggregate.String())
	own, err := Mapping{Preset: PresetDebezium, Columns: map[string]string{"seq": "n"}}.Table("shop", "box", columns("aggregateid text is "+KindPartitionKey,
		"n bigint is "+KindClustering, "id uuid", "aggregatetype text", "type text", "payload text"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, id string
		problem  string // empty if it is good
	}{
		{"a UUID", testAggregate.String(), ""},
		{"a text", "customer/7 – Zürich 東京", ""},
		{"the longest", strings.Repeat("ß", MaxNameBytes/2) + "s", ""},
		{"a number", "7", ""},
		{"hexadecimal digits of a UUID", strings.ReplaceAll(upper, "-", ""), ""},
		{"almost a UUID", upper[:35] + "G", ""},
		{"empty", "", "zero"},
		{"too long", strings.Repeat("ß", MaxNameBytes/2+1), "more than 249"},
		{"a control character", "a\n7", "control characters"},
		{"not UTF-8", "a\xff", "not valid UTF-8"},
		{"a UUID in upper case", upper, "another spelling of UUID " + testAggregate.String()},
		{"a UUID in mixed case", upper[:8] + testAggregate.String()[8:], "another spelling"},
		{"the zero UUID", gocql.UUID{}.String(), "another spelling"},
	} {
		e := testEvent()
		e.AggregateID = IDFromText(tt.id)
		agrees := func(what string, err error) {
			t.Helper()
			if tt.problem == "" && err != nil || tt.problem != "" && (err == nil || !strings.Contains(err.Error(), tt.problem)) {
				t.Errorf("%s: %s = %v, want %q", tt.name, what, err, tt.problem)
			}
		}
		agrees("Validate()", e.Validate())
		row := testCells(e)
		row["aggregate_id"] = &tt.id
		read, err := DefaultTable.fromRow(row)
		agrees("FromRow()", err)
		s := DefaultTable.scanner()
		scanned, err := throughCQL(t, s, e)
		if tt.id != "" { // the zero ID is no text
			agrees("scanner", err)
			if read.AggregateID != e.AggregateID || scanned.AggregateID != e.AggregateID || read.AggregateID.String() != tt.id {
				t.Errorf("%s: read as %q and %q", tt.name, read.AggregateID, scanned.AggregateID)
			}
		}
	}
	e := testEvent()
	e.AggregateID, e.Headers = IDFromText(upper), nil
	if err := own.Validate(&e); err != nil {
		t.Errorf("a table with columns of its own has the ids of its owner: %v", err)
	}
}
