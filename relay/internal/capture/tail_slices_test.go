package capture

import (
	"errors"
	"math/rand"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A reading that goes back by TailOverlap, to find rows that are late, does not keep hints
// waiting while it reads the rows of seconds.
func TestTail_ReadsFarBackInSlices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTailBench(t, nil)
		defer b.stop()
		time.Sleep(time.Second)
		write := func(d time.Duration) time.Time {
			begin := time.Now()
			for i := 0; time.Since(begin) < d; i++ {
				b.log.add(i%4, relaytest.Event(int(begin.Unix())*1000+i, 1, "OrderUpdated"), 0)
				b.tail.Hint([]int64{int64(i % 4)})
				time.Sleep(2 * time.Millisecond)
			}
			return begin
		}
		write(3 * b.cfg.TailOverlap) // the first one shows how many rows they have
		begin := write(2 * b.cfg.TailOverlap)
		wide := 0
		for _, q := range b.log.since(begin) {
			if q.rows > 2*tailSliceRows {
				t.Errorf("a query read %d rows, want at most about %d", q.rows, tailSliceRows)
			}
			if begin.Sub(q.after) > b.cfg.TailOverlap {
				wide++
			}
		}
		if wide == 0 {
			t.Errorf("no query reached back by %s", b.cfg.TailOverlap)
		}
		if relaytest.Count(b.metrics.tailQueries[readWide]) == 0 {
			t.Error("no slice was counted")
		}
	})
}

// Every row that becomes visible at most TailOverlap late is found, at any rate, while the rate
// changes and queries fail.
func TestTail_FindsLateRowsInSlices(t *testing.T) {
	t.Parallel()
	for seed := range int64(4) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewSource(seed))
			b := newTailBench(t, nil)
			defer b.stop()
			time.Sleep(time.Second)
			n := 0
			var visible time.Time
			for range 4 {
				gap := time.Duration(1000+rnd.Intn(4000)) * time.Microsecond
				for end := time.Now().Add(b.cfg.TailOverlap); time.Now().Before(end); time.Sleep(gap) {
					late := time.Duration(0)
					if rnd.Intn(20) == 0 {
						late = time.Duration(rnd.Int63n(int64(b.cfg.TailOverlap)))
					}
					b.log.add(rnd.Intn(4), relaytest.Event(n, 1, "OrderUpdated"), late)
					if at := time.Now().Add(late); at.After(visible) {
						visible = at
					}
					n++
					switch rnd.Intn(500) {
					case 0:
						b.log.set(errors.New("no connections"), 0)
					case 1, 2, 3, 4:
						b.log.set(nil, time.Duration(rnd.Intn(20))*time.Millisecond)
					}
				}
				b.log.set(nil, 0)
			}
			time.Sleep(time.Until(visible) + 2*b.cfg.TailOverlap)
			if got := relaytest.Count(b.published.Found[publish.ByTail]); int(got) != n {
				t.Errorf("seed %d: found %v of %d events", seed, got, n)
			}
		})
	}
}
