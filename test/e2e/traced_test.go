package e2e

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// traced is a request that is followed to its event: by its id and its trace.
type traced struct{ id, trace string }

func (r traced) parent() string { return "00-" + r.trace + "-b7ad6b7169203331-01" }

// request are the headers of the HTTP request.
func (r traced) request() map[string]string {
	return map[string]string{"X-Request-Id": r.id, "Traceparent": r.parent()}
}

// line is the part of a log line about the event.
func (r traced) line() string { return "request_id=" + r.id + " trace_id=" + r.trace }

// check checks both in the headers of an event.
func (r traced) check(t *testing.T, what string, headers map[string]string) {
	t.Helper()
	if headers["x-request-id"] != r.id || headers["traceparent"] != r.parent() {
		t.Errorf("%s has the headers %v, want x-request-id %s and traceparent %s", what, headers, r.id, r.parent())
	}
}

// readHeaders returns the headers of the first record of the topic with the key.
func (c *cluster) readHeaders(topic, key string) map[string]string {
	c.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.kafkaAddr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), harness.Patience)
	defer cancel()
	for ctx.Err() == nil {
		for _, r := range client.PollFetches(ctx).Records() {
			if string(r.Key) != key {
				continue
			}
			out := make(map[string]string)
			for _, h := range r.Headers {
				out[h.Key] = string(h.Value)
			}
			return out
		}
	}
	c.t.Fatalf("topic %s has no record of %s", topic, key)
	return nil
}
