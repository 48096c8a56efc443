package producer

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

type flightKey struct{}

// Flight is the context of the outstanding records of one aggregate. It ends after Recall,
// but only if none of these records may have been written to a broker. The client alone
// would fail more records: it forgets that a batch was written when the batch was
// acknowledged after an unacknowledged one, and when a later attempt is refused.
// Flight is safe for concurrent use.
type Flight struct {
	context.Context
	p        *Producer
	client   *client       // that sends the records
	first    atomic.Uint64 // the number of the first record, 0 until Send gives it
	recalled atomic.Bool
	// partition is the partition of the outstanding records, -1 without any, and batch the number
	// of their batch in it.
	partition atomic.Int32
	batch     atomic.Uint64
	// rejecting means that the partitioner rejected a record, because it would begin
	// another batch. It rejects all later ones until no record is outstanding.
	rejecting atomic.Bool
}

// ErrRecalled is the error of a record that the producer returned after Recall.
var ErrRecalled = errors.New("given up by the relay")

// Init prepares a flight of the producer, without records.
func (f *Flight) Init(p *Producer) {
	f.Context, f.p = context.Background(), p
	f.partition.Store(-1)
}

var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Begin begins the flight: its first record, for the topic, is sent next. All its records are
// sent by the same client, which keeps their order.
func (f *Flight) Begin(topic string) {
	f.client = f.p.pick(topic)
	f.recalled.Store(false)
	f.first.Store(0) // many flights may begin before their records are sent
}

// End ends the flight: all its records are returned.
func (f *Flight) End() {
	f.partition.Store(-1)
	f.rejecting.Store(false)
	if f.client != nil {
		f.p.leave(f.client)
	}
}

// Recall asks the producer to return the records.
func (f *Flight) Recall() { f.recalled.Store(true) }

// Recalled reports whether the records were recalled.
func (f *Flight) Recalled() bool { return f.recalled.Load() }

// Rejecting reports whether records would be rejected until none is outstanding.
func (f *Flight) Rejecting() bool { return f.rejecting.Load() }

func (f *Flight) unsure() bool { return f.client.written.Load() >= f.first.Load() }

// Done returns a closed channel if the producer shall and may return the records, else
// nil. The client calls it with every attempt.
func (f *Flight) Done() <-chan struct{} {
	if f.Err() != nil {
		return closed
	}
	return nil
}

// Err returns ErrRecalled if Done is closed, else nil.
func (f *Flight) Err() error {
	if f.recalled.Load() && !f.unsure() {
		return ErrRecalled
	}
	return nil
}

// Value returns the flight for flightKey; the partitioner uses it.
func (f *Flight) Value(key any) any {
	if _, ok := key.(flightKey); ok {
		return f
	}
	return nil
}

// partitioner returns Kafka's partitioner for records with keys, with two exceptions:
//
//   - All outstanding records of an aggregate use one partition. A topic that gets more
//     partitions therefore does not split them.
//   - All outstanding records of an aggregate are in one batch. The broker refuses whole
//     batches, and the client sends the next batch before the relay learns of a refusal.
//     The partitioner therefore rejects a record that would begin another batch, or join one
//     that another flight has begun, and the later records of its flight, until no record of
//     the aggregate is outstanding.
//
// It reports the number of partitions of each topic to counts.
func partitioner(counts *topics.Partitions) kgo.Partitioner {
	return flights{kgo.StickyKeyPartitioner(nil), counts}
}

type flights struct {
	byKey  kgo.Partitioner
	counts *topics.Partitions
}

// ForTopic implements kgo.Partitioner.
func (p flights) ForTopic(topic string) kgo.TopicPartitioner {
	return &flightsOfTopic{byKey: p.byKey.ForTopic(topic), topic: topic, counts: p.counts}
}

// flightsOfTopic is the partitioner of one topic. The client does not call it
// concurrently.
type flightsOfTopic struct {
	byKey      kgo.TopicPartitioner
	topic      string
	counts     *topics.Partitions
	partitions int      // last number reported to counts
	batches    []uint64 // number of batches that flights have begun, by partition
	// follows means that earlier records of the last record's flight are outstanding,
	// begins that the last record would be the first of a batch.
	follows, begins bool
}

// RequiresConsistency implements kgo.TopicPartitioner.
func (*flightsOfTopic) RequiresConsistency(*kgo.Record) bool { return true }

// OnNewBatch records that the record of the last Partition call would begin a batch.
// The client then calls Partition again.
func (t *flightsOfTopic) OnNewBatch() { t.begins = true }

// rejected is an invalid partition: the client returns the record.
const rejected = -1

// Partition implements kgo.TopicPartitioner.
func (t *flightsOfTopic) Partition(r *kgo.Record, n int) int {
	if n != t.partitions {
		t.partitions = n
		t.counts.Saw(t.topic, n)
		t.batches = append(t.batches, make([]uint64, max(n-len(t.batches), 0))...)
	}
	begins := t.begins
	t.begins = false
	f, _ := r.Context.Value(flightKey{}).(*Flight)
	if f == nil {
		return t.byKey.Partition(r, n)
	}
	p := f.partition.Load()
	if !begins {
		t.follows = p >= 0
	}
	if t.follows && p >= 0 && (begins || t.batches[p] != f.batch.Load()) {
		f.rejecting.Store(true)
	}
	if f.rejecting.Load() {
		r.Context = rejectedContext{r.Context}
		return rejected
	}
	if p < 0 || int(p) >= n {
		p = int32(t.byKey.Partition(r, n))
		if t.counts.Shut(t.topic, p) { // the topic got more partitions since the last comparison
			t.counts.Saw(t.topic, n) // the relay compares with this number before it sends again
			f.rejecting.Store(true)
			r.Context = rejectedContext{r.Context}
			return rejected
		}
	}
	if begins {
		t.batches[p]++
	}
	f.batch.Store(t.batches[p])
	f.partition.Store(p)
	return int(p)
}

// rejectedContext marks a record that the partitioner rejected.
type rejectedContext struct{ context.Context }

// Rejected reports whether the partitioner rejected the record: it was not sent.
func Rejected(r *kgo.Record) bool {
	_, ok := r.Context.(rejectedContext)
	return ok
}
