package relaytest

import (
	"fmt"
	"strconv"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Events returns n aggregates with m events each, ordered by number; types alternate.
func Events(n, m int, types ...string) []outbox.Event {
	var out []outbox.Event
	for seq := 1; seq <= m; seq++ {
		for a := range n {
			out = append(out, Event(a, int64(seq), types[(seq-1)%len(types)]))
		}
	}
	return out
}

// Aggregate returns the id of an aggregate: every other one is a text.
func Aggregate(n int) outbox.ID {
	if n%2 == 1 {
		return outbox.IDFromText(fmt.Sprintf("Käufer/%d", n))
	}
	return outbox.NameID(gocql.UUID{1}, "aggregate", strconv.Itoa(n))
}

// Event returns an event of that aggregate, with an id that follows from its arguments.
func Event(aggregate int, seq int64, eventType string) outbox.Event {
	agg := outbox.NameID(gocql.UUID{1}, "aggregate", strconv.Itoa(aggregate)).UUID()
	return outbox.Event{
		ID: outbox.NameID(agg, strconv.FormatInt(seq, 10)), AggregateID: Aggregate(aggregate), Sequence: seq,
		AggregateType: "order", Type: eventType, CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
		Payload: fmt.Appendf(nil, `{"aggregate":%d,"seq":%d}`, aggregate, seq),
	}
}
