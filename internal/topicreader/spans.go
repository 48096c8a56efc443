package topicreader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Span is a part of a partition: its records from From, before End.
type Span struct{ From, End int64 }

// Spans are parts of partitions, by topic.
type Spans map[string]map[int32]Span

// Add adds a span.
func (s Spans) Add(topic string, partition int32, span Span) {
	if s[topic] == nil {
		s[topic] = make(map[int32]Span)
	}
	s[topic][partition] = span
}

// Size returns the number of offsets.
func (s Spans) Size() (n int64) {
	for _, partitions := range s {
		for _, span := range partitions {
			n += span.End - span.From
		}
	}
	return n
}

// Newest returns the newest offsets of the spans, about limit, from each in proportion.
func (s Spans) Newest(limit int64) Spans {
	size := s.Size()
	if size <= limit {
		return s
	}
	out := make(Spans, len(s))
	for topic, partitions := range s {
		for p, span := range partitions {
			out.Add(topic, p, Span{max(span.From, span.End-(span.End-span.From)*limit/size-1), span.End})
		}
	}
	return out
}

// List returns the spans of all partitions of topics: from the first record at or after a time, or
// from the start with the zero time, to the last stable offset. A span without records is empty.
// Topics that do not exist have none.
func List(ctx context.Context, client *kgo.Client, since time.Time, topics ...string) (Spans, error) {
	out := make(Spans)
	if len(topics) == 0 {
		return out, nil // none would mean all
	}
	adm := kadm.NewClient(client)
	ends, err := dropMissing(adm.ListCommittedOffsets(ctx, topics...))
	if err != nil {
		return nil, fmt.Errorf("list the ends of the topics: %w", err)
	}
	list := adm.ListStartOffsets
	if !since.IsZero() {
		list = func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
			return adm.ListOffsetsAfterMilli(ctx, max(since.UnixMilli(), 0), topics...) // a negative time has other meanings
		}
	}
	starts, err := dropMissing(list(ctx, topics...))
	if err != nil {
		return nil, fmt.Errorf("list the first offsets of the topics: %w", err)
	}
	for topic, partitions := range ends {
		for p, end := range partitions {
			start, ok := starts.Lookup(topic, p)
			if !ok {
				return nil, fmt.Errorf("the broker listed no first offset of %s/%d", topic, p)
			}
			if start.Offset < 0 {
				start.Offset = end.Offset
			}
			out.Add(topic, p, Span{min(start.Offset, end.Offset), end.Offset})
		}
	}
	return out, nil
}

// dropMissing returns offsets without the topics that do not exist.
func dropMissing(offsets kadm.ListedOffsets, err error) (kadm.ListedOffsets, error) {
	for topic, partitions := range offsets {
		for p, o := range partitions {
			switch {
			case p < 0 && errors.Is(o.Err, kerr.UnknownTopicOrPartition):
				delete(offsets, topic)
			case p < 0 && err == nil:
				err = fmt.Errorf("topic %q: %w", topic, o.Err)
			case o.Err != nil && err == nil:
				err = fmt.Errorf("%s/%d: %w", topic, p, o.Err)
			}
		}
	}
	return offsets, err
}
