package readback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

// Partitions that cannot be read back at the start are gated: nothing is published to
// them until they are readable and the relay restarts within its process. Their events
// wait in the log, unsettled, so the checkpoints stay before them and the next
// start reads back far enough, also after a kill. They do not become dead letters, and
// no dead letters are replayed while a partition is gated: a settled dead letter lets
// the checkpoints pass an event that may be in its topic.

// Together is the minimum duration of a pass with gates before it ends for some of its
// partitions while others are still unreadable.
const Together = 30 * time.Second

// ErrReadable ends a pass: partitions that its start could not read are readable now.
var ErrReadable = errors.New("partitions that could not be read back can be read")

// unreadPartitions are the partitions that the start could not read.
type unreadPartitions struct {
	Parts []publish.Partition
	Since time.Time // when they were given up
	from  time.Time // the time from which to read them
}

// Names returns the names of the first ten partitions.
func (u *unreadPartitions) Names() string {
	const most = 10
	var names []string
	for _, key := range u.Parts[:min(len(u.Parts), most)] {
		name := key.Topic // its partitions are not known
		if key.Part >= 0 {
			name = fmt.Sprintf("%s/%d", key.Topic, key.Part)
		}
		names = append(names, name)
	}
	if len(u.Parts) > most {
		names = append(names, "...")
	}
	return strings.Join(names, " ")
}

// gate gates the partitions that were not read. It is called before anything is
// published.
func (r *Reader) gate(t *Topics, from time.Time) {
	u := unreadPartitions{Since: time.Now(), from: from}
	t.each(func(p *Partition) {
		if errors.Is(p.err, errUnread) {
			u.Parts = append(u.Parts, publish.Partition{Topic: p.topic, Part: p.partition})
		}
	})
	slices.SortFunc(u.Parts, func(a, b publish.Partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Part, b.Part))
	})
	for _, key := range u.Parts {
		r.publisher.Gate(key, len(t.Parts[key.Topic]))
	}
	if len(u.Parts) > 0 {
		r.publisher.Limit(r.Most() - r.found.Size() - r.cfg.MaxInFlightRecords)
	}
	r.mu.Lock()
	r.unread = u
	r.mu.Unlock()
	r.await(nil)
}

// UnreadPartitions returns the partitions that the start could not read.
func (r *Reader) UnreadPartitions() unreadPartitions {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unread
}

// Readable reads the partitions and returns the number that can be read to their ends: a
// leader may respond to no fetch of a partition. Deleted and denied ones count: the next
// start handles them.
func (r *Reader) Readable(ctx context.Context, unread *unreadPartitions) (n int, err error) {
	t := r.NewTopics()
	t.Take = func([]Event) {}
	topics := make(map[string]struct{})
	awaited := make(map[publish.Partition]struct{})
	for _, key := range unread.Parts {
		topics[key.Topic] = struct{}{}
		awaited[key] = struct{}{}
	}
	if err := t.Locate(ctx, slices.Sorted(maps.Keys(topics)), unread.from); err != nil {
		return 0, err
	}
	for topic, parts := range t.Parts {
		if _, all := awaited[publish.Partition{Topic: topic, Part: -1}]; !all {
			maps.DeleteFunc(parts, func(part int32, _ *Partition) bool {
				_, ok := awaited[publish.Partition{Topic: topic, Part: part}]
				return !ok && part >= 0
			})
		}
	}
	if err := t.FindEnds(ctx); err != nil {
		return 0, err
	}
	err = t.Read(ctx)
	for _, key := range unread.Parts {
		parts := t.Parts[key.Topic]
		p, seen := parts[key.Part]
		switch {
		case seen:
			if p.done() {
				n++
			}
		case len(parts) == 0: // the topic is gone
			n++
		case key.Part < 0: // of all partitions of the topic one is enough
			if slices.ContainsFunc(slices.Collect(maps.Values(parts)), (*Partition).done) {
				n++
			}
		case parts[-1] == nil:
			n++
		}
	}
	if n > 0 {
		err = nil
	}
	return n, err
}
