package bench

import (
	"context"
	"encoding/hex"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Arrivals records the events that a consumer has received.
type Arrivals struct {
	events *Events
	at     []atomic.Int64 // since epoch, in nanoseconds; 0 for not yet
	last   []int32        // by aggregate; used by the consumer only
	epoch  time.Time

	seen, doubles, disorder, foreign atomic.Int64

	mu        sync.Mutex
	producers map[int64]time.Time // time of the first record of each
	positions map[int32]int64     // by partition: the offset after the last record received
	target    int64
	reached   chan struct{}
	err       error
}

// NewArrivals expects n events.
func NewArrivals(e *Events, n int64) *Arrivals {
	return &Arrivals{
		events: e, at: make([]atomic.Int64, n), last: make([]int32, e.blocks(n)*e.spread), epoch: time.Now(),
		producers: make(map[int64]time.Time), positions: make(map[int32]int64),
	}
}

// Counts are the numbers of events received.
type Counts struct {
	// Written and Consumed are events, each counted once.
	Written  int64 `json:"written"`
	Consumed int64 `json:"consumed"`
	// Doubles came again, Disorder came after a later one of their aggregate.
	Doubles  int64 `json:"double"`
	Disorder int64 `json:"out_of_order"`
}

// Lost returns how many events did not arrive.
func (c Counts) Lost() int64 { return c.Written - c.Consumed }

// OK reports whether each event came once and in order.
func (c Counts) OK() bool { return c.Written == c.Consumed && c.Doubles == 0 && c.Disorder == 0 }

// Counts returns the counts so far, of written events.
func (a *Arrivals) Counts(written int64) Counts {
	return Counts{Written: written, Consumed: a.seen.Load(), Doubles: a.doubles.Load(), Disorder: a.disorder.Load()}
}

// Consume reads until ctx ends.
func (a *Arrivals) Consume(ctx context.Context, client *kgo.Client) {
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		now := time.Now()
		for _, e := range fetches.Errors() {
			a.fail(e.Err)
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			p.EachRecord(func(r *kgo.Record) { a.take(r, now) })
			if n := len(p.Records); n > 0 {
				a.countArrival(p.Partition, p.Records[n-1].Offset+1)
			}
		})
	}
}

func (a *Arrivals) countArrival(partition int32, position int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.positions[partition] = position
}

func (a *Arrivals) take(r *kgo.Record, now time.Time) {
	id, ok := eventID(r)
	if !ok {
		a.foreign.Add(1)
		return
	}
	i, ok := a.events.Number(id)
	if !ok || i >= int64(len(a.at)) {
		a.foreign.Add(1)
		return
	}
	a.mu.Lock()
	if _, ok := a.producers[r.ProducerID]; !ok {
		a.producers[r.ProducerID] = now
	}
	a.mu.Unlock()
	if !a.at[i].CompareAndSwap(0, int64(now.Sub(a.epoch))) {
		a.doubles.Add(1)
		return
	}
	aggregate, seq := a.events.place(i)
	if int32(seq) != a.last[aggregate]+1 {
		a.disorder.Add(1)
	}
	a.last[aggregate] = max(a.last[aggregate], int32(seq))
	n := a.seen.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reached != nil && n >= a.target {
		close(a.reached)
		a.reached = nil
	}
}

// eventID returns the record's header ce_id.
func eventID(r *kgo.Record) (id gocql.UUID, ok bool) {
	for i := range r.Headers {
		if h := &r.Headers[i]; h.Key == outbox.HeaderID {
			return id, len(h.Value) == 36 && parseID(h.Value, &id)
		}
	}
	return id, false
}

// parseID reads the text form of an id without allocating.
func parseID(text []byte, id *gocql.UUID) bool {
	from := 0
	for _, part := range [...]struct{ at, n int }{{0, 8}, {9, 4}, {14, 4}, {19, 4}, {24, 12}} {
		if _, err := hex.Decode(id[from:from+part.n/2], text[part.at:part.at+part.n]); err != nil {
			return false
		}
		from += part.n / 2
	}
	return true
}

// Wait waits until n events came, or none has for patience. It returns the error that
// ended the wait, if any.
func (a *Arrivals) Wait(ctx context.Context, n int64, patience time.Duration) error {
	a.mu.Lock()
	reached := make(chan struct{})
	a.target, a.reached = n, reached
	if a.seen.Load() >= n {
		a.reached = nil
		close(reached)
	}
	a.mu.Unlock()
	tick := time.NewTicker(patience)
	defer tick.Stop()
	for before := a.seen.Load(); ; {
		select {
		case <-reached:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			now := a.seen.Load()
			if now == before {
				a.mu.Lock()
				defer a.mu.Unlock()
				return a.err
			}
			before = now
		}
	}
}

// Since returns when event i came, false if it did not.
func (a *Arrivals) Since(i int64) (time.Time, bool) {
	at := a.at[i].Load()
	return a.epoch.Add(time.Duration(at)), at != 0
}

// Positions returns the offsets after the last records received, by partition.
func (a *Arrivals) Positions() map[int32]int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.positions)
}

// Producers returns the times of the first record of each producer, in order.
func (a *Arrivals) Producers() []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]time.Time, 0, len(a.producers))
	for _, t := range a.producers {
		out = append(out, t)
	}
	return out
}

func (a *Arrivals) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}
