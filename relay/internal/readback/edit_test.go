package readback

import (
	"testing"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A record of an edited event shows that the event in the outbox is published.
func TestReadBack_AnEditStandsForTheOriginal(t *testing.T) {
	t.Parallel()
	for _, original := range []string{gocql.MustRandomUUID().String(), "order-7/2"} {
		e := relaytest.Event(1, 2, "OrderUpdated")
		var got []Event
		if _, err := newBatchScanner("test").scan(batchWith(0, []kmsg.Header{{Key: outbox.HeaderOriginalID, Value: []byte(original)}}, e), 0, func(e Event) { got = append(got, e) }); err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[0].ID != rows.IDOf(original) || got[0].Sequence != 2 {
			t.Errorf("an edit of %s is read back as %+v", original, got)
		}
	}
}
