package verify

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/topicreader"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// origin identifies the records of a table's events: an id is unique for its source and table
// only. An empty field matches every record.
type origin struct {
	source string // ce_source
	table  string // ce_table: the name with its keyspace; a record of an earlier version has none
}

// event returns the event of a record and its epoch; ok is false if it is none, or has another
// origin. An edited event has the id of its original, as which it counts.
func (o origin) event(r *kgo.Record) (e outbox.Event, epoch int64, ok bool) {
	if o.table != "" {
		for _, h := range r.Headers {
			if h.Key == outbox.HeaderTable && string(h.Value) != o.table {
				return e, 0, false
			}
		}
	}
	record, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
	if err != nil || o.source != "" && record.Source != o.source {
		return e, 0, false
	}
	if !record.OriginalID.IsZero() {
		record.ID = record.OriginalID
	}
	return record.Event, record.Epoch, true
}

// clockBehind returns before, or by how much the clock that dated the record of an event is further
// behind that of its writer, at most maxBehind.
func clockBehind(before time.Duration, e *outbox.Event, r *kgo.Record) time.Duration {
	if e.CreatedAt.IsZero() || r.Timestamp.UnixMilli() <= 0 {
		return before
	}
	return min(max(before, e.CreatedAt.Sub(r.Timestamp)), maxBehind)
}

// Batch contains the events of consecutive records of a partition.
type Batch struct {
	Topic     string
	Partition int32
	// Next is the offset after the last record.
	Next    int64
	Records []Record
	// Foreign is the number of records that are not events of the table.
	Foreign int64
}

// batch returns the events of records that were read now. Without aggregates, all are events of the
// table.
func (o origin) batch(read *topicreader.Batch, aggregates map[outbox.ID]bool, now time.Time) Batch {
	b := Batch{Topic: read.Topic, Partition: read.Partition, Next: read.Next, Records: make([]Record, 0, len(read.Records))}
	for _, r := range read.Records {
		e, epoch, ok := o.event(r)
		if !ok || aggregates != nil && !aggregates[e.AggregateID] {
			b.Foreign++
			continue
		}
		created := int64(0)
		if r.Timestamp.Sub(e.CreatedAt) > clockSkew {
			created = max(1, e.CreatedAt.UnixMicro())
		}
		b.Records = append(b.Records, Record{
			Event: e.ID, Aggregate: e.AggregateID, Seq: e.Sequence, Topic: r.Topic, Partition: r.Partition,
			Offset: r.Offset, At: r.Timestamp.UnixMicro(), Appended: r.Attrs.TimestampType() == 1, Seen: now.UnixMicro(), Created: created, Epoch: epoch,
		})
	}
	return b
}
