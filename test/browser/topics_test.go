//go:build browser

package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// topic creates the topic of the events without a relay.
func (w *world) topic() {
	w.t.Helper()
	if _, err := kadm.NewClient(w.kafka).CreateTopic(w.t.Context(), 3, 1, nil, topic); err != nil {
		w.t.Fatal(err)
	}
}

// publish publishes an event for each payload, one after the other, and returns the id of
// the last.
func (w *world) publish(payloads ...string) (id string) {
	w.t.Helper()
	for i, p := range payloads {
		e := outbox.Event{
			ID: outbox.NewID(), AggregateID: outbox.IDFromText(fmt.Sprintf("order-%d", i%5)), Sequence: 1, AggregateType: "order", Type: topic, Payload: []byte(p), ContentType: "application/json", CreatedAt: time.Now(),
			Headers: map[string]string{"x-channel": "checkout"},
		}
		r := &kgo.Record{Topic: topic, Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")}
		if err := w.kafka.ProduceSync(w.t.Context(), r).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
		id = e.ID.String()
		time.Sleep(2 * time.Millisecond) // the order of records is by milliseconds
	}
	return id
}

// A viewer finds a topic, reads its records page by page, opens one, and its event.
func TestTopics_Browse(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.topic()
	old := make([]string, 60)
	for i := range old {
		old[i] = fmt.Sprintf(`{"n":%d}`, i)
	}
	w.publish(old...)
	id := w.publish(`{"total":12345678901234567890.50,"note":"<img src=x onerror=window.harmed=true>"}`)

	b := w.open(access.Viewer, "/")
	b.goes("gt", "Topics")
	b.sees("tr[data-id="+topic+"]", "61")
	b.click("[data-key=row-" + topic + "]")
	b.at("/topics/" + topic)
	b.has("tbody tr", 50)
	b.sees("tbody tr", topic)
	b.click("tbody tr:first-child [aria-expanded]")
	b.sees(".payload", "12345678901234567890.50")
	b.sees(".payload", "<img src=x onerror=window.harmed=true>")
	b.sees(`[aria-label="Headers"]`, "checkout")
	if eval[bool](b, `Boolean(window.harmed || document.querySelector("main img"))`) {
		t.Error("the payload became markup")
	}
	b.load(axeSource(t))
	for _, width := range []int64{390, 1280} {
		b.size(width, 860)
		b.accessible(fmt.Sprintf("topic-open-%d", width))
		b.shoot(fmt.Sprintf("topic-open-%d", width))
	}
	b.click("[data-key=next]")
	b.sees(".pager", "page 2")
	b.has("tbody tr", 11)
	b.visit("/topics/" + topic + "?partition=9")
	b.sees("main", "the topic has partitions 0 to 2")
	b.visit("/topics/" + topic + "?at=2020-01-01T00:00:00Z")
	b.sees("main", "No record matches")
	b.visit("/topics/payments")
	b.sees("main", `Topic "payments" does not exist, or watch.topics does not allow it.`)
	b.visit("/topics/" + topic)
	b.click("tbody tr:first-child a")
	b.at("/events/" + id)
}

// A payload in the wire format of a schema registry is shown decoded, in its topic and as a
// dead letter, and byte for byte as hex.
func TestTopics_DecodedBySchema(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.schemas.SeedSchema(topic+"-value", 1, 1, sr.Schema{Type: sr.TypeAvro, Schema: `{"type":"record","name":"S","fields":[{"name":"customer","type":"string"}]}`})
	avro := "\x00\x00\x00\x00\x01\x0a17850"
	w.topic()
	w.publish(avro)
	id := w.writeDeadLetter(func(l *dlq.DeadLetter) { l.Payload = []byte(avro) })
	b := w.open(access.Viewer, "/topics/"+topic)
	b.sees("tbody tr", `{"customer":"17850"}`)
	b.click("tbody tr:first-child [aria-expanded]")
	shown := func() {
		t.Helper()
		b.sees(`[aria-label="Payload"]`, "11 bytes, decoded by its schema")
		b.click(`[data-key="tab-How the payload is shown-hex"]`)
		b.sees(".payload", "00 00 00 00 01 0a 31 37 38 35 30")
	}
	b.sees(".payload", `"customer": "17850"`)
	b.shoot("topic")
	shown()
	b.visit("/dead-letters/" + id.String())
	b.sees(".payload", `"customer": "17850"`)
	b.shoot("dead-letter")
	shown()
}

// A followed topic shows records as they arrive, above the earlier ones; the address
// contains that it is followed.
func TestTopics_Follow(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.topic()
	w.publish(`{"n":"before"}`)
	b := w.open(access.Viewer, "/topics/"+topic)
	b.has("tbody tr", 1)
	w.publish(`{"n":"unseen"}`)
	time.Sleep(2 * time.Second)
	b.has("tbody tr", 1) // it is not followed yet
	b.click("[data-key=follow]")
	b.sees("[data-key=follow]", "Stop following")
	b.has("tbody tr", 2)
	for i := range 3 {
		w.publish(fmt.Sprintf(`{"n":"live-%d"}`, i))
		b.sees("tbody tr:first-child", fmt.Sprintf("live-%d", i))
	}
	b.has("tbody tr", 5)
	if query := eval[string](b, `location.search`); !strings.Contains(query, "follow=on") {
		t.Errorf("the address of a followed topic has the query %q", query)
	}
	b.click("[data-key=follow]")
	b.sees(".pager", "5 records, newest first")
}
