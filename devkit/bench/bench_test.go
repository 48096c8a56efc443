package bench

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestEvents_NumberAndPlaceAgree(t *testing.T) {
	t.Parallel()
	e := NewEvents("T", 7, 100)
	last := make(map[int64]int64)
	for i := range int64(1000) {
		aggregate, seq := e.place(i)
		if seq != last[aggregate]+1 {
			t.Fatalf("event %d is number %d of aggregate %d, which had %d", i, seq, aggregate, last[aggregate])
		}
		last[aggregate] = seq
		if n := e.number(aggregate, seq); n != i {
			t.Fatalf("number(place(%d)) = %d", i, n)
		}
		ev := e.At(i)
		if err := ev.Validate(); err != nil {
			t.Fatal(err)
		}
		if n, ok := e.Number(ev.ID.UUID()); !ok || n != i {
			t.Fatalf("Number(id of %d) = %d, %v", i, n, ok)
		}
		if len(ev.Payload) != 100 {
			t.Fatalf("payload has %d bytes, want 100", len(ev.Payload))
		}
	}
	if _, ok := NewEvents("T", 7, 100).Number(e.At(1).ID.UUID()); ok {
		t.Error("events of another run were taken for ours")
	}
}

func TestEvents_PayloadsAreJSONOfTheirSize(t *testing.T) {
	t.Parallel()
	for _, size := range []int{2, 10, 30, 31, 512, 999_000} {
		for _, i := range []int64{0, 999_999} {
			if p := NewEvents("T", 1, size).At(i).Payload; len(p) != size || !json.Valid(p) {
				t.Errorf("event %d has a payload of %d bytes, want %d bytes of JSON: %.40s", i, len(p), size, p)
			}
		}
	}
}

func TestEvents_OfOneAggregate(t *testing.T) {
	t.Parallel()
	e := NewAggregate("T", 10)
	for i := range int64(300) {
		if ev := e.At(i); ev.AggregateID != e.At(0).AggregateID || ev.Sequence != i+1 {
			t.Fatalf("event %d is number %d of aggregate %s", i, ev.Sequence, ev.AggregateID)
		}
	}
}

func TestEvents_FreshIsOfAnotherAggregate(t *testing.T) {
	t.Parallel()
	for _, e := range []*Events{NewEvents("T", 7, 10), NewMessages("T", 10), NewAggregate("T", 10)} {
		for n := range int64(60) {
			fresh := e.At(e.Fresh(n))
			if fresh.Sequence != 1 {
				t.Errorf("after %d events a fresh one is number %d", n, fresh.Sequence)
			}
			for i := range n {
				if e.At(i).AggregateID == fresh.AggregateID {
					t.Errorf("after %d events a fresh one is of the aggregate of event %d", n, i)
				}
			}
		}
	}
}

// A benchmark's exit status depends on the counts.
func TestArrivals_CountLossAndDisorder(t *testing.T) {
	t.Parallel()
	e := NewEvents("T", 1, 100) // one aggregate after the other, four events each
	tests := []struct {
		name  string
		order []int64
		want  Counts
	}{
		{"all well", []int64{0, 1, 2, 3, 4}, Counts{Written: 5, Consumed: 5}},
		{"other aggregates in between", []int64{4, 0, 1, 5, 2}, Counts{Written: 5, Consumed: 5}},
		{"one twice", []int64{0, 1, 1, 2, 3}, Counts{Written: 5, Consumed: 4, Doubles: 1}},
		{"one missing", []int64{0, 1, 2, 3}, Counts{Written: 5, Consumed: 4}},
		{"two changed places", []int64{0, 2, 1, 3, 4}, Counts{Written: 5, Consumed: 5, Disorder: 2}},
	}
	for _, tt := range tests {
		a := NewArrivals(e, 8)
		for _, i := range tt.order {
			ev := e.At(i)
			a.take(NewRecord(&ev, "T"), time.Now())
		}
		a.take(&kgo.Record{}, time.Now())
		if got := a.Counts(5); got != tt.want || a.foreign.Load() != 1 {
			t.Errorf("%s: %+v and %d foreign, want %+v and 1", tt.name, got, a.foreign.Load(), tt.want)
		}
	}
}

func TestArrivals_OrderOfManyEventsOfAnAggregate(t *testing.T) {
	t.Parallel()
	e := NewAggregate("T", 10)
	const n = 70_000
	a := NewArrivals(e, n)
	for i := range int64(n) {
		ev := e.At(i)
		a.take(NewRecord(&ev, "T"), time.Now())
	}
	if got := a.Counts(n); !got.OK() {
		t.Errorf("%+v, want %d events in order", got, n)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	got := Median([]Contender{
		{Name: "a", Intended: Latency{P50: 3}, Counts: Counts{Written: 3}},
		{Name: "b", Intended: Latency{P50: 1}, Counts: Counts{Written: 1}},
		{Name: "c", Intended: Latency{P50: 9}, Counts: Counts{Written: 2}},
	})
	if want := (Contender{Name: "a", Intended: Latency{P50: 3}, Counts: Counts{Written: 2}}); got != want {
		t.Errorf("Median() = %+v, want %+v", got, want)
	}
}

// A quantile is not below its value, and at most a thousandth above.
func TestLatency_IsPrecise(t *testing.T) {
	t.Parallel()
	for us := int64(1); us <= maxLatency.Microseconds(); us += us/700 + 1 {
		h := newHistogram()
		record(h, time.Duration(us)*time.Microsecond)
		record(h, 2*maxLatency)
		if got := h.quantile(.5); got < us || float64(got-us) > float64(us)/1000 {
			t.Fatalf("of %d us: quantile = %d us", us, got)
		}
	}
}

func TestLatency_CountsFromWhenToBeSent(t *testing.T) {
	t.Parallel()
	h := newHistogram()
	for i := range 1000 {
		record(h, time.Duration(i+1)*time.Millisecond)
	}
	record(h, -time.Second) // a consumer may have it before the writer gets its response
	l := newLatency(h)
	if l.P50 < 495 || l.P50 > 505 || l.P99 < 985 || l.P99 > 995 || l.Max < 999 || l.Max > 1001 {
		t.Errorf("latencyOf() = %+v, want a uniform distribution up to 1000 ms", l)
	}
}
