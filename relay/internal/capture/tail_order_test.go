package capture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// byTime makes the tail that of a table without numbers.
func byTime(b *tailBench) { b.tail.byTime = true }

// unnumberedEvent is event n of an aggregate in a table without numbers.
func unnumberedEvent(aggregate, n int) outbox.Event {
	e := relaytest.Event(aggregate, int64(n), "OrderUpdated")
	e.Sequence, e.AggregateID = 0, outbox.IDFromText(fmt.Sprintf("order-%d", aggregate))
	return e
}

// order is the events of the topic by aggregate, by the order of the broker.
func order(b *tailBench) map[gocql.UUID][]gocql.UUID {
	out := make(map[gocql.UUID][]gocql.UUID)
	for _, d := range b.consume("OrderUpdated") {
		out[d.AggregateID.UUID()] = append(out[d.AggregateID.UUID()], d.ID.UUID())
	}
	return out
}

// isOut reports whether the event is acknowledged.
func (b *tailBench) isOut(id gocql.UUID) bool {
	indexed, _ := b.publisher.Indexed(id)
	return indexed
}

// Writers that do not know of each other: rows become visible late by up to the
// window, and in another order than that of their times.
func TestTailOrder_KeepsTheOrderOfWritesThatOverlap(t *testing.T) {
	t.Parallel()
	for seed := range seeds.Range(t, relaytest.Fewer(10)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 7))
				window := time.Duration(5+rnd.IntN(60)) * time.Millisecond
				hints := rnd.IntN(2) == 0
				b := newTailBench(t, func(c *settings) { c.TailReorder = window }, byTime)
				defer b.stop()
				time.Sleep(time.Second)
				want := make(map[gocql.UUID][]gocql.UUID)
				const aggregates = 10
				for i := range 600 {
					a := rnd.IntN(aggregates)
					e := unnumberedEvent(a, i)
					want[e.AggregateID.UUID()] = append(want[e.AggregateID.UUID()], e.ID.UUID())
					late := time.Duration(rnd.Int64N(int64(window)))
					if rnd.IntN(3) > 0 {
						late = 0
					}
					b.log.add(a%4, e, late)
					if hints {
						time.AfterFunc(late, func() { b.tail.Hint([]int64{int64(a % 4)}) })
					}
					time.Sleep(time.Duration(1+rnd.IntN(6000)) * time.Microsecond)
					if rnd.IntN(100) == 0 {
						time.Sleep(time.Duration(rnd.IntN(int(3 * time.Second))))
					}
					if rnd.IntN(100) == 0 {
						b.log.set(nil, time.Duration(rnd.IntN(30))*time.Millisecond)
					}
				}
				time.Sleep(5 * time.Second)
				got := order(b)
				for a, ids := range want {
					if !slices.Equal(got[a], ids) {
						t.Errorf("aggregate %s: %d events in another order than written, or not all of %d", a, len(got[a]), len(ids))
					}
				}
				if n := relaytest.Count(b.published.Late); n != 0 {
					t.Errorf("%v events came late", n)
				}
			})
		})
	}
}

// A row later than the window goes out behind the others, and is counted.
func TestTailOrder_WhatIsLaterGoesOutLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTailBench(t, nil, byTime)
		defer b.stop()
		time.Sleep(time.Second)
		first, second := unnumberedEvent(1, 1), unnumberedEvent(1, 2)
		b.log.add(1, first, 500*time.Millisecond)
		time.Sleep(time.Millisecond)
		b.log.add(1, second, 0)
		time.Sleep(5 * time.Second)
		if got := order(b)[first.AggregateID.UUID()]; !slices.Equal(got, []gocql.UUID{second.ID.UUID(), first.ID.UUID()}) {
			t.Errorf("the topic has %v, want the late one behind", got)
		}
		if n := relaytest.Count(b.published.Late); n != 1 {
			t.Errorf("%v late events are counted, want 1", n)
		}
	})
}

// Holding costs the window and little else; without it a row goes out at once.
func TestTailOrder_HoldsNoLongerThanItMust(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		window      time.Duration
		least, most time.Duration
	}{
		{20 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond},
		{-1, 0, 5 * time.Millisecond},
	} {
		t.Run(tt.window.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newTailBench(t, func(c *settings) { c.TailReorder = tt.window }, byTime)
				defer b.stop()
				b.log.add(0, unnumberedEvent(0, 0), 0) // makes the topic
				time.Sleep(time.Minute)
				for i := range 20 {
					e := unnumberedEvent(1, i+1)
					began := time.Now()
					b.log.add(1, e, 0)
					b.tail.Hint([]int64{1})
					for !b.isOut(e.ID.UUID()) {
						time.Sleep(100 * time.Microsecond)
					}
					if took := time.Since(began); took < tt.least || took > tt.most {
						t.Errorf("event %d went out after %s, want %s to %s", i, took, tt.least, tt.most)
					}
					time.Sleep(time.Duration(i) * 37 * time.Millisecond)
				}
				queries := len(b.log.since(time.Now().Add(-10 * time.Second)))
				time.Sleep(10 * time.Second)
				if n := len(b.log.since(time.Now().Add(-10 * time.Second))); n > 120 || n > queries {
					t.Errorf("%d queries in 10 s without rows", n)
				}
			})
		})
	}
}

// The sweep is an hour behind: the events that it has still to hand on come first.
func TestTailOrder_WaitsUntilTheSweepIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var opened []*checkpoint.Stream
		b := newTailBench(t, nil, byTime, func(b *tailBench) {
			store := relaytest.NewCheckpoints()
			b.streams = checkpoint.NewStreams(store, 100, b.cfg.Logger, prometheus.NewRegistry())
			b.tail.streams = b.streams
			if err := checkpoint.NewManager(store, b.streams, b.cfg.Logger, nil).StartGeneration(t.Context(), b.gen.Start); err != nil {
				t.Fatal(err)
			}
			for _, s := range b.gen.Streams {
				b.streams.Starts(b.gen.Start, s, gocql.MinTimeUUID(time.Now().Add(-30*time.Minute)))
				opened = append(opened, b.streams.Begin(s))
			}
		})
		defer b.stop()
		first, second := unnumberedEvent(1, 1), unnumberedEvent(1, 2)
		b.log.add(1, second, 0)
		written := time.Now().Add(-20 * time.Minute)
		time.Sleep(time.Minute)
		if got := order(b); len(got) != 0 {
			t.Errorf("the topic has %v before the sweep is there", got)
		}
		if err := b.publisher.Submit(t.Context(), cdclog.StoredEvent{Event: first, Written: written.UnixMicro()}, publish.BySweep, publish.Settlement{}); err != nil {
			t.Fatal(err)
		}
		for _, p := range opened {
			p.Idle(gocql.MinTimeUUID(time.Now().Add(-2 * time.Minute)))
		}
		time.Sleep(time.Second)
		if got := order(b)[first.AggregateID.UUID()]; !slices.Equal(got, []gocql.UUID{first.ID.UUID(), second.ID.UUID()}) {
			t.Errorf("the topic has %v, want the sweep's event first", got)
		}
	})
}

// The dedup index was full, and has room again when the sweep reader is past the write time
// of a row in one stream and not yet in the row's own: the tail reader passes the row on
// before the next one of its aggregate.
func TestTailOrder_TheIndexIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const full = 100
		b := newTailBench(t, func(c *settings) { c.publish.Share = new(dedup.Pool).Share(full, 500_000) }, byTime)
		defer b.stop()
		time.Sleep(time.Second)
		sweep := func(e outbox.Event, written time.Time) {
			t.Helper()
			if err := b.publisher.Submit(t.Context(), cdclog.StoredEvent{Event: e, Written: written.UnixMicro()}, publish.BySweep, publish.Settlement{}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range full {
			b.log.add(0, unnumberedEvent(0, i), 0)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if !b.publisher.MemoryFull() {
			t.Fatal("the index has room")
		}
		first, second := unnumberedEvent(1, 1), unnumberedEvent(1, 2)
		began := time.Now()
		b.log.add(1, first, 0)
		time.Sleep(b.cfg.ConfidenceWindow + 2*time.Second)
		b.log.add(1, second, 0)
		for i := range full {
			sweep(unnumberedEvent(0, i), began.Add(time.Second))
		}
		time.Sleep(5 * time.Second)
		sweep(first, began) // its position in the row's own stream is before it
		time.Sleep(time.Second)
		if got := order(b)[first.AggregateID.UUID()]; !slices.Equal(got, []gocql.UUID{first.ID.UUID(), second.ID.UUID()}) {
			t.Errorf("the topic has %v, want both once and in order", got)
		}
	})
}

// When a generation begins, an aggregate continues in another stream: events in the old one come
// first, though they become visible much later.
func TestTailOrder_AGenerationBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now().Add(20 * time.Second)
		b := newTailBench(t, nil, byTime, func(b *tailBench) {
			b.gens = []*cdclog.Generation{cdclog.NewGeneration(begin, [][]byte{memStream(10), memStream(11)}, func(i int) int64 { return int64(i) })}
		})
		defer b.stop()
		time.Sleep(time.Until(begin) - 50*time.Millisecond)
		var want []gocql.UUID
		for i := range 200 {
			e := unnumberedEvent(1, i)
			stream, late := 1, time.Duration(i%4)*5*time.Millisecond
			switch left := time.Until(begin); {
			case left <= 0:
				stream = 10
			case left <= 5*time.Millisecond: // the last one of the old stream
				late = b.cfg.TailOverlap / 2
			}
			b.log.add(stream, e, late)
			want = append(want, e.ID.UUID())
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		if got := order(b)[unnumberedEvent(1, 0).AggregateID.UUID()]; !slices.Equal(got, want) {
			t.Errorf("%d events in another order than written, or not all of %d", len(got), len(want))
		}
	})
}

// pageSink is a sink that counts the rows of the largest page.
type pageSink struct {
	TailSink
	offered, most int
}

func (s *pageSink) OfferPage(_ context.Context, offers []publish.Offer, verdicts []publish.Verdict) ([]publish.Verdict, error) {
	s.offered, s.most = s.offered+len(offers), max(s.most, len(offers))
	return append(verdicts, make([]publish.Verdict, len(offers))...), nil
}

// However many rows are released at once, the owner of the aggregates gets them in pages: other
// readers and results wait for one page at most.
func TestTailOrder_ReleasesRowsInPages(t *testing.T) {
	t.Parallel()
	cfg, sink := newSettings(relaytest.Logger(t)), new(pageSink)
	tl := NewTail(&cfg.Config, NewMetrics(prometheus.NewRegistry()), Input{Table: &outbox.DefaultTable}, nil, nil, sink)
	g := newTailGroup(tl, cdclog.NewGeneration(time.Now(), [][]byte{memStream(0)}, func(i int) int64 { return int64(i) }), 0, 1)
	rows := make([]heldRow, 3*maxTailPage/2)
	for i := range rows {
		rows[i].event = unnumberedEvent(i, 1)
	}
	if err := g.handOn(t.Context(), rows); err != nil || sink.offered != len(rows) || sink.most > maxTailPage {
		t.Errorf("handOn() = %v, with %d of %d rows, at most %d in a page, want at most %d", err, sink.offered, len(rows), sink.most, maxTailPage)
	}
}
