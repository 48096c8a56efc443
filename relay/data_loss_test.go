package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

// Readiness reports the loss for an hour, with the partition.
func TestStatus_ReportsRecordsThatTheBrokerLost(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.IdleDelay = 10 * time.Second }, testworld.WithoutTopicIDs().Options()...)
		defer w.close()
		r, stop := w.run()
		time.Sleep(15 * time.Second)
		w.write(relaytest.Event(1, 1, "OrderUpdated"))
		time.Sleep(5 * time.Second)
		if s := r.Status(); len(s.Problems) > 0 {
			t.Errorf("problems %q, want none", s.Problems)
		}
		admin := w.admin()
		if _, err := admin.DeleteTopics(t.Context(), "OrderUpdated"); err != nil { // as a leader without the records
			t.Fatal(err)
		}
		if _, err := admin.CreateTopic(t.Context(), 3, 1, nil, "OrderUpdated"); err != nil {
			t.Fatal(err)
		}
		w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.OutOfOrderSequenceNumber})
		w.write(relaytest.Event(1, 2, "OrderUpdated"))
		time.Sleep(30 * time.Second)
		if s := r.Status(); len(s.Problems) != 1 || !strings.Contains(s.Problems[0], `topic "OrderUpdated" lost records`) || s.DataLoss == nil {
			t.Errorf("problems %q after a loss, want it alone", s.Problems)
		}
		time.Sleep(time.Hour)
		if s := r.Status(); len(s.Problems) > 0 {
			t.Errorf("problems %q an hour later, want none", s.Problems)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
