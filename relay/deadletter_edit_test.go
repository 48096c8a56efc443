package relay

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// An edited event goes out once, under its new id, in the place of the original
// and before what waits behind it; the original never does. That holds when the
// relay dies after it was published and before it could note that, too.
func TestDeadLetters_AnEditedEventTakesTheOriginalsPlace(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"goes on", "dies before the edit", "dies before it can note it"} {
		for _, topic := range []string{"", "Elsewhere"} { // with the second it is redirected, too
			testEdited(t, how, topic)
		}
	}
}

func testEdited(t *testing.T, how, topic string) {
	t.Run(how+" "+topic, func(t *testing.T) {
		t.Parallel()
		inBubble(t, func(t *testing.T) {
			w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
				c.ConfidenceWindow = time.Minute
				c.Kafka = append(c.Kafka, relaytest.NoCompression())
			})
			defer w.close()
			all := relaytest.Events(3, 4, "OrderUpdated")
			bad := all[3] // aggregate 0, number 2
			end := w.refuse(bad.ID.UUID(), kerr.InvalidRecord)
			_, stop := w.run()
			time.Sleep(5 * time.Second)
			for _, e := range all {
				w.write(e)
			}
			time.Sleep(5 * time.Second)
			if got := w.statuses(); got[dlq.Suspended] != 1 || got[dlq.Blocked] != 2 {
				t.Fatalf("dead letters %v, want one and two behind it", got)
			}
			end()
			if how == "dies before the edit" {
				_ = stop()
			}
			noted := func() {}
			if how == "dies before it can note it" {
				var once sync.Once
				w.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
					once.Do(func() { noted = w.deadLettersFail() })
					return nil, nil, false
				})
			}
			edit := dlq.Edit{Payload: []byte(`{"mended":true}`), ContentType: "application/json", Headers: map[string]string{"mended": "1"}, Topic: topic}
			id, err := w.deadLetters().Edit(t.Context(), bad.ID.UUID(), edit, dlq.Actor{Name: "ada", Reason: "test"}, 0)
			if err != nil {
				t.Fatal(err)
			}
			if how != "goes on" {
				time.Sleep(5 * time.Second)
				if how == "dies before it can note it" {
					_ = stop()
					synctest.Wait()
					noted()
					if got := w.open(); len(got) == 0 {
						t.Fatal("the letter was settled, so the relay did not die before that")
					}
				}
				_, stop = w.run()
			}
			time.Sleep(5 * time.Minute)
			if err := stop(); err != nil {
				t.Errorf("Run() error = %v", err)
			}
			got := w.consume("OrderUpdated")
			wanted := without(all, bad.ID.UUID())
			mended := bad
			mended.ID = outbox.IDFromUUID(id)
			if topic != "" { // the events behind it follow to their own topic
				relaytest.CheckOrder(t, got, wanted)
				got, wanted = w.consume(topic), nil
			}
			relaytest.CheckOrder(t, got, append(wanted, mended))
			for _, d := range got {
				if d.ID.UUID() == id && (d.OriginalID != bad.ID || string(d.Payload) != string(edit.Payload) || d.Headers["mended"] != "1") {
					t.Errorf("the edited event is %+v", d.Event)
				}
			}
			if open := w.open(); len(open) != 0 {
				t.Errorf("dead letters are left: %+v", open)
			}
			l, err := w.deadLetters().Read(t.Context(), bad.ID.UUID())
			if err != nil || string(l.Payload) != string(bad.Payload) || l.EditedID != id || l.Status != dlq.Resolved {
				t.Errorf("the letter is %+v, %v", l, err)
			}
			if (l.Outcome.Kind == dlq.OutcomeRedirected) != (topic != "") {
				t.Errorf("it is resolved by %s", l.Outcome)
			}
		})
	})
}
