package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

const (
	// A real node serves this pattern fastest: for each page it reads up to a page of
	// every stream of the query.
	rawStreams = 4    // read by one query
	rawPage    = 5000 // rows in one response
	rawQueries = 8    // concurrently
)

// Rate is a number of operations and the time that they took.
type Rate struct {
	Count     int64   `json:"count"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
}

// NewRate returns the rate of n in d.
func NewRate(n int64, d time.Duration) Rate {
	return Rate{n, d.Seconds(), float64(n) / max(d.Seconds(), 1e-9)}
}

// RawRead reads all rows of a table's log and discards them: the upper limit of every
// reader. It reads 4 streams by a query and 8 queries at a time. The streams must be all
// that were written to, also the streams of a generation that a split or a merge ended.
func RawRead(ctx context.Context, session *gocql.Session, keyspace, table string, streams [][]byte) (Rate, error) {
	stmt := "SELECT \"cdc$stream_id\", \"cdc$time\", \"cdc$batch_seq_no\", \"cdc$operation\", " + rows.Columns(outbox.DefaultTable) +
		" FROM " + keyspace + "." + table + "_scylla_cdc_log WHERE \"cdc$stream_id\" IN ? AND \"cdc$time\" > ? BYPASS CACHE"
	var n atomic.Int64
	began := time.Now()
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(rawQueries)
	for len(streams) > 0 {
		group := streams[:min(rawStreams, len(streams))]
		streams = streams[len(group):]
		work.Go(func() error {
			iter := session.Query(stmt, group, gocql.MinTimeUUID(time.Unix(0, 0))).WithContext(ctx).
				Consistency(gocql.LocalQuorum).Idempotent(true).PageSize(rawPage).Iter()
			columns := make([]any, len(iter.Columns()))
			for i := range columns {
				columns[i] = discard{}
			}
			for iter.Scan(columns...) {
				n.Add(1)
			}
			if err := iter.Close(); err != nil {
				return fmt.Errorf("read the log of %s.%s: %w", keyspace, table, err)
			}
			return nil
		})
	}
	err := work.Wait()
	return NewRate(n.Load(), time.Since(began)), err
}

// discard is a destination for columns of any type.
type discard struct{}

// UnmarshalCQL discards the value.
func (discard) UnmarshalCQL(gocql.TypeInfo, []byte) error { return nil }

// RawProduce produces the records of n events and nothing else.
func RawProduce(ctx context.Context, client *kgo.Client, e *Events, topic string, n int64) (Rate, error) {
	var failed atomic.Pointer[error]
	began := time.Now()
	for i := range n {
		ev := e.At(i)
		client.Produce(ctx, NewRecord(&ev, topic), func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return Rate{}, fmt.Errorf("produce: %w", err)
	}
	if err := failed.Load(); err != nil {
		return Rate{}, fmt.Errorf("produce: %w", *err)
	}
	return NewRate(n, time.Since(began)), nil
}

// NewRecord returns the record that the relay makes of an event.
func NewRecord(e *outbox.Event, topic string) *kgo.Record {
	return &kgo.Record{
		Topic: topic, Key: e.Key(), Value: e.Payload,
		Headers: outbox.AppendHeaders[kgo.RecordHeader](make([]kgo.RecordHeader, 0, 10), e, "scylla-outbox"),
	}
}
