package relay

import (
	"fmt"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

const replayedType = "Replayed"

// BenchmarkReplays is replays from end to end: dead letters in the database that become due at once
// are claimed, published and resolved. They are in chains of four, with equal errors, so canaries
// go first.
//
// alone has no bound on the rate. beside has liveRate new events per second all
// the time, and replays at a bounded rate, or at any (rate=-1), every other while:
// live-ratio is the events per second that arrive during replays for each that
// does without, live-p50-ratio and live-p95-ratio the same of the time from when
// an event was to be written until a consumer has it. The plain live-p50-ms and
// live-p95-ms are without replays.
func BenchmarkReplays(b *testing.B) {
	const length, many = 2 * time.Second, 8000 // of a round with a bound on the rate, and dead letters of one without
	b.Run("alone", func(b *testing.B) {
		r := newReplayBench(b, many, func(c *Config) { c.ReplayRate = -1 })
		for i := range b.N {
			r.replay(i)
		}
		r.report()
	})
	for _, rate := range []int{1000, int(Defaults().ReplayRate), -1} {
		b.Run(fmt.Sprint("beside/rate=", rate), func(b *testing.B) {
			deadLetters := rate * int(length/time.Second)
			if rate < 0 {
				deadLetters = many
			}
			r := newReplayBench(b, deadLetters, func(c *Config) { c.ReplayRate = float64(rate) })
			load := r.w.load()
			var without []window
			b.ResetTimer()
			for i := range b.N {
				began := time.Now()
				time.Sleep(length)
				without = append(without, window{began, time.Now()})
				r.replay(i)
			}
			b.StopTimer()
			load.stop()
			r.report()
			rate0, took0 := load.during(without)
			rate1, took1 := load.during(r.took)
			b.ReportMetric(rate1/rate0, "live-ratio")
			for _, p := range []int{50, 95} {
				with, without := percentile(took1, p), percentile(took0, p)
				b.ReportMetric(without, fmt.Sprintf("live-p%d-ms", p))
				b.ReportMetric(with/without, fmt.Sprintf("live-p%d-ratio", p))
			}
		})
	}
}

// replayBench is a relay that knows of dead letters, some of which become due each round.
type replayBench struct {
	w      *liveWorld
	rounds [][]*dlq.DeadLetter
	took   []window
}

func newReplayBench(b *testing.B, deadLetters int, change func(*Config)) *replayBench {
	b.Helper()
	r := &replayBench{w: newLiveWorld(b)}
	for i := range b.N {
		ls := r.w.benchDeadLetters(i*deadLetters, deadLetters)
		r.w.storeDeadLetters(ls)
		r.rounds = append(r.rounds, ls)
	}
	r.w.start(change)
	if n := r.w.relay.Status().DeadLetters; n != b.N*deadLetters {
		b.Fatalf("the relay knows %d letters, want %d", n, b.N*deadLetters)
	}
	b.ResetTimer()
	return r
}

// replay makes the dead letters of a round due and waits until all are resolved.
func (r *replayBench) replay(round int) {
	r.w.b.Helper()
	p := r.w.relay.publisher.Load()
	began := time.Now()
	left := p.State().DeadLetters - len(r.rounds[round])
	ids := make([]gocql.UUID, 0, len(r.rounds[round]))
	for _, l := range r.rounds[round] {
		ids = append(ids, l.EventID)
	}
	p.ReplayNow(ids...)
	r.w.until("all letters are resolved", func() bool {
		return p.State().DeadLetters == left
	})
	r.took = append(r.took, window{began, time.Now()})
}

// report checks that each dead letter was published by one replay, and reports the number per
// second.
func (r *replayBench) report() {
	b := r.w.b
	b.Helper()
	b.StopTimer()
	var length time.Duration
	for _, w := range r.took {
		length += w.to.Sub(w.from)
	}
	want := 0
	for _, ls := range r.rounds {
		want += len(ls)
	}
	m := r.w.relay.metrics.Replays
	if n := relaytest.Count(m.WithLabelValues(dlq.StrategyImmediate, "published")) + relaytest.Count(m.WithLabelValues(dlq.StrategyFollow, "published")); int(n) != want {
		b.Errorf("%v letters were published by a replay, want %d", n, want)
	}
	last := r.rounds[len(r.rounds)-1]
	if l, err := r.w.store.Read(b.Context(), last[len(last)-1].EventID); err != nil || l.Status != dlq.Resolved || l.Outcome.Topic != replayedType {
		b.Errorf("Read() = %s, %s, %v, want a letter that is resolved, in its topic", l.Status, l.Outcome, err)
	}
	b.ReportMetric(float64(want)/length.Seconds(), "replays/s")
}
