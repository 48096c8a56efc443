package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// handOverTimeout bounds the hand-over of the leases of partitions that are revoked. The leases of
// a partition that is not stored in it end.
const handOverTimeout = 5 * time.Second

// maxHandOver bounds the stored leases of a partition, in bytes: half of what ScyllaDB accepts as one
// write by default. If the leases need more, the last ones by offset end.
const maxHandOver = 8 << 20

// handOver is what an owner that gives a partition up stores for the next one. It is valid
// until an owner opens the partition, and for the records of its origin only.
type handOver struct {
	TopicID    [16]byte
	Generation int64
	Epochs     []leaseEpoch
	queue.HandOver
}

// leaseEpoch is an epoch in whose receipts the numbers of leases begin with First. They end
// before that of the next epoch.
type leaseEpoch struct {
	Epoch int64
	First uint64
}

// inherit returns the leases that the former owner of a partition has handed over, if they belong
// to an origin; stored reports that there is something to remove before the partition opens.
func (g *group) inherit(ctx context.Context, p *partition, of position.Origin) (h handOver, stored bool, err error) {
	data, err := g.e.cfg.Store.HandOver(ctx, p.id)
	if err != nil || len(data) == 0 {
		return handOver{}, false, err
	}
	if err := json.Unmarshal(data, &h); err != nil {
		g.log.Error("the leases of the former owner cannot be read: their messages are delivered again", "topic", p.topic, "partition", p.number, "err", err)
		return handOver{}, true, nil
	}
	if h.TopicID != of.TopicID || h.Generation != of.Generation {
		return handOver{}, true, nil
	}
	return h, true, nil
}

// hasLease reports whether a lease number belongs to an epoch.
func hasLease(epochs []leaseEpoch, epoch int64, lease uint64) bool {
	for i := len(epochs) - 1; i >= 0; i-- {
		if lease >= epochs[i].First {
			return epochs[i].Epoch == epoch
		}
	}
	return false
}

// neededEpochs returns the epochs of the leases of a hand-over.
func neededEpochs(epochs []leaseEpoch, h *queue.HandOver) []leaseEpoch {
	oldest := h.Last
	for i := range h.Leases {
		oldest = min(oldest, h.Leases[i].Lease)
	}
	if len(h.Ended) > 0 {
		oldest = min(oldest, h.Ended[0].Lease)
	}
	for len(epochs) > 1 && epochs[1].First <= oldest {
		epochs = epochs[1:]
	}
	return epochs
}

// open lets a loaded partition be used, after the leases that the former owner has handed over
// are removed: if this owner dies, the next one must not continue leases that have ended here.
func (p *partition) open(ctx context.Context) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.mu.Lock()
	q, epoch, inherited := p.mu.loaded, p.mu.epoch, p.mu.inherited
	if p.mu.closed {
		q = nil
	}
	p.mu.Unlock()
	if q == nil {
		return nil // it is open, or is given up
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.staying, cancel)() // handOver continues
	for n := 1; inherited; n++ {
		err := p.g.e.cfg.Store.SetHandOver(ctx, p.id, epoch, nil)
		if err == nil {
			break
		}
		if errors.Is(err, store.ErrFenced) {
			p.g.closeFenced(p)
			return nil
		}
		if p.staying.Err() != nil {
			return nil
		}
		p.g.recordFailure(err)
		if err := retry.Wait(ctx, retry.Backoff(100*time.Millisecond, 5*time.Second, n)); err != nil && p.staying.Err() == nil {
			return err
		}
	}
	p.mu.Lock()
	if !p.mu.closed {
		q.Begin()
		p.mu.q, p.mu.loaded = q, nil
	}
	p.mu.Unlock()
	p.withQueue(func(*queue.Queue) {})
	p.g.refresh(p) // the subscription may have changed since it was loaded
	p.g.kick()
	return nil
}

// openAll opens partitions. All of them are loaded: a key that is leased in one of them is not
// delivered by another one.
func openAll(ctx context.Context, all []*partition) error {
	return tryEach(all, func(p *partition) error { return p.open(ctx) })
}

// handOverAll stores the leases of partitions for their next owners, and closes them.
func (g *group) handOverAll(all []*partition) {
	ctx, cancel := context.WithTimeout(context.Background(), handOverTimeout)
	defer cancel()
	each(all, func(p *partition) {
		leases, err := p.handOver(ctx)
		if err != nil {
			g.metrics.notHandedOver.Add(float64(leases))
			g.log.Warn("failed to hand over leases of a partition: their messages are delivered again", "topic", p.topic, "partition", p.number, "leases", leases, "err", err)
		}
	})
}

// handOver closes the partition and stores its leases for the next owner. Nothing changes them in
// between. A write of the partition that is running is cancelled; SetHandOver waits for its fate.
// With an error it returns the number of leases that are not handed over.
func (p *partition) handOver(ctx context.Context) (lost int, err error) {
	p.turn.Lock() // what open removes is stored again
	defer p.turn.Unlock()
	p.mu.Lock()
	q := p.mu.q
	if p.mu.loaded != nil {
		q = p.mu.loaded
	}
	if q == nil || p.mu.closed {
		p.mu.Unlock()
		p.close()
		return 0, nil
	}
	h, epoch, epochs := handOver{HandOver: q.HandOver(time.Now())}, p.mu.epoch, p.mu.epochs
	of := q.Counts().Origin
	p.mu.closed = true
	p.mu.Unlock()
	p.leave()
	if p.g.pusher != nil { // its calls have ended, or are interrupted: nothing repeats their results
		own := epochs[len(epochs)-1].First
		h.Leases = slices.DeleteFunc(h.Leases, func(l queue.HandedLease) bool { return l.Lease >= own && !l.Failed })
		for i := range h.Leases {
			if l := &h.Leases[i]; l.Lease >= own {
				l.Remaining = 0
			}
		}
	}
	if len(h.Leases)+len(h.Ended) == 0 {
		return 0, nil
	}
	h.TopicID, h.Generation, h.Epochs = of.TopicID, of.Generation, neededEpochs(epochs, &h.HandOver)
	all := len(h.Leases)
	data, err := h.encode()
	if err != nil {
		return all, fmt.Errorf("encode the leases: %w", err)
	}
	if err := p.g.e.cfg.Store.SetHandOver(ctx, p.id, epoch, data); err != nil {
		return all, err
	}
	if lost = all - len(h.Leases); lost > 0 {
		return lost, fmt.Errorf("%d leases need more than the %d bytes that are handed over", all, maxHandOver)
	}
	return 0, nil
}

// encode returns the stored form, and removes the last leases that do not fit into it. Those before
// them are whole: messages of a key are leased in the order of their offsets.
func (h *handOver) encode() ([]byte, error) {
	data, err := json.Marshal(h)
	if err != nil || len(data) <= maxHandOver {
		return data, err
	}
	size := len(data)
	for size > maxHandOver && len(h.Leases) > 0 {
		last := len(h.Leases) - 1
		one, err := json.Marshal(&h.Leases[last])
		if err != nil {
			return nil, err
		}
		h.Leases, size = h.Leases[:last], size-len(one)-len(",")
	}
	return json.Marshal(h)
}
