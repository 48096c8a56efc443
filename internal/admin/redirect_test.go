package admin

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A topic that only some brokers know exists: the metadata of the others are behind.
func TestRedirect_ToATopicThatABrokerDoesNotKnow(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	cluster := world.StartBroker(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "things"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Nodes: []int32{0, 1}, Topic: "things", Count: -1, Err: kerr.UnknownTopicOrPartition})
	b.reconfigure(t, func(c *Config) { c.Kafka = world.Kafka{kgo.SeedBrokers(cluster.ListenAddrs()...)} })
	id := b.writeDeadLetter(t, testDeadLetter("a", 1), time.Now()).EventID.String()
	for range 4 { // each asks any broker
		if a := b.ask(t, access.Admin, http.MethodPost, "/v1/jobs", `{"action": "redirect", "topic": "things", "ids": ["`+id+`"]}`); a.code != http.StatusAccepted {
			t.Errorf("a redirect to a topic that one of three brokers knows: %d %s", a.code, a.body)
		}
	}
}

// A redirect to a topic that does not exist is refused before anything is changed. Without an answer of
// the brokers it is accepted.
func TestRedirect_RefusesAMissingTopic(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.broker(t)
	id := b.writeDeadLetter(t, testDeadLetter("a", 1), time.Now()).EventID.String()
	redirect := func(topic string, want int) string {
		t.Helper()
		a := b.ask(t, access.Admin, http.MethodPost, "/v1/jobs", `{"action": "redirect", "topic": "`+topic+`", "ids": ["`+id+`"]}`)
		if a.code != want {
			t.Errorf("redirect to %s: %d %s, want %d", topic, a.code, a.body, want)
		}
		return string(a.body)
	}
	if body := redirect("thing", http.StatusUnprocessableEntity); !strings.Contains(body, "body.topic") || !strings.Contains(body, "create it, or correct the name") {
		t.Errorf("the refusal is %s", body)
	}
	redirect("things", http.StatusAccepted)
	b.reconfigure(t, func(c *Config) { c.Kafka = world.Kafka{kgo.SeedBrokers("127.0.0.1:1")} })
	redirect("thing", http.StatusAccepted)
}
