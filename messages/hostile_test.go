package messages

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/test/hostile"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// bytesPerByte bounds the allocations per byte of a body. The worst case is a
// payload of one object with many names, because names must be unique.
const bytesPerByte = 32

// hostileBodies are bodies of one message; at is the field that the answer names.
var hostileBodies = []struct {
	name, body string
	status     int
	at         string
}{
	{"lists in lists, closed", strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000), 422, "body.0[0]"},
	{"lists in lists, open", strings.Repeat("[", 1_000_000), 422, "body.0[0]"},
	{"lists in a payload", `{"topic":"t","payload":` + strings.Repeat("[", 1_000_000), 422, "body.payload[0]"},
	{"objects in a payload", `{"topic":"t","payload":` + strings.Repeat(`{"a":`, 100_000), 422, "body.payload.a.a"},
	{"nested in an unknown field", `{"topic":"t","x":[[[[]]]]}`, 422, "body.x[0]"},
	{"nested in headers", `{"topic":"t","headers":{"a":[[[[]]]]}}`, 422, "body.headers.a"},
	{"a name twice", `{"topic":"t","topic":"u"}`, 422, "body.topic"},
	{"a header twice", `{"topic":"t","headers":{"a":"1","\u0061":"2"}}`, 422, "body.headers.a"},
	{"a name twice in the payload", `{"topic":"t","payload":{"n":1,"n":2}}`, 422, "body.payload.n"},
	{"a name in other letters", `{"Topic":"t"}`, 422, "body.Topic"},
	{"endless members", `{` + hostile.Members(100_000) + `}`, 422, "body"},
	{"endless headers", `{"topic":"t","headers":{` + hostile.Members(100_000) + `}}`, 422, "body.headers"},
	{"the most members, all unknown", `{` + hostile.Members(64) + `}`, 422, "body.0"},
	{"a huge exponent as priority", `{"topic":"t","priority":1e999999}`, 422, "body.priority"},
	{"many digits as priority", `{"topic":"t","priority":` + strings.Repeat("9", 1_000_000) + `}`, 422, "body.priority"},
	{"a fraction as priority", `{"topic":"t","priority":1.5}`, 422, "body.priority"},
	{"many digits as time", `{"topic":"t","deliver_at":` + strings.Repeat("9", 1_000_000) + `}`, 422, "body.deliver_at"},
	{"an endless delay", `{"topic":"t","delay":"` + strings.Repeat("1h", 500_000) + `"}`, 422, "body.delay"},
	{"no base64", `{"topic":"t","payload_base64":"` + strings.Repeat("=", 1_000_000) + `"}`, 422, "body.payload_base64"},
	{"a payload that is all names", `{"topic":"t","payload":{` + hostile.Members(130_000) + `}}`, 422, "body.payload"},
	{"no UTF-8 in the payload", "{\"topic\":\"t\",\"payload\":\"\xff\xfe\"}", 400, "body.payload"},
	{"half an escaped surrogate", `{"topic":"t","key":"\ud800"}`, 400, "body.key"},
	{"a byte order mark", "\xef\xbb\xbf{}", 400, "body"},
	{"an unterminated string", `{"topic":"` + strings.Repeat("x", 1_000_000), 400, "body"},
	{"zeros", strings.Repeat("\x00", 1_000_000), 400, "body"},
	{"an endless topic", `{"topic":"` + strings.Repeat("x", 1_000_000) + `"}`, 422, "body.topic"},
	{"too large", strings.Repeat(" ", 2_000_000), 413, ""},
}

// withoutDatabase returns a service without a database, so an accepted request
// would be a 5xx.
func withoutDatabase(t testing.TB) *Service {
	t.Helper()
	s, err := NewService(nil, Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// answer returns the response to a body.
func answer(t *testing.T, h http.Handler, path, body string) hostile.Answer {
	t.Helper()
	r := world.Request(t, h, "POST", path, body)
	return hostile.Answer{Status: r.Status, Text: r.Text, Locations: locations(r)}
}

// The response to a hostile body is short and names the problem, and the memory is
// proportional to its size; also as an item of a batch.
//
//nolint:paralleltest // it counts the allocations of the process
func TestHTTP_HostileBodiesAreCheapAndNamed(t *testing.T) {
	h := newHandler(withoutDatabase(t))
	for _, tt := range hostileBodies {
		t.Run(tt.name, func(t *testing.T) {
			hostile.Check(t, tt.body, tt.status, tt.at, bytesPerByte, func() hostile.Answer { return answer(t, h, "/v1/messages", tt.body) })
		})
	}
}

//nolint:paralleltest // it counts the allocations of the process
func TestHTTP_HostileBatches(t *testing.T) {
	h := newHandler(withoutDatabase(t))
	for _, tt := range []struct {
		name, body string
		status     int
		at         string
	}{
		{"endless messages", `{"messages":[` + strings.Repeat("{},", 2_000_000) + `{}]}`, 422, "body.messages"},
		{"endless nulls", `{"messages":[` + strings.Repeat("0,", 4_000_000), 422, "body.messages"},
		{"lists in lists", `{"messages":[` + strings.Repeat("[", 8_000_000), 400, "body.messages"},
		{"endless members", `{` + hostile.Members(800_000) + `}`, 422, "body.0"},
		{"messages twice", `{"messages":[{}],"messages":[{}]}`, 422, "body.messages"},
		{"no UTF-8", "{\"messages\":[{\"topic\":\"\xff\"}]}", 400, "body.messages[0].topic"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hostile.Check(t, tt.body, tt.status, tt.at, bytesPerByte, func() hostile.Answer { return answer(t, h, "/v1/messages/batch", tt.body) })
		})
	}
	// Each bad item has its own result and does not affect the others.
	var items []string
	for _, tt := range hostileBodies {
		if tt.status == 422 && strings.HasSuffix(tt.body, "}") && len(tt.body) < 1000 {
			items = append(items, tt.body)
		}
	}
	r := world.Request(t, h, "POST", "/v1/messages/batch", `{"messages":[`+strings.Join(items, ",")+`]}`)
	if r.Status != 207 || r.Body["rejected"] != float64(len(items)) || len(items) < 5 {
		t.Errorf("a batch of %d bad items: %d %.300s", len(items), r.Status, r.Text)
	}
}

// For any body: no panic, each refusal has a location, memory is proportional
// to the size, and an item of a batch has the result of a single request.
func FuzzHostileMessage(f *testing.F) {
	for _, tt := range hostileBodies {
		if len(tt.body) < 4<<10 {
			f.Add([]byte(tt.body))
			f.Add([]byte(`{"messages":[` + tt.body + `,{"topic":"t"}]}`))
		}
	}
	f.Add([]byte(`{"topic":"t","payload":{"a":[1,2]},"headers":{"x":"y"},"delay":"1h","priority":3}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > DefaultMaxMessageBytes {
			return
		}
		var one, batch error
		var items []Item
		hostile.Cost(t, len(body), 2*bytesPerByte, func() {
			_, one = decodeMessage(body)
			items, batch = decodeBatch(body)
		})
		refusals := []error{one, batch}
		for i := range items {
			refusals = append(refusals, items[i].Err)
		}
		for _, err := range refusals {
			var syntax *jsonform.SyntaxError
			var invalid *InvalidError
			switch {
			case err == nil, errors.As(err, &syntax):
			case !errors.As(err, &invalid) || len(invalid.Fields) == 0:
				t.Errorf("refused without naming a field: %v", err)
			case len(invalid.Fields) > jsonform.MaxFieldErrors+1:
				t.Errorf("%d fields are named", len(invalid.Fields))
			}
		}
	})
}
