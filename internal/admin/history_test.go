package admin

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/internal/latency"
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

// A point has the number of events published between two readings, however short the bursts: each
// process counts once, also one that has ended since or began in between, and one that was there
// before the first reading only from then on.
func TestHistory_CountsDifferences(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 28, 2, 7, 31, 0, time.UTC)
	counts := newRelayCounts(at)
	relay := func(name string, started time.Time, events float64, change func(*heartbeatBody)) heartbeatBody {
		n := uint64(events)
		b := heartbeatBody{Name: name, Table: "t", Instance: "i", At: at, RelayStatus: heartbeat.RelayStatus{
			State: heartbeat.Running, StartedAt: &started, Published: events, Commits: &latency.Counts{Bounds: []float64{.002, .004}, Cumulative: []uint64{0, n, n}},
		}}
		if change != nil {
			change(&b)
		}
		return b
	}
	before, later := at.Add(-time.Hour), at.Add(time.Hour)
	s := newStep(at, historyStep)
	for _, heard := range [][]heartbeatBody{
		{relay("a", before, 8000, nil)},
		{relay("a", before, 8500, nil), relay("b", later, 70, nil), relay("e", later, 9000, func(b *heartbeatBody) { b.Sharing = new(heartbeat.RelaySharing) })},
		{relay("a", before, 8500, nil), relay("b", later, 100, func(b *heartbeatBody) { b.State = heartbeat.Stopped })},
		{relay("a", later.Add(time.Hour), 0, nil), relay("b", later, 100, func(b *heartbeatBody) { b.Silent = true })},
		{relay("a", later.Add(time.Hour), 0, nil)},
		nil,
	} {
		s.add(counts.since(heard, at))
	}
	p := s.point()
	if p.P50 == nil || p.P99 == nil {
		t.Fatalf("point() = %+v without a latency", p)
	}
	if got, want := fmt.Sprintf("%v %.4f %.2f %.2f", p.At, p.Published*300, *p.P50, *p.P99), "2026-11-28 02:05:00 +0000 UTC 600.0000 3.00 3.98"; got != want {
		t.Errorf("point() = %s, want %s", got, want)
	}
	if s.over(at.Add(148*time.Second)) || !s.over(at.Add(149*time.Second)) {
		t.Error("the step does not end at 02:10:00")
	}
	if p := newStep(at, historyStep).point(); p.P50 != nil || p.P99 != nil || p.Published != 0 {
		t.Errorf("point() of nothing = %+v", p)
	}
}

// A server records points while it serves, with the number of events published since the last one.
// One that cannot be written is missing, and later ones are written.
func TestHistory_Records(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{})
	published := func(n int) {
		t.Helper()
		if err := b.Session.Query("INSERT INTO outbox.relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', 'r', 't', 'i', ?, ?)",
			time.Now(), fmt.Sprintf(`{"state":"running","started_at":"2026-01-02T03:04:05Z","published_total":%d,"commit_latency":{"bounds":[0.002],"cumulative":[%d,%d]}}`, n, n, n)).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	published(8500)
	b.Node.Faults().MustAdd(faults.Rule{
		Match: faults.Match{Table: "admin_history", Kinds: []engine.OpKind{engine.OpWrite}}, Count: 1, Effect: faults.Effect{Failure: faults.WriteTimeout("", 0, 1)},
	})
	b.Server.history.step, b.Server.history.sample = 50*time.Millisecond, 10*time.Millisecond
	world.Run(t, func(ctx context.Context) error {
		b.Server.history.run(ctx)
		return nil
	})
	world.Eventually(t, "the history has two points", func() bool { return len(b.history(t, "")) >= 2 })
	published(8500 + 40) // at once: a rate of the last two seconds would be 0 at most readings
	var sum float64
	world.Eventually(t, "the history has the events", func() bool {
		sum = 0
		for _, p := range b.history(t, "") {
			sum += p.Published * b.Server.history.step.Seconds()
			if p.Open != 1 || p.Total != 1 || (p.P50 != nil) != (p.Published > 0) {
				t.Fatalf("point %+v, want 1 dead letter, and a latency with events", p)
			}
		}
		return sum > 0
	})
	if math.Round(sum) != 40 {
		t.Errorf("the points have %v events, want 40", sum)
	}
	var live struct {
		StepSeconds int            `json:"step_seconds"`
		Points      []historyPoint `json:"points"`
	}
	world.Eventually(t, "the samples have the dead letter", func() bool {
		b.ask(t, access.Viewer, "GET", "/v1/history?live=true", "").into(t, 200, &live)
		return len(live.Points) == recentSamples
	})
	for i, p := range live.Points {
		if p.Open != 1 || p.Total != 1 || i > 0 && live.Points[i-1].At.After(p.At) { // equal within a millisecond: a tick waited
			t.Errorf("sample %d is %+v, want 1 dead letter, and no earlier than the one before", i, p)
		}
	}
	if live.StepSeconds != 15 {
		t.Errorf("a sample is taken every %d s, want 15", live.StepSeconds)
	}
	if !strings.Contains(b.log.String(), "a point of the history is missing") {
		t.Errorf("the log lacks the missing point: %s", b.log)
	}
}

// A process that began within a step leaves the point of one that has counted all of it.
func TestHistory_PartialPoints(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	step := newStep(time.Now().Add(-historyStep), historyStep)
	part := *step
	step.add(published{events: 600})
	part.add(published{events: 3})
	for _, w := range []struct {
		step    *historyCount
		partial bool
		want    float64
	}{{&part, true, .01}, {step, false, 2}, {&part, true, 2}} {
		if err := b.Server.history.write(t.Context(), w.step, w.partial); err != nil {
			t.Fatal(err)
		}
		if got := b.history(t, ""); len(got) != 1 || got[0].Published != w.want {
			t.Errorf("the history is %+v, want one point with %v events per second", got, w.want)
		}
	}
}

// A request reads the points of its period over days, and at most seven of them.
func TestHistory_Periods(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	now := time.Now().UTC().Truncate(historyStep)
	for _, age := range []time.Duration{0, time.Hour, 25 * time.Hour, 49 * time.Hour, 6*24*time.Hour + time.Hour, 7*24*time.Hour + time.Hour} {
		if err := b.Server.history.write(t.Context(), newStep(now.Add(-age), historyStep), false); err != nil {
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
