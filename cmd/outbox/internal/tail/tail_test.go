package tail

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// Data of a producer, be it an event or not, neither controls the reader's terminal nor resembles
// an event of its own.
func TestTail_PrintsNoControlCharacters(t *testing.T) {
	t.Parallel()
	const hostile = "\x1b]0;title\a\x1b[2J\r\n\u009b31m"
	event := kgo.Record{Topic: "t", Key: []byte("a" + hostile), Value: []byte(hostile), Timestamp: time.Now()}
	for name, value := range map[string]string{
		outbox.HeaderID: "1" + hostile, outbox.HeaderSource: "/x", outbox.HeaderSpecVersion: "1.0", outbox.HeaderType: "T" + hostile,
		outbox.HeaderSubject: "a" + hostile, outbox.HeaderTime: "2026-01-02T03:04:05Z", outbox.HeaderAggregateType: "order",
	} {
		event.Headers = append(event.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	for name, r := range map[string]struct {
		record *kgo.Record
		lines  int
	}{"an event": {&event, 2}, "no event": {&kgo.Record{Topic: "t", Value: []byte(hostile), Timestamp: time.Now()}, 1}} {
		var out strings.Builder
		if err := printEvent(&out, r.record); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if strings.ContainsAny(text, "\x1b\a\r\u009b") || strings.Count(text, "\n") != r.lines {
			t.Errorf("%s is printed as %q, want %d lines of plain text", name, text, r.lines)
		}
		if r.lines == 2 && strings.Contains(text, "not an outbox event") {
			t.Errorf("%s is taken for none: %q", name, text)
		}
	}
}

// A payload that is stored outside of the event is printed as its reference.
func TestTail_PrintsReferences(t *testing.T) {
	t.Parallel()
	e := outbox.Event{ID: outbox.NewID(), AggregateID: outbox.NewID(), Sequence: 1, AggregateType: "a", Type: "T", CreatedAt: time.Now(), Headers: map[string]string{outbox.HeaderDataRef: "payloads/x"}}
	var out strings.Builder
	if err := printEvent(&out, &kgo.Record{Key: e.Key(), Headers: outbox.AppendHeaders([]kgo.RecordHeader(nil), &e, "/x")}); err != nil || !strings.HasSuffix(out.String(), "\n  ce_dataref: payloads/x\n") {
		t.Errorf("printed %q, %v", out.String(), err)
	}
}

// A record whose producer wrote microseconds as its time does not end the command.
func TestTail_PrintsRecordsOfAnyTime(t *testing.T) {
	t.Parallel()
	r := &kgo.Record{Topic: "t", Value: []byte("x"), Timestamp: time.UnixMilli(1764385999000000)}
	for name, show := range map[string]func(io.Writer, *kgo.Record) error{"json": printEventJSON, "yaml": printEventYAML, "text": printEvent} {
		var out strings.Builder
		if err := show(&out, r); err != nil || !strings.Contains(out.String(), "x") || strings.Contains(out.String(), "timestamp") {
			t.Errorf("%s: printed %q, %v", name, out.String(), err)
		}
	}
}

// The command reports when it listens, and prints later events; --since and --from-start begin earlier.
func TestTail_Listens(t *testing.T) {
	t.Parallel()
	broker := world.StartBroker(t, kfake.SeedTopics(2, "orders"))
	client := world.Connect(t, broker)
	to := func(topic, value string) {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
			t.Error(err)
		}
	}
	write := func(value string) { to("orders", value) }
	run := func(listening func(), args ...string) (code int, out, errOut string) {
		var o strings.Builder
		e := &listener{then: listening}
		root := cli.NewRoot("outbox", "", "", &o, e)
		root.AddCommand(NewCommand())
		code = cli.Execute(root, append(append([]string{"tail"}, args...), "--kafka-seeds", strings.Join(broker.ListenAddrs(), ",")), e)
		return code, o.String(), e.text.String()
	}
	write(`"before"`)
	if code, out, errOut := run(func() { write(`"after"`) }, "orders", "--limit", "1", "-o", "json"); code != cli.ExitOK || !strings.Contains(out, `"payload":"after"`) || !strings.Contains(errOut, "listening to orders from the next event") {
		t.Errorf("status %d, %q, %s", code, out, errOut)
	}
	producer := world.Connect(t, broker, kgo.TransactionalID("test"))
	if err := errors.Join(producer.BeginTransaction(), producer.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte(`"aborted"`)}).FirstErr(), producer.EndTransaction(t.Context(), kgo.TryAbort)); err != nil {
		t.Fatal(err)
	}
	later := func(topics ...string) func() {
		return func() {
			for _, topic := range topics {
				if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 2, 1, nil, topic); err != nil {
					t.Error(err)
				}
				to(topic, `"first of `+topic+`"`)
			}
		}
	}
	code, out, errOut := run(later("payments"), "orders", "payments", "--limit", "1", "-o", "json")
	if code != cli.ExitOK || !strings.Contains(out, `"payload":"first of payments"`) || !strings.Contains(errOut, "waiting for payments: no such topic yet; there are orders\n") || !strings.Contains(errOut, "listening to payments from the oldest event") {
		t.Errorf("one topic is made later: status %d, %q, %s", code, out, errOut)
	}
	code, out, errOut = run(later("refunds", "returns"), "refunds", "returns", "--limit", "2", "-o", "json")
	if code != cli.ExitOK || !strings.Contains(out, `"payload":"first of refunds"`) || !strings.Contains(out, `"payload":"first of returns"`) || !strings.Contains(errOut, "waiting for refunds, returns: no such topic yet; there are orders, payments\n") {
		t.Errorf("all topics are made later: status %d, %q, %s", code, out, errOut)
	}
	for _, args := range [][]string{{"--from-start"}, {"--since", "1h"}} {
		if code, out, errOut := run(nil, append(args, "orders", "--limit", "2", "-o", "yaml")...); code != cli.ExitOK || !strings.Contains(out, "payload: before") || !strings.Contains(out, "payload: after") || strings.Contains(out, "aborted") {
			t.Errorf("%v: status %d, %q, %s", args, code, out, errOut)
		}
	}
}

// The shell completes topics that are not on the command line yet.
func TestTail_CompletesTopics(t *testing.T) {
	t.Parallel()
	broker := world.StartBroker(t, kfake.SeedTopics(1, "orders", "payments"))
	for _, tt := range []struct{ args, want string }{{"", "orders\npayments\n"}, {"orders", "payments\n"}} {
		var out, errOut strings.Builder
		root := cli.NewRoot("outbox", "", "", &out, &errOut)
		root.AddCommand(NewCommand())
		args := append([]string{"__complete", "tail", "--kafka-seeds", strings.Join(broker.ListenAddrs(), ",")}, append(strings.Fields(tt.args), "")...)
		if code := cli.Execute(root, args, &errOut); code != cli.ExitOK || !strings.HasPrefix(out.String(), tt.want+":") {
			t.Errorf("tail %s completes to %q, want %q\n%s", tt.args, out.String(), tt.want, &errOut)
		}
	}
}

// listener calls then once the command reports that it listens, or the cause of its wait.
type listener struct {
	mu   sync.Mutex
	text strings.Builder
	then func()
}

func (l *listener) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if then := l.then; then != nil && (strings.HasPrefix(string(p), "listening") || strings.HasPrefix(string(p), "waiting")) {
		l.then = nil
		then()
	}
	return l.text.Write(p)
}

// A payload in the wire format of a schema registry is printed as JSON. One whose schema cannot
// be read is printed as it is. No output has the credentials of the registry.
func TestTail_DecodesBySchemas(t *testing.T) {
	t.Parallel()
	broker := world.StartBroker(t, kfake.SeedTopics(1, "orders"))
	client := world.Connect(t, broker)
	fake := srfake.New()
	t.Cleanup(fake.Close)
	fake.SeedSchema("orders-value", 1, 1, sr.Schema{Type: sr.TypeAvro, Schema: `{"type":"record","name":"S","fields":[{"name":"v","type":"string"}]}`})
	e := outbox.Event{ID: outbox.NewID(), AggregateID: outbox.NewID(), Sequence: 1, AggregateType: "a", Type: "T", CreatedAt: time.Now()}
	for _, value := range []string{"\x00\x00\x00\x00\x01\x02a", "\x00\x00\x00\x00\x09\x02b"} {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Key: e.Key(), Value: []byte(value), Headers: outbox.AppendHeaders([]kgo.RecordHeader(nil), &e, "/x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "registry")
	if err := os.WriteFile(file, []byte(strings.Replace(fake.URL(), "http://", "http://user:hunter2@", 1)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "outbox.yaml")
	if err := os.WriteFile(config, []byte("kafka: {seeds: ["+strings.Join(broker.ListenAddrs(), ",")+"], schema_registry: 'file:"+file+"'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for format, want := range map[string][2]string{
		"json":  {`"payload":{"v":"a"}`, `"payload":"\u0000\u0000\u0000\u0000\t\u0002b"`},
		"table": {"\n  {\"v\":\"a\"}\n", "b\n"},
		"yaml":  {"payload:\n  v: a\n", "payload: \"\\0\\0\\0\\0\\t\\x02b\""},
	} {
		var out, errOut strings.Builder
		root := cli.NewRoot("outbox", "", "", &out, &errOut)
		root.AddCommand(NewCommand())
		if code := cli.Execute(root, []string{"tail", "orders", "--from-start", "--limit", "2", "-o", format, "--config", config}, &errOut); code != cli.ExitOK {
			t.Fatalf("status %d: %s", code, &errOut)
		}
		if text := out.String(); !strings.Contains(text, want[0]) || !strings.Contains(text, want[1]) || strings.Contains(text+errOut.String(), "hunter2") {
			t.Errorf("%s: %q, %q, want %q", format, text, &errOut, want)
		}
	}
}
