package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// deleteTopic deletes a topic when the tap has read all of it.
func (w *world) deleteTopic(topic string) {
	w.t.Helper()
	release := w.kafka.hold()
	defer release()
	if !w.tap.leave(w.kafka, topic) {
		return // another one has deleted it, or the tap cannot read it
	}
	if err := w.kafka.cluster.DeleteTopic(topic); err != nil {
		w.t.Errorf("delete topic %s: %v", topic, err)
	}
}

// makeTopic creates a topic unless the relay has.
func (w *world) makeTopic(topic string) {
	w.t.Helper()
	if err := w.kafka.cluster.CreateTopic(topic, partitions, nil); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		w.t.Errorf("create topic %s: %v", topic, err)
	}
	w.tap.follow(topic)
}

// leavePatience limits the time for which the tap reads a topic to its end.
const leavePatience = 5 * time.Minute

// leave reads a topic to its end and leaves it: its records count as deleted. Nothing must be
// added to the topic. It reports whether it has left.
func (p *tap) leave(k *kafka, topic string) bool {
	p.refresh()
	ends := p.currentEnds(k, topic)
	for deadline := time.Now().Add(leavePatience); ; time.Sleep(time.Second) {
		if len(ends) == 0 || time.Now().After(deadline) {
			return false
		}
		p.mu.Lock()
		behind := false
		for in, end := range ends {
			behind = behind || p.reached[in] < end
		}
		p.mu.Unlock()
		if !behind {
			break
		}
	}
	p.mu.Lock()
	clients := slices.Clone(p.clients)
	p.mu.Unlock()
	for _, c := range clients {
		c.PurgeTopicsFromConsuming(topic)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.topics = slices.DeleteFunc(p.topics, func(t string) bool { return t == topic })
	p.made[topic]++
	p.delete(func(r *record) bool { return r.topic == topic })
	return true
}

// delete marks records as deleted. Called locked.
func (p *tap) delete(gone func(*record) bool) {
	for i := range p.records {
		if r := &p.records[i]; r.gone.IsZero() && gone(r) {
			r.gone = time.Now()
		}
	}
}

// haveDeleted reports whether each of these events was in a topic, and is in none any more.
func (p *tap) haveDeleted(events []verify.Row) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	deleted := make(map[gocql.UUID]bool)
	for _, r := range p.records { // by topic in the order of their offsets
		deleted[r.ID.UUID()] = !r.gone.IsZero()
	}
	return !slices.ContainsFunc(events, func(e verify.Row) bool { return !deleted[e.Event.UUID()] })
}

// trim deletes this share of the records of a partition that the tap has read, the oldest ones.
func (w *world) trim(topic string, number int32, share float64) {
	w.t.Helper()
	p := w.tap
	p.mu.Lock()
	in := partition{topic, number, p.made[topic]}
	before := int64(share * float64(p.reached[in]))
	p.mu.Unlock()
	if before == 0 || w.kafka.cluster.DeleteRecords(topic, number, before) != nil {
		return // the topic does not exist, or begins later already
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trimmed[in] = true
	p.delete(func(r *record) bool { return r.partition == in && r.offset < before })
}

// emptied reports whether records of the partition of an event were deleted.
func (p *tap) emptied(e *outbox.Event) bool {
	number := kgo.StickyKeyPartitioner(nil).ForTopic(e.Type).Partition(&kgo.Record{Key: e.Key()}, partitions)
	for in := range p.trimmed {
		if in.topic == e.Type && int(in.number) == number {
			return true
		}
	}
	return false
}

// ofRelay reports whether a record has the source and the table of the relay.
func ofRelay(r *kgo.Record) bool {
	has := func(key, value string) bool {
		return slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == key && string(h.Value) == value })
	}
	return has(outbox.HeaderSource, relay.Defaults().Source) && has(outbox.HeaderTable, keyspace+"."+events)
}

// stranger is a producer that is not the relay. Its records have the keys, ids and numbers of
// events, which are unique for their source and table only.
type stranger struct{ client *kgo.Client }

func (w *world) newStranger() *stranger {
	// Without a producer id: kgo requests one under a mutex (watchForStall).
	client, err := kgo.NewClient(append(w.kafka.options(w.net, "another producer"), kgo.SeedBrokers(brokerAddr),
		kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()), kgo.RecordDeliveryTimeout(10*time.Second))...)
	if err != nil {
		w.t.Errorf("connect another producer: %v", err)
		return nil
	}
	return &stranger{client}
}

// ofAnother returns a record with the key, id and number of an event, of a source and a table.
func ofAnother(e *outbox.Event, source, table string) *kgo.Record {
	headers := append(outbox.AppendHeaders[kgo.RecordHeader](nil, e, source), kgo.RecordHeader{Key: outbox.HeaderTable, Value: []byte(table)})
	return &kgo.Record{Topic: e.Type, Key: e.Key(), Value: e.Payload, Headers: headers}
}

// write writes a record of another source, one of another table and one that is no event, for
// each event.
func (s *stranger) write(of ...outbox.Event) {
	var records []*kgo.Record
	for i := range of {
		e := &of[i]
		records = append(records, ofAnother(e, "/another", keyspace+"."+events), ofAnother(e, relay.Defaults().Source, "bank."+events),
			&kgo.Record{Topic: e.Type, Key: e.Key(), Value: []byte("no event")})
	}
	s.send(records...)
}

// send writes records. It ignores failures.
func (s *stranger) send(records ...*kgo.Record) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = s.client.ProduceSync(ctx, records...).FirstErr()
}

func (s *stranger) close() { s.client.Close() }
