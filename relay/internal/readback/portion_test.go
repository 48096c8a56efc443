package readback

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// Read-back keeps nothing of what other shards published, and does not wait for
// them to be quiet.
func TestShards_ReadBackTheirOwn(t *testing.T) {
	t.Parallel()
	found := 0
	for i := range 3 {
		p := cdclog.NewPortion(cdclog.Shard{Index: i, Count: 3}, outbox.DefaultTable)
		s := newBatchScanner("test")
		s.owns = []*cdclog.Portion{&p}
		for n := range 30 {
			e := relaytest.Event(n, 1, "x")
			_, err := s.scan(encodeBatch(0, e), 0, func(got Event) {
				found++
				if got.Aggregate != e.AggregateID.UUID() || !p.HasAggregate(e.AggregateID) {
					t.Errorf("shard %d found aggregate %s", i, got.Aggregate)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if found != 30 {
		t.Errorf("%d events were found by all shards, want 30", found)
	}
}
