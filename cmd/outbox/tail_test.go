package main

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
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
