package filter

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// of returns the text about an event, or the error of CompileText.
func of(text string, e kafkarecord.Event) string {
	x, err := CompileText(text)
	if err != nil {
		return err.Error()
	}
	return x.Of(&e, "big")
}

func TestText_OfAnEvent(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:              ``,
		`just } text}}`: `just } text}}`,
		`Order {{aggregate_id}} of {{data.total}} {{ headers["region"] }}`: `Order order-1 of 1250.00 eu`,
		`{{topic}}[{{partition}}]@{{offset}} {{key}} {{sequence}}`:         `OrderCreated[3]@41 order-1 7`,
		`{{event_id}} {{event_type}} {{aggregate_type}} {{content_type}}`:  `e-1 OrderCreated order application/json`,
		`{{time}} {{at}} {{at - time}} {{data_text}}|{{subscription}}`:     `2026-01-02T03:04:04.5Z 2026-01-02T03:04:05Z 0.5s |big`,
		`{{data.n}} {{data.lines[1].quantity}} {{7u}} {{true}} {{1.5}}`:    `3 1000000 7 true 1.5`,
		`[{{data.customer}}{{null}}] {{data.lines[0]}} {{headers}}`:        `[] {"quantity":2,"sku":"a"} {"region":"eu"}`,
		`{{data.lines.map(l, l.sku)}} {{b"a\xff"}}`:                        "[\"a\",\"b\"] a\uFFFD",
		"{{json(data.lines)}}":             "[\n  {\n    \"quantity\": 2,\n    \"sku\": \"a\"\n  },\n  {\n    \"quantity\": 1000000,\n    \"sku\": \"b\"\n  }\n]",
		`{{json({"<&>": [[], {}, "é"]})}}`: "{\n  \"<&>\": [\n    [],\n    {},\n    \"é\"\n  ]\n}",
		// With the dot of former versions.
		`{{.aggregate_id}} {{ .data.total }} {{.headers.region}} {{.subscription}}`: `order-1 1250.00 eu big`,
		// An error is visible in its place.
		`Order {{data.missing.total}} of {{aggregate_id}}`:                             `Order <no such key: missing> of order-1`,
		`{{headers.name}} {{data.lines[7]}} {{data.total + 1}} {{double(data.n)/0.0}}`: `<no such key: name> <index out of bounds: 7> <no such overload> <JSON has no number +Inf>`,
		`{{type(1)}} {{json({1: 2})}}`:                                                 `<JSON has no type: convert it with string(…)> <JSON has no key 1: use texts>`,
		// Braces inside an expression.
		`{{"{{"}}x{{"}}"}} {{'{{ \' }}'}} {{"a\"}}"}} {{r"\"}}`:      `{{x}} {{ ' }} a"}} \`,
		`{{ {"a":1}.a }} {{{"a":{"b":2}}}} {{{"a":{"b":3}}.a.b}}`:    `1 {"a":{"b":2}} 3`,
		"{{\"\"\"a\"}}\n\"\"\"}} {{R'''\\'}}'''}} {{'''\\'''}}'''}}": "a\"}}\n \\'}} '''}}",
		"{{ \n data.n == 3.0 ?\n 'a' : 'b' // or\n }}":               "a",
	} {
		if got := of(text, testEvent()); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", text, got, want)
		}
	}
	text := "hello"
	e := kafkarecord.Event{Text: &text}
	if got := of(`{{data == null ? data_text : json(data)}}`, e); got != text {
		t.Errorf("of a text: %s", got)
	}
}

// Numbers of the payload do not become exponents, and lose no digits.
func TestText_NumbersAreExact(t *testing.T) {
	t.Parallel()
	const list = `[1000000,123456789012,-9223372036854775808,18446744073709551615,9007199254740993,0.1,12.75,-0.5]`
	e := kafkarecord.Event{Data: json.RawMessage(list)}
	if got := of(`{{data}}`, e); got != list {
		t.Errorf("the list is %s", got)
	}
	if got := of(`[{{data[0]}},{{data[1]}},{{data[2]}},{{data[3]}},{{data[4]}},{{data[5]}},{{data[6]}},{{data[7]}}]`, e); got != list {
		t.Errorf("one by one they are %s", got)
	}
	e.Data = json.RawMessage(`{"a":1e999}`)
	if got := of(`a {{data.a}} b`, e); got != "a <data: the number 1e999 is out of range: integers have 64 bits, others are doubles> b" {
		t.Errorf("of a long number: %s", got)
	}
}

func TestText_ErrorsSayWhere(t *testing.T) {
	t.Parallel()
	const how = ": between {{ and }} write CEL, such as {{data.total}} or {{json(data)}}"
	for text, want := range map[string]string{
		`{{total}}`:                    `line 1, column 3: undeclared reference to 'total'` + how,
		"a\né{{ \n event_typ }}":       `line 3, column 2: undeclared reference to 'event_typ' (did you mean 'event_type'?)` + how,
		"a\né {{ event_typ }}":         `line 2, column 6: undeclared reference to 'event_typ' (did you mean 'event_type'?)` + how,
		`{{a}} {{topic}} {{b}} {{`:     `line 1, column 3: undeclared reference to 'a' (did you mean 'at'?); line 1, column 19: undeclared reference to 'b'; line 1, column 23: {{ without }}` + how,
		"a\n {{topic":                  `line 2, column 2: {{ without }}` + how,
		`{{topic} }`:                   `{{ without }}`,
		`{{ {"a": 1}}`:                 `{{ without }}`,
		`{{ 'a }} 'b"}}`:               `line 1, column 1: {{ without }}`,
		`it's {{ it's }}`:              `line 1, column 6: {{ without }}`,
		`{{}}`:                         `line 1, column 3: Syntax error`,
		`{{json .data}}`:               `line 1, column 3: undeclared reference to 'json'`,
		`{{range .data.lines}}{{end}}`: `line 1, column 3: undeclared reference to 'range'`,
		`{{$.key}}`:                    `line 1, column 3: Syntax error`,
		`{{.rule}}`:                    `undeclared reference to '.rule'`,
		`{{topic + 1}}`:                `line 1, column 9: found no matching overload`,
		`{{"` + strings.Repeat("x", MaxLength) + `"}}`: `size`,
	} {
		if _, err := CompileText(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
	// Filters and transforms do not have what only texts have.
	for _, text := range []string{`json(data) == ""`, `subscription == ""`} {
		if _, err := Compile(text); err == nil {
			t.Errorf("the filter %s is accepted", text)
		}
	}
}

// A text is bounded in size, memory and time, for any expressions and events.
func TestText_IsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", outbox.MaxEventBytes/2)
	numbers := "[" + strings.Repeat("1,", 2000) + "1]"
	for name, tt := range map[string]struct {
		text string
		e    kafkarecord.Event
	}{
		"literal":    {strings.Repeat("ü", MaxText), kafkarecord.Event{}},
		"text":       {`a{{data_text}}`, kafkarecord.Event{Text: &long}},
		"many":       {strings.Repeat(`{{data_text}}`, 1000), kafkarecord.Event{Text: &long}},
		"JSON":       {`{{json(data)}}`, kafkarecord.Event{Data: json.RawMessage(`["` + long[:MaxText] + `", "` + long + `"]`)}},
		"compact":    {`{{data}}`, kafkarecord.Event{Data: json.RawMessage(`["` + long + `"]`)}},
		"deep":       {`{{json(data)}}`, kafkarecord.Event{Data: json.RawMessage(strings.Repeat("[", 9000) + strings.Repeat("]", 9000))}},
		"object":     {`{{json(data)}}`, kafkarecord.Event{Data: json.RawMessage(strings.Repeat(`{"ü":`, 9000) + "1" + strings.Repeat("}", 9000))}},
		"repetition": {`{{[` + strings.Repeat("data,", 1900) + `0]}}`, kafkarecord.Event{Data: json.RawMessage(`"` + long + `"`)}},
	} {
		got := of(tt.text, tt.e)
		if len(got) < MaxText-1 || len(got) > MaxText+len("…") || !strings.HasSuffix(got, "…") || !utf8.ValidString(got) {
			t.Errorf("%s: %d bytes: %.60s", name, len(got), got)
		}
	}
	costly := `{{data.all(a, data.all(b, a + b > 0.0)) ? "yes" : "no"}} `
	e := kafkarecord.Event{Data: json.RawMessage(numbers)}
	if got := of("a "+costly+costly+"b", e); got != "a <operation cancelled: actual cost limit exceeded> <the expressions before cost too much> b" {
		t.Errorf("of costly expressions: %s", got)
	}
	// Each is allowed, and all of them are not.
	began := time.Now()
	got := of(strings.Repeat(`{{data.all(a, a > 0.0) ? "y" : "n"}}`, 400), e)
	if n := strings.Count(got, "y"); n < 1 || n > 50 || !strings.HasSuffix(got, "<the expressions before cost too much>") {
		t.Errorf("%d results: %.200s", n, got)
	}
	// The cost of the function json is the size of its output.
	e.Data = json.RawMessage(`["` + long + `",` + numbers[1:])
	if got := of(`{{data.map(x, json(data)).size()}}`, e); !strings.Contains(got, "cost limit") {
		t.Errorf("of many times JSON: %s", got)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the texts take %s", took)
	}
}

// FuzzText finds no text, expression or payload that panics or has an unbounded result, and no
// literal that ends an expression.
func FuzzText(f *testing.F) {
	f.Add(`double(data.total) > 3.0`, `{{data.total}}`, []byte(`{"total":"4"}`))
	f.Add(`data.l.all(x, x > 1) || data_text.matches("(a+)+$")`, `a {{data.l}} {{`, []byte(`{"l":[1,2]}`))
	f.Add(`headers.size() == 0 && time <= at`, `{{ {"a": {"b": r"\}}"}}}}}`, []byte("\xff"))
	f.Add(`data.map(x, [x, x])[0][0] == null`, `{{json(data)}}{{"}}\""}}`, []byte(`[null]`))
	f.Add(`{b"": 1} == {}`, `{{ {b"": b""} }}`, []byte(`0`))
	f.Fuzz(func(t *testing.T, when, words string, payload []byte) {
		e := kafkarecord.Event{At: time.Unix(0, 0)}
		content(&e, payload, "application/json")
		if x, err := Compile(when); err == nil {
			_, _ = x.Holds(&e) // it must return
		}
		if x, err := CompileText(words); err == nil {
			if s := x.Of(&e, "s"); len(s) > MaxText+len("…") {
				t.Errorf("a text of %d bytes", len(s))
			}
		}
		// Without the scanner an expression ends at the first }} up to which it compiles.
		if _, expression, ok := strings.Cut(words, "{{"); ok && !strings.Contains(expression, "//") && len(expression) < 100 {
			first := -1
			for end := 0; first < 0 && end < len(expression); end++ {
				if strings.HasPrefix(expression[end:], "}}") {
					if _, err := compile(textEnvironment, expression[:end], start, nothing); err == nil {
						first = end
					}
				}
			}
			if got := expressionEnd(expression); first >= 0 && got != first {
				t.Errorf("the expression of %q ends at %d, want %d", expression, got, first)
			}
		}
		if words = strings.ToValidUTF8(words, ""); len(words) < MaxLength/8 {
			literal, err := json.Marshal(words)
			if err != nil {
				t.Fatal(err)
			}
			if got := of("a{{"+string(literal)+"}}b", e); got != "a"+words+"b" {
				t.Errorf("the literal %s is %s", literal, got)
			}
		}
	})
}

func TestText_PlaceOfAConstantMap(t *testing.T) {
	t.Parallel()
	if _, err := CompileText(`a {{{b"": 1}}}`); err == nil || !strings.Contains(err.Error(), "line 1, column 5: the expression cannot be evaluated") {
		t.Errorf("the error is %v", err)
	}
}
