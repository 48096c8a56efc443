package react

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// begins returns the start of partitions without a committed offset: the first
// record since the rule began.
//
// The client alone would list that offset and, if there is none, the end
// afterwards. A record written in between, such as the first of a new topic,
// would be skipped. Therefore the end is listed first.
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
			return nil, fmt.Errorf("list the end offsets: %w", err)
		}
		first, err := adm.ListOffsetsAfterMilli(ctx, since.UnixMilli(), topics...)
		if err != nil {
			return nil, fmt.Errorf("list the start offsets: %w", err)
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
