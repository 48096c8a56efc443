package capture

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// sweptPageSink records the sizes of the pages that a publisher is offered. If err is set it accepts none.
type sweptPageSink struct {
	SweepSink
	sizes []int
	err   error
}

// OfferPage records a page.
func (s *sweptPageSink) OfferPage(ctx context.Context, offers []publish.Offer, verdicts []publish.Verdict) ([]publish.Verdict, error) {
	if s.err != nil {
		return verdicts, s.err
	}
	s.sizes = append(s.sizes, len(offers))
	return s.SweepSink.OfferPage(ctx, offers, verdicts)
}

// sweptBench is a stream that is swept by pages.
type sweptBench struct {
	*fixture
	sink     *sweptPageSink
	streams  *checkpoint.Streams
	stream   *checkpoint.Stream
	pages    *SweptPages
	reported []int // published rows of pages
	failed   error // the reader ended by it
}

// runSwept runs a test with a stream in a bubble.
func runSwept(t *testing.T, test func(t *testing.T, b *sweptBench)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &sweptBench{fixture: setup(t, nil), streams: checkpoint.NewStreams(nil, maxStreamBacklog, relaytest.Logger(t), prometheus.NewRegistry())}
		defer b.close()
		id := scyllacdc.StreamID("stream")
		b.streams.Starts(time.Unix(0, 0), id, timeID(1))
		b.stream = b.streams.Begin(id)
		s := b.sequencer(new(table))
		b.sink = &sweptPageSink{SweepSink: b.publisher}
		s.sink, s.blocked.fail = b.sink, func(err error) { b.failed = err }
		b.pages = NewSweptPages(s, b.stream, func(_ context.Context, published int, _ time.Time) error {
			b.reported = append(b.reported, published)
			return nil
		})
		test(t, b)
	})
}

// handed returns the time up to which the stream is handed on.
func (b *sweptBench) handed() int64 {
	_, _, upTo := b.streams.HandedAll()
	return upTo
}

// add adds a change with the first events of some aggregates.
func (b *sweptBench) add(at int64, aggregates ...int) {
	b.t.Helper()
	var events []cdclog.StoredEvent
	for _, a := range aggregates {
		events = append(events, cdclog.StoredEvent{Event: relaytest.Event(a, 1, "OrderUpdated"), Written: at})
	}
	if err := b.pages.Add(b.t.Context(), timeID(at), events); err != nil {
		b.t.Fatalf("Add() error = %v", err)
	}
}

// A page is submitted when it is full. scylla-cdc-go calls nobody at the end of a window with rows, so
// the rest of one follows without a further call.
func TestSweptPages_SubmitsFullPagesAndTheRest(t *testing.T) {
	runSwept(t, func(t *testing.T, b *sweptBench) {
		const rest = 3
		for i := range 2*maxSweptPage + rest {
			b.add(int64(10+i), i)
		}
		if got := b.sink.sizes; len(got) != 2 || got[0] != maxSweptPage || got[1] != maxSweptPage {
			t.Errorf("pages of %v events are submitted at once, want two of %d", got, maxSweptPage)
		}
		time.Sleep(2 * sweptPageWait)
		if got := b.sink.sizes; len(got) != 3 || got[2] != rest {
			t.Errorf("pages of %v events are submitted, want a last one of %d", got, rest)
		}
		relaytest.Drain(t, b.publisher, time.Minute)
		if got, want := b.stream.Reached(), timeID(10+2*maxSweptPage+rest-1).Time(); !got.Equal(want) {
			t.Errorf("position = %s, want that of the last change, %s", got, want)
		}
	})
}

// Large events are not gathered: they are not in the budget.
func TestSweptPages_BoundsBytes(t *testing.T) {
	runSwept(t, func(t *testing.T, b *sweptBench) {
		e := cdclog.StoredEvent{Event: relaytest.Event(1, 1, "OrderUpdated"), Written: 10}
		e.Payload = make([]byte, maxSweptBytes)
		if err := b.pages.Add(t.Context(), timeID(10), []cdclog.StoredEvent{e}); err != nil {
			t.Fatal(err)
		}
		if got := b.sink.sizes; len(got) != 1 {
			t.Errorf("pages of %v events are submitted, want one with the large event", got)
		}
	})
}

// Neither the position nor the time up to which events are handed on passes an event of a page that is
// not submitted, by changes without events or by the end of a window.
func TestSweptPages_PassesNothingBeforeItIsSubmitted(t *testing.T) {
	for name, pass := range map[string]func(b *sweptBench) error{
		"a change without events": func(b *sweptBench) error { return b.pages.Add(b.t.Context(), timeID(20), nil) },
		"an empty window":         func(b *sweptBench) error { return b.pages.Idle(b.t.Context(), timeID(20)) },
	} {
		t.Run(name, func(t *testing.T) {
			runSwept(t, func(t *testing.T, b *sweptBench) {
				b.add(10, 1)
				if got := b.handed(); got >= 10 {
					t.Errorf("handed on up to %d before the event is submitted", got)
				}
				if err := pass(b); err != nil {
					t.Fatal(err)
				}
				if got := b.handed(); got >= 10 && len(b.sink.sizes) == 0 {
					t.Errorf("handed on up to %d before the event is submitted", got)
				}
				b.pages.Submit()
				relaytest.Drain(t, b.publisher, time.Minute)
				if got := b.handed(); got != 19 {
					t.Errorf("handed on up to %d, want all before the last time", got)
				}
				if got := b.stream.Reached(); !got.Equal(timeID(20).Time()) {
					t.Errorf("position = %s, want the last time", got)
				}
			})
		})
	}
}

// Only rows that are published already take a turn: nothing may wait for those.
func TestSweptPages_CountsPublishedRows(t *testing.T) {
	runSwept(t, func(t *testing.T, b *sweptBench) {
		b.add(10, 1, 2, 3)
		b.pages.Submit()
		b.add(20, 1, 2, 3, 4)
		b.pages.Submit()
		b.pages.Submit()
		if got := b.reported; len(got) != 1 || got[0] != 3 {
			t.Errorf("published rows of pages = %v, want once 3", got)
		}
	})
}

// A page that is not accepted ends the reader, whichever part submits it, and its events are read
// again.
func TestSweptPages_RefusedPage(t *testing.T) {
	runSwept(t, func(t *testing.T, b *sweptBench) {
		b.sink.err = errAway
		b.add(10, 1)
		time.Sleep(2 * sweptPageWait)
		if !errors.Is(b.failed, errAway) {
			t.Errorf("the reader ends by %v, want %v", b.failed, errAway)
		}
		if err := b.pages.Add(t.Context(), timeID(20), nil); !errors.Is(err, errAway) {
			t.Errorf("Add() error = %v, want %v", err, errAway)
		}
		if err := b.pages.Idle(t.Context(), timeID(20)); !errors.Is(err, errAway) {
			t.Errorf("Idle() error = %v, want %v", err, errAway)
		}
		if got := b.stream.Reached(); !got.Equal(timeID(1).Time()) {
			t.Errorf("position = %s, want that before the event", got)
		}
		if got := b.handed(); got >= 10 {
			t.Errorf("handed on up to %d, want nothing", got)
		}
	})
}

// A reader that has ended submits nothing more: its rows are read again.
func TestSweptPages_SubmitsNothingAfterTheEnd(t *testing.T) {
	runSwept(t, func(t *testing.T, b *sweptBench) {
		ctx, end := context.WithCancel(t.Context())
		b.pages.sequencer.blocked.ctx = ctx
		b.add(10, 1)
		end()
		time.Sleep(2 * sweptPageWait)
		if len(b.sink.sizes) != 0 || b.failed != nil {
			t.Errorf("pages of %v events are submitted and the reader fails with %v, want neither", b.sink.sizes, b.failed)
		}
	})
}
