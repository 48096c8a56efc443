package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// audit is an ordinary consumer that keeps account of every event in the
// topics, to be held against a scan of the outbox. It shares nothing with the
// relay. It is safe for concurrent use.
type audit struct {
	client *kgo.Client
	admin  *kadm.Client
	topics []string

	mu         sync.Mutex
	events     map[gocql.UUID]time.Time // when each event first came in
	duplicates int64
	outOfOrder int64
	aggregates map[gocql.UUID]*sightings
	reached    map[string]map[int32]int64 // the next offset of each partition
	err        error
}

// sightings is where and when an aggregate's events were found.
type sightings struct {
	last map[string]int64 // highest sequence by topic: one topic holds an aggregate in one partition
	seen []sighting
}

type sighting struct {
	seq int64
	at  time.Time // the record's timestamp
}

// newAudit makes a consumer of the topics, from their beginning.
func newAudit(c kafkaConfig, topics ...string) (*audit, error) {
	client, err := c.client(
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		// Topics that the relay makes later are to be found soon.
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
		kgo.UnknownTopicRetries(-1),
	)
	if err != nil {
		return nil, err
	}
	return &audit{
		client: client, admin: kadm.NewClient(client), topics: topics,
		events:     make(map[gocql.UUID]time.Time),
		aggregates: make(map[gocql.UUID]*sightings),
		reached:    make(map[string]map[int32]int64),
	}, nil
}

// run consumes until ctx ends.
func (a *audit) run(ctx context.Context) {
	for {
		fetches := a.client.PollFetches(ctx)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		now := time.Now()
		a.mu.Lock()
		for _, e := range fetches.Errors() {
			a.err = fmt.Errorf("read topic %s: %w", e.Topic, e.Err)
		}
		for r := range fetches.RecordsAll() {
			a.take(r, now)
		}
		a.mu.Unlock()
	}
}

// take accounts for one record. Called locked.
func (a *audit) take(r *kgo.Record, now time.Time) {
	partitions := a.reached[r.Topic]
	if partitions == nil {
		partitions = make(map[int32]int64)
		a.reached[r.Topic] = partitions
	}
	partitions[r.Partition] = r.Offset + 1
	e, _, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
	if err != nil {
		a.err = fmt.Errorf("%s[%d]@%d is no event of the outbox: %w", r.Topic, r.Partition, r.Offset, err)
		return
	}
	if _, twice := a.events[e.ID]; twice {
		a.duplicates++
		return
	}
	a.events[e.ID] = now
	s := a.aggregates[e.AggregateID]
	if s == nil {
		s = &sightings{last: make(map[string]int64, 1)}
		a.aggregates[e.AggregateID] = s
	}
	if e.Sequence <= s.last[r.Topic] {
		a.outOfOrder++
	}
	s.last[r.Topic] = max(s.last[r.Topic], e.Sequence)
	s.seen = append(s.seen, sighting{e.Sequence, r.Timestamp})
}

// has is how many of the rows' events have come in.
func (a *audit) has(rows []outboxRow) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range rows {
		if _, ok := a.events[rows[i].event]; ok {
			n++
		}
	}
	return n
}

// count is how many different events have come in.
func (a *audit) count() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int64(len(a.events))
}

// toEnd waits until everything that is in the topics now was consumed.
func (a *audit) toEnd(ctx context.Context) error {
	ends, err := a.admin.ListEndOffsets(ctx, a.topics...)
	if err != nil {
		return fmt.Errorf("list the ends of the topics: %w", err)
	}
	for !a.reachedAll(ends) {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the topics were not read to their ends: %w", context.Cause(ctx)), a.failure())
		}
	}
	return a.failure()
}

func (a *audit) reachedAll(ends kadm.ListedOffsets) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := true
	ends.Each(func(o kadm.ListedOffset) {
		// A topic that was never made has nothing to read.
		if o.Err == nil && o.Offset > 0 && a.reached[o.Topic][o.Partition] < o.Offset {
			all = false
		}
	})
	return all
}

func (a *audit) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// outboxRow is what the audit needs of a row of the outbox.
type outboxRow struct {
	event   gocql.UUID
	written time.Time
}

// scanOutbox reads the outbox table from end to end.
func scanOutbox(ctx context.Context, session *gocql.Session, table string) ([]outboxRow, error) {
	var (
		rows  []outboxRow
		id    gocql.UUID
		micro int64
	)
	iter := session.Query("SELECT event_id, WRITETIME(event_id) FROM " + table).WithContext(ctx).Iter()
	for iter.Scan(&id, &micro) {
		rows = append(rows, outboxRow{id, time.UnixMicro(micro)})
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("scan %s: %w", table, err)
	}
	return rows, nil
}

// reconciliation is the topics held against the outbox.
type reconciliation struct {
	Written    int64 `json:"events_written"`
	Published  int64 `json:"events_published"`
	Lost       int64 `json:"lost"`
	Duplicates int64 `json:"duplicates"`
	OutOfOrder int64 `json:"out_of_order"`
	// Latency is from the write's timestamp, which the client sets before it
	// sends the batch, to the consumer; of events written since a given time.
	Latency percentiles `json:"commit_to_consumer_ms"`
}

type percentiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// ok tells whether nothing is missing, double or out of order.
func (r reconciliation) ok() bool { return r.Lost == 0 && r.Duplicates == 0 && r.OutOfOrder == 0 }

// reconcile holds the topics against the rows. Latencies are those of events
// written at or after since.
func (a *audit) reconcile(rows []outboxRow, since time.Time) reconciliation {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := reconciliation{
		Written: int64(len(rows)), Published: int64(len(a.events)),
		Duplicates: a.duplicates, OutOfOrder: a.outOfOrder,
	}
	var latencies []float64
	for _, row := range rows {
		at, ok := a.events[row.event]
		if !ok {
			r.Lost++
			continue
		}
		if !row.written.Before(since) {
			latencies = append(latencies, at.Sub(row.written).Seconds()*1000)
		}
	}
	for _, s := range a.aggregates {
		r.OutOfOrder += s.againstTime()
	}
	r.Latency = percentilesOf(latencies)
	return r
}

// againstTime counts events that the broker has with an earlier time than one
// before them in sequence, in whatever topic.
func (s *sightings) againstTime() (n int64) {
	slices.SortFunc(s.seen, func(a, b sighting) int { return int(a.seq - b.seq) })
	for i := 1; i < len(s.seen); i++ {
		if s.seen[i].at.Before(s.seen[i-1].at) {
			n++
		}
	}
	return n
}

func percentilesOf(ms []float64) percentiles {
	if len(ms) == 0 {
		return percentiles{}
	}
	slices.Sort(ms)
	at := func(q float64) float64 {
		i := min(int(q*float64(len(ms))), len(ms)-1)
		return float64(int(ms[i]*10)) / 10
	}
	return percentiles{at(0.50), at(0.95), at(0.99)}
}
