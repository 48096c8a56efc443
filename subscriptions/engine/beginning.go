package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/deadletter"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// ErrNoTopicIDs is the error of a broker that has no topic ids. Without them a topic that was
// deleted and created again cannot be told from the former one, and its first records would
// be passed over. So such a broker is refused.
var ErrNoTopicIDs = errors.New("the broker has no topic ids, by which a topic that is created again is recognized: use Apache Kafka 2.8 or newer, or Redpanda 25.3 or newer with the feature topic_ids active")

// beginning decides where a partition begins: from the committed position, the rows, the
// topic as it is now, and the seeks.
type beginning struct {
	*group
	p         *partition
	epoch     int64
	rows      []store.Stored
	committed committed

	settled   position.Set
	origin    position.Origin // of the committed position, if it is ours
	ours      bool            // the position was committed by an owner of the partition
	topicID   [16]byte        // of the topic
	recreated bool            // position or rows belong to a former topic of the name
}

// compare finds out to which topic position and rows belong. Rows of a former topic become
// dead letters: their records are no longer in the topic, and their offsets have other ones.
func (b *beginning) compare(ctx context.Context) (err error) {
	if b.committed.offset >= 0 {
		b.settled, b.origin, err = position.Decode(b.committed.offset, b.committed.metadata)
		b.ours = err == nil
	}
	former, err := b.e.cfg.Store.TopicID(ctx, b.p.id)
	if err != nil {
		return err
	}
	if b.topicID, err = b.currentTopicID(ctx, b.p.topic); err != nil {
		return err
	}
	b.p.topicID = b.topicID
	rowsElsewhere, positionElsewhere := former != [16]byte{} && former != b.topicID, b.ours && b.origin.TopicID != b.topicID
	if b.recreated = rowsElsewhere || positionElsewhere; b.recreated {
		if err := b.confirmTopicID(ctx, b.p.topic, b.topicID); err != nil {
			return err
		}
		b.log.Warn("the topic was deleted and created again: it is read like a new one", "topic", b.p.topic, "partition", b.p.number)
	}
	if rowsElsewhere {
		of := position.Origin{TopicID: former}
		if b.ours && b.origin.TopicID == former {
			of = b.origin
		}
		if err := b.giveUp(ctx, 0, of, "its topic was deleted"); err != nil {
			return err
		}
	}
	if positionElsewhere {
		k := subscriptions.Skip{Generation: b.origin.Generation, From: b.committed.offset, To: b.committed.offset, Reason: subscriptions.SkipTopicDeleted}
		if err := b.skip(ctx, b.p, k); err != nil {
			return err
		}
	}
	if former == b.topicID {
		return nil
	}
	return b.e.cfg.Store.SetTopicID(ctx, b.p.id, b.epoch, b.topicID)
}

// start returns the state with which the queue begins. Whenever the records from its offset
// on may have been read before, or belong to another topic, a generation begins, whose
// position is committed before a record is read.
func (b *beginning) start(ctx context.Context) (s queue.Start, err error) {
	s = queue.Start{At: time.Now(), Offset: b.committed.offset, Settled: b.settled, Origin: b.origin}
	r := b.resource.Load()
	seek, wanted := r.FindSeek(b.p.topic, b.p.number)
	switch { // a seek that is part of the position
	case b.committed.offset >= 0 && !b.ours:
		s.Origin.Seek = seek.Version // another program has set the offset, which is newer than all seeks
	case b.recreated && !b.ours && seek.To == "offset":
		s.Origin.Seek = seek.Version // its offset is one of the former topic
	}
	switch {
	case wanted && seek.Version > s.Origin.Seek:
		if err := b.removeRows(ctx, "the position of the subscription was moved"); err != nil {
			return s, err
		}
		if s.Offset, err = b.sought(ctx, b.p, &seek); err != nil {
			return s, err
		}
		if s.Offset, err = b.within(ctx, s.Offset); err != nil {
			return s, err
		}
		s.Origin.Seek = seek.Version
		b.log.Info("position moved", "topic", b.p.topic, "partition", b.p.number, "to", seek.To, "offset", s.Offset)
	case b.committed.offset < 0, b.recreated && b.ours && b.origin.TopicID != b.topicID:
		if s.Offset, err = b.begins(ctx, b.p); err != nil {
			return s, err
		}
		// Rows from there on belong to records that will be read again.
		if err := b.removeFrom(ctx, s.Offset); err != nil {
			return s, err
		}
	case b.committed.truncated:
		s.Offset = min(s.Offset, b.committed.end)
		if err := b.giveUp(ctx, b.committed.end, b.origin, "the broker lost its record"); err != nil {
			return s, err
		}
	case !b.ours || b.recreated:
		b.log.Warn("another program has set the committed offset", "topic", b.p.topic, "partition", b.p.number, "offset", s.Offset)
	default:
		if last := len(b.rows) - 1; last >= 0 && b.rows[last].Offset >= s.Offset {
			_, end, err := b.bounds(ctx, b.p.topic, b.p.number)
			if err != nil {
				return s, err
			}
			if b.rows[last].Offset >= end { // the topic was restored from a copy of before the message
				b.committed.truncated, b.committed.end = true, end
				return b.start(ctx)
			}
		}
		return s, b.skipDeleted(ctx, &s)
	}
	s.Settled = position.Set{}
	s.Origin.TopicID, s.Origin.Generation = b.topicID, max(b.epoch, s.Origin.Generation+1)
	return s, b.commitStart(ctx, s)
}

// skipDeleted passes over the records that the topic has deleted before they were read.
func (b *beginning) skipDeleted(ctx context.Context, s *queue.Start) error {
	first, _, err := b.bounds(ctx, b.p.topic, b.p.number)
	if err != nil || s.Offset >= first {
		return err
	}
	k := subscriptions.Skip{Generation: s.Origin.Generation, From: s.Offset, To: first, Count: first - s.Offset, Reason: subscriptions.SkipDeleted}
	for o := s.Offset; o < min(first, s.Offset+position.Window); o++ {
		if s.Settled.Has(o) {
			k.Count--
		}
	}
	for _, m := range b.rows {
		if m.Offset >= s.Offset && m.Offset < first && !s.Settled.Has(m.Offset) {
			k.Count--
		}
	}
	if k.Count > 0 {
		if err := b.skip(ctx, b.p, k); err != nil {
			return err
		}
	}
	s.Settled.Forget(first)
	s.Offset = first
	return nil
}

// skip stores a range that is not delivered, and reports it.
func (g *group) skip(ctx context.Context, p *partition, k subscriptions.Skip) error {
	k.Topic, k.Partition, k.At = p.topic, p.number, time.Now().UTC().Truncate(time.Millisecond)
	if err := g.e.cfg.Store.AddSkip(ctx, p.id, k); err != nil {
		return err
	}
	g.metrics.skipped.Add(float64(k.Count))
	g.log.Error("records were not delivered: they do not exist any more", "topic", k.Topic, "partition", k.Partition, "from", k.From, "to", k.To, "count", k.Count, "reason", k.Reason)
	g.readSkips(ctx)
	return nil
}

// readSkips reads the skips that no operator has acknowledged.
func (g *group) readSkips(ctx context.Context) {
	all, err := g.e.cfg.Store.Skips(ctx, g.incarnation)
	if err != nil {
		return // the skips of the last read stay
	}
	var open []string
	for i := range all {
		if all[i].AcknowledgedAt.IsZero() {
			open = append(open, subscriptions.FormatSkip(&all[i]))
		}
	}
	g.mu.Lock()
	g.mu.skips = open
	g.mu.Unlock()
}

// Problems returns what an operator has to know of the subscriptions of this instance: ranges
// of offsets that were not delivered, until somebody acknowledges them.
func (e *Engine) Problems() []string {
	out := []string{}
	for _, g := range e.running() {
		g.mu.Lock()
		for _, k := range g.mu.skips {
			out = append(out, fmt.Sprintf("subscription %s: %s; outbox subscriptions acknowledge-skips %s ends this message", g.name, k, g.name))
		}
		g.mu.Unlock()
	}
	slices.Sort(out)
	return out
}

// within returns the offset of the partition that is nearest to an offset.
func (b *beginning) within(ctx context.Context, offset int64) (int64, error) {
	first, end, err := b.bounds(ctx, b.p.topic, b.p.number)
	if err != nil {
		return 0, err
	}
	return max(first, min(offset, end)), nil
}

// bounds returns the first offset of a partition and its end.
func (g *group) bounds(ctx context.Context, topic string, number int32) (first, end int64, err error) {
	starts, err1 := g.adm.ListStartOffsets(ctx, topic)
	ends, err2 := g.adm.ListEndOffsets(ctx, topic)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, fmt.Errorf("list the offsets: %w", err)
	}
	s, ok1 := starts.Lookup(topic, number)
	e, ok2 := ends.Lookup(topic, number)
	if !ok1 || !ok2 || s.Err != nil || e.Err != nil {
		return 0, 0, fmt.Errorf("list the offsets of %s/%d: %w", topic, number, errors.Join(s.Err, e.Err, errMissing))
	}
	return s.Offset, e.Offset, nil
}

// commitStart commits the position with which a partition begins.
func (b *beginning) commitStart(ctx context.Context, s queue.Start) error {
	b.commit.Lock()
	defer b.commit.Unlock()
	err := b.send(ctx, map[*partition]queue.Position{b.p: {Offset: s.Offset, LeaderEpoch: -1, Metadata: (&position.Set{}).Encode(s.Offset, s.Origin)}})[b.p]
	if err != nil {
		return fmt.Errorf("commit the first position: %w", err)
	}
	return nil
}

// removeRows removes all rows. Replays end with them.
func (b *beginning) removeRows(ctx context.Context, reason string) error {
	if err := b.suspendReplays(ctx, b.rows, reason); err != nil {
		return err
	}
	b.rows = nil
	return b.e.cfg.Store.RemoveAll(ctx, b.p.id, b.epoch)
}

// removeFrom removes the rows of records from an offset on.
func (b *beginning) removeFrom(ctx context.Context, from int64) error {
	_, gone := b.split(from)
	if len(gone) == 0 {
		return nil
	}
	b.log.Warn("stored messages removed: their records are read again", "topic", b.p.topic, "partition", b.p.number, "count", len(gone), "from", from)
	return b.remove(ctx, from, gone)
}

// split returns the rows of records from an offset on, and the others.
func (b *beginning) split(from int64) (keep, gone []store.Stored) {
	for _, m := range b.rows {
		if m.Offset < from {
			keep = append(keep, m)
		} else {
			gone = append(gone, m)
		}
	}
	return keep, gone
}

func (b *beginning) remove(ctx context.Context, from int64, gone []store.Stored) error {
	offsets := make([]int64, len(gone))
	for i := range gone {
		offsets[i] = gone[i].Offset
	}
	if err := b.e.cfg.Store.Remove(ctx, b.p.id, b.epoch, offsets); err != nil {
		return err
	}
	b.rows, _ = b.split(from)
	return nil
}

// giveUp makes dead letters of the rows of records from an offset on: an operator decides
// about messages whose records are gone.
func (b *beginning) giveUp(ctx context.Context, from int64, of position.Origin, reason string) error {
	_, gone := b.split(from)
	if len(gone) == 0 {
		return nil
	}
	b.log.Warn("stored messages become dead letters: "+reason, "topic", b.p.topic, "partition", b.p.number, "count", len(gone), "from", from)
	if err := tryEach(gone, func(m store.Stored) error { return b.giveUpRow(ctx, &m, of, reason) }); err != nil {
		return err
	}
	return b.remove(ctx, from, gone)
}

func (b *beginning) giveUpRow(ctx context.Context, m *store.Stored, of position.Origin, reason string) error {
	record, err := b.e.cfg.Store.Record(ctx, b.p.id, m.Offset)
	if errors.Is(err, store.ErrNoRecord) {
		return nil
	}
	if err != nil {
		return err
	}
	class := ClassRecordGone
	switch m.State {
	case store.StateRejected:
		class, reason = ClassRejected, m.Error
	case store.StateDeadLettering:
		class, reason = ClassMaxReceive, m.Error
	}
	message := &deadletter.Message{Record: record, Origin: of, Attempts: m.Attempts, FirstAt: m.FirstAt, Class: class}
	message.Error, message.Details = queue.CutDetails(reason)
	return b.write(ctx, message)
}

// currentTopicID returns the id of a topic by the metadata of a broker.
func (g *group) currentTopicID(ctx context.Context, topic string) ([16]byte, error) {
	all, err := g.adm.ListTopics(ctx, topic)
	if err != nil {
		return [16]byte{}, fmt.Errorf("read the id of topic %s: %w", topic, err)
	}
	t := all[topic]
	switch {
	case t.Err != nil:
		return [16]byte{}, fmt.Errorf("read the id of topic %s: %w", topic, t.Err)
	case t.ID == kadm.TopicID{}:
		return [16]byte{}, fmt.Errorf("topic %s: %w", topic, ErrNoTopicIDs)
	}
	return t.ID, nil
}

// confirmTopicID returns an error unless all brokers that answer report the id. One alone may
// be late, and a position that is ignored is lost.
func (g *group) confirmTopicID(ctx context.Context, topic string, id [16]byte) error {
	for _, b := range g.client.DiscoveredBrokers() {
		req := kmsg.NewPtrMetadataRequest()
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, t)
		ctx, cancel := context.WithTimeout(ctx, commitTimeout)
		resp, err := req.RequestWith(ctx, b)
		cancel()
		if err != nil {
			continue
		}
		for i := range resp.Topics {
			if resp.Topics[i].ErrorCode == 0 && resp.Topics[i].TopicID != id {
				return fmt.Errorf("topic %s: the brokers report different ids", topic)
			}
		}
	}
	return nil
}

// Unserved implements deadletter.Messages.
func (g *group) Unserved(ctx context.Context, topic string, number int32) error {
	if !g.resource.Load().SelectsTopic(topic) {
		return fmt.Errorf("subscription %q does not read topic %s any more", g.name, topic)
	}
	g.mu.Lock()
	adm := g.adm
	t, ok := g.mu.counts[topic]
	g.mu.Unlock()
	if adm != nil && (!ok || time.Since(t.at) > metadataAge) {
		all, err := adm.ListTopics(ctx, topic)
		if err != nil {
			return nil //nolint:nilerr // nothing is known
		}
		t, ok = topicCount{len(all[topic].Partitions), all[topic].Err, time.Now()}, true
		g.mu.Lock()
		g.mu.counts[topic] = t
		g.mu.Unlock()
	}
	switch {
	case !ok:
		return nil // the group is starting
	case errors.Is(t.err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("topic %s does not exist", topic)
	case t.err == nil && int(number) >= t.partitions:
		return fmt.Errorf("topic %s has no partition %d any more", topic, number)
	}
	return nil
}

// topicCount is the number of partitions of a topic.
type topicCount struct {
	partitions int
	err        error
	at         time.Time
}
