package later

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/messages"
)

// order is one message that a caller hands in, and the responses that it received. Its number is
// its payload.
type order struct {
	number    int
	deliverAt time.Time
	at        time.Time // when it is handed in
	// takeBack is when the caller tries to take it back; zero for never.
	takeBack time.Time
	// hasten is when an operator tries to release it; zero for never.
	hasten time.Time
	rnd    *rand.Rand

	mu        sync.Mutex
	accepted  bool
	takenBack bool
	// unsure: to take it back had an unknown outcome, and nothing else was heard.
	unsure bool
	// hastened is when the release was first asked for; zero if it never was.
	hastened time.Time
	ids      map[gocql.UUID]bool // that it received
	told     []string            // all responses that it received, to find the cause of a failure
}

// plan makes the orders of an episode that begins at from: for now, for soon,
// for the same moment as others, and for the episodes to come.
func plan(rnd *rand.Rand, first int, from time.Time, n int, later []time.Time) []*order {
	var out []*order
	crowd := from.Add(time.Duration(5+rnd.IntN(25)) * time.Second).Truncate(time.Second)
	for i := range n {
		o := &order{
			number: first + i, at: from.Add(time.Duration(rnd.Int64N(int64(busy)))), ids: map[gocql.UUID]bool{},
			rnd: rand.New(rand.NewPCG(rnd.Uint64(), 'o')),
		}
		switch k := rnd.IntN(10); {
		case k == 0:
			o.deliverAt = o.at.Add(-time.Duration(rnd.Int64N(int64(time.Hour))))
		case k == 1:
			o.deliverAt = o.at.Add(time.Duration(rnd.Int64N(int64(50 * time.Millisecond))))
		case k < 5:
			o.deliverAt = o.at.Add(time.Duration(rnd.ExpFloat64() * float64(8*time.Second)))
		case k < 7:
			o.deliverAt = crowd
		case len(later) > 0:
			o.deliverAt = later[rnd.IntN(len(later))].Add(time.Duration(rnd.Int64N(int64(busy))))
		default:
			o.deliverAt = o.at.Add(time.Duration(rnd.Int64N(int64(busy))))
		}
		switch rnd.IntN(4) {
		case 0: // whenever
			o.takeBack = o.at.Add(time.Duration(rnd.Int64N(int64(busy))))
		case 1: // when it is released
			o.takeBack = o.deliverAt.Add(time.Duration(rnd.NormFloat64() * float64(30*time.Millisecond)))
		}
		if !o.takeBack.IsZero() && o.takeBack.Before(o.at) {
			o.takeBack = o.at
		}
		switch rnd.IntN(4) {
		case 0: // whenever
			o.hasten = o.at.Add(time.Duration(rnd.Int64N(int64(busy))))
		case 1: // when it is released anyway
			o.hasten = o.deliverAt.Add(time.Duration(rnd.NormFloat64() * float64(30*time.Millisecond)))
		}
		out = append(out, o)
	}
	return out
}

// random is a source of numbers for one actor on the order. It is for the goroutine that made the
// order.
func (o *order) random() *rand.Rand { return rand.New(rand.NewPCG(o.rnd.Uint64(), 'a')) }

// hear records a response to the caller.
func (o *order) hear(format string, args ...any) {
	o.told = append(o.told, time.Now().UTC().Format("2006-01-02 15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// place hands the order in until it is accepted, or the caller has enough.
func (w *world) place(ctx context.Context, o *order, rnd *rand.Rand) {
	_ = retry.Wait(ctx, time.Until(o.at))
	n := messages.NewMessage{Topic: "reminders", Payload: []byte(strconv.Itoa(o.number)), DeliverAt: &o.deliverAt}
	opts := messages.Options{Client: "caller", IdempotencyKey: strconv.Itoa(o.number)}
	for try := 0; try < 6 && ctx.Err() == nil; try++ {
		a, err := w.service(rnd, try).Accept(ctx, n, opts)
		o.mu.Lock()
		o.hear("accept: %+v, %v", a, err)
		if u := (*messages.UnavailableError)(nil); errors.As(err, &u) && u.ID != (gocql.UUID{}) {
			o.ids[u.ID] = true
		}
		if err == nil {
			o.accepted, o.ids[a.ID] = true, true
		}
		o.mu.Unlock()
		if err == nil {
			return
		}
		if !errors.As(err, new(*messages.UnavailableError)) {
			w.t.Errorf("message %d: Accept() = %v", o.number, err)
			return
		}
		_ = retry.Wait(ctx, time.Duration(rnd.Int64N(int64(20*time.Second))))
	}
}

// withdraw tries to take the order back, if that was the plan and this is the time for it.
func (w *world) withdraw(ctx context.Context, o *order, rnd *rand.Rand) {
	if wait := time.Until(o.takeBack); o.takeBack.IsZero() || wait < 0 || wait > 2*busy {
		return
	}
	_ = retry.Wait(ctx, time.Until(o.takeBack))
	for try := 0; try < 4 && ctx.Err() == nil; try++ {
		o.mu.Lock()
		var id gocql.UUID
		for id = range o.ids {
		}
		o.mu.Unlock()
		var err error
		if id != (gocql.UUID{}) {
			err = w.service(rnd, try).Cancel(ctx, id)
			o.mu.Lock()
			o.hear("take back: %v", err)
			o.mu.Unlock()
			switch {
			case err == nil:
				o.mu.Lock()
				o.takenBack = true
				o.mu.Unlock()
				return
			case errors.Is(err, messages.ErrTooLate):
				o.mu.Lock()
				o.unsure = false
				o.mu.Unlock()
				return
			case !errors.Is(err, messages.ErrNotFound) && !errors.As(err, new(*messages.UnavailableError)):
				w.t.Errorf("message %d: Cancel() = %v", o.number, err)
				return
			case errors.As(err, new(*messages.UnavailableError)):
				o.mu.Lock()
				o.unsure = true
				o.mu.Unlock()
			}
		}
		_ = retry.Wait(ctx, time.Duration(rnd.Int64N(int64(5*time.Second))))
	}
}

// hurry tries to have the order released ahead of its time, if that was the plan
// and this is the time for it.
func (w *world) hurry(ctx context.Context, o *order, rnd *rand.Rand) {
	if wait := time.Until(o.hasten); o.hasten.IsZero() || wait < 0 || wait > 2*busy {
		return
	}
	_ = retry.Wait(ctx, time.Until(o.hasten))
	for try := 0; try < 4 && ctx.Err() == nil; try++ {
		o.mu.Lock()
		var id gocql.UUID
		for id = range o.ids {
		}
		if id != (gocql.UUID{}) && o.hastened.IsZero() {
			o.hastened = time.Now()
		}
		o.mu.Unlock()
		if id != (gocql.UUID{}) {
			v, err := w.service(rnd, try).DeliverNow(ctx, id)
			o.mu.Lock()
			o.hear("deliver-now: %s for %s, %v", v.State, v.DeliverAt, err)
			o.mu.Unlock()
			if err == nil || errors.As(err, new(*messages.NotWaitingError)) {
				return
			}
			if !errors.Is(err, messages.ErrNotFound) && !errors.As(err, new(*messages.UnavailableError)) {
				w.t.Errorf("message %d: DeliverNow() = %v", o.number, err)
				return
			}
		}
		_ = retry.Wait(ctx, time.Duration(rnd.Int64N(int64(5*time.Second))))
	}
}

// service is a running service, or one that ran.
func (w *world) service(rnd *rand.Rand, try int) *messages.Service {
	for {
		i := rnd.IntN(len(w.services))
		if w.inTurn {
			i = try % len(w.services)
		}
		if s := w.services[i].Load(); s != nil {
			return s
		}
		time.Sleep(10 * time.Millisecond)
	}
}
