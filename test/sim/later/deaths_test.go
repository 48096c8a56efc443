package later

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/test/sim/line"
)

// long is after how long somebody else takes over: a row written then with a time
// of before comes where the relay's sweep has been.
const long = 10 * time.Minute

// A scheduler dies at each message that it sends, which is carried out or not,
// and nobody is there for long. ScyllaDB takes a row with any time since its CDC generation began,
// so that a message that is taken up must get a time of its own.
func TestScheduler_DiesAtEachMessage(t *testing.T) {
	for _, carried := range []bool{false, true} {
		t.Run("carried out "+strconv.FormatBool(carried), func(t *testing.T) {
			simulate(t, 1, func(w *world) {
				last := w.eachMessage(scheduler, carried, func(ctx context.Context, n int) {
					w.hand(ctx, &order{number: n, at: time.Now(), deliverAt: time.Now().Add(2 * time.Second)})
					_ = retry.Wait(ctx, 8*time.Second)
				})
				if last < 20 {
					t.Errorf("a scheduler sent only %d messages", last)
				}
			})
		})
	}
}

// A scheduler dies at each message that it sends while it releases messages of one
// moment, which share statements. Callers take some of them back at that moment.
func TestScheduler_DiesAmongMessagesOfOneMoment(t *testing.T) {
	for _, carried := range []bool{false, true} {
		t.Run("carried out "+strconv.FormatBool(carried), func(t *testing.T) {
			simulate(t, 1, func(w *world) {
				const together = 16 // two in a partition
				last := w.eachMessage(scheduler, carried, func(ctx context.Context, n int) {
					at := time.Now().Add(2 * time.Second).Truncate(time.Millisecond)
					var callers sync.WaitGroup
					for i := range together {
						o := &order{number: n*together + i, at: time.Now(), deliverAt: at}
						if i%4 == 0 {
							o.takeBack = at.Add(time.Duration(i-together/2) * time.Millisecond)
						}
						w.hand(ctx, o)
						callers.Go(func() { w.withdraw(ctx, o, o.rnd) })
					}
					callers.Wait()
					_ = retry.Wait(ctx, 8*time.Second)
				})
				if last < 30 {
					t.Errorf("a scheduler sent only %d messages", last)
				}
			})
		})
	}
}

// A service dies at each message that it sends while it stores a message and
// takes it back. The caller asks another one again.
func TestService_DiesAtEachMessage(t *testing.T) {
	for _, carried := range []bool{false, true} {
		t.Run("carried out "+strconv.FormatBool(carried), func(t *testing.T) {
			simulate(t, 1, func(w *world) {
				at := new(atomic.Pointer[messages.Service])
				w.services, w.inTurn = append(w.services, at), true
				last := w.eachMessage(service(at), carried, func(ctx context.Context, n int) {
					o := &order{number: n, at: time.Now(), deliverAt: time.Now().Add(long), takeBack: time.Now().Add(30 * time.Second)}
					w.hand(ctx, o)
					w.withdraw(ctx, o, o.rnd)
				})
				if last < 8 {
					t.Errorf("a service sent only %d messages", last)
				}
			})
		})
	}
}

// A service dies at each message that it sends while it releases a message, which
// is carried out or not, and an operator asks another one. It goes out then, not at
// its time.
func TestService_DiesWhileItReleases(t *testing.T) {
	for _, carried := range []bool{false, true} {
		t.Run("carried out "+strconv.FormatBool(carried), func(t *testing.T) {
			simulate(t, 1, func(w *world) {
				at := new(atomic.Pointer[messages.Service])
				w.services, w.inTurn = append(w.services, at), true
				last := w.eachMessage(service(at), carried, func(ctx context.Context, n int) {
					if last := w.seen.byNumber[strconv.Itoa(n-1)]; n > 1 && len(last) == 0 {
						t.Errorf("message %d was released and is not out: %q", n-1, w.orders[n-2].told)
					}
					o := &order{number: n, at: time.Now(), deliverAt: time.Now().Add(24 * time.Hour), hasten: time.Now().Add(30 * time.Second)}
					w.hand(ctx, o)
					w.hurry(ctx, o, o.rnd)
				})
				w.sleep(24 * time.Hour) // a service that died before it removed the slot of that time has left it
				if last < 8 {
					t.Errorf("a service sent only %d messages", last)
				}
			})
		})
	}
}

// hand places an order of a caller that always receives a response in the end.
func (w *world) hand(ctx context.Context, o *order) {
	o.rnd, o.ids = w.random(), map[gocql.UUID]bool{}
	w.orders = append(w.orders, o)
	w.place(ctx, o, o.rnd)
}

// eachMessage runs a story again and again, with a process that dies first at its
// first message, then at its second, until one outlives its story.
func (w *world) eachMessage(run process, carried bool, story func(ctx context.Context, n int)) (last int) {
	at := new(atomic.Pointer[messages.Service])
	w.services = append(w.services, at)
	survivor := &host{w: w, rnd: w.random(), run: service(at)}
	for n := 1; ; n++ {
		l := &line.Line{}
		s := l.Connect(w.t, w.node)
		ctx, end := context.WithCancel(w.t.Context())
		mortal := &host{w: w, rnd: w.random()}
		gone := make(chan struct{}, 2)
		process, died := context.WithCancel(ctx)
		l.Arm(n, carried, died)
		go func() { run(process, mortal, s); gone <- struct{}{} }()
		go func() { survivor.live(ctx); gone <- struct{}{} }()
		story(ctx, n)
		alive := !l.Dead()
		died()
		end()
		<-gone
		<-gone
		s.Close()
		w.look()
		if alive {
			return n
		}
		w.sleep(long)
		w.hosts = []*host{{w: w, rnd: w.random(), run: scheduler}}
		w.during(func() { time.Sleep(15 * time.Second) })
	}
}
