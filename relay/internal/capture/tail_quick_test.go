package capture

import (
	"math/rand"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// At 3,000 rows per second, of which one in a hundred is late, the rows are read a few times each,
// and late ones are found within two overlaps.
func TestTail_ReadsRowsAgainSeldomAtHighRates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const (
			every = 333 * time.Microsecond
			rows  = 4500
			late  = 15 * time.Millisecond
		)
		rnd := rand.New(rand.NewSource(1))
		b := newTailBench(t, nil)
		defer b.stop()
		b.log.set(nil, time.Millisecond)
		time.Sleep(time.Second)
		var half float64
		begin := time.Now()
		for i := range rows {
			d := time.Millisecond
			if rnd.Intn(100) == 0 {
				d = late
			}
			b.log.add(i%4, relaytest.Event(i, 1, "OrderUpdated"), d)
			time.AfterFunc(d, func() { b.tail.Hint([]int64{int64(i % 4)}) })
			time.Sleep(every)
			if i == rows/2 {
				half = relaytest.Count(b.metrics.tailAgain)
			}
		}
		queries := 0
		for _, q := range b.log.since(begin.Add(rows / 2 * every)) {
			if len(q.streams) > 0 {
				queries++
			}
		}
		if perRow := (relaytest.Count(b.metrics.tailAgain) - half) / (rows / 2); perRow > 7 {
			t.Errorf("each row was read %.1f times more, want 7 at most, of which two by readings that go back by TailOverlap", perRow)
		}
		if perSecond := float64(queries) / (rows / 2 * every).Seconds(); perSecond > 520 {
			t.Errorf("%.0f queries per second, want 520 at most", perSecond)
		}
		time.Sleep(2*50*time.Millisecond + late)
		if n := relaytest.Count(b.published.Found[publish.ByTail]); n != rows {
			t.Errorf("found %v of %d events two overlaps after the last one", n, rows)
		}
	})
}

// A reading of all streams serves the hints that wait for it.
func TestTail_AReadingOfAllStreamsServesHints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTailBench(t, nil)
		defer b.stop()
		time.Sleep(time.Second)
		begin := time.Now()
		for i := range 1000 { // each while the reading by the one before it is under way, or after it
			b.log.add(i%4, relaytest.Event(i, 1, "OrderUpdated"), 0)
			b.tail.Hint([]int64{0, 1, 2, 3})
			time.Sleep(10 * time.Millisecond)
		}
		regular := relaytest.Count(b.metrics.tailQueries[readAll])
		if n := len(b.log.since(begin)); n > 1010 {
			t.Errorf("%d queries for 1,000 hints of all streams, want no others beside them", n)
		}
		if regular < 1000 {
			t.Errorf("%v readings of all streams, want those by hints to be such readings", regular)
		}
	})
}

// Most rows are as late as a quick reading goes back, whatever the lateness is and was.
func TestTailQuick_Learn(t *testing.T) {
	t.Parallel()
	overlap := (500 * time.Millisecond).Microseconds()
	q := newTailQuick()
	rnd := rand.New(rand.NewSource(1))
	for _, mean := range []time.Duration{2 * time.Millisecond, 20 * time.Millisecond, 4 * time.Millisecond} {
		missed := 0
		for i := range 40_000 {
			late := int64(rnd.ExpFloat64() * float64(mean.Microseconds()))
			if i >= 30_000 && late > q.overlap {
				missed++
			}
			q.learn(late, overlap)
		}
		if missed < 20 || missed > 300 {
			t.Errorf("mean lateness %s: %d of 10,000 rows were later than a quick reading goes back (%d us), want about 100", mean, missed, q.overlap)
		}
	}
	for range 100_000 {
		q.learn(-1000, overlap)
	}
	if q.overlap != tailMinQuick.Microseconds() {
		t.Errorf("%d us without late rows, want the least", q.overlap)
	}
	for range 100_000 {
		q.learn(time.Hour.Microseconds(), overlap)
	}
	if q.overlap != overlap {
		t.Errorf("%d us with very late rows, want the overlap of the group", q.overlap)
	}
}

// Where there are few rows each reading goes back by the overlap, and hints wait the least.
func TestTailQuick_Decisions(t *testing.T) {
	t.Parallel()
	const overlap, least = 20_000, 200 * time.Microsecond
	for _, c := range []struct {
		quick   time.Duration
		rows    int
		since   int64
		deep    bool
		spacing time.Duration
	}{
		{8 * time.Millisecond, 0, 1, true, least},
		{8 * time.Millisecond, tailQuickRows, 1, true, least},
		{8 * time.Millisecond, tailQuickRows + 1, overlap - 1, false, 4 * time.Millisecond},
		{8 * time.Millisecond, tailQuickRows + 1, overlap, true, 4 * time.Millisecond},
		{time.Millisecond, 1000, overlap, true, time.Millisecond / 2},
		{300 * time.Millisecond, 1000, overlap, true, tailMaxHintSpacing},
	} {
		q := tailQuick{overlap: c.quick.Microseconds(), rows: c.rows}
		if deep, spacing := q.goesDeep(c.since, overlap), q.spacing(least); deep != c.deep || spacing != c.spacing {
			t.Errorf("%+v: goesDeep() = %t, spacing() = %s", c, deep, spacing)
		}
	}
}
