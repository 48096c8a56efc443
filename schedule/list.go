package schedule

import (
	"context"
	"errors"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"
)

// MaxPage is the most that one page of a list may have.
const MaxPage = 1000

// Position is a place in a list: after the message with that time and id, or
// before all of that time if ID is zero.
type Position struct {
	DeliverAt time.Time
	ID        gocql.UUID
}

// List returns messages that wait, the next to be delivered first: those after
// a position and before until, for the topic if there is one, at most limit.
// more says that others may follow; next is then where to go on.
//
// It reads the tables as they are: what is added or delivered meanwhile may be
// missing or there, and a page may be short, even empty, though more follow.
func (s *Store) List(ctx context.Context, after Position, until time.Time, topic string, limit int) (page []Message, next Position, more bool, err error) {
	limit = min(max(limit, 1), MaxPage)
	until = until.Add(-time.Millisecond)
	for looked := 0; !after.DeliverAt.After(until); {
		buckets, err := s.buckets(ctx, after.DeliverAt, until, 1)
		if err != nil || len(buckets) == 0 {
			return page, Position{}, false, err
		}
		bucket := buckets[0]
		if after.DeliverAt.Before(bucket) {
			after = Position{DeliverAt: bucket}
		}
		slots, follow, err := s.slotsOf(ctx, bucket, after, earlier(until, bucket.Add(bucketSize-time.Millisecond)), limit)
		if err != nil {
			return nil, Position{}, false, err
		}
		var wanted []slot
		full := false
		for _, x := range slots {
			if len(page)+len(wanted) == limit {
				full = true
				break
			}
			if after = x.position(); topic == "" || x.topic == topic {
				wanted = append(wanted, x)
			}
		}
		messages, err := s.waiting(ctx, wanted)
		if err != nil {
			return nil, Position{}, false, err
		}
		page = append(page, messages...)
		if looked += len(slots); full || looked >= maxLooked || len(page) == limit && follow {
			return page, after, true, nil
		}
		if !follow {
			after = Position{DeliverAt: bucket.Add(bucketSize)}
		}
		if len(page) == limit {
			return page, after, true, nil
		}
	}
	return page, Position{}, false, nil
}

// maxLooked bounds what one page looks through for a topic that is rare.
const maxLooked = 20_000

// waiting reads those of the slots' messages that still wait, in order.
func (s *Store) waiting(ctx context.Context, slots []slot) ([]Message, error) {
	read := make([]*Message, len(slots))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(32)
	for i, x := range slots {
		g.Go(func() error {
			m, err := s.Read(ctx, x.id)
			if errors.Is(err, ErrNotFound) {
				return nil
			}
			if err == nil && m.State == Waiting {
				read[i] = &m
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := make([]Message, 0, len(read))
	for _, m := range read {
		if m != nil {
			out = append(out, *m)
		}
	}
	return out, nil
}
