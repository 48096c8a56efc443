package topiclist

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A client that was just asked for a topic that does not exist does not list it.
func TestAll_OmitsTopicsThatWereAskedFor(t *testing.T) {
	broker := world.StartBroker(t, kfake.SeedTopics(1, "orders"))
	client := world.Connect(t, broker)
	adm := kadm.NewClient(client)
	for _, topic := range []string{"orders", "payments"} {
		if details, err := List(t.Context(), client, topic); err != nil || IsAbsent(details, topic) != (topic == "payments") {
			t.Fatalf("topic %s: %v, %v", topic, details, err)
		}
	}
	all, err := All(t.Context(), adm)
	if names := all.Names(); err != nil || len(names) != 1 || names[0] != "orders" {
		t.Errorf("topics %v, %v, want orders", names, err)
	}
}
