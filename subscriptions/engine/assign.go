package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// committed is a position as the group has it; offset is -1 for none.
type committed struct {
	offset   int64
	metadata string
	// truncated means that the broker has lost the records from end on.
	truncated bool
	end       int64
}

// addPartitions adds the partitions; starts loads them.
func (g *group) addPartitions(_ context.Context, _ *kgo.Client, came map[string][]int32) {
	g.session.begin()
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic, numbers := range came {
		for _, n := range numbers {
			tp := topicPartition{topic, n}
			if old := g.mu.partitions[tp]; old != nil {
				go old.close()
			}
			g.setLocked(tp, newPartition(g, tp))
		}
	}
}

// offsetsFetched keeps the positions of the new partitions. No former owner can change
// them any more: the coordinator refuses commits of former generations.
func (g *group) offsetsFetched(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, rg := range resp.Groups {
		for _, t := range rg.Topics {
			for _, p := range t.Partitions {
				c := committed{offset: p.Offset}
				if p.Metadata != nil {
					c.metadata = *p.Metadata
				}
				g.mu.fetched[topicPartition{t.Topic, p.Partition}] = c
			}
		}
	}
	return nil
}

// starts loads the new partitions and returns where they begin. It ends without a result
// when the next rebalance begins; the client calls it again then, and the partitions that
// are open already keep their queues and leases.
//
// The offsets have no leader epoch: the client would validate them with requests whose
// responses overwrite a position that flow has set meanwhile (franz-go 1.22.2).
func (g *group) starts(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	<-g.session.ready
	out := make(map[string]map[int32]kgo.Offset, len(offsets))
	var mu sync.Mutex // guards the offsets in out
	var all []*partition
	for topic, ps := range offsets {
		out[topic] = make(map[int32]kgo.Offset, len(ps))
		for n := range ps {
			if p := g.partition(topicPartition{topic, n}); p != nil { // otherwise it was lost in between
				all = append(all, p)
			}
		}
	}
	err := tryEach(all, func(p *partition) (err error) {
		start, known := p.next()
		if !known {
			g.mu.Lock()
			c := g.mu.fetched[p.topicPartition]
			g.mu.Unlock()
			start, err = g.load(ctx, p, c, false)
		}
		mu.Lock()
		defer mu.Unlock()
		out[p.topic][p.number] = kgo.NewOffset().At(start)
		return err
	})
	if err == nil {
		err = openAll(ctx, all)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// load reads the state of a partition; open lets it be used. It retries until ctx ends.
func (g *group) load(ctx context.Context, p *partition, c committed, reset bool) (start int64, err error) {
	err = patiently(ctx, func() error {
		l, err := g.tryLoad(ctx, p, c)
		if err != nil && ctx.Err() == nil {
			g.log.Warn("failed to load a partition; retrying", "topic", p.topic, "partition", p.number, "err", err)
			g.recordFailure(err)
		}
		if err == nil {
			p.setLoaded(l, reset)
			start = l.q.Counts().Next
		}
		return err
	})
	return start, err
}

// loaded is the state of a partition as its new owner has read it.
type loaded struct {
	q         *queue.Queue
	epoch     int64
	epochs    []leaseEpoch
	inherited bool // the former owner has handed something over
}

func (g *group) tryLoad(ctx context.Context, p *partition, c committed) (l loaded, err error) {
	epoch, err := g.e.cfg.Store.ClaimPartition(ctx, p.id, g.e.cfg.Instance)
	if err != nil {
		return l, err
	}
	rows, err := g.e.cfg.Store.Messages(ctx, p.id)
	if err != nil {
		return l, err
	}
	b := beginning{group: g, p: p, epoch: epoch, rows: rows, committed: c}
	if err := b.compare(ctx); err != nil {
		return l, err
	}
	s, err := b.start(ctx)
	if err != nil {
		return l, err
	}
	first := s.Offset
	for i := range b.rows {
		m := &b.rows[i]
		if m.Offset >= 0 {
			first = min(first, m.Offset)
		}
		s.Rows = append(s.Rows, queue.Row{
			Offset: m.Offset, Key: m.Key, Behind: m.State == store.StateBehind, DeadLettering: m.State == store.StateDeadLettering || m.State == store.StateRejected, Rejected: m.State == store.StateRejected,
			Attempts: m.Attempts, NextAt: m.NextAt, FirstAt: m.FirstAt, RecordAt: m.RecordAt, Error: m.Error, DeadLetter: m.DeadLetter, Edited: m.Edited,
		})
	}
	if err := g.e.cfg.Store.Trim(ctx, p.id, epoch, first); err != nil {
		return l, err
	}
	h, inherited, err := g.inherit(ctx, p, s.Origin)
	if err != nil {
		return l, err
	}
	s.HandOver, s.Held = h.HandOver, true
	cfg := g.queueConfig()
	if cfg.Strict {
		if s.Blocked, err = g.readBlocked(ctx, p, s.Origin); err != nil {
			return l, err
		}
	}
	s.Keys, s.Turn = g.keys, func(key string) { go p.withQueue(func(q *queue.Queue) { q.Turn(key) }) } // called by another partition
	return loaded{queue.New(cfg, s), epoch, append(h.Epochs, leaseEpoch{epoch, h.Last + 1}), inherited}, nil
}

// begins returns the first offset of a partition without a position.
func (g *group) begins(ctx context.Context, p *partition) (int64, error) {
	r := g.resource.Load()
	since, err := r.StartTime(r.CreatedAt)
	if err != nil {
		return 0, err
	}
	if since.IsZero() {
		return g.findOffset(ctx, p, subscriptions.StartEarliest, time.Time{})
	}
	return g.findOffset(ctx, p, "", since)
}

// findOffset returns the offset of a time, of the beginning with StartEarliest.
func (g *group) findOffset(ctx context.Context, p *partition, to string, at time.Time) (int64, error) {
	if to == subscriptions.StartEarliest {
		first, err := g.adm.ListStartOffsets(ctx, p.topic)
		if err != nil {
			return 0, fmt.Errorf("list the start offsets: %w", err)
		}
		o, ok := first.Lookup(p.topic, p.number)
		if !ok || o.Err != nil {
			return 0, fmt.Errorf("list the start offset of %s/%d: %w", p.topic, p.number, o.Err)
		}
		return o.Offset, nil
	}
	// The client alone would list the offset of the time and, if there is none, the end
	// afterwards. A record written in between would be skipped. Therefore the end is listed
	// first.
	ends, err := g.adm.ListEndOffsets(ctx, p.topic)
	if err != nil {
		return 0, fmt.Errorf("list the end offsets: %w", err)
	}
	first, err := g.adm.ListOffsetsAfterMilli(ctx, max(at.UnixMilli(), 0), p.topic) // a negative time has other meanings
	if err != nil {
		return 0, fmt.Errorf("list the offsets of a time: %w", err)
	}
	end, ok := ends.Lookup(p.topic, p.number)
	from, ok2 := first.Lookup(p.topic, p.number)
	if !ok || !ok2 || end.Err != nil || from.Err != nil {
		return 0, fmt.Errorf("list the offsets of %s/%d: %w", p.topic, p.number, errors.Join(end.Err, from.Err, errMissing))
	}
	return min(end.Offset, from.Offset), nil
}

var errMissing = errors.New("the broker did not list the partition")

// sought returns the offset that a seek wants.
func (g *group) sought(ctx context.Context, p *partition, seek *store.Seek) (int64, error) {
	switch seek.To {
	case "offset":
		return seek.Offset, nil
	case subscriptions.StartEarliest, subscriptions.StartLatest:
		return g.findOffset(ctx, p, seek.To, seek.At)
	}
	at, err := time.Parse(time.RFC3339, seek.To)
	if err != nil {
		return 0, err
	}
	return g.findOffset(ctx, p, "", at)
}

// reload closes a partition that this instance still owns and opens it again, after a seek
// or a fence.
func (g *group) reload(old *partition) { g.reloadFrom(old, func(*committed) {}) }

// reloadFrom is reload with another view of the committed position.
func (g *group) reloadFrom(old *partition, change func(*committed)) {
	old.close()
	p := newPartition(g, old.topicPartition)
	old.mu.Lock()
	p.mu.leaving = old.mu.leaving
	old.mu.Unlock()
	g.mu.Lock()
	if g.mu.partitions[old.topicPartition] != old {
		g.mu.Unlock()
		return // it was revoked
	}
	g.setLocked(p.topicPartition, p)
	g.mu.Unlock()
	g.kick() // the partition is paused until it is loaded
	go func() {
		_ = patiently(p.ctx, func() error { // until it is closed
			c, err := g.fetch(p)
			if err != nil {
				if p.ctx.Err() == nil {
					g.recordFailure(err)
				}
				return err
			}
			change(&c)
			if _, err = g.load(p.ctx, p, c, true); err == nil {
				_ = p.open(p.ctx)
			}
			return nil
		})
	}()
}

// fetch reads the committed position of a partition after the commits that are running.
func (g *group) fetch(p *partition) (committed, error) {
	g.commit.Lock()
	defer g.commit.Unlock()
	ctx, cancel := context.WithTimeout(p.ctx, commitTimeout)
	defer cancel()
	offsets, err := g.adm.FetchOffsetsForTopics(ctx, g.incarnation, p.topic)
	if err != nil {
		return committed{}, fmt.Errorf("read the committed offset: %w", err)
	}
	o, ok := offsets.Lookup(p.topic, p.number)
	if !ok || o.Err != nil {
		return committed{}, fmt.Errorf("read the committed offset of %s/%d: %w", p.topic, p.number, errors.Join(o.Err, errMissing))
	}
	return committed{offset: o.At, metadata: o.Metadata}, nil
}

// closeFenced closes a partition of which another instance is the owner, as the coordinator or
// the database reports. The client learns of it, too; if it does not, the partition is
// still this instance's and is loaded again.
func (g *group) closeFenced(p *partition) {
	p.close()
	go func() {
		if retry.Wait(g.work, sessionTimeout) == nil {
			g.mu.Lock()
			same := g.mu.partitions[p.topicPartition] == p
			g.mu.Unlock()
			if same {
				g.reload(p)
			}
		}
	}()
}

// taken returns the partitions of a callback.
func (g *group) taken(lost map[string][]int32) (out []*partition) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic, numbers := range lost {
		for _, n := range numbers {
			if p := g.mu.partitions[topicPartition{topic, n}]; p != nil {
				out = append(out, p)
			}
		}
	}
	return out
}

// endPartitions ends the partitions in order: no new leases, running actions end, release.
func (g *group) endPartitions(lost map[string][]int32) {
	g.drain(g.taken(lost))
	g.release(lost)
}

// lost ends partitions that another instance may own already.
func (g *group) lost(lost map[string][]int32) {
	if cancel := g.cancels.Load(); cancel != nil {
		(*cancel)()
	}
	g.release(lost)
}

// release ends the partitions of a callback, and the partitions by which a
// concurrent reload replaces them.
func (g *group) release(lost map[string][]int32) {
	for all := g.taken(lost); len(all) > 0; all = g.taken(lost) {
		g.forget(all)
	}
}

// drain leases nothing more of the partitions and waits for actions in flight, up to
// drainTimeout, or for calls in flight, up to pushDrainTimeout. Then it hands over their leases
// and closes them.
func (g *group) drain(all []*partition) {
	if len(all) == 0 {
		return
	}
	for _, p := range all {
		p.mu.Lock()
		p.mu.leaving = true
		p.mu.Unlock()
		p.revoke()
	}
	limit := drainTimeout
	if g.pusher != nil {
		limit = pushDrainTimeout
	}
	end := time.Now().Add(limit)
	for _, p := range all {
		for !p.idle() && time.Now().Before(end) {
			if retry.Wait(g.work, 5*time.Millisecond) != nil {
				return
			}
		}
	}
	// What moved without an acknowledgement, such as records that the filter left out.
	g.commitNow(context.Background(), all)
	g.handOverAll(all)
}

// forget closes and removes partitions. No commit of them begins afterwards.
func (g *group) forget(all []*partition) {
	for _, p := range all {
		p.close()
	}
	g.commit.Lock() // the one that is running ends first
	defer g.commit.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range all {
		if g.mu.partitions[p.topicPartition] == p {
			g.setLocked(p.topicPartition, nil)
		}
	}
}
