package publish

import (
	"testing"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// An aggregate left by the tail reader is recorded until the sweep reader has read it,
// and at most maxLeft of them.
func TestSwept_RemembersABoundedNumber(t *testing.T) {
	t.Parallel()
	p := &Publisher{Metrics: NewMetrics(prometheus.NewRegistry())}
	p.tailed.left = make(map[gocql.UUID]struct{})
	for i := range 3 * maxLeft {
		p.Leave(relaytest.Event(i, 1, "OrderUpdated").AggregateID)
	}
	if n := len(p.tailed.left); n > maxLeft {
		t.Errorf("%d aggregates are recorded, want at most %d", n, maxLeft)
	}
	p.tailed.window = 1000
	if c := p.tailed.swept(&Offer{Event: relaytest.Event(-1, 1, "OrderUpdated"), Written: 5000}); c != sweptBeforeStart {
		t.Errorf("swept() = %s before the tail has read, want before_start", c)
	}
	p.tailed.began.Store(5000)
	for written, want := range map[int64]SweptCause{3999: sweptBeforeStart, 4001: SweptLate} {
		if c := p.tailed.swept(&Offer{Event: relaytest.Event(-1, 1, "OrderUpdated"), Written: written}); c != want {
			t.Errorf("swept() = %s of a row written at %d, want %s", c, written, want)
		}
	}
	last := relaytest.Event(3*maxLeft-1, 1, "OrderUpdated")
	if c := p.tailed.swept(&Offer{Event: last}); c != SweptLeft {
		t.Errorf("swept() = %s, want left", c)
	}
	if c := p.tailed.swept(&Offer{Event: last}); c == SweptLeft {
		t.Error("an aggregate remains recorded as left")
	}
}
