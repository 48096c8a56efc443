package bench

import (
	"strings"
	"testing"
)

// The relay's cost to the database is the time for an event minus the time of its write, and has no
// figure where the latter is unknown.
func TestCostReport_SubtractsTheWrites(t *testing.T) {
	t.Parallel()
	r := CostReport{Head: Head{Runs: 1, Rate: 1000, Payload: 512}, Streams: 16, Writes: 61, Points: []CostPoint{{
		Interval: "1s", Hints: Contender{Committed: Latency{P50: 20, P99: 40}, Queries: 70, DatabaseEvent: 75}, Polling: Contender{Queries: 30},
	}}}
	for writes, want := range map[float64]string{61: "| 1s | 20 | 40 | 70 | 14 µs |  |  | 30 |  |", 0: "| 1s | 20 | 40 | 70 |  |  |  | 30 |  |"} {
		r.Writes = writes
		var out strings.Builder
		if err := WriteMarkdown(&out, &r); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("without %g µs for the write:\n%s\nwant a row %s", writes, out.String(), want)
		}
	}
}

// The rows of numbers of streams have the number that the table had.
func TestStreamReport_ShowsTheTrueNumberOfStreams(t *testing.T) {
	t.Parallel()
	r := StreamReport{Head: Head{Runs: 1, Rate: 1000, Payload: 512}, Drain: 100, Shapes: []StreamShape{{
		Name: "tablets", Idle: Idle{Streams: 2}, Tail: Drained{Rate: Rate{PerSecond: 50}}, Peer: Drained{Rate: Rate{PerSecond: 100}},
	}}}
	var out strings.Builder
	if err := WriteMarkdown(&out, &r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| 2, tablets |  |", "| 2, tablets | 50 | 50 % |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s\nwant a row %s", out.String(), want)
		}
	}
}
