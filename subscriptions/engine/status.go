package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// partitions returns the partitions that have an owner here or a committed offset.
func (g *group) partitions(ctx context.Context) ([]subscriptions.PartitionStatus, error) {
	if g.adm == nil {
		return nil, nil
	}
	offsets, err := g.adm.FetchOffsets(ctx, g.incarnation)
	if err != nil {
		return nil, fmt.Errorf("read the committed offsets: %w", err)
	}
	all := make(map[topicPartition]*subscriptions.PartitionStatus)
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil && o.At >= 0 {
			all[topicPartition{o.Topic, o.Partition}] = &subscriptions.PartitionStatus{Topic: o.Topic, Partition: o.Partition, Committed: o.At}
		}
	})
	for _, p := range g.owned() {
		s := all[p.topicPartition]
		if s == nil {
			s = &subscriptions.PartitionStatus{Topic: p.topic, Partition: p.number}
			all[p.topicPartition] = s
		}
		p.mu.Lock()
		if q := p.mu.q; q != nil && !p.mu.closed {
			c := q.Counts()
			s.Owner, s.Epoch, s.Committed, s.Waiting, s.Leased, s.Deferred, s.Oldest = g.e.cfg.Instance, p.mu.epoch, c.Offset, c.Waiting, c.Leased, c.Deferred, q.Oldest()
		}
		p.mu.Unlock()
	}
	topics := make(map[string]bool)
	for tp := range all {
		topics[tp.topic] = true
	}
	var names []string
	for t := range topics {
		names = append(names, t)
	}
	if len(names) == 0 {
		return nil, nil
	}
	ends, err := g.adm.ListCommittedOffsets(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("list the end offsets: %w", err)
	}
	out := make([]subscriptions.PartitionStatus, 0, len(all))
	for tp, s := range all {
		if end, ok := ends.Lookup(tp.topic, tp.number); ok && end.Err == nil {
			s.End = end.Offset
			out = append(out, *s)
		}
	}
	slices.SortFunc(out, func(a, b subscriptions.PartitionStatus) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out, nil
}

// readEnds reads the ends of the owned partitions, for the lag.
func (g *group) readEnds(ctx context.Context) {
	all := g.owned()
	topics := make(map[string]bool)
	var names []string
	for _, p := range all {
		if !topics[p.topic] {
			topics[p.topic] = true
			names = append(names, p.topic)
		}
	}
	if len(names) == 0 {
		return
	}
	ends, err := g.adm.ListCommittedOffsets(ctx, names...)
	if err != nil {
		return // the lag is that of the last time
	}
	for _, p := range all {
		if end, ok := ends.Lookup(p.topic, p.number); ok && end.Err == nil {
			p.mu.Lock()
			p.mu.end = end.Offset
			p.mu.Unlock()
		}
	}
}
