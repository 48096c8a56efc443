package main

import (
	"bytes"
	"encoding/json"
	"testing"

	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
)

// A message is one line, whose payload is exact.
func TestConsume_PrintsLines(t *testing.T) {
	t.Parallel()
	empty := ""
	for want, d := range map[string]client.Delivery{
		`"data":{"a":1},"data_base64":"eyJhIjoKMX0="`: {Data: json.RawMessage("{\"a\":\n1}")},
		`"data":{"a":"<"}}`:                           {Data: json.RawMessage(`{"a":"<"}`)},
		`"data_text":""}`:                             {DataText: &empty},
		`"data":null}`:                                {Data: json.RawMessage("null")},
		`"headers":null}`:                             {}, // no value
	} {
		payload := d.Payload()
		line, err := encodeLine(&d)
		var back client.Delivery
		if err != nil || !bytes.Contains(line, []byte(want)) || bytes.IndexByte(line, '\n') != len(line)-1 || json.Unmarshal(line, &back) != nil || !bytes.Equal(back.Payload(), payload) || (back.Payload() == nil) != (payload == nil) {
			t.Errorf("%s, %v, want %s", line, err, want)
		}
	}
}
