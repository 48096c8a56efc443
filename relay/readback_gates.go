package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/thejerf/suture/v4"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

// Partitions that cannot be read back at the start are gated: nothing is published to
// them until the relay starts anew within its process, once they can be read. Their
// events wait in their lanes, unsettled, so the checkpoints stay before them, and the
// next start reads back far enough, whether it is that one or follows a kill. No dead
// letters are made of them, and none are replayed while there is a gate: a settled dead
// letter lets the checkpoints pass an event that may be in its topic.

// readBackTogether is how long a pass with gates runs at least before it ends for some of
// its partitions while others are still unreadable.
const readBackTogether = 30 * time.Second

// errReadable ends a pass: partitions that its start could not read can be read now.
var errReadable = errors.New("partitions that could not be read back can be read")

// unreadPartitions are the partitions that the start could not read.
type unreadPartitions struct {
	parts []publish.Partition
	since time.Time // when they were given up
	from  time.Time // from where they are to be read
}

// names are the first of the partitions.
func (u *unreadPartitions) names() string {
	const most = 10
	var names []string
	for _, key := range u.parts[:min(len(u.parts), most)] {
		name := key.Topic // its partitions are not known
		if key.Part >= 0 {
			name = fmt.Sprintf("%s/%d", key.Topic, key.Part)
		}
		names = append(names, name)
	}
	if len(u.parts) > most {
		names = append(names, "...")
	}
	return strings.Join(names, " ")
}

// gate closes the partitions that were not read. It is called before anything is
// published.
func (r *readback) gate(t *backTopics, from time.Time) {
	u := unreadPartitions{since: time.Now(), from: from}
	t.each(func(p *backPartition) {
		if errors.Is(p.err, errUnread) {
			u.parts = append(u.parts, publish.Partition{Topic: p.topic, Part: p.partition})
		}
	})
	slices.SortFunc(u.parts, func(a, b publish.Partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Part, b.Part))
	})
	for _, key := range u.parts {
		r.publisher.Gate(key, len(t.parts[key.Topic]))
	}
	if len(u.parts) > 0 {
		r.publisher.Limit(r.most() - r.found.Size() - r.cfg.MaxInFlightRecords)
	}
	r.mu.Lock()
	r.unread = u
	r.mu.Unlock()
	r.await(nil)
}

// awaited returns the partitions that the start could not read.
func (r *readback) awaited() unreadPartitions {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unread
}

// awaitUnread ends the pass once partitions that its start could not read can be read.
func (x *pass) awaitUnread(ctx context.Context) error {
	unread := x.back.awaited()
	for attempt := 1; ; attempt++ {
		if err := retry.Wait(ctx, x.cfg.askAgain(attempt)); err != nil {
			return err
		}
		n, err := x.back.readable(ctx, &unread)
		if err != nil {
			x.log.Debug("partitions still cannot be read back", "partitions", unread.names(), "err", err)
			continue
		}
		if n == len(unread.parts) || n > 0 && time.Since(unread.since) >= readBackTogether {
			x.log.Info("partitions can be read back", "partitions", n, "of", len(unread.parts), "after", time.Since(unread.since))
			x.fail(errReadable)
			return suture.ErrDoNotRestart
		}
	}
}

// readable returns how many of the partitions can be read to their ends, by reading them:
// a partition may have a leader that answers no fetch of it. One that is gone or denied
// counts: the next start decides about it as about any other.
func (r *readback) readable(ctx context.Context, unread *unreadPartitions) (n int, err error) {
	t := r.newTopics()
	t.take = func([]topicEvent) {}
	t.refuse = func(string, error) {}
	topics := make(map[string]struct{})
	awaited := make(map[publish.Partition]struct{})
	for _, key := range unread.parts {
		topics[key.Topic] = struct{}{}
		awaited[key] = struct{}{}
	}
	if err := t.locate(ctx, slices.Sorted(maps.Keys(topics)), unread.from); err != nil {
		return 0, err
	}
	for topic, parts := range t.parts {
		if _, all := awaited[publish.Partition{Topic: topic, Part: -1}]; !all {
			maps.DeleteFunc(parts, func(part int32, _ *backPartition) bool {
				_, ok := awaited[publish.Partition{Topic: topic, Part: part}]
				return !ok && part >= 0
			})
		}
	}
	if err := t.findEnds(ctx); err != nil {
		return 0, err
	}
	err = t.read(ctx)
	for _, key := range unread.parts {
		parts := t.parts[key.Topic]
		p, seen := parts[key.Part]
		switch {
		case seen:
			if p.done() {
				n++
			}
		case len(parts) == 0: // the topic is gone
			n++
		case key.Part < 0: // of all partitions of the topic one is enough
			if slices.ContainsFunc(slices.Collect(maps.Values(parts)), (*backPartition).done) {
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
