package kafkarecord

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

func TestDecode_IsWhatWasPublished(t *testing.T) {
	t.Parallel()
	want := outbox.Event{
		ID: outbox.NewID(), AggregateID: outbox.IDFromText("thing-1"), Sequence: 7, AggregateType: "thing", Type: "ThingMade", CreatedAt: time.Now(),
		Payload: []byte(`{"n":1}`), ContentType: "application/json", Headers: map[string]string{"traceparent": "00-1"},
	}
	r := &kgo.Record{Topic: "t", Partition: 2, Offset: 9, Key: want.Key(), Value: want.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &want, "/s")}
	got := Decode(r)
	if got.ID != want.ID.String() || got.Type != want.Type || got.AggregateID != "thing-1" || got.AggregateType != "thing" || got.Sequence != 7 ||
		got.Key != "thing-1" || got.Headers["traceparent"] != "00-1" || got.Topic != "t" || got.Partition != 2 || got.Offset != 9 {
		t.Errorf("Decode() = %+v", got)
	}
	if string(got.Payload()) != `{"n":1}` || got.Data == nil {
		t.Errorf("payload %q", got.Payload())
	}
}

func TestDecode_PayloadIsJSONTextOrNeither(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		contentType, value string
		json, text         bool
	}{
		{"", `{"a":1}`, true, false},
		{"application/vnd.x+json; charset=utf-8", `[1]`, true, false},
		{"text/plain", `{"a":1}`, false, true},
		{"", `{"a":`, false, true},
		{"", "", false, true},
		{"", "\xff\xfe", false, false},
		{"", "\"\xff\"", false, false}, // JSON except for its invalid UTF-8
	} {
		r := &kgo.Record{Value: []byte(tt.value), Headers: []kgo.RecordHeader{{Key: outbox.HeaderContentType, Value: []byte(tt.contentType)}}}
		e := Decode(r)
		if (e.Data != nil) != tt.json || (e.Text != nil) != tt.text || (e.Base64 != nil) != (!tt.json && !tt.text) || string(e.Payload()) != tt.value {
			t.Errorf("%s %q: %+v", tt.contentType, tt.value, e)
		}
	}
	bad := Decode(&kgo.Record{Key: []byte("\xff"), Headers: []kgo.RecordHeader{{Key: "a\xff", Value: []byte("\xff")}, {Key: outbox.HeaderSequence, Value: []byte("x")}}})
	if bad.Key != "\uFFFD" || bad.Headers["a\uFFFD"] != "\uFFFD" || bad.Sequence != 0 {
		t.Errorf("Decode() of no UTF-8 = %+v", bad)
	}
}

// Whatever a record contains, the event returns it exactly, also as JSON.
func TestDecode_KeepsTheBytes(t *testing.T) {
	t.Parallel()
	h := func(name string, value []byte) kgo.RecordHeader { return kgo.RecordHeader{Key: name, Value: value} }
	long := []kgo.RecordHeader{h("b", []byte("2")), h("a", []byte("1")), h("b", []byte("3"))}
	for name, tt := range map[string]struct {
		r    kgo.Record
		json string
	}{
		"no value, no key":   {kgo.Record{}, ``},
		"empty":              {kgo.Record{Key: []byte{}, Value: []byte{}}, `,"key_base64":"","data_text":""`},
		"null as JSON":       {kgo.Record{Key: []byte("k"), Value: []byte("null")}, `,"key":"k","data":null`},
		"binary":             {kgo.Record{Key: []byte("\xff\xfe\x00"), Value: []byte("\xff")}, `,"key":"�\u0000","key_base64":"//4A","data_base64":"/w=="`},
		"JSON with lines":    {kgo.Record{Value: []byte("{\r\n \"a\": 1}\n")}, `,"data":{"a":1},"data_base64":"ew0KICJhIjogMX0K"`},
		"JSON with <":        {kgo.Record{Value: []byte(`"<"`)}, `,"data":"\u003c","data_base64":"Ijwi"`},
		"texts":              {kgo.Record{Headers: []kgo.RecordHeader{h("b", []byte("é")), h("a", []byte{})}}, `,"headers":{"a":"","b":"é"}`},
		"repeated":           {kgo.Record{Headers: long}, `,"headers":{"a":"1","b":"3"},"record_headers":[{"name":"b","value_base64":"Mg=="},{"name":"a","value_base64":"MQ=="},{"name":"b","value_base64":"Mw=="}]`},
		"a header is null":   {kgo.Record{Headers: []kgo.RecordHeader{h("a", nil)}}, `,"headers":{"a":""},"record_headers":[{"name":"a","value_base64":null}]`},
		"a header is binary": {kgo.Record{Headers: []kgo.RecordHeader{h("a", []byte("\xff"))}}, `,"headers":{"a":"�"},"record_headers":[{"name":"a","value_base64":"/w=="}]`},
		"a name is binary":   {kgo.Record{Headers: []kgo.RecordHeader{h("\xff", []byte("1"))}}, `,"headers":{"�":"1"},"record_headers":[{"name_base64":"/w==","value_base64":"MQ=="}]`},
		"two ids":            {kgo.Record{Headers: []kgo.RecordHeader{h(outbox.HeaderID, []byte("1")), h(outbox.HeaderID, []byte("2"))}}, `,"event_id":"2","record_headers":[{"name":"ce_id","value_base64":"MQ=="},{"name":"ce_id","value_base64":"Mg=="}]`},
		"no number":          {kgo.Record{Headers: []kgo.RecordHeader{h(outbox.HeaderSequence, []byte("07"))}}, `,"sequence":7,"record_headers":[{"name":"ce_aggregatesequence","value_base64":"MDc="}]`},
	} {
		e := Decode(&tt.r)
		if !reflect.DeepEqual(e.Payload(), tt.r.Value) || !reflect.DeepEqual(e.RecordKey(), tt.r.Key) {
			t.Errorf("%s: payload %#v, key %#v", name, e.Payload(), e.RecordKey())
		}
		b, err := json.Marshal(e.ForJSON())
		want := `{"topic":"","partition":0,"offset":0,"at":"0001-01-01T00:00:00Z"` + tt.json + `}`
		if string(b) != want || err != nil {
			t.Errorf("%s: %s, %v\nwant %s", name, b, err, want)
		}
		var back Event
		if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back.Payload(), tt.r.Value) || !reflect.DeepEqual(back.RecordKey(), tt.r.Key) {
			t.Errorf("%s: payload %q, key %q, %v after JSON", name, back.Payload(), back.RecordKey(), err)
		}
		x := e.Exact()
		if !reflect.DeepEqual(x.Base64, tt.r.Value) || !reflect.DeepEqual(x.KeyBase64, tt.r.Key) {
			t.Errorf("%s: exactly %#v, %#v", name, x.Base64, x.KeyBase64)
		}
	}
}

// For any record, the event can be encoded as valid JSON.
func TestDecode_IsAlwaysJSON(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]*kgo.Record{
		"no UTF-8 in JSON":   {Value: []byte("{\"a\":\"\xff\"}")},
		"no UTF-8 elsewhere": {Key: []byte("\xff"), Topic: "t", Headers: []kgo.RecordHeader{{Key: "\xff", Value: []byte("\xff")}}},
		"the year 292278994": {Timestamp: time.UnixMilli(math.MaxInt64)},
		"before all years":   {Timestamp: time.UnixMilli(math.MinInt64)},
	} {
		e := Decode(r)
		b, err := json.Marshal(&e)
		if err != nil || !utf8.Valid(b) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}
