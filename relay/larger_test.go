package relay

import (
	"bytes"
	"regexp"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A topic's limit is raised while the relay runs: events that were too large before are published
// when an operator replays them, and a new record as large is published immediately, both in order
// with the small ones.
func TestDeadLetters_ATopicTakesLargerRecords(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.Kafka = append(c.Kafka, relaytest.NoCompression()) })
		defer w.close()
		client, err := kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.net.DialContext))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		admin := kadm.NewClient(client)
		small, large := "4000", "20000"
		if _, err := admin.CreateTopic(t.Context(), 3, 1, map[string]*string{"max.message.bytes": &small}, "OrderCreated"); err != nil {
			t.Fatal(err)
		}
		all := relaytest.Events(3, 6, "OrderCreated")
		for _, n := range []int{3 + 1, 12 + 1} { // aggregate 1, numbers 2 and 5
			all[n].Payload = bytes.Repeat([]byte("x"), 8000)
		}
		r, stop := w.run()
		for _, e := range all[:9] {
			w.write(e)
		}
		time.Sleep(10 * time.Second)
		deadLetter, err := w.deadLetters().Read(t.Context(), all[4].ID.UUID())
		if err != nil || deadLetter.Status != dlq.Suspended || deadLetter.ErrorClass != chains.ClassTooLarge {
			t.Fatalf("Read() = %+v, %v, want the large event, suspended", deadLetter, err)
		}
		if text := deadLetter.ErrorText; !regexp.MustCompile(`a record of 8\d\d\d bytes before compression, where topic OrderCreated takes batches of at most 4000 \(the topic's max\.message\.bytes\)`).MatchString(text) {
			t.Errorf("the error is %q, want the record's size and the topic's limit", text)
		}
		if _, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &large}}, "OrderCreated"); err != nil {
			t.Fatal(err)
		}
		if err := w.deadLetters().Replay(t.Context(), all[4].ID.UUID(), dlq.Actor{Name: "ada"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		for _, e := range all[9:] {
			w.write(e)
		}
		time.Sleep(10 * time.Second)
		if s := r.Status(); s.DeadLetters != 0 || s.InFlight != 0 {
			t.Errorf("Status() = %+v, want no dead letter left", s)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		if _, err := w.deadLetters().Read(t.Context(), all[13].ID.UUID()); err == nil {
			t.Error("a record became a dead letter though the topic takes it")
		}
		got := w.consume("OrderCreated")
		relaytest.CheckOrder(t, got, all)
		relaytest.CheckTimes(t, got)
	})
}
