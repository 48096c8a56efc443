package main

import (
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/verify"
)

// reconciliation compares the topics with the outbox.
type reconciliation struct {
	Written    int64 `json:"events_written"`
	Published  int64 `json:"events_published"`
	Lost       int64 `json:"lost"`
	Duplicates int64 `json:"duplicates"`
	OutOfOrder int64 `json:"out_of_order"`
	// Latency is the time from the write's timestamp, which the client sets before it
	// sends the batch, to the consumer, of events written since a given time.
	Latency percentiles `json:"commit_to_consumer_ms"`
}

type percentiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// ok reports whether nothing is missing, double or out of order.
func (r reconciliation) ok() bool { return r.Lost == 0 && r.Duplicates == 0 && r.OutOfOrder == 0 }

// reconcile compares the consumed events with the scanned ones. Latencies cover events
// written at or after since. A number missing in an aggregate, or a row that is not an
// event, counts as a lost event.
func reconcile(l *verify.Ledger, since time.Time) reconciliation {
	c := l.Check(verify.Window{}, nil)
	var ms []float64
	for d := range l.Latencies(since) {
		ms = append(ms, d.Seconds()*1000)
	}
	return reconciliation{
		Written: c.Rows, Published: l.Totals().Records, Lost: c.Missing + c.Gaps + c.Unreadable,
		Duplicates: c.Doubles, OutOfOrder: c.Disorder, Latency: newPercentiles(ms),
	}
}

func newPercentiles(ms []float64) percentiles {
	if len(ms) == 0 {
		return percentiles{}
	}
	slices.Sort(ms)
	at := func(q float64) float64 {
		i := min(int(q*float64(len(ms))), len(ms)-1)
		return float64(int(ms[i]*10)) / 10
	}
	return percentiles{at(0.50), at(0.95), at(0.99)}
}
