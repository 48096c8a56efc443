package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/turn"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

type topicPartition struct {
	topic  string
	number int32
}

// partition is one that the group has assigned to this instance.
type partition struct {
	topicPartition
	topicID [16]byte // of the topic as it was when the partition was loaded
	id      store.Partition
	g       *group
	ctx     context.Context // ends when the partition is closed
	leave   context.CancelFunc
	staying context.Context // ends when the partition is being revoked
	revoke  context.CancelFunc
	turn    turn.Turn // of open and handOver

	mu struct {
		sync.Mutex
		q         *queue.Queue // nil until it is open
		loaded    *queue.Queue // until it is open
		epoch     int64
		epochs    []leaseEpoch  // of the leases in receipts; the last one is epoch
		inherited bool          // the leases handed over have to be removed
		closed    bool          // no longer leased; another partition takes its place
		leaving   bool          // being revoked: no new leases
		working   bool          // the worker runs
		failures  map[int64]int // of the work of each message, in a row
		stopped   bool          // reading is paused
		held      []*kgo.Record // wait for the schema registry: reading is paused
		resetTo   int64
		reset     bool  // the client has to read from resetTo
		end       int64 // of the records, as of the last report or fetch
		watch     watch
		committed time.Time           // when the last commit was confirmed
		emptied   int64               // 1 + the next offset, if the topic had no record left at the last report
		skip      *subscriptions.Skip // is stored before the records that are held are added
	}
}

// watch finds the offsets after the last record that was read which have no record to read.
type watch struct {
	next, end   int64 // as they were when the ends were read
	interrupted bool  // since then reading was paused, or has failed
	from, to    int64 // an offset that is next, and the one up to which there is nothing
}

// readLocked returns the offset before which all records are read.
func (p *partition) readLocked() int64 {
	next := p.mu.q.Counts().Next
	if p.mu.watch.from == next {
		return max(next, p.mu.watch.to)
	}
	return next
}

// lag returns the number of messages that are not settled; see subscriptions.PartitionStatus.
func lag(c queue.Counts, read, end int64) int64 {
	return max(0, end-read) + c.Waiting + c.Leased + c.Deferred
}

// endLocked sets the end of the records. The records up to the end of the last report do not
// exist if reading has returned none since: they were compacted or deleted.
func (p *partition) endLocked(end int64) {
	next := int64(-1)
	if p.mu.q != nil && !p.mu.reset {
		next = p.mu.q.Counts().Next
	}
	w := watch{next: next, end: end, interrupted: p.mu.stopped, from: -1}
	if before := p.mu.watch; next >= 0 && before.next == next && !before.interrupted && !p.mu.stopped {
		w.from, w.to = next, before.end
	}
	p.mu.watch, p.mu.end = w, end
}

func newPartition(g *group, tp topicPartition) *partition {
	p := &partition{topicPartition: tp, g: g, turn: turn.New(), id: store.Partition{Subscription: g.incarnation, Topic: tp.topic, Number: tp.number}}
	p.ctx, p.leave = context.WithCancel(g.work)
	p.staying, p.revoke = context.WithCancel(p.ctx)
	return p
}

// withQueue calls f with the queue, unless the partition is not loaded or closed, and then
// starts the work that has become necessary.
func (p *partition) withQueue(f func(q *queue.Queue)) bool {
	follow, ok := p.apply(f)
	if ok {
		follow.start(p)
		p.g.alarm(follow.next)
	}
	return ok
}

// apply is locked without the start of necessary work.
func (p *partition) apply(f func(q *queue.Queue)) (follow, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.mu.q
	if q == nil || p.mu.closed {
		return follow{}, false
	}
	f(q)
	return p.followLocked(q), true
}

// follow is what a change of a queue makes necessary.
type follow struct {
	work, wake, commit, read bool
	next                     time.Time
}

func (p *partition) followLocked(q *queue.Queue) (f follow) {
	if q.HasWork() && !p.mu.working {
		p.mu.working, f.work = true, true
	}
	f.wake = !p.mu.leaving && q.CanLease()
	_, f.commit = q.Dirty()
	f.read = p.mu.stopped && !q.Full(true)
	f.next = q.Next()
	return f
}

func (f *follow) start(p *partition) {
	if f.work {
		go p.work()
	}
	if f.wake {
		p.g.wake()
	}
	if f.commit {
		p.g.needCommit()
	}
	if f.read {
		p.g.kick()
	}
}

// close ends all leases. Another partition may take the place of this one.
func (p *partition) close() {
	p.leave()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return
	}
	p.mu.closed = true
	for _, q := range []*queue.Queue{p.mu.q, p.mu.loaded} {
		if q != nil {
			q.Close()
		}
	}
}

// setLoaded keeps the state that was read until the partition is opened.
func (p *partition) setLoaded(l loaded, reset bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		l.q.Close() // it leaves its keys to other partitions
		return
	}
	p.mu.loaded, p.mu.epoch, p.mu.epochs, p.mu.inherited = l.q, l.epoch, l.epochs, l.inherited
	p.mu.reset, p.mu.resetTo = reset, l.q.Counts().Next
}

// hold keeps the next records until the schema registry has answered, or the database for a
// skip before them. A record that cannot be decoded now may be selected: no later one is added
// before it.
func (p *partition) hold(records []*kgo.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.held = append(p.mu.held, records...); len(p.mu.held) == len(records) {
		go p.addHeld()
	}
}

// addHeld adds the records that are held, one after the other.
func (p *partition) addHeld() {
	for added := 0; ; added = 1 {
		p.mu.Lock()
		if p.mu.held = p.mu.held[added:]; len(p.mu.held) == 0 || p.mu.closed {
			p.mu.held, p.mu.skip = nil, nil
			p.mu.Unlock()
			p.g.kick()
			return
		}
		rec, skip := p.mu.held[0], p.mu.skip
		p.mu.skip = nil
		p.mu.Unlock()
		if skip != nil {
			p.storeSkip(*skip)
		}
		ok, err := p.selects(rec)
		if p.ctx.Err() == nil {
			p.add([]*kgo.Record{rec}, []queue.Record{newSelected(rec, ok, err)})
		}
	}
}

// storeSkip stores a skip, as soon as the database answers.
func (p *partition) storeSkip(k subscriptions.Skip) {
	_ = patiently(p.ctx, func() error { // until it is closed
		err := p.g.skip(p.ctx, p, k)
		if err != nil && p.ctx.Err() == nil {
			p.g.recordFailure(err)
		}
		return err
	})
}

// selects reports whether the subscription selects a record, as soon as the schema registry
// answers. The result is invalid after the end of p.ctx.
func (p *partition) selects(rec *kgo.Record) (ok bool, err error) {
	for first := true; ; first = false {
		ok, err = p.g.selects(p.ctx, rec)
		if !errors.Is(err, registry.ErrUnavailable) || p.ctx.Err() != nil {
			return ok, err
		}
		if p.g.recordFailure(err); first {
			p.g.log.Warn("waiting for the schema registry", "topic", p.topic, "partition", p.number, "offset", rec.Offset, "err", err)
		}
		_ = retry.Wait(p.ctx, registry.RetryAfter)
	}
}

// next returns the offset of the next record, if the partition is loaded.
func (p *partition) next() (offset int64, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.mu.q
	if q == nil {
		q = p.mu.loaded
	}
	if q == nil || p.mu.closed {
		return 0, false
	}
	return q.Counts().Next, true
}

// idle reports whether nothing waits for the broker, the database or, with push delivery, a
// call.
func (p *partition) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.q == nil || p.mu.closed {
		return true
	}
	_, urgent := p.mu.q.Dirty()
	return !urgent && !p.mu.working && !p.mu.q.HasWork() && (p.g.pusher == nil || p.mu.q.Counts().Leased == 0)
}
