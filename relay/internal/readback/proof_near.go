package readback

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// proofBytes is the number of bytes to read near the time of a row.
	proofBytes = 128 << 10
	// proofMargin is by how many milliseconds a record may be earlier than expected.
	proofMargin = 1000
)

// nearPartition contains the requests for a partition, in the order of from.
type nearPartition struct {
	Partition
	asks []*proofAsk
	at   int64 // the time of the record at next, in milliseconds
}

// readNear reads up to proofBytes of the partitions from the times of the requests.
// Each event costs at most one offset lookup and one fetch, each shared by all
// partitions. The records of a fetch are compared with all events of their partition.
func (d *Proofs) readNear(ctx context.Context, batch []*proofAsk) error {
	parts, err := d.locate(ctx, batch)
	if err != nil {
		return err
	}
	scanner := d.cfg.newScanner()
	for len(parts) > 0 {
		if err := d.offsets(ctx, parts); err != nil {
			return err
		}
		byLeader := make(map[int32][]*Partition)
		for _, p := range parts {
			switch {
			case isDenied(p.err):
				d.logRefusal(p.topic, p.err)
				p.answer(proofAnswer{result: ProofUnproven})
			case p.err != nil:
				p.answer(proofAnswer{err: p.err})
			case p.next < 0: // no record after that time, nor after the later ones
				p.answer(proofAnswer{result: proofNotNear})
			default:
				byLeader[p.leader] = append(byLeader[p.leader], &p.Partition)
			}
		}
		for leader, of := range byLeader {
			found := make(map[eventKey]int64)
			if err := d.fetch(ctx, scanner, leader, of, func(e Event) { found[eventKey{e.ID, e.Aggregate}] = e.at }); err != nil {
				return err
			}
			for _, p := range parts {
				if p.next >= 0 && p.leader == leader {
					d.take(p, found)
				}
			}
		}
		parts = slices.DeleteFunc(parts, func(p *nearPartition) bool { return len(p.asks) == 0 })
	}
	return nil
}

// answer answers all events of the partition.
func (p *nearPartition) answer(a proofAnswer) {
	for _, ask := range p.asks {
		ask.reply(a)
	}
	p.asks, p.next = nil, -1
}

// take answers the requests for events in found, the first request of p, and the requests
// that would read from the same record.
func (d *Proofs) take(p *nearPartition, found map[eventKey]int64) {
	if len(p.asks) == 0 {
		return
	}
	if p.err != nil {
		p.answer(proofAnswer{err: p.err})
		return
	}
	first := p.asks[0]
	p.asks = slices.DeleteFunc(p.asks, func(a *proofAsk) bool {
		at, ok := found[a.eventKey()]
		if ok {
			d.learn(at - a.written/1000)
			a.reply(proofAnswer{result: ProofPublished})
		}
		return ok
	})
	for len(p.asks) > 0 && (p.asks[0] == first || p.asks[0].from <= p.at) {
		p.asks[0].reply(proofAnswer{result: proofNotNear})
		p.asks = p.asks[1:]
	}
}

// learn adapts the least delay of records after their rows: it decreases immediately
// and increases slowly.
func (d *Proofs) learn(delay int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if delay < d.early {
		d.early = max(delay, -(d.cfg.ReadBackMargin + d.behindLocked()).Milliseconds())
	} else {
		d.early += (delay - d.early) / 16
	}
}

// expectedTimes returns the times from which to read for a row, in milliseconds: first as if it
// was published as late after its write as others lately, then as if it was published at once,
// then as if the record clock was as far behind as it was at most.
func (d *Proofs) expectedTimes(written int64) []int64 {
	d.mu.Lock()
	early, behind := d.early, d.behindLocked().Milliseconds()
	d.mu.Unlock()
	soonest := written/1000 - proofMargin
	froms := []int64{soonest + early}
	if early > proofMargin {
		froms = append(froms, soonest)
	}
	if behind > proofMargin && -early < behind {
		froms = append(froms, soonest-behind)
	}
	return froms
}

// locate finds the partitions of the events.
func (d *Proofs) locate(ctx context.Context, batch []*proofAsk) ([]*nearPartition, error) {
	var topics []string
	for _, a := range batch {
		if a.topic == "" {
			a.reply(proofAnswer{result: proofNotNear})
		} else {
			topics = append(topics, a.topic)
		}
	}
	if len(topics) == 0 {
		return nil, nil
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	d.Reads.Inc()
	details, agree, err := describeTopics(ctx, d.client, topics)
	if err != nil {
		return nil, fmt.Errorf("look up the topics of earlier events: %w", err)
	}
	var saved []string
	if len(agree) > 0 {
		if saved, err = d.store.Topics(ctx); err != nil {
			return nil, err
		}
	}
	now := time.Now()
	type key struct {
		topic     string
		partition int32
	}
	parts := make(map[key]*nearPartition)
	for _, a := range batch {
		if a.topic == "" {
			continue
		}
		t := details[a.topic]
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case isDenied(err):
			d.logRefusal(a.topic, err)
			a.reply(proofAnswer{result: ProofUnproven})
			continue
		case isUnknown(err) && slices.Contains(saved, a.topic) && !d.unknown.isDeleted(a.topic, agree[a.topic], now):
			a.reply(proofAnswer{err: fmt.Errorf("look up topic %s: %w", a.topic, errUnknownTopic)})
			continue
		case isUnknown(err) || err == nil && len(t.Partitions) == 0:
			a.reply(proofAnswer{result: proofNotNear})
			continue
		case err != nil:
			a.reply(proofAnswer{err: fmt.Errorf("look up topic %s: %w", a.topic, err)})
			continue
		}
		n := keyPartition(a.topic, a.key, len(t.Partitions))
		i := slices.IndexFunc(t.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Partition == n })
		if i < 0 {
			a.reply(proofAnswer{result: proofNotNear})
			continue
		}
		at := t.Partitions[i]
		if err := kerr.ErrorForCode(at.ErrorCode); err != nil {
			a.reply(proofAnswer{err: fmt.Errorf("partition %d of topic %s: %w", n, a.topic, err)})
			continue
		}
		p := parts[key{a.topic, n}]
		if p == nil {
			p = &nearPartition{Partition: Partition{topic: a.topic, topicID: t.TopicID, partition: n, leader: at.Leader, epoch: at.LeaderEpoch}}
			parts[key{a.topic, n}] = p
		}
		p.asks = append(p.asks, a)
	}
	var out []*nearPartition
	for _, p := range parts {
		slices.SortFunc(p.asks, func(a, b *proofAsk) int { return cmp.Compare(a.from, b.from) })
		out = append(out, p)
	}
	return out, nil
}

// keyPartition returns the partition of a key in a topic of n partitions.
func keyPartition(topic string, key []byte, n int) int32 {
	return int32(kgo.StickyKeyPartitioner(nil).ForTopic(topic).Partition(&kgo.Record{Topic: topic, Key: key}, n))
}

// offsets sets the expected offset of the first event of each partition.
func (d *Proofs) offsets(ctx context.Context, parts []*nearPartition) error {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	at := make(map[string]int)
	for _, p := range parts {
		i, ok := at[p.topic]
		if !ok {
			i = len(req.Topics)
			at[p.topic] = i
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = p.topic
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.CurrentLeaderEpoch, rp.Timestamp = p.partition, -1, p.asks[0].from
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
		p.next, p.err = -1, nil
	}
	d.Reads.Inc()
	resp, err := req.RequestWith(ctx, d.client)
	if err != nil {
		return fmt.Errorf("look up where earlier events are: %w", err)
	}
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			for _, p := range parts {
				if p.topic == rt.Topic && p.partition == rp.Partition {
					p.next, p.at, p.err = rp.Offset, rp.Timestamp, kerr.ErrorForCode(rp.ErrorCode)
				}
			}
		}
	}
	return nil
}

// fetch reads up to proofBytes of each partition from a broker and calls each for the events of
// the relay. It advances the partitions.
func (d *Proofs) fetch(ctx context.Context, scanner *batchScanner, leader int32, parts []*Partition, each func(Event)) error {
	req := fetchRequest(parts)
	req.MaxWaitMillis = 0
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			req.Topics[i].Partitions[j].PartitionMaxBytes = proofBytes
		}
	}
	d.Reads.Inc()
	resp, err := d.client.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		return fmt.Errorf("read near the times of earlier events: %w", err)
	}
	r := resp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		return fmt.Errorf("read near the times of earlier events: %w", err)
	}
	for _, rt := range r.Topics {
		for i := range rt.Partitions {
			rp := &rt.Partitions[i]
			for _, p := range parts {
				if p.partition != rp.Partition || p.topic != rt.Topic && (rt.Topic != "" || p.topicID != rt.TopicID) {
					continue
				}
				if p.err = kerr.ErrorForCode(rp.ErrorCode); p.err != nil {
					continue
				}
				// An event in a batch that cannot be decoded is not found.
				p.next, _ = scanner.scan(rp.RecordBatches, p.next, func(e Event) {
					if e.Ours {
						each(e)
					}
				})
			}
		}
	}
	return nil
}
