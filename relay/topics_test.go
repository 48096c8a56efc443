package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// A topic that somebody deletes is made again for the next event.
func TestPublisher_MakesADeletedTopicAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		b.submit(event(1, 1, "OrderCreated"), nil)
		b.drain(time.Minute)
		if _, err := kadm.NewClient(b.publisher.client).DeleteTopics(t.Context(), "OrderCreated"); err != nil {
			t.Fatal(err)
		}
		late := event(2, 1, "OrderCreated")
		b.submit(late, nil)
		b.drain(10 * time.Minute)
		if got := b.consume("OrderCreated"); len(got) != 1 || got[0].Event.ID != late.ID {
			t.Errorf("the new topic has %d records, want the event submitted after the deletion", len(got))
		}
	})
}
