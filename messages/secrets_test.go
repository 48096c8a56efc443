package messages

import (
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A response or the log must not repeat a secret in the wrong field.
func TestHTTP_AnswersRepeatNothingThatWasSent(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	b := setup(t)
	for name, tt := range map[string]struct{ message, location string }{
		"wrong type":         {`{"topic":["` + secret + `"]}`, "body.topic"},
		"wrong value":        {`{"topic":"a ` + secret + `"}`, "body.topic"},
		"payload":            {`{"topic":"t","payload_base64":"` + secret + `!"}`, "body.payload_base64"},
		"delay":              {`{"topic":"t","delay":"` + secret + `"}`, "body.delay"},
		"time":               {`{"topic":"t","deliver_at":"` + secret + `"}`, "body.deliver_at"},
		"priority":           {`{"topic":"t","priority":"` + secret + `"}`, "body.priority"},
		"max_receive":        {`{"topic":"t","max_receive":"` + secret + `"}`, "body.max_receive"},
		"header":             {`{"topic":"t","headers":{"ce_a":"` + secret + `"}}`, "body.headers.ce_a"},
		"headers":            {`{"topic":"t","headers":"` + secret + `"}`, "body.headers"},
		"content type":       {`{"topic":"t","content_type":"` + secret + `\u0000"}`, "body.content_type"},
		"key":                {`{"topic":"t","key":"` + secret + `\u0000"}`, "body.key"},
		"name of a header":   {`{"topic":"t","headers":{"a ` + secret + `":null}}`, "body.headers.a…"},
		"name of a member":   {`{"topic":"t","a ` + secret + `":1}`, "body.a…"},
		"twice in a payload": {`{"topic":"t","payload":{"a ` + secret + `":1,"a ` + secret + `":1}}`, "body.payload.a…"},
	} {
		r := world.Request(t, b.handler, "POST", "/v1/messages", tt.message)
		if r.Status != 422 || strings.Contains(r.Text, secret) || !strings.Contains(r.Text, tt.location) {
			t.Errorf("%s: %d %s, want 422 with %s and without the sent value", name, r.Status, r.Text, tt.location)
		}
		r = world.Request(t, b.handler, "POST", "/v1/messages/batch", `{"messages":[`+tt.message+`]}`)
		if r.Status != 207 || r.Body["rejected"] != 1.0 || strings.Contains(r.Text, secret) || !strings.Contains(r.Text, tt.location) {
			t.Errorf("%s in a batch: %d %s, want a response without the sent value", name, r.Status, r.Text)
		}
	}
}
