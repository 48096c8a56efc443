package readback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

const (
	// readBackFetches is the number of concurrent fetches per broker: the records of
	// one are decoded while the broker responds to another.
	readBackFetches = 2
	// readBackBytes limits the size of a fetch, readBackPartitionBytes that of one
	// partition in it; a single larger batch exceeds them.
	readBackBytes          = 8 << 20
	readBackPartitionBytes = 2 << 20
	// readBackMaxWait is how long a broker waits for records that are written
	// and not yet replicated.
	readBackMaxWait = 500 * time.Millisecond
)

// Partition is a partition that is read back.
type Partition struct {
	topic     string
	topicID   [16]byte
	partition int32
	leader    int32
	epoch     int32
	begun     bool  // next is known
	start     int64 // offset at which the log begins
	from      int64 // offset of the first record that counts
	next      int64 // offset to read from
	end       int64 // and up to
	// moved reports that the leader or the offsets changed, so the partition is looked
	// up again.
	moved   bool
	trimmed bool  // next may be before the log's start
	err     error // permanent: the partition is not read further
	corrupt error // of a batch that was skipped
	lastErr error // the last transient error
}

func (p *Partition) done() bool { return p.err != nil || p.begun && p.next >= p.end }

// Topics are the partitions of all topics that are read back.
type Topics struct {
	Client *kgo.Client
	Admin  *kadm.Client
	Source string
	owns   []*cdclog.Portion // whose events; nil is everybody's, and alone
	// Take receives the events of the relay's source and table.
	Take func([]Event)
	// Denied contains the topics whose read access is denied, with the errors.
	Denied map[string]error

	// unknown decides which topics do not exist; nil ignores unknown ones. So are those for
	// which expects returns false.
	unknown *unknownTopics
	expects func(topic string) bool
	cfg     *Config     // nil is any table
	clock   clockOffset // of the records that were read

	Parts map[string]map[int32]*Partition
	// noEpochs counts failed requests for the end of an epoch. Some brokers do not
	// support them.
	noEpochs int
}

// maxNoEpochs is the maximum number of such failed requests.
const maxNoEpochs = 3

func (t *Topics) each(f func(*Partition)) {
	for _, ps := range t.Parts {
		for _, p := range ps {
			f(p)
		}
	}
}

// Locate looks up the partitions of the topics, their leaders, and the offset of the
// first record at or after since, less checkRecords. A time before 1970 is taken as 0, because negative
// timestamps have other meanings in Kafka. It may be called again for partitions that
// have moved. It returns an error if no broker responded.
func (t *Topics) Locate(ctx context.Context, topics []string, since time.Time) error {
	details, agree, err := describeTopics(ctx, t.Client, topics)
	if err != nil {
		return fmt.Errorf("look up the topics to read back: %w", err)
	}
	now := time.Now()
	var begin, trimmed []string
	for _, topic := range topics {
		d, seen := details[topic]
		err := kerr.ErrorForCode(d.ErrorCode)
		switch {
		case !seen, isUnknown(err) && t.unknown == nil:
			continue
		case t.unknown.isDeleted(topic, isUnknown(err) && agree[topic], now):
			delete(t.Parts, topic)
			continue
		case isUnknown(err) && !t.expects(topic):
			continue // nothing was published to it
		case isUnknown(err):
			t.part(topic, -1).lastErr = errUnknownTopic
			continue
		case isDenied(err):
			t.deny(topic, err)
			continue
		case err != nil:
			t.part(topic, -1).lastErr = err
			continue
		}
		delete(t.Parts[topic], -1)
		for _, pd := range d.Partitions {
			p := t.part(topic, pd.Partition)
			if p.begun && p.topicID != d.TopicID {
				*p = Partition{topic: topic, partition: pd.Partition} // the topic was created again
			}
			p.topicID, p.leader, p.epoch, p.moved = d.TopicID, pd.Leader, pd.LeaderEpoch, false
			if err := kerr.ErrorForCode(pd.ErrorCode); err != nil {
				p.lastErr, p.moved = err, true
				continue
			}
			if !p.begun {
				begin = append(begin, topic)
			}
			if p.trimmed {
				trimmed = append(trimmed, topic)
			}
		}
	}
	if len(begin)+len(trimmed) > 0 {
		if err := t.eachTopic(slices.Compact(slices.Sorted(slices.Values(slices.Concat(begin, trimmed)))), func(some ...string) error {
			list, err := t.Admin.ListStartOffsets(ctx, some...)
			t.offsets(list, func(p *Partition, o int64) {
				if p.start = o; p.trimmed {
					p.next, p.trimmed = max(p.next, o), false
				}
			})
			return requestError(list == nil, err)
		}); err != nil {
			return fmt.Errorf("look up where topics begin: %w", err)
		}
	}
	if len(begin) > 0 {
		if err := t.eachTopic(slices.Compact(begin), func(some ...string) error {
			list, err := t.Admin.ListOffsetsAfterMilli(ctx, max(since.UnixMilli(), 0), some...)
			t.offsets(list, func(p *Partition, o int64) {
				if !p.begun {
					p.begun, p.from, p.next = true, o, max(o-checkRecords, p.start)
				}
			})
			return requestError(list == nil, err)
		}); err != nil {
			return fmt.Errorf("look up where to read topics back from: %w", err)
		}
	}
	return nil
}

// eachTopic calls f with all topics. The admin client fails the whole call if the
// broker denies one of them: then f is called with each topic alone, and denied topics
// are given up.
func (t *Topics) eachTopic(topics []string, f func(some ...string) error) error {
	err := f(topics...)
	if !isDenied(err) {
		return err
	}
	for _, topic := range topics {
		if err := f(topic); isDenied(err) {
			t.deny(topic, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// requestError returns the error of a request if no broker responded or the broker denied it.
// The response contains the errors of single partitions.
func requestError(nothing bool, err error) error {
	if nothing || isDenied(err) {
		return err
	}
	return nil
}

func (t *Topics) part(topic string, partition int32) *Partition {
	if t.Parts[topic] == nil {
		t.Parts[topic] = make(map[int32]*Partition)
	}
	p := t.Parts[topic][partition]
	if p == nil {
		p = &Partition{topic: topic, partition: partition}
		t.Parts[topic][partition] = p
	}
	return p
}

// offsets calls set for the offsets in list and records its errors.
func (t *Topics) offsets(list kadm.ListedOffsets, set func(*Partition, int64)) {
	list.Each(func(o kadm.ListedOffset) {
		p, ok := t.Parts[o.Topic][o.Partition]
		switch {
		case !ok:
		case o.Err == nil && o.Offset >= 0:
			set(p, o.Offset)
		case isDenied(o.Err):
			t.deny(o.Topic, o.Err)
		case o.Err != nil:
			p.lastErr, p.moved = o.Err, true
		}
	})
}

func isDenied(err error) bool {
	return errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed)
}

// deny gives up a topic whose read access is denied.
func (t *Topics) deny(topic string, err error) {
	for _, p := range t.Parts[topic] {
		p.err = err
	}
	if len(t.Parts[topic]) == 0 {
		t.part(topic, -1).err = err
	}
	if t.Denied[topic] == nil {
		t.Denied[topic] = err
	}
}

// FindEnds sets the partitions' ends to the current log end offsets.
//
// Consumers see only the high watermark, but records that the leader has and the
// replicas do not yet have will become visible too. Kafka returns the log end offset
// only for a request for the end of the leader's epoch. If a broker returns a lower
// offset, the high watermark applies.
func (t *Topics) FindEnds(ctx context.Context) error {
	var req kadm.OffsetForLeaderEpochRequest
	var topics []string
	t.each(func(p *Partition) {
		if p.err != nil || !p.begun || p.moved {
			return
		}
		topics = append(topics, p.topic)
		if p.epoch >= 0 {
			req.Add(p.topic, p.partition, p.epoch)
		}
	})
	if len(topics) == 0 {
		return nil
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	if err := t.eachTopic(topics, func(some ...string) error {
		list, err := t.Admin.ListEndOffsets(ctx, some...)
		t.offsets(list, func(p *Partition, o int64) { p.end = o })
		return requestError(list == nil, err)
	}); err != nil {
		return fmt.Errorf("look up the ends of the topics: %w", err)
	}
	if len(req) == 0 {
		return nil
	}
	if err := t.eachTopic(topics, func(some ...string) error {
		mine := maps.Clone(req)
		maps.DeleteFunc(mine, func(topic string, _ map[int32]int32) bool { return !slices.Contains(some, topic) })
		epochs, err := t.Admin.OffsetForLeaderEpoch(ctx, mine)
		for topic, ps := range epochs {
			for n, e := range ps {
				if p := t.Parts[topic][n]; p != nil && e.Err == nil {
					p.end = max(p.end, e.EndOffset)
				} else if p != nil {
					p.lastErr, p.moved = e.Err, true
				}
			}
		}
		return requestError(len(epochs) == 0, err)
	}); err != nil && t.noEpochs < maxNoEpochs {
		t.noEpochs++
		return fmt.Errorf("look up the ends of the logs: %w", err)
	}
	return nil
}

// Read reads all partitions to their ends, as far as their leaders respond.
func (t *Topics) Read(ctx context.Context) error {
	byLeader := make(map[int32][]*Partition)
	t.each(func(p *Partition) {
		if !p.done() && p.begun && !p.moved && !p.trimmed {
			byLeader[p.leader] = append(byLeader[p.leader], p)
		}
	})
	var wg sync.WaitGroup
	var mu sync.Mutex // guards denied, firstErr and t.clock
	denied := make(map[string]error)
	var firstErr error
	for leader, ps := range byLeader {
		for i := range min(readBackFetches, len(ps)) {
			var mine []*Partition
			for n := i; n < len(ps); n += readBackFetches {
				mine = append(mine, ps[n])
			}
			wg.Go(func() {
				f := &backFetcher{topics: t, broker: t.Client.Broker(int(leader)), scanner: newBatchScanner(t.Source)}
				if t.cfg != nil {
					f.scanner = t.cfg.newScanner()
				}
				f.scanner.owns = t.owns
				err := f.run(ctx, mine)
				mu.Lock()
				defer mu.Unlock()
				t.clock.add(f.scanner.clock)
				if err != nil {
					firstErr = err
				}
				for _, p := range mine {
					if isDenied(p.lastErr) {
						denied[p.topic] = p.lastErr
					}
				}
			})
		}
	}
	wg.Wait()
	for topic, err := range denied {
		t.deny(topic, err)
	}
	return firstErr
}

// backFetcher reads some partitions of one broker. Each has one goroutine.
type backFetcher struct {
	topics  *Topics
	broker  *kgo.Broker
	scanner *batchScanner
	found   []Event
}

// run fetches until the partitions are read to their ends or have moved.
func (f *backFetcher) run(ctx context.Context, parts []*Partition) error {
	idle := 0
	for {
		parts = slices.DeleteFunc(slices.Clone(parts), func(p *Partition) bool { return p.done() || p.moved })
		if len(parts) == 0 {
			return nil
		}
		resp, err := f.broker.RetriableRequest(ctx, fetchRequest(parts))
		if err != nil {
			for _, p := range parts {
				p.lastErr, p.moved = err, true
			}
			return fmt.Errorf("read topics back: %w", err)
		}
		r := resp.(*kmsg.FetchResponse)
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return fmt.Errorf("read topics back: %w", err)
		}
		progress := f.takeResponse(parts, r)
		// Records that are not replicated are not returned. While waiting for them,
		// check periodically whether the leader is still the same.
		if idle++; progress {
			idle = 0
		} else if idle >= 4 {
			for _, p := range parts {
				p.moved = true
			}
		}
	}
}

func fetchRequest(parts []*Partition) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(readBackMaxWait.Milliseconds())
	req.MinBytes = 1
	req.MaxBytes = readBackBytes
	req.SessionEpoch = -1 // no session
	at := make(map[string]int)
	for _, p := range parts {
		i, ok := at[p.topic]
		if !ok {
			i = len(req.Topics)
			at[p.topic] = i
			rt := kmsg.NewFetchRequestTopic()
			rt.Topic, rt.TopicID = p.topic, p.topicID
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.CurrentLeaderEpoch, rp.PartitionMaxBytes = p.partition, p.next, p.epoch, readBackPartitionBytes
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	return req
}

// takeResponse takes the events of a response and reports whether an offset advanced.
func (f *backFetcher) takeResponse(parts []*Partition, r *kmsg.FetchResponse) (progress bool) {
	for _, rt := range r.Topics {
		for i := range rt.Partitions {
			rp := &rt.Partitions[i]
			n := slices.IndexFunc(parts, func(p *Partition) bool {
				return p.partition == rp.Partition && (p.topic == rt.Topic || rt.Topic == "" && p.topicID == rt.TopicID)
			})
			if n < 0 {
				continue
			}
			p := parts[n]
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				p.lastErr, p.moved = err, true
				p.trimmed = errors.Is(err, kerr.OffsetOutOfRange)
				continue
			}
			f.found, f.scanner.from = f.found[:0], p.from
			next, err := f.scanner.scan(rp.RecordBatches, p.next, func(e Event) {
				if e.Ours {
					f.found = append(f.found, e)
				}
			})
			f.topics.Take(f.found)
			if p.corrupt = cmp.Or(p.corrupt, err); err != nil && next == p.next {
				p.err = err // it cannot be skipped
			}
			progress = progress || next > p.next
			p.next = next
		}
	}
	return progress
}
