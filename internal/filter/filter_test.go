package filter

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
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

// The cost of an expression is bounded for any expression and event.
func TestExpression_CostIsBounded(t *testing.T) {
	t.Parallel()
	list := "[" + strings.Repeat("1,", 2000) + "1]"
	e := kafkarecord.Event{Data: json.RawMessage(`{"l":` + list + `}`)}
	x, err := Compile(`data.l.all(a, data.l.all(b, data.l.all(c, a + b + c > 0.0)))`)
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
