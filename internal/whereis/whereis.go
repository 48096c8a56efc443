// Package whereis finds the record of an event in its topic.
package whereis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
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
	adm := kadm.NewClient(client)
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	if err != nil {
		return nil, err
	}
	partition := int32(kgo.StickyKeyPartitioner(nil).ForTopic(topic).Partition(&kgo.Record{Key: key}, len(ends[topic])))
	starts, err := adm.ListOffsetsAfterMilli(ctx, since.Add(-margin).UnixMilli(), topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, err
	}
	from, _ := starts.Lookup(topic, partition)
	end, ok := ends.Lookup(topic, partition)
	if !ok || from.Offset >= end.Offset || from.Offset < 0 {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(from.Offset)}})
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, ErrUnfinished
		}
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			if isEvent(r, event) {
				return r, nil
			}
			if r.Offset+1 >= end.Offset {
				return nil, nil //nolint:nilnil // there is none, which is no error
			}
		}
	}
}

func isEvent(r *kgo.Record, event string) bool {
	for i := range r.Headers {
		if r.Headers[i].Key == outbox.HeaderID {
			return string(r.Headers[i].Value) == event
		}
	}
	return false
}
