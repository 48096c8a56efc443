package later

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/schedule"
	"github.com/scylla-outbox/scylla-outbox/test/sim/line"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

// host is a machine on which one process runs after the other.
type host struct {
	w    *world
	rnd  *rand.Rand
	skew time.Duration // how far its clock is ahead
	// life is about how many messages its processes send before they die; 0 means
	// that they do not.
	life int
	// run is the process, until ctx ends.
	run process
}

// process is a program on a host, until ctx ends.
type process func(ctx context.Context, h *host, s *gocql.Session)

func (h *host) now() time.Time { return time.Now().Add(h.skew) }

// live runs processes until ctx ends.
func (h *host) live(ctx context.Context) {
	for ctx.Err() == nil {
		l := &line.Line{}
		s := l.Connect(h.w.t, h.w.node)
		process, end := context.WithCancel(ctx)
		if h.rnd.IntN(3) == 0 { // it is stopped
			process, end = context.WithTimeout(ctx, time.Duration(h.rnd.Int64N(int64(time.Minute))))
		}
		if h.life > 0 && h.rnd.IntN(4) > 0 {
			l.Arm(1+int(h.rnd.ExpFloat64()*float64(h.life)), h.rnd.IntN(2) == 0, end)
		}
		h.run(process, h, s)
		if l.Dead() {
			h.w.deaths.Add(1)
		}
		end()
		s.Close()
		_ = retry.Wait(ctx, time.Duration(h.rnd.Int64N(int64(10*time.Second))))
	}
}

// scheduler runs a scheduler.
func scheduler(ctx context.Context, h *host, s *gocql.Session) {
	one, err := schedule.New(schedule.Config{
		Store: schedule.NewStore(s, gocql.LocalQuorum, statementTimeout), Now: h.now,
		Poll: time.Second, LookAhead: 3 * time.Second, Sweep: 10 * time.Second, Lease: 6 * time.Second,
		MaxPending: 8 + h.rnd.IntN(100), Concurrency: 1 + h.rnd.IntN(16),
	})
	if err != nil {
		h.w.t.Error(err)
		return
	}
	if err := one.Run(ctx); err != nil {
		h.w.t.Errorf("Run() = %v", err)
	}
}

// service serves callers.
func service(at *atomic.Pointer[messages.Service]) process {
	return func(ctx context.Context, h *host, s *gocql.Session) {
		one, err := messages.NewService(s, messages.Config{
			AttemptTimeout: statementTimeout, WriteBudget: 5 * time.Second, Breaker: messages.Breaker{Open: time.Second}, Clock: testworld.Clock(h.now),
		})
		if err != nil {
			h.w.t.Error(err)
			return
		}
		at.Store(one)
		<-ctx.Done()
		time.Sleep(2 * (5*time.Second + statementTimeout)) // queries have a result or an error
	}
}
