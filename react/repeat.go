package react

import (
	"context"
	"errors"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

// repeatsAtOnce is the page size of requested repeats.
const repeatsAtOnce = 1000

// poll starts requested repeats and updates the age of waiting events until ctx
// ends.
func (r *runner) poll(ctx context.Context) {
	tick := time.NewTicker(r.cfg.Poll)
	defer tick.Stop()
	// Each poll continues after the previous one and wraps around: repeats of
	// other processes, or of deleted topics, must not hide later ones.
	var after gocql.UUID
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		r.metrics.oldest.Set(r.oldest().Seconds())
		asked, err := r.cfg.Deliveries.Repeats(ctx, r.rule.Name, after, repeatsAtOnce)
		if err != nil {
			r.metrics.unsaved.Inc()
			continue // continue with the next page soon
		}
		if after = (gocql.UUID{}); len(asked) == repeatsAtOnce {
			after = asked[len(asked)-1].ID
		}
		for _, a := range asked {
			if ctx.Err() == nil && r.mine(a) {
				r.repeat(ctx, a)
			}
		}
	}
}

// oldest returns the longest time that a job has been waiting.
func (r *runner) oldest() (longest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, since := range r.jobs {
		longest = max(longest, time.Since(since))
	}
	return longest
}

// mine reports whether this process must repeat a delivery and has not started.
func (r *runner) mine(a delivery.Asked) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.partitions[topicPartition{a.Topic, a.Partition}]
	return p != nil && p.ctx.Err() == nil && !r.repeating[a.ID] && len(r.jobs) < r.rule.Queue
}

// repeat starts a delivery again, behind those of its aggregate in flight.
func (r *runner) repeat(ctx context.Context, a delivery.Asked) {
	d, err := r.cfg.Deliveries.Read(ctx, a.ID)
	switch {
	case errors.Is(err, delivery.ErrNotFound), err == nil && d.State != delivery.Pending:
		// The delivery has expired, or a process failed between the delivery and the
		// list. If only the list was written so far, the request stays there.
		if d == nil {
			d = a.Delivery(r.rule.Name)
		}
		if err := r.cfg.Deliveries.Repeated(ctx, d); err != nil {
			r.metrics.unsaved.Inc()
		}
		return
	case err != nil:
		r.metrics.unsaved.Inc()
		return
	}
	e := kafkarecord.Decode(d.Record())
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.partitions[topicPartition{a.Topic, a.Partition}]
	if p == nil || p.ctx.Err() != nil {
		return
	}
	r.repeating[a.ID] = true
	r.metrics.repeats.Inc()
	r.begin(p, &job{Delivery: d, event: e, lane: r.rule.lane(&e)})
}
