package checkpoint

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

func TestStreamProgress_PassesOnlyTheSettledPrefix(t *testing.T) {
	t.Parallel()
	p := NewStream(relaytest.Start, scyllacdc.StreamID("s"), relaytest.At(0), 100)
	expect := func(what string, want gocql.UUID) {
		t.Helper()
		if pos, _, _ := p.Unsaved(); pos != want {
			t.Errorf("%s: position = %s, want %s", what, pos.Time(), want.Time())
		}
	}
	p.Idle(relaytest.At(1))
	expect("an empty window without a pending change", relaytest.At(1))
	a := p.Begin(relaytest.At(2), 1)
	b := p.Begin(relaytest.At(3), 2)
	p.Idle(relaytest.At(4))
	p.Idle(relaytest.At(5))
	expect("two pending changes", relaytest.At(1))
	p.Settle(b)
	p.Settle(b)
	expect("the second is settled first", relaytest.At(1))
	p.Settle(a)
	expect("both changes and the windows after them are settled", relaytest.At(5))
	c := p.Begin(relaytest.At(6), 2)
	p.Settle(c)
	expect("one of two events of a change", relaytest.At(5))
	p.Settle(c)
	expect("both", relaytest.At(6))
}

// The position is always the last change of the settled prefix, in whatever order changes
// settle.
func TestStreamProgress_AgreesWithAPlainModel(t *testing.T) {
	t.Parallel()
	for seed := range seeds.Range(t, 50) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		p := NewStream(relaytest.Start, scyllacdc.StreamID("s"), relaytest.At(0), 1000)
		type entry struct {
			time gocql.UUID
			open int
			id   uint64
		}
		var all []entry
		for i := range 300 {
			switch rnd.IntN(3) {
			case 0:
				n := 1 + rnd.IntN(2)
				all = append(all, entry{relaytest.At(i + 1), n, p.Begin(relaytest.At(i+1), n)})
			case 1:
				p.Idle(relaytest.At(i + 1))
				all = append(all, entry{time: relaytest.At(i + 1)})
			default:
				if k := rnd.IntN(len(all) + 1); k < len(all) && all[k].open > 0 {
					all[k].open--
					p.Settle(all[k].id)
				}
			}
			want := relaytest.At(0)
			for _, e := range all {
				if e.open > 0 {
					break
				}
				want = e.time
			}
			if pos, _, _ := p.Unsaved(); pos != want {
				t.Fatalf("seed %d step %d: position = %s, want %s", seed, i, pos.Time(), want.Time())
			}
		}
	}
}

func TestStreamProgress_WaitsWhenTooFarAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewStream(relaytest.Start, scyllacdc.StreamID("s"), relaytest.At(0), 3)
		first := p.Begin(relaytest.At(1), 1)
		p.Begin(relaytest.At(2), 1)
		if err := p.Wait(t.Context()); err != nil {
			t.Fatalf("Wait() below the limit: error = %v", err)
		}
		p.Begin(relaytest.At(3), 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait() at the limit: error = %v, want the deadline's", err)
		}
		time.AfterFunc(time.Minute, func() { p.Settle(first) })
		start := time.Now()
		if err := p.Wait(t.Context()); err != nil || time.Since(start) != time.Minute {
			t.Errorf("Wait() = %v after %s, want nil once the oldest settles", err, time.Since(start))
		}
	})
}
