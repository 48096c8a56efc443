package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

var testStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds int) gocql.UUID {
	return gocql.MinTimeUUID(testStart.Add(time.Duration(seconds) * time.Second))
}

func TestStreamProgress_PassesOnlyTheSettledPrefix(t *testing.T) {
	t.Parallel()
	p := newStreamProgress(testStart, scyllacdc.StreamID("s"), at(0), 100)
	expect := func(what string, want gocql.UUID) {
		t.Helper()
		if pos, _, _ := p.unsaved(); pos != want {
			t.Errorf("%s: position = %s, want %s", what, pos.Time(), want.Time())
		}
	}
	p.idle(at(1))
	expect("an empty window with nothing pending", at(1))
	a := p.begin(at(2), 1)
	b := p.begin(at(3), 2)
	p.idle(at(4))
	p.idle(at(5))
	expect("two changes under way", at(1))
	p.settle(b)
	p.settle(b)
	expect("the second is settled first", at(1))
	p.settle(a)
	expect("both are settled, and the windows behind them", at(5))
	c := p.begin(at(6), 2)
	p.settle(c)
	expect("one of two events of a change", at(5))
	p.settle(c)
	expect("both", at(6))
}

// The position is always the last of the settled prefix, in whatever order
// changes settle.
func TestStreamProgress_AgreesWithAPlainModel(t *testing.T) {
	t.Parallel()
	for seed := range seeds.Range(t, 50) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		p := newStreamProgress(testStart, scyllacdc.StreamID("s"), at(0), 1000)
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
				all = append(all, entry{at(i + 1), n, p.begin(at(i+1), n)})
			case 1:
				p.idle(at(i + 1))
				all = append(all, entry{time: at(i + 1)})
			default:
				if k := rnd.IntN(len(all) + 1); k < len(all) && all[k].open > 0 {
					all[k].open--
					p.settle(all[k].id)
				}
			}
			want := at(0)
			for _, e := range all {
				if e.open > 0 {
					break
				}
				want = e.time
			}
			if pos, _, _ := p.unsaved(); pos != want {
				t.Fatalf("seed %d step %d: position = %s, want %s", seed, i, pos.Time(), want.Time())
			}
		}
	}
}

func TestStreamProgress_WaitsWhenTooFarAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newStreamProgress(testStart, scyllacdc.StreamID("s"), at(0), 3)
		first := p.begin(at(1), 1)
		p.begin(at(2), 1)
		if err := p.wait(t.Context()); err != nil {
			t.Fatalf("wait() with room error = %v", err)
		}
		p.begin(at(3), 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := p.wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait() without room error = %v, want the deadline's", err)
		}
		time.AfterFunc(time.Minute, func() { p.settle(first) })
		start := time.Now()
		if err := p.wait(t.Context()); err != nil || time.Since(start) != time.Minute {
			t.Errorf("wait() = %v after %s, want nil when the oldest settles", err, time.Since(start))
		}
	})
}
