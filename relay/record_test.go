package relay

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// newRecorder is as much of a publisher as record needs.
func newRecorder() *publisher {
	cfg := testEngineConfig()
	cfg.Source = "/shop"
	return &publisher{cfg: &cfg, breaker: newBreaker(&cfg, newEngineMetrics(prometheus.NewRegistry()))}
}

// Behind an event's own headers stand those that tell of its way, and only what
// is not as usual.
func TestRecord_TellsOfTheWay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		item    item
		breaker BreakerState
		want    []string
	}{
		{"by the tail", item{by: byTail, attempts: 1}, BreakerClosed, []string{"ce_captured=tail"}},
		{"by the sweep", item{by: bySweep, attempts: 1}, BreakerClosed, []string{"ce_captured=sweep"}},
		{"by its key", item{by: byKey, attempts: 1}, BreakerClosed, []string{"ce_captured=key"}},
		{"by a backfill of what the log has too", item{by: byBackfill, attempts: 1}, BreakerClosed, []string{"ce_captured=backfill"}},
		{"by a backfill", item{by: byBackfill, scanned: true, attempts: 1}, BreakerClosed, []string{"ce_captured=backfill", "ce_backfill=1"}},
		{"again", item{by: byTail, attempts: 2}, BreakerClosed, []string{"ce_captured=tail", "ce_attempts=2"}},
		{"by a replay", item{by: bySweep, attempts: 1, buried: 5}, BreakerClosed, []string{"ce_captured=sweep", "ce_attempts=6"}},
		{"as a probe", item{by: bySweep, attempts: 1}, BreakerHalfOpen, []string{"ce_captured=sweep", "ce_breaker=half-open"}},
		{"by a replay of a letter of an earlier version", item{by: byUnknown, attempts: 2, buried: 1}, BreakerHalfOpen, []string{"ce_attempts=3", "ce_breaker=half-open"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, it := newRecorder(), c.item
			it.topic, it.event = "T", relaytest.Event(1, 1, "OrderCreated")
			it.event.Headers = map[string]string{"traceparent": "x"}
			p.breaker.status.State = c.breaker
			r := p.record(&it)
			own := outbox.AppendHeaders[kgo.RecordHeader](nil, &it.event, "/shop")
			var got []string
			for _, h := range r.Headers[len(own):] {
				got = append(got, h.Key+"="+string(h.Value))
			}
			if !slices.Equal(got, c.want) || r.Topic != "T" || string(r.Value) != string(it.event.Payload) || string(r.Key) != it.event.AggregateID.String() {
				t.Errorf("record() = %+v with %q, want %q", r, got, c.want)
			}
			e, source, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
			if err != nil || source != "/shop" || e.ID != it.event.ID || len(e.Headers) != 1 {
				t.Errorf("FromRecord() = %+v, %q, %v, want the event without them", e, source, err)
			}
		})
	}
}

// What every event has is there without an allocation.
func TestRecord_UsuallyCostsNoAllocation(t *testing.T) { //nolint:paralleltest // others would allocate meanwhile
	p := newRecorder()
	for _, headers := range []map[string]string{nil, benchHeaders} {
		it := &item{by: byTail, attempts: 1, topic: "T", event: benchEvent(1)}
		it.event.Headers = headers
		var kept *kgo.Record
		bare := testing.AllocsPerRun(100, func() {
			kept = &kgo.Record{Topic: it.topic, Key: it.event.Key(), Value: it.event.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &it.event, p.cfg.Source)}
		})
		own := len(kept.Headers)
		with := testing.AllocsPerRun(100, func() { kept = p.record(it) })
		if with != bare || len(kept.Headers) != own+1 {
			t.Errorf("record() makes %v allocations for %d headers, want the %v of its event's %d", with, len(kept.Headers), bare, own)
		}
	}
}

// Each record says how its event came to its topic, also of dead letters that a
// restart lies between.
func TestRecord_OfEventsOfAnOutage(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		_, stop := w.run()
		time.Sleep(10 * time.Second)
		all := relaytest.Events(10, 4, "OrderUpdated")
		for _, e := range all[:20] {
			w.write(e)
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		back := w.unreachable()
		for _, e := range all[20:] {
			w.write(e)
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		attempts := make(map[string]int)
		for id, e := range w.open() {
			attempts[id.String()] = e.Attempts
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		back()
		_, stop = w.run()
		time.Sleep(2 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		got := w.consume("OrderUpdated")
		relaytest.CheckOrder(t, got, all)
		replayed := 0
		for _, d := range got {
			before, letter := attempts[d.ID.String()]
			n, _ := strconv.Atoi(d.Header(outbox.HeaderAttempts))
			switch {
			case d.Header(outbox.HeaderCaptured) == "":
				t.Errorf("event %s (seq %d) has %q, which do not say who found it", d.ID, d.Sequence, d.RecordHeaders)
			case d.Sequence <= 2 && (d.Header(outbox.HeaderCaptured) != outbox.CapturedTail || n != 0 || d.Header(outbox.HeaderBreaker) != ""):
				t.Errorf("event %s (seq %d), of before the outage, has %q, want that it came by the tail and nothing else", d.ID, d.Sequence, d.RecordHeaders)
			case letter && before > 0:
				if replayed++; n != before+1 {
					t.Errorf("event %s, of %d attempts before its replay, says %d", d.ID, before, n)
				}
			}
		}
		t.Logf("%d dead letters, %d of them tried before", len(attempts), replayed)
		if len(attempts) == 0 {
			t.Error("no event became a dead letter")
		}
	})
}
