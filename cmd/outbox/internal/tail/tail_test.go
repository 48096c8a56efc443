package tail

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// What a producer writes, be it an event or not, does nothing to the terminal of who
// looks, nor looks like an event of its own.
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

// An unknown topic is an error with the topics that exist. The command reports when it
// listens, and prints what is written later; --since and --from-start begin earlier.
func TestTail_Listens(t *testing.T) {
	t.Parallel()
	broker := world.StartBroker(t, kfake.SeedTopics(2, "orders"))
	client := world.Connect(t, broker)
	write := func(value string) {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte(value)}).FirstErr(); err != nil {
			t.Error(err)
		}
	}
	run := func(listening func(), args ...string) (code int, out, errOut string) {
		var o strings.Builder
		e := &listener{then: listening}
		root := cli.NewRoot("outbox", "", "", &o, e)
		root.AddCommand(NewCommand())
		code = cli.Execute(root, append(append([]string{"tail"}, args...), "--kafka-seeds", strings.Join(broker.ListenAddrs(), ",")), e)
		return code, o.String(), e.text.String()
	}
	if code, _, errOut := run(nil, "order"); code != cli.ExitUsage || !strings.Contains(errOut, `topic "order" does not exist`) || !strings.Contains(errOut, "hint: topics: orders") {
		t.Errorf("an unknown topic: status %d, %s", code, errOut)
	}
	write(`"before"`)
	if code, out, errOut := run(func() { write(`"after"`) }, "orders", "-n", "1", "-o", "json"); code != cli.ExitOK || !strings.Contains(out, `"payload":"after"`) || !strings.Contains(errOut, "listening to orders from the next event") {
		t.Errorf("status %d, %q, %s", code, out, errOut)
	}
	for _, args := range [][]string{{"--from-start"}, {"--since", "1h"}} {
		if code, out, errOut := run(nil, append(args, "orders", "-n", "2", "-o", "yaml")...); code != cli.ExitOK || !strings.Contains(out, "payload: before") || !strings.Contains(out, "payload: after") {
			t.Errorf("%v: status %d, %q, %s", args, code, out, errOut)
		}
	}
}

// listener calls then once the command reports that it listens.
type listener struct {
	text strings.Builder
	then func()
}

func (l *listener) Write(p []byte) (int, error) {
	if l.then != nil && strings.HasPrefix(string(p), "listening") {
		l.then()
		l.then = nil
	}
	return l.text.Write(p)
}
