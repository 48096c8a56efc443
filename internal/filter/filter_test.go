package filter

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
)

func testEvent() kafkarecord.Event {
	return kafkarecord.Event{
		Topic: "OrderCreated", Partition: 3, Offset: 41, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Key: "order-1", ID: "e-1", Type: "OrderCreated",
		AggregateID: "order-1", AggregateType: "order", Sequence: 7, Time: "2026-01-02T03:04:04.5Z", ContentType: "application/json",
		Headers: map[string]string{"region": "eu"},
		Data:    json.RawMessage(`{"total":"1250.00","lines":[{"sku":"a","quantity":2},{"sku":"b","quantity":1000000}],"customer":null,"n":3}`),
	}
}

func TestExpression_OverTheEvent(t *testing.T) {
	t.Parallel()
	e := testEvent()
	for text, want := range map[string]bool{
		`topic == "OrderCreated" && partition == 3 && offset == 41 && key == "order-1"`:           true,
		`event_id == "e-1" && event_type.startsWith("Order") && sequence > 6`:                     true,
		`aggregate_id == "order-1" && aggregate_type == "order" && content_type.contains("json")`: true,
		`double(data.total) >= 1250.0`:                                         true,
		`data.n == 3 && data.n < 4 && data.n >= 2.5`:                           true,
		`data.lines.exists(l, l.quantity > 999)`:                               true,
		`data.lines.all(l, l.sku == "a")`:                                      false,
		`has(data.missing) && data.missing > 3`:                                false,
		`data.customer == null`:                                                true,
		`headers["region"] == "eu" && !("x" in headers)`:                       true,
		`time < at && at - time == duration("500ms")`:                          true,
		`time.getFullYear() == 2026 && at > timestamp("2026-01-01T00:00:00Z")`: true,
		`event_type.matches("^Order(Created|Cancelled)$")`:                     true,
		`aggregate_id.split("-")[1] == "1"`:                                    true,
		"// big orders\n  double(data.total) >\n  1e6":                         false,
		`data_text == ""`:                                                      true,
	} {
		x, err := Compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := x.Holds(&e); got != want || err != nil {
			t.Errorf("%s = %v, %v", text, got, err)
		}
	}
	x, err := Compile(`data_text == "hello" && data == null && time == at`)
	if err != nil {
		t.Fatal(err)
	}
	plain := kafkarecord.Decode(&kgo.Record{Value: []byte("hello"), Timestamp: time.Now(), Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte("text/plain")}}})
	if got, err := x.Holds(&plain); !got || err != nil {
		t.Errorf("of a text: %v, %v", got, err)
	}
}

func TestExpression_ErrorsSayWhere(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`total > 3`:      "line 1, column 1: undeclared reference to 'total'",
		`event_type == `: "line 1, column 15: Syntax error",
		"event_type == \"a\" &&\n  sequence == \"b\"": "line 2, column 12: found no matching overload for '_==_'",
		`sequence + 1`:  "the type is int, want bool",
		`data.flag`:     "the type is dyn, want bool",
		`nosuch(topic)`: "column 7: undeclared reference to 'nosuch'",
		`"` + strings.Repeat("x", MaxLength) + `" == topic`: "size",
		`event_type.matches("(")`:                           "",
	} {
		x, err := Compile(text)
		if want == "" { // the type is known at run time
			e := testEvent()
			if err == nil {
				_, err = x.Holds(&e)
			}
			if err == nil {
				t.Errorf("%s is no error", text)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

// Integers of the payload are integers of 64 bits, whatever a double could represent of them.
func TestExpression_IntegersAreExact(t *testing.T) {
	t.Parallel()
	e := kafkarecord.Event{Data: json.RawMessage(`{"id":175928847299117063,"n":1234567,"million":1000000,"low":-9223372036854775808,"high":9223372036854775807,
		"unsigned":18446744073709551615,"large":18446744073709551616,"f":2.5,"e":1e3,"list":[175928847299117063,5],"keys":{"a":175928847299117063}}`)}
	for text, want := range map[string]bool{
		`data.id == 175928847299117063`:                                            true,
		`data.id == 175928847299117056`:                                            false,
		`data.id in [175928847299117056, 5]`:                                       false,
		`data.id in data.list && data.keys == {"a": 175928847299117063}`:           true,
		`int(data.id) == 175928847299117063`:                                       true,
		`data.id > 175928847299117062 && data.id < 175928847299117064`:             true,
		`data.list.exists(i, i == 175928847299117056)`:                             false,
		`string(data.n) == "1234567" && string(data.million) == "1000000"`:         true,
		`data.low == -9223372036854775808 && data.high == 9223372036854775807`:     true,
		`data.unsigned == 18446744073709551615u && data.unsigned > data.high`:      true,
		`data.n + 1 == 1234568 && data.n % 2 == 1 && data.million / 3 == 333333`:   true,
		`data.n >= 1234566.5 && double(data.n) * 0.5 == 617283.5 && data.f == 2.5`: true,
		`data.e == 1000 && type(data.e) == double && type(data.n) == int`:          true,
		`data.id == 175928847299117063 || data.large > 1`:                          true, // it is not used
		`headers == {} && data.transformMap(k, v, k == "f", v) == {"f": 2.5}`:      true,
	} {
		x, err := Compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := x.Holds(&e); got != want || err != nil {
			t.Errorf("%s = %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		`data.high + 1 > 0`:      "integer overflow",
		`data.low - 1 < 0`:       "integer overflow",
		`data.id * data.n > 0`:   "integer overflow",
		`int(data.unsigned) > 0`: "integer overflow",
		`data.large > 0`:         "data: the number 18446744073709551616 is out of range",
		`data == {}`:             "",
	} {
		x, err := Compile(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got, err := x.Holds(&e); want == "" && (got || err != nil) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s = %v, %v, want the error %q", text, got, err, want)
		}
	}
}

// The cost of an expression is bounded for any expression and event.
func TestExpression_CostIsBounded(t *testing.T) {
	t.Parallel()
	list := "[" + strings.Repeat("1,", 2000) + "1]"
	e := kafkarecord.Event{Data: json.RawMessage(`{"l":` + list + `}`)}
	x, err := Compile(`data.l.all(a, data.l.all(b, data.l.all(c, a + b + c > 0)))`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Holds(&e); err == nil || !strings.Contains(err.Error(), "cost") {
		t.Errorf("Holds() = %v, want an error of its cost", err)
	}
}

// Constant maps are evaluated when they are compiled.
func TestCompile_RefusesMapsThatCELCannotHold(t *testing.T) {
	t.Parallel()
	for _, x := range []string{`{b"a": 1} == {}`, `size({b"a": event_id}) == 1`} {
		if p, err := Compile(x); err == nil {
			if _, err := p.Holds(&kafkarecord.Event{}); err == nil {
				t.Errorf("%s has a result", x)
			}
		} else if !strings.Contains(err.Error(), "cannot be evaluated") {
			t.Errorf("%s: %v", x, err)
		}
	}
}
