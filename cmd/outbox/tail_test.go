package main

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// What a producer writes, be it an event or not, does nothing to the terminal of who
// looks, nor looks like an event of its own.
func TestTail_PrintsNoControlCharacters(t *testing.T) {
	t.Parallel()
	const hostile = "\x1b]0;title\a\x1b[2J\r\n\u009b31m\u202egpj.exe\u2066\u200b\u2028\x7f\U000e0041\x9b"
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
		if strings.ContainsAny(text, "\x1b\a\r\u009b\u202e\u2066\u200b\u2028\x7f\U000e0041\x9b") || strings.Count(text, "\n") != r.lines {
			t.Errorf("%s is printed as %q, want %d lines of plain text", name, text, r.lines)
		}
		var object strings.Builder
		if err := printEventJSON(&object, r.record); err != nil {
			t.Fatal(err)
		}
		if text := object.String(); strings.ContainsFunc(strings.TrimSuffix(text, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%s is printed as the JSON %q, want printable text", name, text)
		}
		if r.lines == 2 && strings.Contains(text, "not an outbox event") {
			t.Errorf("%s is taken for none: %q", name, text)
		}
	}
}

// A payload that is JSON is printed as JSON of the same value, whatever is in its texts.
func TestTail_JSONKeepsTheValue(t *testing.T) {
	t.Parallel()
	const payload = "{\"a\":\"\u009b31m\u202e\\u202d\U000e0041 \u00fc \U0001f600\",\"b\":[1,\"\x9b\"]}"
	var out strings.Builder
	if err := printEventJSON(&out, &kgo.Record{Topic: "t", Value: []byte(payload)}); err != nil {
		t.Fatal(err)
	}
	if text := strings.TrimSuffix(out.String(), "\n"); strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || !strings.Contains(text, "\u00fc \U0001f600") {
		t.Errorf("it is printed as %q, want printable text with its letters", text)
	}
	var got struct{ Payload any }
	var want any
	if err := errors.Join(json.Unmarshal([]byte(out.String()), &got), json.Unmarshal([]byte(payload), &want)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Payload, want) {
		t.Errorf("the payload is %q, want %q", got.Payload, want)
	}
}
