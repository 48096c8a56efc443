package topicreader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// ErrRecreated means that a topic was deleted and created again while it was read.
var ErrRecreated = errors.New("the topic was created again")

const (
	// defaultBytes is the size of a fetch from a broker; partBytes is the share of a partition, so that a
	// fetch has several.
	defaultBytes = 8 << 20
	partBytes    = 8
	// fetchWait is how long a broker waits for records of a span, which exist unless its replicas lag.
	fetchWait = 250 * time.Millisecond
	// pause is the time between attempts while nothing can be read.
	pause = 100 * time.Millisecond
)

// Reader reads spans. It has no state: it may be used again, and concurrently.
type Reader struct {
	// Client is the client that sends the requests. Its options about consuming are not used, except
	// kgo.Rack. Required.
	Client *kgo.Client
	// Uncommitted reads the records of open and aborted transactions too.
	Uncommitted bool
	// Stall is how long reading continues while no partition can be read. 0 is until ctx ends.
	Stall time.Duration
	// MaxBytes limits the size of a fetch from a broker, which a single batch may exceed. 0 is 8 MiB.
	// A fetch from each broker is read ahead.
	MaxBytes int32
}

// Batch contains consecutive records of a partition, without control records. It can be empty.
type Batch struct {
	Topic     string
	Partition int32
	Records   []*kgo.Record
	// Next is the offset after the batch: the next one begins there, or the span ends.
	Next int64
}

// Read returns the records of spans, in the order of the offsets of each partition, and at most one
// error, the last element. Without an error, each span was read to its end. The loop may be left at
// any time.
func (r *Reader) Read(ctx context.Context, spans Spans) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		s := r.newScan(spans)
		if len(s.open) == 0 {
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		ahead := make(chan round, 1)
		fetch := func() { b, err := s.fetch(ctx); ahead <- round{b, err} }
		go fetch()
		running := true
		defer func() {
			if cancel(); running {
				<-ahead
			}
		}()
		for {
			got := <-ahead
			if got.err != nil {
				running = false
				yield(Batch{}, got.err)
				return
			}
			if running = len(s.open) > 0; running {
				go fetch()
			}
			for _, b := range got.batches {
				if !yield(b, nil) {
					return
				}
			}
			if !running {
				return
			}
		}
	}
}

// round is the result of one fetch from each broker.
type round struct {
	batches []Batch
	err     error
}

// scan is the state of one Read. It is used by one goroutine at a time.
type scan struct {
	*Reader
	adm          *kadm.Client
	decompressor kgo.Decompressor
	rack         string
	isolation    kgo.IsolationLevel
	open         []*part // those not read to their end
	stalled      time.Duration
	err          error // why nothing was read
}

// part is the state of a span.
type part struct {
	topic     string
	id        [16]byte // zero while unknown
	partition int32
	next, end int64
	broker    int32 // the leader or a follower, -1 while unknown
	leader    int32
}

func (p *part) String() string { return fmt.Sprintf("%s/%d", p.topic, p.partition) }

func (r *Reader) newScan(spans Spans) *scan {
	s := &scan{Reader: r, adm: kadm.NewClient(r.Client), isolation: kgo.ReadCommitted()}
	if r.Uncommitted {
		s.isolation = kgo.ReadUncommitted()
	}
	s.decompressor, _ = r.Client.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	s.rack, _ = r.Client.OptValue(kgo.Rack).(string)
	for topic, partitions := range spans {
		for p, span := range partitions {
			if span.From < span.End {
				s.open = append(s.open, &part{topic: topic, partition: p, next: span.From, end: span.End, broker: -1})
			}
		}
	}
	slices.SortFunc(s.open, func(a, b *part) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	return s
}

// fetch returns batches of the open parts, one fetch from each broker. It returns none after a while
// without any.
func (s *scan) fetch(ctx context.Context) ([]Batch, error) {
	began := time.Now()
	if err := s.locate(ctx); err != nil {
		return nil, err
	}
	brokers := make(map[int32][]*part)
	for _, p := range s.open {
		if p.broker >= 0 {
			brokers[p.broker] = append(brokers[p.broker], p)
		}
	}
	var all sync.WaitGroup
	responses := make(chan func() ([]Batch, error), len(brokers))
	for id, parts := range brokers {
		all.Go(func() {
			resp, err := s.request(ctx, id, parts)
			responses <- func() ([]Batch, error) { return s.take(parts, resp, err) }
		})
	}
	all.Wait()
	close(responses)
	if ctx.Err() != nil {
		return nil, s.endError(ctx)
	}
	var out []Batch
	for take := range responses {
		batches, err := take()
		if err != nil {
			return nil, err
		}
		out = append(out, batches...)
	}
	if len(out) > 0 {
		s.open = slices.DeleteFunc(s.open, func(p *part) bool { return p.next >= p.end })
		if len(s.open) > 1 {
			s.open = append(s.open[1:], s.open[0]) // the first part of a fetch can have a batch of any size
		}
		s.stalled, s.err = 0, nil
		return out, nil
	}
	if retry.Wait(ctx, pause) != nil {
		return nil, s.endError(ctx)
	}
	if s.stalled += time.Since(began); s.Stall > 0 && s.stalled >= s.Stall {
		return nil, fmt.Errorf("no records read for %s from %s: %w", s.Stall, s.unread(), cmp.Or(s.err, errors.New("the brokers return none")))
	}
	return nil, nil
}

// endError returns the error of a read whose ctx has ended.
func (s *scan) endError(ctx context.Context) error {
	if s.err == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w; %s is not read, because of: %w", context.Cause(ctx), s.unread(), s.err)
}

// unread names the parts that are not read to their end.
func (s *scan) unread() string {
	const most = 10
	var out []string
	for _, p := range s.open[:min(len(s.open), most)] {
		out = append(out, fmt.Sprintf("%s from offset %d to %d", p, p.next, p.end))
	}
	slices.Sort(out)
	if more := len(s.open) - most; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ", ")
}

// locate looks up the leaders of the parts that have no broker.
func (s *scan) locate(ctx context.Context) error {
	var topics []string
	for _, p := range s.open {
		if p.broker < 0 && !slices.Contains(topics, p.topic) {
			topics = append(topics, p.topic)
		}
	}
	if len(topics) == 0 {
		return nil
	}
	details, err := s.adm.ListTopics(ctx, topics...)
	if err != nil {
		return s.retriable(err)
	}
	for _, p := range s.open {
		d, ok := details[p.topic]
		if p.broker >= 0 || !ok {
			continue
		}
		partition, ok := d.Partitions[p.partition]
		switch err := cmp.Or(d.Err, partition.Err); {
		case err != nil:
			if err := s.retriable(fmt.Errorf("%s: %w", p, err)); err != nil {
				return err
			}
		case !ok || partition.Leader < 0:
			s.err = fmt.Errorf("%s: %w", p, kerr.LeaderNotAvailable)
		case p.id != [16]byte{} && p.id != d.ID:
			return fmt.Errorf("read %s from offset %d: %w", p, p.next, ErrRecreated)
		default:
			p.id, p.leader, p.broker = d.ID, partition.Leader, partition.Leader
		}
	}
	return nil
}

// retriable keeps the error of a request that is sent again, and returns another one.
func (s *scan) retriable(err error) error {
	var of *kerr.Error
	if errors.As(err, &of) && !of.Retriable {
		return fmt.Errorf("read the topics: %w", err)
	}
	s.err = err
	return nil
}

// request fetches parts from a broker.
func (s *scan) request(ctx context.Context, broker int32, parts []*part) (*kmsg.FetchResponse, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(fetchWait.Milliseconds()), 1, cmp.Or(s.MaxBytes, defaultBytes)
	req.SessionEpoch = -1 // no session
	req.Rack = s.rack
	if !s.Uncommitted {
		req.IsolationLevel = 1
	}
	at := make(map[string]int)
	for _, p := range parts {
		i, ok := at[p.topic]
		if !ok {
			i = len(req.Topics)
			at[p.topic] = i
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = p.topic, p.id
			req.Topics = append(req.Topics, t)
		}
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p.partition, p.next, max(1, req.MaxBytes/partBytes)
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	resp, err := req.RequestWith(ctx, s.Client.Broker(int(broker)))
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	return resp, err
}

// take takes the response to a fetch of parts.
func (s *scan) take(parts []*part, resp *kmsg.FetchResponse, err error) (out []Batch, _ error) {
	if err != nil {
		for _, p := range parts {
			p.broker = -1
		}
		return nil, s.retriable(err)
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			rp := &t.Partitions[j]
			n := slices.IndexFunc(parts, func(p *part) bool {
				return p.partition == rp.Partition && (p.topic == t.Topic || t.Topic == "" && p.id == t.TopicID)
			})
			if n < 0 {
				continue
			}
			b, err := s.takePart(parts[n], rp)
			if err != nil {
				return nil, err
			}
			if b.Next > 0 {
				out = append(out, b)
			}
		}
	}
	return out, nil
}

// takePart returns the batch of a part, without Next if there is none yet.
func (s *scan) takePart(p *part, rp *kmsg.FetchResponseTopicPartition) (b Batch, _ error) {
	if rp.PreferredReadReplica >= 0 {
		p.broker = rp.PreferredReadReplica
		return b, nil
	}
	err := kerr.ErrorForCode(rp.ErrorCode)
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange) && p.broker == p.leader:
		return b, fmt.Errorf("read %s from offset %d to %d: its records were deleted: %w", p, p.next, p.end, err)
	case err != nil && p.broker != p.leader: // a follower can be behind
		p.broker, s.err = -1, fmt.Errorf("%s: %w", p, err)
		return b, nil
	case err != nil:
		p.broker = -1
		return b, s.retriable(fmt.Errorf("%s: %w", p, err))
	}
	f, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: p.next, Topic: p.topic, Partition: p.partition, IsolationLevel: s.isolation,
	}, rp, s.decompressor, nil)
	if f.Err != nil && len(f.Records) == 0 {
		return b, fmt.Errorf("read %s from offset %d: %w", p, p.next, f.Err)
	}
	if next <= p.next {
		return b, nil
	}
	p.next = min(next, p.end)
	if behind := slices.IndexFunc(f.Records, func(r *kgo.Record) bool { return r.Offset >= p.end }); behind >= 0 {
		f.Records = f.Records[:behind]
	}
	return Batch{p.topic, p.partition, f.Records, p.next}, nil
}
