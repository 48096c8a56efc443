package api

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
)

// exactRecords are records of which texts and parsed JSON do not represent everything.
var exactRecords = []kgo.Record{
	{Key: []byte("lines"), Value: []byte("{\n  \"order\": 7,\r\n  \"total\": \"<1.50>\"\n}\n")},
	{Key: []byte("empty"), Value: []byte{}},
	{Key: []byte("no value")},
	{Key: []byte("null"), Value: []byte("null")},
	{Key: []byte("\xff\xfe\x00"), Value: []byte("\xff")},
	{Key: []byte{}, Value: []byte("text")},
	{Key: []byte("headers"), Value: []byte("1"), Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("\xff")}, {Key: "b"}}},
}

// Each way to receive returns the bytes of payload, key and headers.
func TestConsume_ReturnsTheBytes(t *testing.T) {
	t.Parallel()
	const path = "/v1/subscriptions/orders/"
	ways := map[string]func(b *fixture, srv *httptest.Server, exact bool) []json.RawMessage{
		"receive": func(b *fixture, _ *httptest.Server, exact bool) []json.RawMessage {
			body := `{"max":10}`
			if exact {
				body = `{"max":10,"exact":true}`
			}
			var out struct{ Messages []json.RawMessage }
			if err := json.Unmarshal(b.post(t, "receive", body).Body.Bytes(), &out); err != nil {
				t.Fatal(err)
			}
			return out.Messages
		},
		"stream": func(_ *fixture, srv *httptest.Server, exact bool) (out []json.RawMessage) {
			query := "stream"
			if exact {
				query += "?exact=true"
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+path+query, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := srv.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			for lines := bufio.NewScanner(resp.Body); len(out) < len(exactRecords) && lines.Scan(); {
				if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
					out = append(out, json.RawMessage(data))
				}
			}
			return out
		},
		"WebSocket": func(_ *fixture, srv *httptest.Server, exact bool) (out []json.RawMessage) {
			query := "ws"
			if exact {
				query += "?exact=true"
			}
			conn, resp, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http")+path+query, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.Body != nil {
				defer resp.Body.Close()
			}
			defer conn.CloseNow() //nolint:errcheck // it has ended
			if err := conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"credit","messages":10}`)); err != nil {
				t.Fatal(err)
			}
			for range exactRecords {
				_, body, err := conn.Read(t.Context())
				var m struct{ Message json.RawMessage }
				if err != nil || json.Unmarshal(body, &m) != nil {
					t.Fatalf("%s: %v", body, err)
				}
				out = append(out, m.Message)
			}
			return out
		},
	}
	for name, receive := range ways {
		for _, exact := range []bool{false, true} {
			b := setup(t)
			for i := range exactRecords {
				b.service.PublishEvent("orders", kafkarecord.Decode(&exactRecords[i]))
			}
			srv := httptest.NewServer(b.Handler())
			defer srv.Close()
			got := receive(b, srv, exact)
			if len(got) != len(exactRecords) {
				t.Fatalf("%s: %d messages, want %d", name, len(got), len(exactRecords))
			}
			for i, raw := range got {
				want := kafkarecord.Decode(&exactRecords[i])
				var d client.Delivery
				if err := json.Unmarshal(raw, &d); err != nil {
					t.Fatalf("%s: %s: %v", name, raw, err)
				}
				headers, err := json.Marshal(d.RecordHeaders)
				wantHeaders, err2 := json.Marshal(want.RecordHeaders)
				if err != nil || err2 != nil || !reflect.DeepEqual(d.Payload(), exactRecords[i].Value) || !reflect.DeepEqual(d.RecordKey(), exactRecords[i].Key) || string(headers) != string(wantHeaders) {
					t.Errorf("%s: %s of %+v", name, raw, exactRecords[i])
				}
				if exact && (!reflect.DeepEqual(d.DataBase64, exactRecords[i].Value) || !reflect.DeepEqual(d.KeyBase64, exactRecords[i].Key)) {
					t.Errorf("%s: %s with exact", name, raw)
				}
			}
		}
	}
}
