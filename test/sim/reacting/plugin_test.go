package reacting

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/react"
)

// outcome is what came of a call.
type outcome string

const (
	open    outcome = "open" // nobody has heard of its end: its process died
	taken   outcome = "taken"
	refused outcome = "refused"
	forGood outcome = "refused for good"
)

// call is one of a plugin.
type call struct {
	event, delivery, life string
	attempt               int
	began, ended          time.Time
	outcome               outcome
	hung                  bool // past its time-out
}

// ledger has all calls by rule, as they began.
type ledger struct {
	w     *world
	mu    sync.Mutex
	calls map[string][]*call
}

func (l *ledger) of(rule string) []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[rule]
}

// hung counts the calls of a rule that did not return in time.
func (l *ledger) hung(rule string) (n int) {
	for _, c := range l.of(rule) {
		if c.hung {
			n++
		}
	}
	return n
}

// plugin is what a rule leads to in a process.
type plugin struct {
	life   *life
	mortal bool
	mu     sync.Mutex
	rnd    *rand.Rand
}

func (p *plugin) CanHandle(react.Event) bool { return true }

// Process comes to what chance wants. That of a dead process does nothing.
func (p *plugin) Process(ctx context.Context, e react.Event) error {
	w := p.life.w
	if p.life.Dead() {
		<-ctx.Done()
		return errDead
	}
	c := &call{event: e.ID, delivery: e.DeliveryID, life: p.life.name, attempt: e.Attempt, began: time.Now(), outcome: open}
	w.ledger.mu.Lock()
	w.ledger.calls[e.Rule] = append(w.ledger.calls[e.Rule], c)
	w.ledger.mu.Unlock()
	panics, dies, err := p.verdict(ctx, e.Rule)
	if p.life.Dead() {
		<-ctx.Done()
		return errDead
	}
	w.ledger.mu.Lock()
	c.ended, c.outcome = time.Now(), taken
	if panics || err != nil {
		c.outcome = refused
	}
	if errors.Is(err, errForGood) {
		c.outcome = forGood
	}
	c.hung = ctx.Err() != nil
	w.ledger.mu.Unlock()
	if dies {
		p.life.Kill() // it was taken, and nobody will know
	}
	if panics {
		panic("what now")
	}
	return err
}

var (
	errTest    = errors.New("not now")
	errForGood = react.Permanent(errors.New("never"))
)

// verdict is what comes of a call, which takes its time.
func (p *plugin) verdict(ctx context.Context, rule string) (panics, dies bool, err error) {
	p.mu.Lock()
	k, takes := p.rnd.IntN(100), time.Duration(p.rnd.Int64N(int64(200*time.Millisecond)))
	long := 4*time.Second + time.Duration(p.rnd.Int64N(int64(20*time.Second)))
	dies = p.mortal && p.rnd.IntN(100) == 0
	p.mu.Unlock()
	switch {
	case rule == "clear":
		return false, dies, nil
	case p.life.w.well.Load():
		return false, false, nil
	case rule == "slow" && k < 40: // it does not even look at its context
		time.Sleep(long)
		return false, false, nil
	case rule == "slow" && k < 60:
		<-ctx.Done()
		return false, false, ctx.Err()
	case rule == "slow":
		_ = retry.Wait(ctx, time.Second)
		return false, dies, nil
	}
	_ = retry.Wait(ctx, takes)
	switch {
	case k < 55:
		return false, dies, nil
	case k < 75:
		return false, false, errTest
	case k < 80:
		return false, false, errForGood
	case k < 85:
		return false, false, react.RetryAfter(errTest, 2*time.Second)
	case k < 92:
		<-ctx.Done()
		return false, false, ctx.Err()
	case k < 96:
		time.Sleep(long / 4)
		return false, false, nil
	}
	return true, false, nil
}
