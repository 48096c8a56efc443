package react

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// begins finds where partitions without a committed offset begin: at the first
// record since the rule did.
//
// The client alone would ask for that, and where there is none, ask for the end
// afterwards; a record that comes in between, as the first of a new topic does, is
// before that end and would be passed over. Here the end is asked for first.
func (r *runner) begins(since time.Time) func(context.Context, map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	unknown := kgo.NewOffset().AfterMilli(since.UnixMilli())
	return func(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
		var topics []string
		for topic, ps := range offsets {
			for _, o := range ps {
				if o == unknown {
					topics = append(topics, topic)
					break
				}
			}
		}
		if len(topics) == 0 {
			return offsets, nil
		}
		r.mu.Lock()
		adm := r.adm
		r.mu.Unlock()
		ends, err := adm.ListEndOffsets(ctx, topics...)
		if err != nil {
			return nil, fmt.Errorf("ask where topics end: %w", err)
		}
		first, err := adm.ListOffsetsAfterMilli(ctx, since.UnixMilli(), topics...)
		if err != nil {
			return nil, fmt.Errorf("ask where topics begin: %w", err)
		}
		for _, topic := range topics {
			for partition, o := range offsets[topic] {
				end, ok := ends.Lookup(topic, partition)
				from, ok2 := first.Lookup(topic, partition)
				if o == unknown && ok && ok2 && end.Err == nil && from.Err == nil {
					offsets[topic][partition] = kgo.NewOffset().At(min(end.Offset, from.Offset))
				}
			}
		}
		return offsets, nil
	}
}
