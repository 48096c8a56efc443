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

// MinRate is the minimum rate of changes per second: one message takes a whole
// call.
const MinRate = 0.1

const (
	// maxCounted is the most that one Count counts.
	maxCounted = 20_000
	// manyPage is the page size, and manyPages the maximum number of pages of a
	// call: a selective filter needs several calls.
	manyPage  = 200
	manyPages = 200
	// manyPlaces is the number of concurrent changes.
	manyPlaces = 32
	// manySpan is the approximate duration of a call with a rate.
	manySpan = 10 * time.Second
	// maxTallied bounds the topics and clients with a count of their own.
	maxTallied = 50
)

// Many selects waiting messages.
type Many struct {
	schedule.Filter
	// After is the start: a due time, or the end of the previous call.
	After schedule.Position
	// Due includes messages that are due but not in the outbox yet; they are
	// published without a request.
	Due bool
}

// Tally is a summary of messages.
type Tally struct {
	Messages int `json:"messages" doc:"How many there are"`
	// ByTopic and ByClient have the first 50 names; the others are counted under
	// "".
	ByTopic  map[string]int `json:"by_topic" nullable:"false" doc:"Counts of the first 50 topics; the others together under the empty name"`
	ByClient map[string]int `json:"by_client" nullable:"false" doc:"Counts of the first 50 clients; the others together under the empty name"`
	// First and Last are the first and the last due time.
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

// Merge adds the tally of another call.
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

// Changed is the result of a bulk change.
type Changed struct {
	// Changed were made due or cancelled; Gone were published or cancelled by
	// others before.
	Changed int `json:"changed" doc:"Number of changed messages"`
	Gone    int `json:"gone" doc:"Number of messages that were waiting when listed but not when processed: they became due, or another change was first"`
}

// Rest is the end of a call.
type Rest struct {
	// More is true if messages may follow after Next.
	More bool
	Next schedule.Position
}

// Count counts matching messages, up to 20,000 per call, and changes nothing.
// Its memory does not depend on their number. Errors are *OverloadedError or
// *UnavailableError.
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

// DeliverManyNow makes matching messages due, up to limit, which is at most
// MaxMany, as DeliverNow does. perSecond bounds the rate and is at least MinRate;
// a call then ends after about ten seconds. Zero is unlimited. The tally
// contains the processed messages, also before an error; Rest is then a
// position that skips none.
//
// A repeated call is harmless: these messages are due and no longer match.
// Errors are *OverloadedError, *UnavailableError or that of ctx. A call ends
// with ctx, or earlier if ctx ends before the next message.
func (s *Service) DeliverManyNow(ctx context.Context, many Many, limit int, perSecond float64) (Tally, Changed, Rest, error) {
	many.Due = false
	return s.changeMany(ctx, many, limit, perSecond, func(ctx context.Context, id gocql.UUID) error {
		_, err := s.deliverNow(ctx, id)
		return err
	})
}

// CancelMany is DeliverManyNow for taking back, as Cancel does each.
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
			if pace.Wait(going) != nil { // one has failed, the client has disconnected, or ctx ends before the next message
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

// each calls f with matching messages, in order, in pages, up to limit.
func (s *Service) each(ctx context.Context, many Many, limit int, f func([]schedule.Message) error) (Rest, error) {
	now := s.cfg.Clock.Now()
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
			if many.Due || page[i].DeliverAt.After(now) { // otherwise it was made due and its slot is unchanged
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
