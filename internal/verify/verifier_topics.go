package verify

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/internal/topiclist"
	"github.com/scylla-outbox/scylla-outbox/internal/topicreader"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// maxBehind is the most by which the clock that dates records is believed to be behind the clocks
// of the writers.
const maxBehind = 24 * time.Hour

// topicStall is the time without records after which reading a topic fails: a broker may restart meanwhile, and
// whoever waits for a verification learns of an outage.
const topicStall = time.Minute

// topicReader reads the ids of events from topics, to their last committed records.
type topicReader struct {
	kafka  Kafka
	origin origin    // of the records that it takes
	alive  time.Time // rows of before it have expired; zero if none does
	limit  *rate.Limiter

	client *kgo.Client // nil before the first use
	known  []string
	former []string               // topics in known that may contain events of rows of other topics
	states map[string]*topicState // those read since begin
	held   int64                  // records of the known topics
	behind time.Duration          // by how much records were found to be dated before their events
}

// topicState is the state of a topic that was read. Its horizon is the time before which
// the absence of an event of it proves nothing. absence is the same for an event that may
// have been in it and is of another topic now: an emptied topic counts as one from which
// retention has deleted everything, because nothing is added any more.
type topicState struct {
	horizon, absence int64
	trimmed          bool // both are times of records
	next             map[int32]int64
}

// always is a horizon later than every write.
const always = math.MaxInt64

func newTopicReader(kafka Kafka, from origin, topics, former []string, alive time.Time, limit *rate.Limiter) *topicReader {
	known := slices.Concat(topics, former)
	slices.Sort(known)
	return &topicReader{kafka: kafka, origin: from, alive: alive, limit: limit, known: slices.Compact(known), former: former, states: make(map[string]*topicState)}
}

func (t *topicReader) close() {
	if t.client != nil {
		t.client.Close()
	}
}

func (t *topicReader) records() int64 { return t.held }

func (t *topicReader) begin(ctx context.Context, sink func(id gocql.UUID, aggregate outbox.ID, seq int64) error) error {
	t.states, t.held = make(map[string]*topicState), 0
	return t.read(ctx, t.known, sink)
}

func (t *topicReader) topic(ctx context.Context, name string, sink func(id gocql.UUID, aggregate outbox.ID, seq int64) error) (int64, error) {
	if t.states[name] == nil {
		if !slices.Contains(t.known, name) {
			t.known = append(t.known, name)
		}
		if err := t.read(ctx, []string{name}, sink); err != nil {
			return 0, err
		}
	}
	horizon := t.byWriters(t.states[name], t.states[name].horizon)
	for _, former := range t.former {
		if s := t.states[former]; s != nil && former != name {
			horizon = max(horizon, t.byWriters(s, s.absence))
		}
	}
	return horizon, nil
}

// byWriters returns a horizon of a topic by the clocks of the writers. A record that is dated early
// shows that others are, which the topic has deleted.
func (t *topicReader) byWriters(s *topicState, horizon int64) int64 {
	if !s.trimmed || horizon == always {
		return horizon
	}
	return horizon + t.behind.Microseconds()
}

func (t *topicReader) more(ctx context.Context, sink func(id gocql.UUID, aggregate outbox.ID, seq int64) error) error {
	return t.read(ctx, t.known, sink)
}

// read reads topics from their positions to their ends.
func (t *topicReader) read(ctx context.Context, names []string, sink func(id gocql.UUID, aggregate outbox.ID, seq int64) error) error {
	if len(names) == 0 {
		return nil
	}
	if t.client == nil {
		var err error
		if t.client, err = t.kafka.Client(); err != nil {
			return err
		}
	}
	adm := kadm.NewClient(t.client)
	details, err := topiclist.List(ctx, t.client, names...)
	if err != nil {
		return err
	}
	var there, fresh []string
	for _, name := range names {
		absent := topiclist.IsAbsent(details, name)
		if err := details[name].Err; !absent && err != nil {
			return fmt.Errorf("topic %s: %w", name, err)
		}
		if t.states[name] == nil {
			t.states[name] = &topicState{}
		}
		switch s := t.states[name]; {
		case absent && len(s.next) > 0:
			return fmt.Errorf("topic %s was deleted", name)
		case absent:
		case s.next == nil:
			s.next, s.horizon, s.absence = make(map[int32]int64), always, always
			there, fresh = append(there, name), append(fresh, name)
		default:
			there = append(there, name)
		}
	}
	if len(fresh) > 0 {
		if err := t.locate(ctx, adm, fresh); err != nil {
			for _, name := range fresh {
				delete(t.states, name)
			}
			return err
		}
	}
	there = slices.DeleteFunc(there, func(name string) bool { return t.states[name].horizon == always })
	if len(there) == 0 {
		return nil
	}
	ends, err := adm.ListCommittedOffsets(ctx, there...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("list the ends of the topics: %w", err)
	}
	spans := make(topicreader.Spans)
	ends.Each(func(end kadm.ListedOffset) {
		next := t.states[end.Topic].next[end.Partition]
		if end.Offset < next {
			err = fmt.Errorf("%s[%d] ends at %d and was read up to %d: it was made anew or lost records", end.Topic, end.Partition, end.Offset, next)
		}
		if end.Offset <= next {
			return
		}
		spans.Add(end.Topic, end.Partition, topicreader.Span{From: next, End: end.Offset})
		if slices.Contains(fresh, end.Topic) {
			t.held += end.Offset - next
		}
	})
	if err != nil {
		return err
	}
	return t.consume(ctx, spans, sink)
}

// locate finds the start offsets of topics, and the time since which they contain every
// event. The absence of an older event proves nothing, nor does absence from a compacted
// topic.
func (t *topicReader) locate(ctx context.Context, adm *kadm.Client, names []string) error {
	configs, err := adm.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return fmt.Errorf("read the topics' settings: %w", err)
	}
	retention := make(map[string]time.Duration) // of topics that nothing else deletes records of
	for _, c := range configs {
		if c.Err != nil {
			return fmt.Errorf("read the settings of topic %s, which needs DESCRIBE_CONFIGS: %w", c.Name, c.Err)
		}
		config := make(map[string]string)
		for _, k := range c.Configs {
			config[k.Key] = k.MaybeValue()
		}
		if !strings.Contains(config["cleanup.policy"], "compact") {
			t.states[c.Name].horizon, t.states[c.Name].absence = 0, 0
		}
		if ms, err := strconv.ParseInt(config["retention.ms"], 10, 64); err == nil && ms > 0 && strings.HasPrefix(cmp.Or(config["retention.bytes"], "-1"), "-") {
			retention[c.Name] = time.Duration(ms) * time.Millisecond
		}
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return t.states[name].horizon == always })
	if len(names) == 0 {
		return nil
	}
	list := func(f func(context.Context, ...string) (kadm.ListedOffsets, error)) kadm.ListedOffsets {
		if err != nil {
			return nil
		}
		var out kadm.ListedOffsets
		if out, err = f(ctx, names...); err == nil {
			err = out.Error()
		}
		return out
	}
	after := func(milli int64) func(context.Context, ...string) (kadm.ListedOffsets, error) {
		return func(ctx context.Context, names ...string) (kadm.ListedOffsets, error) {
			return adm.ListOffsetsAfterMilli(ctx, milli, names...)
		}
	}
	// Retention runs concurrently: the oldest record is read after the start offset, so
	// that it is never older than the records read.
	starts := list(adm.ListStartOffsets)
	first := starts
	if !t.alive.IsZero() {
		first = list(after(t.alive.Add(-maxBehind).UnixMilli()))
	}
	oldest := list(after(0))
	if err != nil {
		return fmt.Errorf("list the offsets of the topics: %w", err)
	}
	now := time.Now()
	starts.Each(func(start kadm.ListedOffset) {
		s := t.states[start.Topic]
		at := start.Offset
		if o, ok := first.Lookup(start.Topic, start.Partition); ok {
			at = max(at, o.Offset)
		}
		s.next[start.Partition] = at
		if start.Offset > 0 {
			horizon, absence := now, now.Add(-retention[start.Topic])
			if o, ok := oldest.Lookup(start.Topic, start.Partition); ok && o.Timestamp > 0 {
				horizon = time.UnixMilli(o.Timestamp)
				absence = horizon
			}
			s.trimmed = true
			s.horizon = max(s.horizon, horizon.Add(clockSkew).UnixMicro())
			s.absence = max(s.absence, absence.Add(clockSkew).UnixMicro())
		}
		if !t.alive.IsZero() {
			s.horizon = max(s.horizon, t.alive.UnixMicro())
		}
	})
	return nil
}

// consume reads spans to their ends.
func (t *topicReader) consume(ctx context.Context, spans topicreader.Spans, sink func(id gocql.UUID, aggregate outbox.ID, seq int64) error) error {
	r := topicreader.Reader{Client: t.client, Stall: topicStall}
	for b, err := range r.Read(ctx, spans) {
		if err != nil {
			return err
		}
		if err := t.take(&b, sink); err != nil {
			return err
		}
		for n := len(b.Records); n > 0; n -= t.limit.Burst() {
			if err := t.limit.WaitN(ctx, min(n, t.limit.Burst())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *topicReader) take(b *topicreader.Batch, sink func(id gocql.UUID, aggregate outbox.ID, seq int64) error) error {
	for _, r := range b.Records {
		e, _, ok := t.origin.event(r)
		if !ok {
			continue
		}
		t.behind = clockBehind(t.behind, &e, r)
		if err := sink(e.ID.UUID(), e.AggregateID, e.Sequence); err != nil {
			return err
		}
	}
	t.states[b.Topic].next[b.Partition] = b.Next
	return nil
}
