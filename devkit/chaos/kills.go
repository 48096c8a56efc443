package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// Victim is a part of the system that is killed and started again, such as a process.
type Victim struct {
	// Name is its name in errors and in the ledger.
	Name string
	// Running reports whether it is running. Nil if that is unknown.
	Running func() bool
	// Kill ends it like a crash, and Restart starts it again.
	Kill, Restart func()
	// Weight is its relative frequency of kills. Default 1.
	Weight int
	// Slow marks a victim that takes seconds to start: another one may be killed before it has
	// started.
	Slow bool

	kills int
}

// Kills returns the number of times that it was killed.
func (v *Victim) Kills() int { return v.kills }

// Kills kills victims at random moments.
type Kills struct {
	// Victims are killed, each as often as its weight. Required.
	Victims []*Victim
	// Number is the number of kills.
	Number int
	// Pause is the maximum time before a kill, and Down that before the restart.
	Pause, Down time.Duration
	// Killed, if not nil, is called after each kill.
	Killed func(*Victim)
}

// Run kills until Number is reached or ctx ends, and returns with all victims started. The
// error names the victims that ended by themselves.
func (k *Kills) Run(ctx context.Context, rnd *rand.Rand) error {
	var errs []error
	deck := k.deck(rnd)
	for len(deck) > 0 && pause(ctx, rnd, k.Pause) {
		v := deck[0]
		deck = deck[1:]
		errs = append(errs, k.strike(ctx, rnd, v))
		if v.Slow && len(deck) > 0 && deck[0] != v {
			errs = append(errs, k.strike(ctx, rnd, deck[0]))
			deck[0].Restart()
			deck = deck[1:]
		}
		v.Restart()
	}
	return errors.Join(errs...)
}

// pause waits for a random time and reports whether ctx has not ended.
func pause(ctx context.Context, rnd *rand.Rand, most time.Duration) bool {
	return retry.Wait(ctx, time.Duration(rnd.Int64N(int64(most)+1))) == nil
}

// strike kills a victim and waits for some time.
func (k *Kills) strike(ctx context.Context, rnd *rand.Rand, v *Victim) (err error) {
	if v.Running != nil && !v.Running() {
		err = fmt.Errorf("%s ended by itself", v.Name)
	}
	v.Kill()
	v.kills++
	if k.Killed != nil {
		k.Killed(v)
	}
	pause(ctx, rnd, k.Down)
	return err
}

// deck returns the sequence of victims.
func (k *Kills) deck(rnd *rand.Rand) []*Victim {
	var all []*Victim
	for _, v := range k.Victims {
		all = append(all, slices.Repeat([]*Victim{v}, max(1, v.Weight))...)
	}
	if len(all) == 0 {
		return nil
	}
	deck := slices.Repeat(all, k.Number/len(all)+1)[:k.Number]
	rnd.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}
