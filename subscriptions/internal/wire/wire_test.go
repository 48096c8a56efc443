package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// AppendMessage writes what encoding/json writes for a message, and Messages reads it.
func TestMessage_IsThatOfItsStruct(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 24, 1, 2, 3, 4000, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		m := subscriptions.Message{
			Receipt: "r" + text.Draw(t, "receipt"), Attempt: rapid.IntRange(1, 9).Draw(t, "attempt"), MaxReceive: 3, LeaseUntil: at,
			Event: kafkarecord.Event{
				Topic: text.Draw(t, "topic"), Partition: rapid.Int32().Draw(t, "partition"), Offset: rapid.Int64().Draw(t, "offset"), At: at,
				Key: text.Draw(t, "key"), ID: text.Draw(t, "id"), Type: text.Draw(t, "type"), AggregateID: text.Draw(t, "aggregate"),
				Sequence: rapid.Int64Range(0, 3).Draw(t, "sequence"), Time: text.Draw(t, "time"), ContentType: text.Draw(t, "content type"),
			},
		}
		if h := rapid.MapOfN(text, text, 0, 3).Draw(t, "headers"); len(h) > 0 {
			m.Headers = h
		}
		switch rapid.IntRange(0, 3).Draw(t, "payload") {
		case 0:
			m.Data = json.RawMessage("{\r\n \"n\": 1}")
		case 1:
			s := text.Draw(t, "text")
			m.Text = &s
		case 2: // decoded by its schema
			m.Data, m.Base64 = json.RawMessage(`{"n":1}`), []byte{0, 1}
		default:
			m.Base64 = rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "bytes")
		}
		if rapid.Bool().Draw(t, "binary") {
			m.KeyBase64 = rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "key bytes")
			m.RecordHeaders = []kafkarecord.Header{{Name: text.Draw(t, "name")}, {NameBase64: []byte("\xff"), Value: rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "value")}}
		}
		got := AppendMessage(nil, &m)
		want, err := json.Marshal(&m)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if err := json.Unmarshal(got, &a); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		if err := json.Unmarshal(want, &b); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("AppendMessage() = %s, want %s", got, want)
		}
		back, err := Messages(AppendMessages(nil, []subscriptions.Message{m, m}))
		if err != nil || len(back) != 2 || string(AppendMessage(nil, &back[1])) != string(got) {
			t.Fatalf("Messages() = %+v, %v", back, err)
		}
	})
}

// A message contains the bytes of its record; a line of an event stream has the bytes of data with
// line breaks beside the data.
func TestMessage_KeepsTheBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		bytesOf := func(name string) []byte {
			if rapid.Bool().Draw(t, name+" is null") {
				return nil
			}
			return rapid.SliceOfN(rapid.SampledFrom([]byte("\r\n {}[]1\"\xff\x00a")), 0, 6).Draw(t, name)
		}
		r := kgo.Record{Key: bytesOf("key"), Value: bytesOf("value")}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: rapid.SampledFrom([]string{"a", "b", "c\xff"}).Draw(t, "name"), Value: bytesOf("header")})
		}
		m := subscriptions.Message{Receipt: "r", Event: kafkarecord.Decode(&r)}
		line := AppendLine(nil, &m)
		if bytes.ContainsAny(line, "\r\n") {
			t.Fatalf("%q contains a line break", line)
		}
		for _, encoded := range [][]byte{AppendMessage(nil, &m), line} {
			got, err := Messages(slices.Concat([]byte(`{"messages":[`), encoded, []byte(`]}`)))
			if err != nil || len(got) != 1 {
				t.Fatalf("%q: %v", encoded, err)
			}
			if e := got[0]; !reflect.DeepEqual(e.Payload(), r.Value) || !reflect.DeepEqual(e.RecordKey(), r.Key) || !reflect.DeepEqual(e.RecordHeaders, m.RecordHeaders) {
				t.Fatalf("%q is %+v", encoded, e)
			}
		}
	})
}

func TestResults_AreThoseOfTheirStruct(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 24, 1, 2, 3, 0, time.UTC)
	rs := []subscriptions.Result{{Code: subscriptions.CodeOK}, {Code: subscriptions.CodeLeaseExpired, Error: `the "lease"`}, {Code: subscriptions.CodeOK, LeaseUntil: at}}
	want := `[{"code":"ok"},{"code":"lease_expired","error":"the \"lease\""},{"code":"ok","lease_until":"2026-11-24T01:02:03Z"}]`
	if got := string(AppendResults(nil, rs)); got != want {
		t.Errorf("AppendResults() = %s, want %s", got, want)
	}
}

func batch(n int) []subscriptions.Message {
	ms := make([]subscriptions.Message, n)
	for i := range ms {
		ms[i] = subscriptions.Message{
			Receipt: "A1b2C3d4A1b2C3d4A1b2C3d4A1b2C3d4A1b2C3d4A1b2C3d4A1b2C3d4A1b2C3d4A1b2C3d4A1b2C3d4A1b2C3d4A1b2C3d4", Attempt: 1, MaxReceive: 3, LeaseUntil: time.Now(),
			Event: kafkarecord.Event{
				Topic: "OrderCreated", Partition: 3, Offset: int64(i), At: time.Now(), Key: "01a1fdab-a873-7804-8159-8f6ba00d992c", ID: "01a1fdab-a873-7807-854b-50e5bdfcfb06",
				Type: "OrderCreated", AggregateID: "01a1fdab-a873-7804-8159-8f6ba00d992c", AggregateType: "order", Sequence: 1, Time: "2026-11-21T10:34:07.862Z",
				Headers: map[string]string{"outbox-captured": "2026-11-21T10:34:07.863Z", "outbox-attempts": "1"},
				Data:    json.RawMessage(fmt.Sprintf(`{"id":"01a1fdab-a873-7804-8159-8f6ba00d992c","version":1,"status":"placed","lines":[{"sku":"71053","description":"Lantern","quantity":2,"unit_price":"3.39"}],"n":%d}`, i)),
			},
		}
	}
	return ms
}

// BenchmarkMessages measures the two ways to encode a response of 100 messages.
func BenchmarkMessages(b *testing.B) {
	ms := batch(100)
	b.Run("append", func(b *testing.B) {
		var buf []byte
		for b.Loop() {
			buf = AppendMessages(buf[:0], ms)
		}
		b.SetBytes(int64(len(buf)))
	})
	b.Run("encoding/json", func(b *testing.B) {
		var out []byte
		for b.Loop() {
			out, _ = json.Marshal(map[string]any{"messages": ms})
		}
		b.SetBytes(int64(len(out)))
	})
}

// A response is read as a whole, with members of a later version, or not at all.
func TestMessages_OfOthers(t *testing.T) {
	t.Parallel()
	good := subscriptions.Message{Receipt: "r", Attempt: 1, Event: kafkarecord.Event{Topic: "t", Data: []byte(`{"n":1}`)}}
	bad := good
	bad.Data = []byte(`{"n":`)
	if got, err := Messages(AppendMessages(nil, []subscriptions.Message{good, bad, good})); err == nil {
		t.Errorf("Messages() with data that is no JSON = %+v", got)
	}
	later := bytes.Replace(AppendMessages(nil, []subscriptions.Message{good}), []byte(`"attempt"`), []byte(`"new":{"a":[1]},"attempt"`), 1)
	if got, err := Messages(later); err != nil || len(got) != 1 || got[0].Receipt != "r" || string(got[0].Data) != string(good.Data) {
		t.Errorf("Messages() of a later version = %+v, %v", got, err)
	}
}

func TestMain(m *testing.M) {
	seeds.Rapid()
	m.Run()
}
