package producer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/decompress"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// AgreeAfter is how long brokers have to repeat a refusal, or that a partition does not exist,
// until it is believed: a broker that starts answers from old metadata and rights.
const AgreeAfter = 5 * time.Second

// partition identifies a partition.
type partition struct {
	topic string
	n     int32
}

// returned is a record that the client returned with an error, and that a broker may have
// written: the answer to an earlier attempt was lost, or the last one proves nothing.
type returned struct {
	*kgo.Record
	client *client // that has returned it
	err    error
	to     Sender
}

// search contains the records that are searched for in their partitions, and the last
// acknowledged record of each partition. It is safe for concurrent use.
type search struct {
	mu sync.Mutex
	// waiting has an entry for each partition that is searched, with the records of the
	// next search.
	waiting map[partition][]returned
	acked   map[partition]*ackedRecord
}

// ackedRecord is the last acknowledged record of a partition.
type ackedRecord struct {
	offset int64
	id     []byte // its header ce_id
}

func (s *search) init() {
	s.waiting, s.acked = make(map[partition][]returned), make(map[partition]*ackedRecord)
}

func (s *search) acknowledged(r *kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(r.Headers) == 0 || r.Offset < 0 { // a broker that repeats an acknowledgement may not know the offset
		return
	}
	at := partition{r.Topic, r.Partition}
	last := s.acked[at]
	if last == nil {
		last = new(ackedRecord)
		s.acked[at] = last
	}
	if last.offset <= r.Offset {
		last.offset, last.id = r.Offset, append(last.id[:0], r.Headers[0].Value...) // the record's memory is used again
	}
}

// forget forgets the acknowledged records of a topic that is another one now.
func (s *search) forget(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.acked {
		if at.topic == topic {
			delete(s.acked, at)
		}
	}
}

// take returns the records of the next search of a partition. Without any it ends the searches.
func (s *search) take(at partition) []returned {
	s.mu.Lock()
	defer s.mu.Unlock()
	xs := s.waiting[at]
	if s.waiting[at] = nil; len(xs) == 0 {
		delete(s.waiting, at)
	}
	return xs
}

// find searches for a returned record in its partition, together with others that were
// returned at that time. Until brokers answer, the record stays with the producer. The sender then
// receives no error if the record was found, otherwise the error with which it was returned.
func (p *Producer) find(at partition, x returned) {
	p.search.mu.Lock()
	defer p.search.mu.Unlock()
	_, searching := p.search.waiting[at]
	if p.ctx.Err() != nil {
		go x.to.Returned(x.Record, errors.Join(kgo.ErrClientClosed, x.err))
		return
	}
	p.search.waiting[at] = append(p.search.waiting[at], x)
	if searching {
		return
	}
	p.wg.Go(func() {
		for xs := p.search.take(at); len(xs) > 0; xs = p.search.take(at) {
			offsets, err := p.findAll(at, xs)
			for i, x := range xs {
				switch {
				case err != nil:
					x.to.Returned(x.Record, fmt.Errorf("%w; then searched for in its topic: %w", err, x.err))
				case offsets[i] >= 0:
					x.Offset = offsets[i]
					x.to.Returned(x.Record, nil)
				default:
					x.to.Returned(x.Record, x.err)
				}
			}
		}
	})
}

// findAll returns the offsets of the records, -1 for records that are not in their
// partition. It retries until brokers answer. The error is the end of the producer.
func (p *Producer) findAll(at partition, xs []returned) ([]int64, error) {
	drained := make(map[*client]bool)
	for _, x := range xs { // it may have returned the record before it has an answer
		if !drained[x.client] {
			drained[x.client] = true
			x.client.drain(p.ctx)
		}
	}
	began := time.Now()
	for attempt := 1; ; attempt++ {
		s := scan{p: p, partition: at, records: xs, offsets: make([]int64, len(xs)), byID: make(map[string][]int), since: math.MaxInt64}
		s.batches = decompress.Skipping{Decompressor: &decompress.Decompressor{Limit: decompress.Limit(p.cfg.MaxRecordBytes)}}
		for i, x := range xs {
			id := string(header(x.Record, outbox.HeaderID))
			s.byID[id] = append(s.byID[id], i)
			s.offsets[i] = -1
			s.since = min(s.since, x.Timestamp.UnixMilli())
			s.checks = s.checks || losesNumbers(x.err)
		}
		err := s.run(p.ctx)
		switch {
		case p.ctx.Err() != nil:
			return nil, kgo.ErrClientClosed
		case err == nil:
			s.report()
			return s.offsets, nil
		case isAnswer(err) && time.Since(began) >= AgreeAfter:
			p.cfg.Logger.Warn("cannot search for records that may be in their topic; they may be published twice",
				"topic", at.topic, "partition", at.n, "records", len(xs), "err", err)
			return s.offsets, nil
		}
		if attempt == 3 {
			p.cfg.Logger.Warn("failed to search for records that may be in their topic, retrying",
				"topic", at.topic, "partition", at.n, "records", len(xs), "err", err)
		}
		_ = retry.Wait(p.ctx, retryAfter)
	}
}

var (
	errNoPartition = errors.New("the topic does not have the partition")
	errUnreadable  = errors.New("a batch of the partition cannot be decoded")
)

// isAnswer reports whether the error lasts: a record cannot be in its topic, since the topic is
// missing and cannot be created, or has fewer partitions, or the partition cannot be read.
func isAnswer(err error) bool {
	return errors.Is(err, errNoPartition) || errors.Is(err, errUnreadable) || failure.Classify(err) == failure.Permanent
}

// scan searches one partition.
type scan struct {
	p *Producer
	partition
	records []returned
	byID    map[string][]int // indexes of records by event id
	offsets []int64          // result, by record
	since   int64            // the time of the first record, in milliseconds
	// checks means that the last acknowledged record is searched for too.
	checks bool
	last   ackedRecord
	lost   bool // the partition no longer has it

	batches decompress.Skipping
}

// run reads the partition from before the first record to the end of the log.
//
// Records that the leader has and the replicas do not yet have may become visible later. So
// the end is that of the leader's epoch, and run waits until all records before it are visible.
func (s *scan) run(ctx context.Context) error {
	admin := s.p.Catalog.Admin
	details, err := admin.ListTopics(ctx, s.topic)
	if err != nil {
		return fmt.Errorf("look up topic %s: %w", s.topic, err)
	}
	d := details[s.topic]
	if errors.Is(d.Err, kerr.UnknownTopicOrPartition) {
		var found topics.Found
		if found, err = s.p.Catalog.Find(ctx, s.topic); err == nil { // it is made, without records, or a broker knows it
			if s.p.know(s.topic, &found) {
				s.p.retire(s.topic, nil)
			}
			err = errNotSeenYet
		}
		return err
	}
	pd, ok := d.Partitions[s.n]
	if err := errors.Join(d.Err, pd.Err); err != nil {
		return fmt.Errorf("look up topic %s: %w", s.topic, err)
	} else if !ok {
		return errNoPartition
	}
	start, end, err := s.bounds(ctx, admin, pd)
	if err != nil {
		return err
	}
	for idle := 0; start < end; {
		next, err := s.fetch(ctx, d.ID, pd, start)
		if err != nil {
			return err
		}
		if next > start {
			idle = 0
		} else if idle++; idle == 4 {
			return errNotReplicated
		}
		start = next
	}
	return nil
}

var (
	errNotSeenYet    = errors.New("the topic was created just now")
	errNotReplicated = errors.New("not replicated up to its end")
)

// bounds returns the offsets from which and up to which the partition is read.
func (s *scan) bounds(ctx context.Context, admin *kadm.Client, pd kadm.PartitionDetail) (start, end int64, err error) {
	since := max(s.since-max(s.p.cfg.ClockMargin, 0).Milliseconds(), 0)
	for _, of := range []struct {
		list func(context.Context, ...string) (kadm.ListedOffsets, error)
		set  func(int64)
	}{
		{func(ctx context.Context, t ...string) (kadm.ListedOffsets, error) {
			return admin.ListOffsetsAfterMilli(ctx, since, t...)
		}, func(o int64) { start = o }},
		{admin.ListEndOffsets, func(o int64) { end = o }},
	} {
		list, err := of.list(ctx, s.topic)
		o, ok := list.Lookup(s.topic, s.n)
		if ok {
			err = o.Err
		}
		if err == nil && !ok {
			err = errNoPartition
		}
		if err != nil {
			return 0, 0, fmt.Errorf("look up offsets of topic %s: %w", s.topic, err)
		}
		of.set(o.Offset)
	}
	if pd.LeaderEpoch >= 0 {
		var req kadm.OffsetForLeaderEpochRequest
		req.Add(s.topic, s.n, pd.LeaderEpoch)
		epochs, err := admin.OffsetForLeaderEpoch(ctx, req) // some brokers do not support it
		if e, ok := epochs[s.topic][s.n]; err == nil && ok {
			if e.Err != nil { // it is no leader any more, and another one may have the record
				return 0, 0, fmt.Errorf("look up the end of partition %d of topic %s: %w", s.n, s.topic, e.Err)
			}
			end = max(end, e.EndOffset)
		}
	}
	s.p.search.mu.Lock()
	var last ackedRecord
	acked := s.p.search.acked[s.partition]
	if acked != nil {
		last = ackedRecord{acked.offset, slices.Clone(acked.id)}
	}
	s.p.search.mu.Unlock()
	if acked == nil {
		return start, end, nil
	}
	if s.checks {
		s.last, s.lost = last, last.offset >= end
		start = min(start, last.offset)
	}
	return min(start, last.offset+1), end, nil
}

// fetch reads records from an offset and returns the offset after them.
func (s *scan) fetch(ctx context.Context, id kadm.TopicID, pd kadm.PartitionDetail, from int64) (next int64, err error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = int32(retryAfter.Milliseconds()), 1, 8<<20, -1
	rt, rp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	rt.Topic, rt.TopicID = s.topic, id
	rp.Partition, rp.FetchOffset, rp.CurrentLeaderEpoch, rp.PartitionMaxBytes = s.n, from, pd.LeaderEpoch, 2<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := s.p.client.Broker(int(pd.Leader)).RetriableRequest(ctx, req)
	if err != nil {
		return from, fmt.Errorf("read topic %s: %w", s.topic, err)
	}
	r := resp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		return from, fmt.Errorf("read topic %s: %w", s.topic, err)
	}
	if len(r.Topics) == 0 || len(r.Topics[0].Partitions) == 0 {
		return from, nil
	}
	partition := &r.Topics[0].Partitions[0] // the one that was requested
	read, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		KeepControlRecords: true, Offset: from, Topic: s.topic, Partition: s.n,
	}, partition, s.batches, nil)
	if skipped, ok := errors.AsType[*kgo.ErrDecompressTooLarge](read.Err); ok { // of another producer
		read.Err, next = nil, skipped.NextOffset
	}
	if errors.Is(read.Err, kerr.OffsetOutOfRange) && partition.LogStartOffset > from {
		s.lost = s.lost && partition.LogStartOffset <= s.last.offset // else retention has deleted it
		return partition.LogStartOffset, nil
	} else if _, code := errors.AsType[*kerr.Error](read.Err); read.Err != nil && !code {
		return from, fmt.Errorf("read partition %d of topic %s: %w: %w", s.n, s.topic, errUnreadable, read.Err)
	} else if read.Err != nil {
		return from, fmt.Errorf("read partition %d of topic %s: %w", s.n, s.topic, read.Err)
	}
	for _, r := range read.Records {
		s.compare(r)
	}
	return max(next, from), nil
}

// compare compares a record of the partition with the records that are searched for.
func (s *scan) compare(r *kgo.Record) {
	if r.Attrs.IsControl() {
		return
	}
	id := header(r, outbox.HeaderID)
	for _, i := range s.byID[string(id)] {
		x := s.records[i]
		if s.offsets[i] < 0 && bytes.Equal(r.Key, x.Key) && sameOrigin(r, x.Record) {
			s.offsets[i] = r.Offset
		}
	}
	if s.checks && r.Offset == s.last.offset {
		s.lost = s.lost || !bytes.Equal(id, s.last.id)
	}
}

// sameOrigin reports whether the records are of the same source and table: an id is unique in its
// table only.
func sameOrigin(a, b *kgo.Record) bool {
	return bytes.Equal(header(a, outbox.HeaderSource), header(b, outbox.HeaderSource)) &&
		bytes.Equal(header(a, outbox.HeaderTable), header(b, outbox.HeaderTable))
}

func header(r *kgo.Record, key string) []byte {
	for i := range r.Headers {
		if r.Headers[i].Key == key {
			return r.Headers[i].Value
		}
	}
	return nil
}

// report logs the result, and reports lost records.
func (s *scan) report() {
	found := 0
	for _, o := range s.offsets {
		if o >= 0 {
			found++
		}
	}
	if found > 0 {
		s.p.cfg.Logger.Info("records that were returned with an error are in their topic", "topic", s.topic, "partition", s.n,
			"records", len(s.records), "found", found, "err", s.records[0].err)
	}
	if s.checks && s.lost {
		s.p.observer.DataLost(s.topic, s.n)
	}
}
