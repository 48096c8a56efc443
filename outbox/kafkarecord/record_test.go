package kafkarecord

import (
	"encoding/json"
	"math"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

func TestDecode_IsWhatWasPublished(t *testing.T) {
	t.Parallel()
	want := outbox.Event{
		ID: outbox.NewID(), AggregateText: "thing-1", Sequence: 7, AggregateType: "thing", Type: "ThingMade", CreatedAt: time.Now(),
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
