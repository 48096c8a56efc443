package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// patience is how long a benchmark waits for its database, which it measures and
// which a busy machine holds up.
var patience = harness.Patience.String()

// The results of bench are not tested here, except that it counts each event
// once.
func TestBench_EveryEventOnce(t *testing.T) {
	t.Parallel()
	out := harness.Must(t, "bench", "--rate", "200", "--duration", "500ms", "--idle", "200ms", "--drain", "300",
		"--restart", "--restart-rate", "100", "--scylla-timeout", patience, "-o", "json")
	var r bench.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("bench printed %q: %v", out, err)
	}
	if len(r.Latency) != 3 || len(r.Drain) != 3 || r.Idle == nil || r.Restart == nil || r.Ceilings == nil {
		t.Fatalf("bench is incomplete: %s", out)
	}
	for _, c := range r.Latency {
		want := bench.Counts{Written: 300, Consumed: 300}
		if got := c.Counts; strings.HasPrefix(c.Name, "scylla-cdc-go") && got.Consumed > 0 {
			// Its confidence window is 1 ms here. On a busy machine it loses later rows
			// or reads them after newer ones; bench reports this, and the relay has two
			// readers because of it.
			want.Consumed, want.Disorder = got.Consumed, got.Disorder
		}
		if c.Counts != want {
			t.Errorf("latency of %s: %+v, want %+v", c.Name, c.Counts, want)
		}
		if c.Queries <= 0 || c.Intended.P50 <= 0 || c.Intended.Max < c.Intended.P50 {
			t.Errorf("latency of %s has figures that cannot be: %+v", c.Name, c)
		}
	}
	for _, d := range r.Drain {
		if want := (bench.Counts{Written: 300, Consumed: 300}); d.Counts != want {
			t.Errorf("drain of %s: %+v, want %+v", d.Name, d.Counts, want)
		}
	}
	if r.Ceilings.Read.Count != 300 || r.Ceilings.Produce.Count != 300 {
		t.Errorf("ceilings: %+v, want 300 rows and records", r.Ceilings)
	}
	if c := r.Restart.Counts; c.Written != 150 || !c.OK() || r.Restart.First <= 0 {
		t.Errorf("restart: %+v, want 150 events, each once", r.Restart)
	}
}

// Every load is answered or refused, none fails, and none is missing.
func TestBench_ServicesAnswerEveryRequest(t *testing.T) {
	t.Parallel()
	for what, args := range map[string][]string{
		"orders":   {"--overload", "2", "--rate", "100", "--concurrency", "8"},
		"messages": {"--rate", "2000", "--concurrency", "1"},
	} {
		out := harness.Must(t, append([]string{"bench", what, "--duration", "300ms", "--calm", "50", "--scylla-timeout", patience, "-o", "json"}, args...)...)
		var r bench.ServiceReport
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("bench %s printed %q: %v", what, out, err)
		}
		if want := map[string]int{"orders": 16, "messages": 7}[what]; len(r.Phases) != want || len(r.Goals) == 0 {
			t.Errorf("bench %s: %d loads and %d goals, want %d loads: %s", what, len(r.Phases), len(r.Goals), want, out)
		}
		for _, p := range r.Phases {
			if p.Done == 0 && p.Unsent > 0 {
				continue // the machine was paused, and all callers had timed out
			}
			if p.Done == 0 || p.Failed > 0 || p.Sent.Max < p.Sent.P50 || p.Kind == bench.Whole && p.Own.P95 <= 0 {
				t.Errorf("bench %s, %s: %+v", what, p.Name(), p)
			}
		}
	}
}

// Scheduled messages arrive once, and the relay is notified of each release.
func TestBench_ScheduledMessagesOnce(t *testing.T) {
	t.Parallel()
	out := harness.Must(t, "bench", "schedule", "--waiting", "200", "--burst", "100", "--rate", "100", "--duration", "500ms", "--idle", "200ms", "--scylla-timeout", patience, "-o", "json")
	var r bench.ScheduleReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("bench schedule printed %q: %v", out, err)
	}
	if len(r.Live) != 2 || r.Live[0].Latency.Max <= 0 || r.Live[1].Counts.Written == 0 || !r.Live[1].Counts.OK() {
		t.Errorf("events beside them: %+v", r.Live)
	}
	if len(r.Parts) != 3 || r.Many.Messages != 200 || r.Many.ResidentMB <= 0 || r.Stored.Count != 200 {
		t.Fatalf("bench schedule is incomplete: %s", out)
	}
	for i, want := range []int64{50, 50, 100} {
		p := r.Parts[i]
		if p.Counts != (bench.Counts{Written: want, Consumed: want}) || p.Hinted == 0 || p.Late.Max <= 0 {
			t.Errorf("%s: %+v, want %d messages, each once, and readings because of them", p.Name, p, want)
		}
	}
}

// Every event comes once, although a relay is killed: one alone is started again, and the
// shard of one of two is taken over.
func TestBench_SustainedLoad(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "outbox.yaml")
	if err := os.WriteFile(config, []byte("relay: {session_timeout: 1500ms}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for processes, batch := range map[int]string{1: "1", 2: "7"} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			t.Parallel()
			out := harness.Must(t, "bench", "sustained", "--rate", "100", "--duration", "1s", "--processes", fmt.Sprint(processes), "--write-batch", batch,
				"--config", config, "--scylla-timeout", patience, "-o", "json")
			var r bench.SustainedReport
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				t.Fatalf("bench sustained printed %q: %v", out, err)
			}
			// A second each of warm-up, load and rest, and three session timeouts.
			if want := (bench.Counts{Written: 750, Consumed: 750}); r.Counts != want || r.Shards != processes {
				t.Errorf("%d shards, %+v; want %d, %+v", r.Shards, r.Counts, processes, want)
			}
			if len(r.Intervals) != 5 {
				t.Errorf("%d intervals, want 5", len(r.Intervals))
			}
			stored, fresh := 0.0, int64(0)
			for _, v := range r.Intervals {
				stored, fresh = stored+v.Stored/5, max(fresh, v.Fresh)
				if v.Committed.Max < v.Committed.P50 || v.FreshLimit <= 0 || v.Queries <= 0 {
					t.Errorf("until %g s: figures that cannot be: %+v", v.End, v)
				}
			}
			if stored == 0 || fresh == 0 {
				t.Errorf("%g events stored, %d ids in the dedup index, want some", stored, fresh)
			}
			k := r.Takeover
			if k.First <= 0 || (k.Waited > 0) != (k.Recovered > 0) || k.ReadBack == 0 || k.Received == 0 {
				t.Errorf("takeover: %+v", k)
			}
			// The others wait for the session timeout; the same host's next process does not.
			if processes > 1 && k.Waited == 0 {
				t.Errorf("no event waited for the takeover: %+v", k)
			}
		})
	}
}

// Loads of every shape are measured, and each event is published once.
func TestBench_ShapesOfLoad(t *testing.T) {
	t.Parallel()
	out := harness.Must(t, "bench", "shapes", "--events", "60", "--aggregates", "300", "--restart-events", "200", "--rate", "200", "--duration", "500ms", "--scylla-timeout", patience, "-o", "json")
	var r bench.ShapeReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("bench shapes printed %q: %v", out, err)
	}
	if len(r.Shapes) != 6 || len(r.Load) != 2 || r.Resumed == nil {
		t.Fatalf("bench shapes is incomplete: %s", out)
	}
	once := func(what string, got bench.Counts, n int64) {
		t.Helper()
		if want := (bench.Counts{Written: n, Consumed: n}); got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	for i, n := range []int64{60, 60, 60, 60, 300, 6} {
		s := r.Shapes[i]
		once(s.Name+" by the relay", s.Relay.Counts, n)
		once(s.Name+" by the peer", s.Peer.Counts, n)
		if s.Relay.EventCPU <= 0 || s.Relay.Process.PeakMB <= 0 || s.Peer.Process.PeakMB <= 0 {
			t.Errorf("%s has figures that cannot be: %+v", s.Name, s)
		}
	}
	once("one aggregate under load", r.Load[0].Counts, 300)
	once("restart", r.Resumed.Counts, 201)
	if x := r.Resumed; x.ReadBack != 200 || x.First <= x.Waited || x.Waited <= 0 || x.ReadMB <= 0 || x.PeakMB <= 0 {
		t.Errorf("restart has figures that cannot be: %+v", x)
	}
}
