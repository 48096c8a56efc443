// Package whereis finds the record of an event in its topic.
package whereis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/topicreader"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

const (
	// margin is the largest expected difference between the clocks of the writers and
	// of the relay.
	margin = 10 * time.Second
	// limit is the time limit of one search.
	limit = 3 * time.Second
	// parallel limits the concurrent searches; one principal can have half of them.
	// Each search is a client of its own.
	parallel = 8
)

// ErrUnfinished means that a search ended before it had read all records.
var ErrUnfinished = errors.New("too many records to search")

// Finder searches for records. It is safe for concurrent use, and holds no connection
// between searches.
type Finder struct {
	opts []kgo.Opt
	busy *access.Places
}

// New returns a Finder whose clients have the options.
func New(opts ...kgo.Opt) *Finder {
	return &Finder{opts: opts, busy: access.NewPlaces(parallel)}
}

// Find searches for an event's record in the partition that the relay chooses for its
// key, among the records since since. It returns nil if the record did not exist when the
// search began. If the topic's number of partitions has grown since, the record may
// be in another one. After an error the result is unknown.
func (f *Finder) Find(ctx context.Context, topic string, key []byte, event gocql.UUID, since time.Time) (*kgo.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	give, err := f.busy.Wait(ctx, access.Holder(ctx, ""))
	if err != nil {
		return nil, fmt.Errorf("search for event %s in %s: %w", event, topic, ErrUnfinished)
	}
	defer give()
	r, err := f.find(ctx, topic, key, event.String(), since)
	if err != nil {
		return nil, fmt.Errorf("search for event %s in %s: %w", event, topic, err)
	}
	return r, nil
}

func (f *Finder) find(ctx context.Context, topic string, key []byte, event string, since time.Time) (*kgo.Record, error) {
	client, err := kgo.NewClient(f.opts...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	spans, err := topicreader.List(ctx, client, since.Add(-margin), topic)
	if err != nil || len(spans[topic]) == 0 {
		return nil, err
	}
	partition := int32(kgo.StickyKeyPartitioner(nil).ForTopic(topic).Partition(&kgo.Record{Key: key}, len(spans[topic])))
	own := topicreader.Spans{topic: {partition: spans[topic][partition]}}
	for b, err := range (&topicreader.Reader{Client: client}).Read(ctx, own) {
		if ctx.Err() != nil {
			return nil, ErrUnfinished
		}
		if err != nil {
			return nil, err
		}
		for _, r := range b.Records {
			if isEvent(r, event) {
				return r, nil
			}
		}
	}
	return nil, nil //nolint:nilnil // there is none, which is no error
}

func isEvent(r *kgo.Record, event string) bool {
	for i := range r.Headers {
		if r.Headers[i].Key == outbox.HeaderID {
			return string(r.Headers[i].Value) == event
		}
	}
	return false
}
