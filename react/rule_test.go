package react

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/filter"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

func testEvent() kafkarecord.Event {
	return kafkarecord.Event{
		Topic: "OrderCreated", Partition: 3, Offset: 41, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Key: "order-1", ID: "e-1", Type: "OrderCreated",
		AggregateID: "order-1", AggregateType: "order", Sequence: 7, Time: "2026-01-02T03:04:04.5Z", ContentType: "application/json",
		Headers: map[string]string{"region": "eu"},
		Data:    json.RawMessage(`{"total":"1250.00","lines":[{"sku":"a","quantity":2},{"sku":"b","quantity":1000000}],"customer":null,"n":3}`),
	}
}

func TestRule_BadOnesAreNamed(t *testing.T) {
	t.Parallel()
	plugins := map[string]Plugin{"p": Func(func(context.Context, Event) error { return nil })}
	targets := map[string]notify.Target{"ops": notify.TargetFunc(func(context.Context, notify.Message) error { return nil })}
	for _, tt := range []struct {
		rule Rule
		want string
	}{
		{Rule{Topics: []string{"a"}, To: "p"}, `rule without a name: name ""`},
		{Rule{Name: "r", To: "p"}, "rule r: topics: at least one is required"},
		{Rule{Name: "r", Topics: []string{"["}, To: "p"}, `topics "[": is no pattern`},
		{Rule{Name: "r", Topics: []string{"a"}, Types: []string{""}, To: "p"}, `types "": is no pattern`},
		{Rule{Name: "r", Topics: []string{"a"}, To: "x"}, `to "x": no such target or plugin; use one of ops, p`},
		{Rule{Name: "r", Topics: []string{"a"}, To: "p", Text: "x"}, "title and text: not allowed for the plugin p"},
		{Rule{Name: "r", Topics: []string{"a"}, To: "p", When: "nothing"}, "rule r: when: line 1, column 1: undeclared"},
		{Rule{Name: "r", Topics: []string{"a"}, To: "ops", Title: "{{.event_typ}}"}, "title: an event has no event_typ"},
		{Rule{Name: "r", Topics: []string{"a"}, To: "ops", Text: "a\n{{if}}"}, "text:2"},
		{Rule{Name: "r", Topics: []string{"a"}, To: "ops", Severity: "loud"}, `severity "loud"`},
		{Rule{Name: "r", Topics: []string{"a"}, To: "p", Order: "fifo"}, `order "fifo"`},
		{Rule{Name: "r", Topics: []string{"a"}, To: "p", From: "then"}, `from "then"`},
		{Rule{Name: "r", Topics: []string{"a"}, To: "p", Attempts: -1}, "attempts -1"},
		{Rule{Name: "r", Topics: []string{"a"}, To: "p", Timeout: -1}, "timeout -1ns"},
		{Rule{Name: "r", Topics: []string{"a"}, To: "p", Backoff: time.Hour, MaxBackoff: time.Minute}, "max_backoff not below backoff"},
		{Rule{Name: "r", Topics: []string{"a"}, To: "p", Concurrency: 1001}, "concurrency 1001"},
		{Rule{Name: "r", Topics: []string{"a"}, To: "p", Queue: -1}, "queue -1"},
	} {
		err := checked(Config{Rules: []Rule{tt.rule}, Plugins: plugins, Targets: targets})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.rule, err, tt.want)
		}
	}
	good := Rule{Name: "r", Topics: []string{"a"}, To: "p"}
	if err := checked(Config{Rules: []Rule{good, good}, Plugins: plugins}); err == nil || !strings.Contains(err.Error(), "rule r: the name is taken") {
		t.Errorf("two of one name: %v", err)
	}
	if err := checked(Config{Plugins: plugins}); err == nil || !strings.Contains(err.Error(), "0 rules") {
		t.Errorf("no rules: %v", err)
	}
	if err := checked(Config{Rules: []Rule{good}, Plugins: plugins}); err != nil {
		t.Errorf("a good rule: %v", err)
	}
}

func TestRule_Topics(t *testing.T) {
	t.Parallel()
	r := Rule{Topics: []string{"a.b", "Order*"}}
	got, patterns := r.expressions()
	if !patterns || strings.Join(got, " ") != `^a\.b$ ^Order.*$` {
		t.Errorf("%v, %v", got, patterns)
	}
	r.Topics = []string{"a.b"}
	if got, patterns = r.expressions(); patterns || got[0] != "a.b" {
		t.Errorf("%v, %v", got, patterns)
	}
}

// messages is a target that records its messages.
type messages struct{ got []notify.Message }

func (m *messages) Send(_ context.Context, n notify.Message) error {
	m.got = append(m.got, n)
	return nil
}

func TestNotice_SaysWhatTheRuleSays(t *testing.T) {
	t.Parallel()
	target := new(messages)
	c := Config{Targets: map[string]notify.Target{"ops": target}}
	send := func(r Rule, e kafkarecord.Event) (notify.Message, error) {
		t.Helper()
		r.Name, r.Topics, r.To = "big", []string{"*"}, "ops"
		one, err := c.compileRule(r)
		if err != nil {
			t.Fatal(err)
		}
		err = one.plugin.Process(t.Context(), Event{Event: e, Rule: "big", DeliveryID: "d-1"})
		if err != nil {
			return notify.Message{}, err
		}
		return target.got[len(target.got)-1], nil
	}
	e := testEvent()
	m, err := send(Rule{}, e)
	if err != nil || m.Title != "OrderCreated order order-1" || !strings.Contains(m.Text, `"total": "1250.00"`) || !strings.Contains(m.Text, "OrderCreated[3]@41") ||
		m.ID != "d-1" || m.Severity != notify.Info || m.Type != "event.big" {
		t.Errorf("by default: %+v, %v", m, err)
	}
	b, err := json.Marshal(m)
	if err != nil || !strings.Contains(string(b), `"event_id":"e-1"`) || !strings.Contains(string(b), `"total":"1250.00"`) {
		t.Errorf("as a webhook: %s, %v", b, err)
	}
	m, err = send(Rule{
		Title: "Order {{.aggregate_id}}:\n{{.data.total}}", Severity: "critical",
		Text: `{{range .data.lines}}{{.quantity}} of {{.sku}} for {{$.key}}{{"\n"}}{{end}}{{.data.nothing}}{{with .headers}}{{.region}}{{end}}{{"\x1b[2J"}}{{.rule}}`,
	}, e)
	if err != nil || m.Title != "Order order-1: 1250.00" || m.Text != "2 of a for order-1\n1000000 of b for order-1\n<no value>eu [2Jbig" || m.Severity != notify.Critical {
		t.Errorf("with templates: %+v, %v", m, err)
	}
	text := "just text"
	e.Data, e.Text = nil, &text
	if m, err = send(Rule{}, e); err != nil || !strings.HasSuffix(m.Text, "\njust text") {
		t.Errorf("of a text: %+v, %v", m, err)
	}
	long := strings.Repeat("ü", maxText)
	e.Text = &long
	if m, err = send(Rule{Title: "{{.data_text}}"}, e); err != nil || len(m.Text) > maxText+3 || len([]rune(m.Title)) != maxTitle+1 || !strings.HasSuffix(m.Text, "ü…") {
		t.Errorf("of a long text: %d, %d, %v", len(m.Text), len(m.Title), err)
	}
	if _, err = send(Rule{Text: `{{index .data 3}}`}, testEvent()); !notify.IsPermanent(err) || !strings.Contains(err.Error(), "text") {
		t.Errorf("template error: %v", err)
	}
}

// FuzzRule finds no expression, template or payload that makes a rule panic;
// the cost limit guarantees that an evaluation ends.
func FuzzRule(f *testing.F) {
	f.Add(`double(data.total) > 3.0`, `{{.data.total}}`, []byte(`{"total":"4"}`))
	f.Add(`data.l.all(x, x > 1) || data_text.matches("(a+)+$")`, `{{range .data.l}}{{.}}{{end}}`, []byte(`{"l":[1,2]}`))
	f.Add(`headers.size() == 0 && time <= at`, `{{with $x := .headers}}{{$x.y}}{{end}}`, []byte("\xff"))
	f.Add(`data.map(x, [x, x])[0][0] == null`, `{{json .data}}{{$.topic}}`, []byte(`[null]`))
	f.Fuzz(func(t *testing.T, when, words string, payload []byte) {
		e := kafkarecord.Decode(&kgo.Record{Value: payload, Timestamp: time.Now()})
		if x, err := filter.Compile(when); err == nil {
			_, _ = x.Holds(&e) // it must return
		}
		_, _ = parseText("text", words)
		w, err := parseText("text", defaultText)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := w.of(view(&e, "r")); err != nil || len(s) > maxText+len("…") {
			t.Errorf("a text of %d bytes, %v", len(s), err)
		}
	})
}

// checked returns the error of New; the store is not used.
func checked(c Config) error {
	c = c.withDefaults()
	c.Deliveries = (*delivery.Store)(nil)
	_, err := c.compile()
	return err
}
