package messages

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/schedule"
)

// MaxMany is the most that one call changes.
const MaxMany = 1000

// MinRate is the lowest rate of changes, in a second: one message takes a whole call.
const MinRate = 0.1

const (
	// maxCounted is the most that one Count counts.
	maxCounted = 20_000
	// manyPage is how many are read at a time, and manyPages how often: what a filter
	// seldom lets through is looked for in several calls.
	manyPage  = 200
	manyPages = 200
	// manyPlaces is how many are changed side by side.
	manyPlaces = 32
	// manySpan is how long a call with a rate takes about.
	manySpan = 10 * time.Second
	// maxTallied is how many topics and clients are counted one by one.
	maxTallied = 50
)

// Many says which of the messages that wait are meant.
type Many struct {
	schedule.Filter
	// After is where to begin: before the messages of a time, or where the call
	// before has ended.
	After schedule.Position
	// Due means those too whose time has come and that are not on their way yet; they
	// go out by themselves.
	Due bool
}

// Tally is what is known of messages together.
type Tally struct {
	Messages int `json:"messages" doc:"How many there are"`
	// ByTopic and ByClient name the first 50 that are met, and count the rest as "".
	ByTopic  map[string]int `json:"by_topic" nullable:"false" doc:"The first 50 that are met; the others together under the empty name"`
	ByClient map[string]int `json:"by_client" nullable:"false" doc:"Who handed them in; the first 50 that are met, the others together under the empty name"`
	// First and Last are when the first and the last of them are due.
	First *time.Time `json:"first_due,omitempty"`
	Last  *time.Time `json:"last_due,omitempty"`
}

// NewTally is one of no messages.
func NewTally() Tally {
	return Tally{ByTopic: map[string]int{}, ByClient: map[string]int{}}
}

func (t *Tally) add(m *schedule.Message) {
	t.Messages++
	countN(t.ByTopic, m.Topic, 1)
	countN(t.ByClient, m.Client, 1)
	at := m.DeliverAt.UTC()
	if t.First == nil || at.Before(*t.First) {
		t.First = &at
	}
	if t.Last == nil || at.After(*t.Last) {
		t.Last = &at
	}
}

// Merge adds those of another call.
func (t *Tally) Merge(o *Tally) {
	t.Messages += o.Messages
	for name, n := range o.ByTopic {
		countN(t.ByTopic, name, n)
	}
	for name, n := range o.ByClient {
		countN(t.ByClient, name, n)
	}
	if o.First != nil && (t.First == nil || o.First.Before(*t.First)) {
		t.First = o.First
	}
	if o.Last != nil && (t.Last == nil || o.Last.After(*t.Last)) {
		t.Last = o.Last
	}
}

func countN(names map[string]int, name string, n int) {
	if _, ok := names[name]; !ok && len(names) >= maxTallied {
		name = ""
	}
	names[name] += n
}

// Changed is what became of many messages.
type Changed struct {
	// Changed were released or taken back, and Gone had gone out or been taken back
	// by others before.
	Changed int `json:"changed" doc:"How many were changed"`
	Gone    int `json:"gone" doc:"How many waited when they were looked for and did not when it was their turn: their time had come, or somebody else was first"`
}

// Rest is where a call has ended.
type Rest struct {
	// More says that others may follow, after Next.
	More bool
	Next schedule.Position
}

// Count counts those that are meant, up to 20,000 at once, and changes nothing.
// It keeps no message, so what it takes does not depend on how many there are.
// Errors are *OverloadedError or *UnavailableError.
func (s *Service) Count(ctx context.Context, many Many) (Tally, Rest, error) {
	t := NewTally()
	_, leave, err := s.guard.Enter(ctx, manyPlaces)
	if err != nil {
		return t, Rest{}, err
	}
	defer leave()
	rest, err := s.each(ctx, many, maxCounted, func(page []schedule.Message) error {
		for i := range page {
			t.add(&page[i])
		}
		return nil
	})
	return t, rest, err
}

// ReleaseMany releases those that are meant, up to limit, which is at most MaxMany,
// as Release does each; perSecond, MinRate or more, bounds how many in a second, and then
// a call ends after some ten seconds; zero does not. The tally has those that it came to, also
// before an error; then Rest is a place from which nothing is left out.
//
// Calling it again is harmless: what was released is due, and not meant any more.
// Errors are *OverloadedError or *UnavailableError, or that of ctx, with which it ends,
// or before, if ctx does before the next one's turn.
func (s *Service) ReleaseMany(ctx context.Context, many Many, limit int, perSecond float64) (Tally, Changed, Rest, error) {
	many.Due = false
	return s.changeMany(ctx, many, limit, perSecond, func(ctx context.Context, id gocql.UUID) error {
		_, err := s.release(ctx, id)
		return err
	})
}

// CancelMany is ReleaseMany for taking back, as Cancel does each.
func (s *Service) CancelMany(ctx context.Context, many Many, limit int, perSecond float64) (Tally, Changed, Rest, error) {
	return s.changeMany(ctx, many, limit, perSecond, s.cancel)
}

func (s *Service) changeMany(
	ctx context.Context, many Many, limit int, perSecond float64, one func(context.Context, gocql.UUID) error,
) (t Tally, done Changed, rest Rest, err error) {
	t = NewTally()
	limit = min(max(limit, 1), MaxMany)
	pace := rate.NewLimiter(rate.Inf, 1)
	if perSecond > 0 {
		pace = rate.NewLimiter(rate.Limit(max(perSecond, MinRate)), 1)
		pace.Allow() // the first waits too, or calls with few messages each would exceed the rate
		limit = min(limit, max(1, int(perSecond*manySpan.Seconds())))
	}
	places, leave, err := s.guard.Enter(ctx, manyPlaces)
	if err != nil {
		return t, done, rest, err
	}
	defer leave()
	rest, err = s.each(ctx, many, limit, func(page []schedule.Message) error {
		var mu sync.Mutex
		late := false
		g, going := errgroup.WithContext(ctx)
		g.SetLimit(places)
		for i := range page {
			if pace.Wait(going) != nil { // one has failed, the caller has gone, or will before its turn comes
				late = true
				break
			}
			g.Go(func() error {
				err := one(going, page[i].ID)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					done.Changed++
				case errors.Is(err, ErrNotFound), errors.Is(err, ErrTooLate), errors.As(err, new(*NotWaitingError)):
					done.Gone++
				default:
					return err
				}
				t.add(&page[i])
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		if late && ctx.Err() == nil {
			return context.DeadlineExceeded
		}
		return ctx.Err()
	})
	return t, done, rest, err
}

// each calls f with those that are meant, in order, some at a time, up to limit.
func (s *Service) each(ctx context.Context, many Many, limit int, f func([]schedule.Message) error) (Rest, error) {
	now := s.cfg.Now()
	if !many.Due && many.After.DeliverAt.Before(now) {
		many.After = schedule.Position{DeliverAt: now}
	}
	rest := Rest{Next: many.After}
	for n, pages := 0, 0; ; {
		var page []schedule.Message
		next, more := schedule.Position{}, false
		err := s.try(ctx, func(ctx context.Context) (err error) {
			page, next, more, err = s.schedule.List(ctx, rest.Next, many.Filter, min(limit-n, manyPage))
			return err
		})
		if err != nil {
			return rest, s.unavailable(ctx, gocql.UUID{}, false, err)
		}
		meant := page[:0]
		for i := range page {
			if many.Due || page[i].DeliverAt.After(now) { // else it was released, and its slot is where it was
				meant = append(meant, page[i])
			}
		}
		if err := f(meant); err != nil {
			return rest, err
		}
		rest = Rest{More: more, Next: next}
		if n, pages = n+len(meant), pages+1; !more || n >= limit || pages == manyPages {
			return rest, nil
		}
	}
}
