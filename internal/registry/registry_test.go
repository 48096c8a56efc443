package registry

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
)

func encodeFramed(id uint32, rest ...byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, id), rest...)
}

func newRegistry(t testing.TB) (*Registry, *srfake.Registry) {
	t.Helper()
	fake := srfake.New()
	t.Cleanup(fake.Close)
	seed := func(subject string, id int, typ sr.SchemaType, text string, refs ...sr.SchemaReference) {
		fake.SeedSchema(subject, 1, id, sr.Schema{Schema: text, Type: typ, References: refs})
	}
	seed("money", 1, sr.TypeAvro, `{"type":"record","name":"Money","namespace":"a","fields":[{"name":"v","type":{"type":"bytes","logicalType":"decimal","scale":2}}]}`)
	seed("avro-value", 2, sr.TypeAvro, `{"type":"record","name":"O","namespace":"a","fields":[{"name":"id","type":"long"},{"name":"tags","type":{"type":"map","values":["null","string"]}},{"name":"m","type":"Money"},{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}}]}`,
		sr.SchemaReference{Name: "a.Money", Subject: "money", Version: 1})
	seed("item", 3, sr.TypeProtobuf, `syntax = "proto3"; package p; message Item { string sku = 1; int32 count = 2; }`)
	seed("proto-value", 4, sr.TypeProtobuf, `syntax = "proto3"; package p; import "item.proto"; import "confluent/meta.proto"; import "google/protobuf/timestamp.proto";
		message Other {} message O { message In { Item item = 1 [json_name = "theItem"]; google.protobuf.Timestamp at = 2; repeated O again = 3; } }`,
		sr.SchemaReference{Name: "item.proto", Subject: "item", Version: 1})
	seed("id", 5, sr.TypeJSON, `{"type":"integer"}`)
	seed("json-value", 6, sr.TypeJSON, `{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":{"n":{"$ref":"id.json"}},"required":["n"]}`,
		sr.SchemaReference{Name: "id.json", Subject: "id", Version: 1})
	seed("loop-value", 7, sr.TypeAvro, `{"type":"record","name":"L","fields":[{"name":"l","type":"L"}]}`)
	seed("nulls-value", 8, sr.TypeAvro, `{"type":"array","items":"null"}`)
	seed("remote-value", 9, sr.TypeJSON, `{"$ref":"http://example.com/x.json"}`)
	r, err := New(strings.Replace(fake.URL(), "http://", "http://user:secret@", 1), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r, fake
}

var avroOrder = encodeFramed(2, 14, 4, 2, 'a', 2, 2, 'x', 2, 'b', 0, 0, 4, 0x04, 0xd2, 0xd0, 0x0f)

func protoOrder() []byte {
	item := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "s")
	return encodeFramed(4, append([]byte{4, 2, 0}, protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), item)...)...)
}

func TestRegistry_DecodesEachFormat(t *testing.T) {
	t.Parallel()
	r, _ := newRegistry(t)
	for want, payload := range map[string][]byte{
		`{"id":7,"tags":{"a":"x","b":null},"m":{"v":"12.34"},"at":"1970-01-01T00:00:01Z"}`: avroOrder,
		`{"theItem":{"sku":"s","count":0},"again":[]}`:                                     protoOrder(),
		`{"n":1}`: encodeFramed(6, []byte(`{"n":1}`)...),
	} {
		e := kafkarecord.Event{Base64: payload}
		if err := r.Decode(t.Context(), &e); err != nil || string(e.Data) != want || string(e.Payload()) != string(payload) {
			t.Errorf("%s, %v, want %s", e.Data, err, want)
		}
	}
	for name, payload := range map[string][]byte{
		"unknown id": encodeFramed(99, 1), "a loop": encodeFramed(7), "nulls": encodeFramed(8, 0xfe, 0xff, 0xff, 0xff, 0xff, 0x0f, 0), "short": avroOrder[:9], "long": append(avroOrder[:len(avroOrder):len(avroOrder)], 0), "no type": encodeFramed(4, 2, 9),
	} {
		if data, err := r.JSON(t.Context(), payload); err == nil || errors.Is(err, ErrUnavailable) || data != nil {
			t.Errorf("%s: %s, %v", name, data, err)
		}
	}
	if data, err := r.JSON(t.Context(), []byte(`{}`)); data != nil || err != nil {
		t.Errorf("no header: %s, %v", data, err)
	}
}

func TestRegistry_ChecksContracts(t *testing.T) {
	t.Parallel()
	r, fake := newRegistry(t)
	for _, tt := range []struct {
		topic   string
		payload []byte
		id      string
		problem string
	}{
		{"json", []byte(`{"n":1}`), "6", ""},
		{"json", encodeFramed(6, []byte(`{"n":1}`)...), "6", ""},
		{"json", []byte(`{"n":"x"}`), "", "/n: got string, want integer"},
		{"json", []byte(`{`), "", "not JSON"},
		{"json", encodeFramed(6, []byte(`{}`)...), "", "missing property"},
		{"avro", avroOrder, "2", ""},
		{"avro", []byte(`{"id":7}`), "", "payload_base64"},
		{"avro", encodeFramed(4, protoOrder()[5:]...), "", "schema 4, which is none of avro-value"},
		{"avro", avroOrder[:8], "", "ends too early"},
		{"proto", protoOrder(), "4", ""},
		{"remote", []byte(`1`), "", ""}, // its schema cannot be used
		{"free", []byte(`anything`), "", ""},
	} {
		url, err := r.Check(t.Context(), tt.topic, tt.payload)
		want := ""
		if tt.id != "" {
			want = fake.URL() + "/schemas/ids/" + tt.id
		}
		var bad *ContractError
		if url != want || errors.As(err, &bad) != (tt.problem != "") || bad != nil && !strings.Contains(bad.Problem, tt.problem) || bad == nil && err != nil {
			t.Errorf("%s %q: %q, %v, want %q, %q", tt.topic, tt.payload, url, err, want, tt.problem)
		}
	}
}

// The last known schema of a subject serves while the registry is away; other subjects do not.
func TestRegistry_Away(t *testing.T) {
	t.Parallel()
	r, fake := newRegistry(t)
	if _, err := r.Check(t.Context(), "json", []byte(`{"n":1}`)); err != nil {
		t.Fatal(err)
	}
	fake.Close()
	r.now = func() time.Time { return time.Now().Add(time.Hour) }
	if _, err := r.Check(t.Context(), "json", []byte(`{"n":1}`)); err != nil {
		t.Errorf("stale: %v", err)
	}
	if _, err := r.Check(t.Context(), "json", []byte(`{}`)); !errors.As(err, new(*ContractError)) {
		t.Errorf("stale, and broken: %v", err)
	}
	if _, err := r.Check(t.Context(), "avro", avroOrder); !errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("nothing cached: %v", err)
	}
	if err := r.Decode(t.Context(), &kafkarecord.Event{Base64: avroOrder}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Decode() = %v", err)
	}
}

// Avro decodes each kind of timestamp, and errors name the problem.
func TestRegistry_Avro(t *testing.T) {
	t.Parallel()
	r, fake := newRegistry(t)
	for i, tt := range []struct {
		schema, want, problem string
		value                 []byte
	}{
		{`{"type":"long","logicalType":"timestamp-micros"}`, `"1970-01-01T00:00:00.000001Z"`, "", []byte{2}},
		{`{"type":"long","logicalType":"timestamp-nanos"}`, `"1970-01-01T00:00:00.000000001Z"`, "", []byte{2}},
		{`{"type":"long","logicalType":"local-timestamp-millis"}`, `"1970-01-01T00:00:00.001"`, "", []byte{2}},
		{`{"type":"long","logicalType":"local-timestamp-micros"}`, `"1970-01-01T00:00:00.000001"`, "", []byte{2}},
		{`{"type":"long","logicalType":"local-timestamp-nanos"}`, `"1970-01-01T00:00:00.000000001"`, "", []byte{2}},
		{`{"type":"int","logicalType":"date"}`, `"1970-01-02"`, "", []byte{2}},
		{`"int"`, `-2147483648`, "", binary.AppendVarint(nil, -1<<31)},
		{`"int"`, "", "1099511627776 is not an int", binary.AppendVarint(nil, 1<<40)},
		{`{"type":"record","name":"L","fields":[{"name":"l","type":["null","L"]}]}`, "", "nested in more than 64 levels", bytes.Repeat([]byte{2}, 100)},
	} {
		id := uint32(100 + i)
		fake.SeedSchema(fmt.Sprint("s", i), 1, int(id), sr.Schema{Type: sr.TypeAvro, Schema: tt.schema})
		data, err := r.JSON(t.Context(), encodeFramed(id, tt.value...))
		if string(data) != tt.want || (err != nil) != (tt.problem != "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("%s: %s, %v; want %s, %s", tt.schema, data, err, tt.want, tt.problem)
		}
	}
}

// A schema that this program cannot use does not refuse messages: they are not checked, and JSON
// is decoded. Older schemas of the subject are checked.
func TestRegistry_SchemasThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"look-ahead": `{"pattern":"^(?!x)"}`, "custom dialect": `{"$schema":"https://example.com/own","type":"string"}`,
	} {
		r, fake := newRegistry(t)
		fake.SeedSchema("json-value", 2, 60, sr.Schema{Type: sr.TypeJSON, Schema: text})
		if url, err := r.Check(t.Context(), "json", []byte(`1`)); err != nil || url != "" {
			t.Errorf("%s: Check() = %q, %v", name, url, err)
		}
		if data, err := r.JSON(t.Context(), encodeFramed(60, '1')); err != nil || string(data) != "1" {
			t.Errorf("%s: JSON() = %s, %v", name, data, err)
		}
		if url, err := r.Check(t.Context(), "json", encodeFramed(6, []byte(`{"n":1}`)...)); err != nil || url != fake.URL()+"/schemas/ids/6" {
			t.Errorf("%s: Check() of an older schema = %q, %v", name, url, err)
		}
		if _, err := r.Check(t.Context(), "json", encodeFramed(6, []byte(`{}`)...)); !errors.As(err, new(*ContractError)) {
			t.Errorf("%s: Check() of what breaks an older schema = %v", name, err)
		}
	}
	var log bytes.Buffer
	r, fake := newRegistry(t)
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	fake.SeedSchema("avro-value", 2, 60, sr.Schema{Type: sr.TypeAvro, Schema: `{"type":"own"}`})
	for range 3 {
		if url, err := r.Check(t.Context(), "avro", encodeFramed(60)); err != nil || url != "" {
			t.Errorf("Check() = %q, %v", url, err)
		}
	}
	if url, err := r.Check(t.Context(), "avro", avroOrder); err != nil || url != fake.URL()+"/schemas/ids/2" {
		t.Errorf("Check() of an older schema = %q, %v", url, err)
	}
	if n := strings.Count(log.String(), "schema cannot be used"); n != 1 {
		t.Errorf("log %s, want one entry", log.String())
	}
}

// A new version of a schema is used after its lifetime, without a restart.
func TestRegistry_NewVersion(t *testing.T) {
	t.Parallel()
	r, fake := newRegistry(t)
	check := func(id string, after time.Duration) {
		t.Helper()
		r.now = func() time.Time { return time.Now().Add(after) }
		if url, err := r.Check(t.Context(), "json", []byte(`{"n":1}`)); err != nil || url != fake.URL()+"/schemas/ids/"+id {
			t.Errorf("after %s: %q, %v, want schema %s", after, url, err, id)
		}
	}
	check("6", 0)
	fake.SeedSchema("json-value", 2, 60, sr.Schema{Type: sr.TypeJSON, Schema: `{}`})
	check("6", lifetime/2)
	check("60", lifetime+time.Second)
}

// Unknown ids, which any producer can write, do not fill the memory and do not replace schemas.
// They are requested once in unknownTime.
func TestRegistry_BoundedCache(t *testing.T) {
	t.Parallel()
	r, fake := newRegistry(t)
	_, _ = r.JSON(t.Context(), encodeFramed(6))
	var requests atomic.Int64
	fake.Intercept(func(http.ResponseWriter, *http.Request) bool { requests.Add(1); return false })
	for id := range uint32(maxEntries + 50) {
		for range 2 {
			_, _ = r.JSON(t.Context(), encodeFramed(1000+id, 0))
		}
	}
	r.mu.Lock()
	n, there := len(r.mu.cache), r.mu.cache["schema 6"].value != nil
	r.mu.Unlock()
	if n != maxEntries || !there || requests.Load() != maxEntries+50 {
		t.Errorf("%d entries, schema 6 %t, %d requests; want %d, true, %d", n, there, requests.Load(), maxEntries, maxEntries+50)
	}
	r.now = func() time.Time { return time.Now().Add(unknownTime) }
	fake.SeedSchema("new", 1, 1000+maxEntries, sr.Schema{Type: sr.TypeJSON, Schema: `{}`})
	if data, err := r.JSON(t.Context(), encodeFramed(1000+maxEntries, '1')); err != nil || string(data) != "1" {
		t.Errorf("an id that was unknown: %s, %v", data, err)
	}
}

// answers lets a registry answer requests whose path ends with one of the suffixes, and counts all.
func answers(fake *srfake.Registry, status int, body string, suffixes ...string) (requests *atomic.Int64) {
	requests = new(atomic.Int64)
	fake.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		requests.Add(1)
		if !slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(r.URL.Path, s) }) {
			return false
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return true
	})
	return requests
}

// A 404 that is not the registry's, such as that of a load balancer, is no answer: the last known
// schema serves, and an unknown one may be known later. It does not delay other lookups.
func TestRegistry_AnswersOfProxies(t *testing.T) {
	t.Parallel()
	for status, body := range map[int]string{404: "<html>not found</html>", 422: `{"message":"no"}`, 403: "<html>", 400: ""} {
		r, fake := newRegistry(t)
		if _, err := r.Check(t.Context(), "json", []byte(`{"n":1}`)); err != nil {
			t.Fatal(err)
		}
		answers(fake, status, body, "/json-value/versions/latest", "/free-value/versions/latest", "/ids/2")
		r.now = func() time.Time { return time.Now().Add(time.Hour) }
		for range 2 {
			if _, err := r.Check(t.Context(), "json", []byte(`{}`)); !errors.As(err, new(*ContractError)) {
				t.Errorf("%d: Check() = %v, want an error of the last known schema", status, err)
			}
		}
		if _, err := r.Check(t.Context(), "free", nil); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%d: Check() without a known schema = %v", status, err)
		}
		if _, err := r.JSON(t.Context(), avroOrder); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%d: JSON() = %v", status, err)
		}
		if _, err := r.JSON(t.Context(), protoOrder()); err != nil {
			t.Errorf("%d: another schema: %v", status, err)
		}
	}
}

// A refusal of the registry for one id or subject, or a response that is too large, is no outage:
// it is requested once in a lifetime, does not delay other lookups, and messages are not checked.
func TestRegistry_Refusals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		body   string
	}{
		"forbidden": {403, `{"error_code":40301,"message":"denied"}`},
		"large":     {200, `{"schema":"` + strings.Repeat("x", maxAnswer) + `"}`},
	} {
		r, fake := newRegistry(t)
		requests := answers(fake, tt.status, tt.body, "/avro-value/versions/latest", "/ids/2")
		for range 3 {
			if _, err := r.JSON(t.Context(), avroOrder); !errors.Is(err, errRefused) {
				t.Errorf("%s: JSON() = %v", name, err)
			}
			if url, err := r.Check(t.Context(), "avro", nil); url != "" || err != nil {
				t.Errorf("%s: Check() = %q, %v", name, url, err)
			}
		}
		if n := requests.Load(); n != 2 {
			t.Errorf("%s: %d requests, want 2", name, n)
		}
		if _, err := r.Check(t.Context(), "json", []byte(`{"n":1}`)); err != nil {
			t.Errorf("%s: another subject: %v", name, err)
		}
	}
}

// One request that always fails does not stop others, whose retries come after RetryAfter.
func TestRegistry_OneFailure(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"<html>", `{"error_code":50001}`} {
		r, fake := newRegistry(t)
		answers(fake, 500, body, "/ids/2")
		start := time.Now()
		resolved := false
		for i := range 3 {
			r.now = func() time.Time { return start.Add(time.Duration(i) * (RetryAfter + time.Millisecond)) }
			if _, err := r.JSON(t.Context(), avroOrder); !errors.Is(err, ErrUnavailable) {
				t.Errorf("%s: JSON() = %v", body, err)
			}
			_, err := r.JSON(t.Context(), protoOrder())
			if resolved = resolved || err == nil; i == 0 && !resolved && body != "<html>" {
				t.Errorf("%s: another schema: %v", body, err)
			}
		}
		if !resolved {
			t.Errorf("%s: another schema was not read", body)
		}
	}
}

// A caller that leaves does not stop the request, whose answer serves others, and is no outage.
func TestRegistry_CallerLeaves(t *testing.T) {
	t.Parallel()
	r, fake := newRegistry(t)
	if _, err := r.Check(t.Context(), "avro", avroOrder); err != nil {
		t.Fatal(err)
	}
	asked, answer := make(chan struct{}), make(chan struct{})
	var requests atomic.Int64
	fake.Intercept(func(http.ResponseWriter, *http.Request) bool {
		if requests.Add(1) == 1 {
			close(asked)
			<-answer
		}
		return false
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	other := encodeFramed(4, protoOrder()[5:]...)
	if _, err := r.Check(ctx, "avro", other); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Check() of a caller that left = %v", err)
	}
	if _, err := r.Check(t.Context(), "json", []byte(`{"n":1}`)); err != nil {
		t.Errorf("Check() of another caller = %v", err)
	}
	before := requests.Load()
	close(answer)
	for range 3 {
		if _, err := r.Check(t.Context(), "avro", other); !errors.As(err, new(*ContractError)) {
			t.Errorf("Check() = %v", err)
		}
	}
	if n := requests.Load(); n != before {
		t.Errorf("%d more requests, want none", n-before)
	}
	if _, err := r.JSON(ctx, encodeFramed(3, 0)); !errors.Is(err, ErrUnavailable) || requests.Load() != before {
		t.Errorf("JSON() after the end of the context: %v, %d requests", err, requests.Load()-before)
	}
}

// An attempt to read a schema continues with the reference that failed, so that many slow ones
// are resolved by several attempts.
func TestRegistry_References(t *testing.T) {
	t.Parallel()
	r, fake := newRegistry(t)
	answers(fake, 404, "", "/subjects/money/versions/1")
	if _, err := r.JSON(t.Context(), avroOrder); !errors.Is(err, ErrUnavailable) {
		t.Errorf("JSON() = %v", err)
	}
	r.now = func() time.Time { return time.Now().Add(RetryAfter) }
	fake.ClearInterceptors()
	if _, err := r.references(t.Context(), []sr.SchemaReference{{Name: "a.Money", Subject: "money", Version: 1}}); err != nil {
		t.Fatal(err)
	}
	requests := answers(fake, 500, "", "/subjects/money/versions/1")
	if _, err := r.JSON(t.Context(), avroOrder); err != nil || requests.Load() != 1 {
		t.Errorf("JSON() = %v after %d requests, want one", err, requests.Load())
	}
}

// While the registry hangs, an expired schema serves at once for all callers but one.
func TestRegistry_Hangs(t *testing.T) {
	t.Parallel()
	r, fake := newRegistry(t)
	if _, err := r.Check(t.Context(), "json", []byte(`{"n":1}`)); err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{})
	defer close(end)
	fake.Intercept(func(http.ResponseWriter, *http.Request) bool { <-end; return false })
	r.now = func() time.Time { return time.Now().Add(time.Hour) }
	began := time.Now()
	for range 10 {
		if _, err := r.Check(t.Context(), "json", []byte(`{"n":1}`)); err != nil {
			t.Errorf("Check() = %v", err)
		}
	}
	if d := time.Since(began); d > 2*staleTime {
		t.Errorf("10 checks took %s", d)
	}
}

// The JSON of a Protobuf message is bounded before it is decoded, whatever makes it large.
func TestRegistry_BoundedProtobuf(t *testing.T) {
	t.Parallel()
	r, fake := newRegistry(t)
	fake.SeedSchema("big-value", 1, 50, sr.Schema{Type: sr.TypeProtobuf, Schema: `syntax = "proto3"; import "google/protobuf/any.proto"; import "google/protobuf/struct.proto";
		enum E { A_NAME_OF_AN_ENUM_` + strings.Repeat("X", 500) + ` = 0; }
		message M { repeated E enums = 1; repeated M list = 2; google.protobuf.Any any = 3; map<string, M> map = 4; string text = 5; bytes raw = 6; repeated double numbers = 7; google.protobuf.Value value = 8; }`})
	field := func(n protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
	}
	for name, tt := range map[string]struct {
		message []byte
		want    string
	}{
		"enums":       {field(1, make([]byte, 100<<10)), ""},
		"no value":    {bytes.Repeat([]byte{2<<3 | 2, 0}, 200_000), ""},
		"map":         {bytes.Repeat([]byte{4<<3 | 2, 0}, 200_000), ""},
		"escapes":     {field(5, make([]byte, 2<<20)), ""},
		"long bytes":  {field(6, make([]byte, 7<<20)), ""},
		"nested list": {field(2, bytes.Repeat([]byte{2<<3 | 2, 0}, 200_000)), ""},
		"any":         {field(3, append(field(1, []byte("type.googleapis.com/M")), field(2, field(2, nil))...)), `"any":{"@type":"type.googleapis.com/M"}`},
		"text":        {field(5, bytes.Repeat([]byte("a"), 1<<20)), strings.Repeat("a", 1<<20)},
		"numbers":     {field(7, make([]byte, 1_000_000)), "0,0"},
	} {
		data, err := r.JSON(t.Context(), encodeFramed(50, append([]byte{0}, tt.message...)...))
		if tt.want == "" && !errors.Is(err, errTooLarge) || tt.want != "" && !strings.Contains(string(data), tt.want) {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
	payload := encodeFramed(50, append([]byte{0}, bytes.Repeat([]byte{2<<3 | 2, 0}, 200_000)...)...)
	used := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			_, _ = r.JSON(t.Context(), payload)
		}
	}).AllocedBytesPerOp()
	if used > 16<<20 { // other tests allocate too
		t.Errorf("a message that is too large takes %d bytes", used)
	}
}

// Protobuf schemas use what registries accept: aliases of enums, well-known types, and a reference
// with any name.
func TestRegistry_ProtobufSchemas(t *testing.T) {
	t.Parallel()
	r, fake := newRegistry(t)
	var imports strings.Builder
	for path := range wellKnown {
		fmt.Fprintf(&imports, "import %q; ", path)
	}
	for _, name := range []string{"any", "api", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type", "wrappers"} {
		fmt.Fprintf(&imports, `import "google/protobuf/%s.proto"; `, name)
	}
	fake.SeedSchema("registry.proto", 1, 60, sr.Schema{Type: sr.TypeProtobuf, Schema: `syntax = "proto3"; message Other { string no = 1; }`})
	fake.SeedSchema("types-value", 1, 50, sr.Schema{
		Type: sr.TypeProtobuf, Schema: `syntax = "proto3"; import "registry.proto"; ` + imports.String() + `
		message M { enum E { option allow_alias = true; A = 0; B = 0; } E e = 1; google.type.Money money = 2; confluent.type.Decimal decimal = 3; google.protobuf.Type type = 4; google.protobuf.Api api = 5; Other other = 6; google.type.DateTime at = 7; }
		enum E { option allow_alias = true; C = 0; D = 0; }`,
		References: []sr.SchemaReference{{Name: "registry.proto", Subject: "registry.proto", Version: 1}},
	})
	if data, err := r.JSON(t.Context(), encodeFramed(50, 0, 2<<3|2, 2, 2<<3, 5)); err != nil || !strings.Contains(string(data), `"e":"A","money":{"currencyCode":"","units":"5","nanos":0}`) {
		t.Errorf("JSON() = %s, %v", data, err)
	}
}

func FuzzDecode(f *testing.F) {
	r, _ := newRegistry(f)
	f.Add(avroOrder)
	f.Add(protoOrder())
	f.Add(encodeFramed(6, '{', '}'))
	f.Fuzz(func(_ *testing.T, payload []byte) {
		for id := range uint32(9) {
			if len(payload) > 5 {
				_, _ = r.JSON(context.Background(), encodeFramed(id, payload[5:]...))
			}
		}
	})
}
