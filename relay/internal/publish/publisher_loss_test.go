package publish

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A leader that does not have the acknowledged records of its predecessor has lost them.
func TestPublisher_ReportsRecordsThatTheBrokerLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		all := []outbox.Event{relaytest.Event(1, 1, "OrderUpdated"), relaytest.Event(1, 2, "OrderUpdated")}
		b.submit(all[0], nil)
		b.drain(time.Minute)
		if n := relaytest.Count(b.publisher.Metrics.dataLoss); n != 0 {
			t.Errorf("outbox_relay_broker_data_loss_total = %v, want 0", n)
		}
		b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.OutOfOrderSequenceNumber})
		b.submit(all[1], nil)
		b.drain(time.Minute)
		if n := relaytest.Count(b.publisher.Metrics.dataLoss); n != 1 {
			t.Errorf("outbox_relay_broker_data_loss_total = %v, want 1", n)
		}
		relaytest.CheckOrder(t, b.consume("OrderUpdated"), all)
	})
}
