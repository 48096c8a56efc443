package admin

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

func (b *fixture) history(t *testing.T, query string) (got []historyPoint) {
	t.Helper()
	var out struct {
		StepSeconds int            `json:"step_seconds"`
		Points      []historyPoint `json:"points"`
	}
	b.ask(t, access.Viewer, "GET", "/v1/history"+query, "").into(t, 200, &out)
	if out.StepSeconds != 300 || out.Points == nil {
		t.Fatalf("the history is %+v, want steps of 300 s", out)
	}
	return out.Points
}

// A point counts what runs once: neither instances of shards, nor silent and stopped relays,
// nor the process before.
func TestHistory_Samples(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 28, 2, 7, 31, 0, time.UTC)
	s := newStep(at, historyStep)
	relay := func(name string, age time.Duration, change func(*heartbeatBody)) heartbeatBody {
		b := heartbeatBody{Name: name, Table: "t", At: at.Add(-age), RelayStatus: RelayStatus{
			State: stateRunning, Rates: relayRates{Published: 100}, Latency: &relayLatency{P50: 2, P99: 9},
		}}
		change(&b)
		return b
	}
	s.add([]heartbeatBody{
		relay("a", 0, func(b *heartbeatBody) { b.Latency.P99 = 7 }),
		relay("a", time.Second, func(b *heartbeatBody) { b.Rates.Published = 7000 }),
		relay("b", 0, func(b *heartbeatBody) { b.Latency = &relayLatency{P50: 4, P99: 5} }),
		relay("c", 0, func(b *heartbeatBody) { b.Silent = true }),
		relay("d", 0, func(b *heartbeatBody) { b.State = stateStopped }),
		relay("e", 0, func(b *heartbeatBody) { b.Sharing = new(relaySharing) }),
	})
	s.add([]heartbeatBody{relay("a", 0, func(b *heartbeatBody) { b.Rates.Published, b.Latency = 0, nil })})
	p := s.point()
	if p.P50 == nil || p.P99 == nil {
		t.Fatalf("point() = %+v without a latency", p)
	}
	if got, want := fmt.Sprint(p.At, p.Published, *p.P50, *p.P99), "2026-11-28 02:05:00 +0000 UTC 100 4 7"; got != want {
		t.Errorf("point() = %s, want %s", got, want)
	}
	if s.over(at.Add(148*time.Second)) || !s.over(at.Add(149*time.Second)) {
		t.Error("the step does not end at 02:10:00")
	}
	if p := newStep(at, historyStep).point(); p.P50 != nil || p.P99 != nil || p.Published != 0 {
		t.Errorf("point() without samples = %+v", p)
	}
}

// A server records points while it serves. One that cannot be written is missing, and later
// ones are written.
func TestHistory_Records(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{})
	if err := b.Session.Query("INSERT INTO outbox.relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', 'r', 't', 'i', ?, ?)",
		time.Now().Add(time.Hour), `{"state":"running","rates":{"published":50},"latency":{"p50_ms":1,"p99_ms":3}}`).Exec(); err != nil {
		t.Fatal(err)
	}
	b.Node.Faults().MustAdd(faults.Rule{
		Match: faults.Match{Table: "admin_history", Kinds: []engine.OpKind{engine.OpWrite}}, Count: 1, Effect: faults.Effect{Failure: faults.WriteTimeout("", 0, 1)},
	})
	b.Server.history.step, b.Server.history.sample = 50*time.Millisecond, 10*time.Millisecond
	world.Run(t, func(ctx context.Context) error {
		b.Server.history.run(ctx)
		return nil
	})
	world.Eventually(t, "the history has two points", func() bool { return len(b.history(t, "")) >= 2 })
	for _, p := range b.history(t, "") {
		if p.Open != 1 || p.Total != 1 || p.Published != 50 || p.P50 == nil || *p.P50 != 1 || p.P99 == nil || *p.P99 != 3 {
			t.Errorf("point %+v, want 1 dead letter, 50 events per second, 1 and 3 ms", p)
		}
	}
	if !strings.Contains(b.log.String(), "a point of the history is missing") {
		t.Errorf("the log lacks the missing point: %s", b.log)
	}
}

// A request reads the points of its period over days, and at most seven of them.
func TestHistory_Periods(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	now := time.Now().UTC().Truncate(historyStep)
	for _, age := range []time.Duration{0, time.Hour, 25 * time.Hour, 49 * time.Hour, 6*24*time.Hour + time.Hour, 7*24*time.Hour + time.Hour} {
		if err := b.Server.history.write(t.Context(), newStep(now.Add(-age), historyStep)); err != nil {
			t.Fatal(err)
		}
	}
	at := func(age time.Duration) string { return now.Add(-age).Format(time.RFC3339) }
	for query, want := range map[string]int{
		"":                             2,
		"?since=" + at(48*time.Hour):   3,
		"?since=" + at(1000*time.Hour): 5,
		"?until=" + at(24*time.Hour):   1, // by default the day before it
		"?since=" + at(50*time.Hour) + "&until=" + at(time.Hour): 2,
	} {
		got := b.history(t, query)
		if len(got) != want {
			t.Errorf("history%s has %d points, want %d", query, len(got), want)
		}
		for i := 1; i < len(got); i++ {
			if !got[i-1].At.Before(got[i].At) {
				t.Errorf("history%s is not in order: %v", query, got)
			}
		}
	}
	if p := b.ask(t, access.Viewer, "GET", "/v1/history?since="+at(time.Hour)+"&until="+at(2*time.Hour), "").problemIn(t, 422); !strings.Contains(fmt.Sprint(p.Errors), "before until") {
		t.Errorf("the problem is %+v", p)
	}
}
