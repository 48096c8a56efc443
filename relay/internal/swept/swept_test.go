package swept

import (
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// At most maxLeft aggregates are recorded as left; one more replaces them.
func TestTracker_RemembersABoundedNumber(t *testing.T) {
	t.Parallel()
	s := New(false, time.Millisecond)
	for i := range maxLeft {
		s.Leave(relaytest.EventID(i))
	}
	if n := len(s.mu.left); n != maxLeft {
		t.Errorf("%d aggregates are recorded, want %d", n, maxLeft)
	}
	s.Leave(relaytest.EventID(maxLeft))
	if n := len(s.mu.left); n != 1 {
		t.Errorf("%d aggregates are recorded after one more, want it alone", n)
	}
}

// The tail reader's state around the write time of an event is the cause that the sweep reader found it
// first. The last microsecond of a wait and of a failure belong to it, the first of the range to the
// range.
func TestTracker_Cause(t *testing.T) {
	t.Parallel()
	left, other := relaytest.EventID(1), relaytest.EventID(2)
	if c := New(true, time.Millisecond).Cause(left, 0); c != TailOff {
		t.Errorf("Cause() = %s without a tail reader, want tail_off", c)
	}
	s := New(false, time.Millisecond)
	if c := s.Cause(other, 5000); c != beforeStart {
		t.Errorf("Cause() = %s before the tail reader has read, want before_start", c)
	}
	s.Began(time.UnixMicro(5000))
	s.Began(time.UnixMicro(9000)) // has no effect
	if c := s.Cause(other, 4001); c != Late {
		t.Errorf("Cause() = %s of a row in the tail reader's range, want late", c)
	}
	s.Waited(time.UnixMicro(6000))
	s.Failed(time.UnixMicro(7000))
	for written, want := range map[int64]Cause{3999: beforeStart, 4000: HeldBack, 6000: HeldBack, 6001: Failing, 7000: Failing, 7001: Late} {
		if c := s.Cause(other, written); c != want {
			t.Errorf("Cause() = %s of a row written at %d, want %s", c, written, want)
		}
	}
	s.Leave(left)
	if c := s.Cause(left, 0); c != Left {
		t.Errorf("Cause() = %s, want left", c)
	}
	if c := s.Cause(left, 0); c == Left {
		t.Error("an aggregate remains recorded as left")
	}
}

// Each cause has a counter with its name.
func TestNewMetrics_CountsByCause(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	for c, counter := range NewMetrics(reg) {
		counter.Add(float64(c + 1))
	}
	want := make(map[string]float64)
	for c := range Causes {
		want[c.String()] = float64(c + 1)
	}
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "outbox_relay_events_swept_total" {
		t.Fatalf("Gather() = %v, %v, want outbox_relay_events_swept_total", families, err)
	}
	got := make(map[string]float64)
	for _, m := range families[0].GetMetric() {
		got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
	}
	if !maps.Equal(got, want) {
		t.Errorf("counters = %v, want %v", got, want)
	}
}

// Rows may be left to the sweep reader until the tail reader began, waited, or left an event.
func TestTracker_SweptFirst(t *testing.T) {
	t.Parallel()
	s := New(false, time.Millisecond)
	if got := s.SweptFirst(); got.Before(time.Now().AddDate(1000, 0, 0)) {
		t.Errorf("SweptFirst() = %s before the tail reader has read, want the far future", got)
	}
	s.Began(time.UnixMicro(5000))
	for _, step := range []struct {
		does func()
		want int64
	}{
		{func() {}, 4000},
		{func() { s.Waited(time.UnixMicro(3000)) }, 4000},
		{func() { s.Waited(time.UnixMicro(6000)) }, 6000},
		{func() { s.Failed(time.UnixMicro(9000)) }, 6000}, // it reads the same rows again
	} {
		if step.does(); s.SweptFirst().UnixMicro() != step.want {
			t.Errorf("SweptFirst() = %d, want %d", s.SweptFirst().UnixMicro(), step.want)
		}
	}
	before := time.Now().Truncate(time.Microsecond)
	if s.Leave(relaytest.EventID(1)); s.SweptFirst().Before(before) {
		t.Errorf("SweptFirst() = %s after an event was left at %s", s.SweptFirst(), before)
	}
}
