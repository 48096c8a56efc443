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

// Filter selects messages.
type Filter struct {
	// Until bounds when they are due: earlier than that.
	Until time.Time
	// Topic and Key are the ones of the message, Client is its submitter; empty
	// matches all.
	Topic, Key, Client string
	// CreatedSince and CreatedUntil bound the submission: at this time or later, and
	// before it. Zero is no bound.
	CreatedSince, CreatedUntil time.Time
}

// bySlot reports whether slots contain every field of the filter.
func (f *Filter) bySlot() bool {
	return f.Key == "" && f.Client == "" && f.CreatedSince.IsZero() && f.CreatedUntil.IsZero()
}

// wants reports whether the filter matches a message that is due in time.
func (f *Filter) wants(m *Message) bool {
	return (f.Topic == "" || m.Topic == f.Topic) && (f.Key == "" || m.Key == f.Key) && (f.Client == "" || m.Client == f.Client) &&
		(f.CreatedSince.IsZero() || !m.CreatedAt.Before(f.CreatedSince)) && (f.CreatedUntil.IsZero() || m.CreatedAt.Before(f.CreatedUntil))
}

// List returns waiting messages by due time: those after a position that match
// the filter, at most limit, without payload and headers. more reports that
// others may follow after next.
//
// It does not read a snapshot: messages that are added or delivered
// concurrently may be missing or included. A page can be short or empty even if
// more follow.
func (s *Store) List(ctx context.Context, after Position, f Filter, limit int) (page []Message, next Position, more bool, err error) {
	limit = min(max(limit, 1), MaxPage)
	until, most := f.Until.Add(-time.Millisecond), maxLooked
	if !f.bySlot() {
		most = maxRead
	}
	for looked, minutes := 0, 0; !after.DeliverAt.After(until); minutes++ {
		if minutes == maxMinutes {
			return page, after, true, nil
		}
		buckets, err := s.buckets(ctx, after.DeliverAt, until, 1)
		if err != nil || len(buckets) == 0 {
			return page, Position{}, false, err
		}
		bucket := buckets[0]
		if after.DeliverAt.Before(bucket) {
			after = Position{DeliverAt: bucket}
		}
		slots, follow, err := s.readSlots(ctx, bucket, after, earlier(until, bucket.Add(bucketSize-time.Millisecond)), limit)
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
			if after = x.position(); f.Topic == "" || x.topic == f.Topic {
				wanted = append(wanted, x)
			}
		}
		messages, err := s.waiting(ctx, wanted, &f)
		if err != nil {
			return nil, Position{}, false, err
		}
		page = append(page, messages...)
		if looked += len(slots); full || looked >= most || len(page) == limit && follow {
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

// Bounds of the scan of one page, for a rare topic and for fields that slots do
// not contain, which require reading each message. Minutes are read
// sequentially.
const (
	maxLooked  = 20_000
	maxRead    = 2_000
	maxMinutes = 300
)

// waiting returns the messages of the slots that are still waiting and match
// the filter, in order. A slot at another time than its message is of an attempt of
// Hasten or of a late retry: the message has another slot at its time.
func (s *Store) waiting(ctx context.Context, slots []slot, f *Filter) ([]Message, error) {
	read := make([]*Message, len(slots))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(32)
	for i, x := range slots {
		g.Go(func() error {
			m, err := s.readHead(ctx, x.id)
			if errors.Is(err, ErrNotFound) {
				return nil
			}
			if err != nil || m.State == Cancelled || !f.wants(&m) {
				return err
			}
			if m.State = Waiting; x.changed || !x.at.Equal(m.DeliverAt) {
				if err := s.readState(ctx, &m, s.cons); err != nil {
					if errors.Is(err, ErrNotFound) {
						return nil
					}
					return err
				}
			}
			if m.State == Waiting && x.at.Equal(m.DeliverAt) {
				read[i] = &m
			}
			return nil
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
