package filter

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

func TestTransform_PayloadAndHeaders(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`: `application/json {"region":"eu","x":""} {"total":"1250.00","lines":[{"sku":"a","quantity":2},{"sku":"b","quantity":1000000}],"customer":null,"n":3}`,
		// A JSON value.
		`{"payload": {"id": event_id, "total": double(data.total), "first": data.lines[0], "none": data.customer, "at": time, "after": at - time, "big": data.lines.exists(l, l.quantity > 999)}}`: `application/json {"region":"eu","x":""} {"after":"0.5s","at":"2026-01-02T03:04:04.5Z","big":true,"first":{"quantity":2,"sku":"a"},"id":"e-1","none":null,"total":1250}`,
		`{"payload": data.lines.map(l, l.sku)}`:                                                            `application/json {"region":"eu","x":""} ["a","b"]`,
		`{"payload": data.transformMap(k, v, k != "lines", v)}`:                                            `application/json {"region":"eu","x":""} {"customer":null,"n":3,"total":"1250.00"}`,
		`{"payload": null}`:                                                                                `application/json {"region":"eu","x":""} null`,
		`{"payload": [1, 2u, 2.5, -1e300, true, "<\n>"]}`:                                                  `application/json {"region":"eu","x":""} [1,2,2.5,-1e+300,true,"<\n>"]`,
		`{"payload": {"a": 1}, "headers": {"Content-Type": "text/plain"}}`:                                 `text/plain {"region":"eu","x":""} text "{\"a\":1}"`,
		`{"payload": {"a": 1}, "headers": {"Content-Type": "text/x-json"}}`:                                `text/x-json {"region":"eu","x":""} {"a":1}`,
		`{"payload": {"a": 1}, "headers": {"content-type": "application/vnd.x+json"}}`:                     `application/vnd.x+json {"region":"eu","x":""} {"a":1}`,
		`{"payload": "{\"a\": 1}"}`:                                                                        `application/json {"region":"eu","x":""} {"a": 1}`,
		`{"payload": "id,total\n" + event_id + "," + data.total, "headers": {"content-type": "text/csv"}}`: `text/csv {"region":"eu","x":""} text "id,total\ne-1,1250.00"`,
		`{"payload": b"\xff\x00", "headers": {"content-type": "application/x"}}`:                           `application/x {"region":"eu","x":""} bytes ff00`,
		`{"payload": ""}`: `application/json {"region":"eu","x":""} text ""`,
		`{"headers": {"content-type": "text/plain"}}`:                                                   `text/plain {"region":"eu","x":""} text "{\"total\":\"1250.00\",\"lines\":[{\"sku\":\"a\",\"quantity\":2},{\"sku\":\"b\",\"quantity\":1000000}],\"customer\":null,\"n\":3}"`,
		`{"payload": 1, "headers": dyn({"tenant": "t-" + headers["region"], "region": null, "y": ""})}`: `application/json {"tenant":"t-eu","x":"","y":""} 1`,
		`{"payload": 1, "headers": headers}`:                                                            `application/json {"region":"eu","x":""} 1`,
		`{"payload": 1, "headers": {"region": null, "missing": null, "ce_missing": null}}`:              `application/json {"x":""} 1`,
		`{"payload": 1, "headers": {}}`:                                                                 `application/json {"region":"eu","x":""} 1`,
		`data.n > 2 ? {"payload": 2} : {"payload": 3}`:                                                  `application/json {"region":"eu","x":""} 2`,
		`sequence == 7 ? {"payload": dyn(7)} : {"headers": dyn({"a": "b"})}`:                            `application/json {"region":"eu","x":""} 7`,
		`{"payload": 4, "headers": headers.transformMapEntry(k, v, {"copy-" + k: v})}`:                  `application/json {"copy-region":"eu","copy-x":"","region":"eu","x":""} 4`,
	} {
		x, err := CompileTransform(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		e, same := testEvent(), testEvent()
		e.Headers["x"], same.Headers["x"] = "", ""
		original := e.Headers
		if e, err = x.Apply(e); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := e.ContentType + " " + asJSON(t, e.Headers) + " "
		switch {
		case e.Data != nil:
			got += string(e.Data)
		case e.Text != nil:
			got += "text " + asJSON(t, *e.Text)
		default:
			got += "bytes " + encodeHex(e.Base64)
		}
		if got != want {
			t.Errorf("%s:\n%s\nwant\n%s", text, got, want)
		}
		// The rest stays, and so do the headers that others may have.
		e.ContentType, e.Headers, e.Data, e.Text, e.Base64 = same.ContentType, same.Headers, same.Data, nil, nil
		if !reflect.DeepEqual(e, same) || !reflect.DeepEqual(original, same.Headers) {
			t.Errorf("%s: %+v", text, e)
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func encodeHex(b []byte) (out string) {
	for _, c := range b {
		out += string("0123456789abcdef"[c>>4]) + string("0123456789abcdef"[c&15])
	}
	return out
}

// An error that concerns every event is refused before, other errors with the event.
func TestTransform_ErrorsSayWhere(t *testing.T) {
	t.Parallel()
	const never, later = true, false
	for text, want := range map[string]struct {
		compiles bool
		err      string
	}{
		`data.total >`:                       {never, "line 1, column 13: Syntax error"},
		`{"payload": total}`:                 {never, "line 1, column 13: undeclared reference to 'total'"},
		`data.n == 3`:                        {never, `line 1, column 8: the type is bool, want a map: return {"payload": …}, {"headers": …} or both`},
		`"text"`:                             {never, "the type is string, want a map"},
		"{\"payload\": 1,\n \"header\": {}}": {never, "line 2, column 2: unknown key header: use payload and headers"},
		`{1: data}`:                          {never, "unknown key 1"},
		`sequence > 1 ? {"payload": 1} : {"paylod": 2}`: {never, "column 34: unknown key paylod"},
		`{"headers": {"a": 1}}`:                         {never, "line 1, column 13: headers: the type is map(string, int), want a map of texts, null to remove a header: convert values with string(…)"},
		`{"headers": {1: "a"}}`:                         {never, "the type is map(int, string)"},
		`{"headers": "a"}`:                              {never, "the type is string"},
		`"` + strings.Repeat("x", MaxLength) + `"`:      {never, "size"},
		`data`:                                             {later, "use payload and headers"},
		`data.n`:                                           {later, "the result is a int, want a map"},
		`data.lines[7]`:                                    {later, "index"},
		`{"payload": data.missing}`:                        {later, "no such key: missing"},
		`{"payload": 0.0 / 0.0}`:                           {later, "payload: JSON has no number NaN"},
		`{"payload": type(1)}`:                             {later, "payload: JSON has no type: convert it with string(…)"},
		`{"payload": [{"a": b"x"}]}`:                       {later, "payload: JSON has no bytes"},
		`{"payload": {1: 2}}`:                              {later, "payload: JSON has no key 1"},
		`{"headers": data.lines}`:                          {later, "headers: it is a list, want a map of texts"},
		`{"headers": {"a": data.n}}`:                       {later, "headers: a is a int, want a text or null: use string(…)"},
		`{"headers": {"": "a"}}`:                           {later, "headers: the name  is no text, or empty"},
		`{"headers": {"content-type": null}}`:              {later, "headers: content-type cannot be removed"},
		`{"headers": {"ce_id": "e-2"}}`:                    {later, "headers: ce_id cannot be changed"},
		`{"headers": {"Ce_PartitionKey": "a"}}`:            {later, "headers: Ce_PartitionKey cannot be changed"},
		`{"headers": {"ce_known": null}}`:                  {later, "headers: ce_known cannot be changed"},
		`{"headers": {"ce_known": "2"}}`:                   {later, "headers: ce_known cannot be changed"},
		`{string(data.n): 1}`:                              {later, "unknown key 3"},
		`{"payload": data.lines.map(l, timestamp(l.sku))}`: {later, "invalid"},
	} {
		x, err := CompileTransform(text)
		if (err != nil) != want.compiles {
			t.Errorf("CompileTransform(%.60s) = %v", text, err)
			continue
		}
		if err == nil {
			e := testEvent()
			e.Headers["ce_known"] = "1"
			_, err = x.Apply(e)
		}
		if err == nil || !strings.Contains(err.Error(), want.err) {
			t.Errorf("%.60s: %v, want %q", text, err, want.err)
		}
	}
}

// Numbers in the payload do not change on their way into the result.
func TestTransform_NumbersAreExact(t *testing.T) {
	t.Parallel()
	x, err := CompileTransform(`{"payload": {"all": data, "id": data.id, "sum": data.n + 1}}`)
	if err != nil {
		t.Fatal(err)
	}
	const data = `{"id":9007199254740993,"list":[-9223372036854775808,18446744073709551615,9007199254740992,0.1,1e-7,-0.5],"n":3}`
	e := kafkarecord.Event{Data: json.RawMessage(data)}
	if e, err = x.Apply(e); err != nil || string(e.Data) != `{"all":`+data+`,"id":9007199254740993,"sum":4}` {
		t.Errorf("Apply() = %s, %v", e.Data, err)
	}
	e = kafkarecord.Event{Data: json.RawMessage(`{"id":1,"n":1e999}`)}
	if _, err := x.Apply(e); err == nil || !strings.Contains(err.Error(), "the number 1e999 is out of range") {
		t.Errorf("Apply() = %v, want an error", err)
	}
}

// A result is bounded, whatever the expression and the event.
func TestTransform_ResultIsBounded(t *testing.T) {
	t.Parallel()
	e := kafkarecord.Event{Data: json.RawMessage(`"` + strings.Repeat("x", outbox.MaxEventBytes/2) + `"`)}
	plain := strings.Repeat("y", outbox.MaxEventBytes)
	for expression, event := range map[string]kafkarecord.Event{
		`{"payload": [data, data]}`:                                          e,
		`{"payload": [` + strings.Repeat("data,", 1900) + `0]}`:              e,
		`{"payload": {"a": [data], "b": {"c": {"d": data}}}}`:                e,
		`{"headers": {"a": data, "b": data}}`:                                e,
		`{"headers": {"a": data}, "payload": data}`:                          e,
		`{"payload": data_text, "headers": {"content-type": "x", "a": "b"}}`: {Text: &plain},
	} {
		x, err := CompileTransform(expression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.Apply(event); err == nil || !strings.Contains(err.Error(), "the result has more than 1000000 bytes: return less") {
			t.Errorf("%.60s: %v", expression, err)
		}
	}
	x, err := CompileTransform(`{"payload": {"a": data}}`)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := x.Apply(e); err != nil || len(e.Data) != outbox.MaxEventBytes/2+8 {
		t.Errorf("%d bytes, %v", len(e.Data), err)
	}
	// The cost is that of filters.
	e = kafkarecord.Event{Data: json.RawMessage(`[` + strings.Repeat("1,", 2000) + "1]")}
	if x, err = CompileTransform(`{"payload": data.map(a, data.map(b, a + b))}`); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Apply(e); err == nil || !strings.Contains(err.Error(), "cost") {
		t.Errorf("Apply() = %v, want an error of its cost", err)
	}
}

// A result changes its own headers among the headers of the record, and a payload is never null.
func TestTransform_RecordHeaders(t *testing.T) {
	t.Parallel()
	r := &kgo.Record{Headers: []kgo.RecordHeader{
		{Key: "content-type", Value: []byte("text/plain")}, {Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte("\xff")}, {Key: "a", Value: []byte("2")},
	}}
	for text, want := range map[string]string{
		`{}`:                   `content-type=text/plain a=1 b=` + "\xff" + ` a=2`,
		`{"headers": headers}`: `content-type=text/plain a=1 b=` + "\xff" + ` a=2`,
		`{"headers": dyn({"b": null, "c": "3"})}`:            `content-type=text/plain a=1 a=2 c=3`,
		`{"headers": {"a": "3"}}`:                            `content-type=text/plain b=` + "\xff" + ` a=3`,
		`{"payload": {"n": 1}}`:                              `a=1 b=` + "\xff" + ` a=2 content-type=application/json`,
		`{"headers": {"content-type": "x"}, "payload": b""}`: `a=1 b=` + "\xff" + ` a=2 content-type=x`,
	} {
		x, err := CompileTransform(text)
		if err != nil {
			t.Fatal(err)
		}
		original := kafkarecord.Decode(r)
		e, err := x.Apply(original)
		var got []string
		for _, h := range e.RecordHeaders {
			got = append(got, h.Name+"="+string(h.Value))
		}
		if strings.Join(got, " ") != want || err != nil || (e.Payload() == nil) != !strings.Contains(text, "payload") || len(original.RecordHeaders) != 4 {
			t.Errorf("%s: %q, payload %#v, %v", text, got, e.Payload(), err)
		}
	}
}

// A JSON value is JSON, unless the result has a content type of its own.
func TestTransform_JSONOfAnotherType(t *testing.T) {
	t.Parallel()
	x, err := CompileTransform(`{"payload": {"text": data_text}}`)
	if err != nil {
		t.Fatal(err)
	}
	text := "hello"
	if got, err := x.Apply(kafkarecord.Event{ContentType: "text/plain", Text: &text}); err != nil || got.ContentType != "application/json" || string(got.Data) != `{"text":"hello"}` || got.Text != nil {
		t.Errorf("Apply() = %+v, %v", got, err)
	}
}

// An event whose payload is stored elsewhere, or has a schema, keeps the reference until it has
// another payload.
func TestTransform_StoredPayload(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`{"headers": {"a": "b"}}`: "r", `{"payload": {"ref": headers.ce_dataref}}`: ""} {
		x, err := CompileTransform(text)
		if err != nil {
			t.Fatal(err)
		}
		empty := ""
		for _, name := range []string{outbox.HeaderDataRef, outbox.HeaderDataSchema} {
			e := kafkarecord.Event{Headers: map[string]string{outbox.HeaderDataRef: "", name: "r"}, Text: &empty}
			if got, err := x.Apply(e); err != nil || got.Headers[name] != want || e.Headers[name] != "r" {
				t.Errorf("%s: %+v, %v", text, got, err)
			}
		}
	}
}

// endless is a list without an end.
type endless struct {
	traits.Lister
	t *testing.T
	n int
}

func (l *endless) Iterator() traits.Iterator { return &endlessly{l: l} }

type endlessly struct {
	traits.Iterator
	l *endless
}

func (*endlessly) HasNext() ref.Val { return types.True }

func (i *endlessly) Next() ref.Val {
	if i.l.n++; i.l.n > 50 {
		i.l.t.Fatal("100 bytes have more than 50 items")
	}
	return types.String("item")
}

// A result that is too large is not encoded to its end.
func TestTransform_ResultIsBoundedInMemory(t *testing.T) {
	t.Parallel()
	for _, v := range []ref.Val{
		&endless{t: t},
		types.DefaultTypeAdapter.NativeToValue([]ref.Val{types.DefaultTypeAdapter.NativeToValue(map[string]ref.Val{"a": &endless{t: t}})}),
	} {
		if _, err := appendJSON(nil, v, "", 100); !errors.Is(err, errTooLarge) {
			t.Errorf("appendJSON() = %v, want errTooLarge", err)
		}
	}
}
