package relay

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// retryRefused is a rule that tries refused events again.
func retryRefused(r dlq.StrategyRule) func(*Config) {
	r.Name, r.ErrorClasses = "retried", []string{chains.ClassRefused}
	return func(c *Config) { c.Rules = []dlq.StrategyRule{r} }
}

// all reads the dead letters of a world, whole, and what each waits for.
func (w *world) all() (deadLetters []dlq.DeadLetter, waits map[string]int) {
	w.t.Helper()
	holds, err := w.deadLetters().Holds(w.t.Context(), "outbox.outbox_messages")
	if err != nil {
		w.t.Fatal(err)
	}
	waits = make(map[string]int)
	if err := w.deadLetters().List(w.t.Context(), dlq.Filter{}, func(l *dlq.DeadLetter) error {
		whole, err := w.deadLetters().Read(w.t.Context(), l.EventID)
		deadLetters = append(deadLetters, whole)
		waits[whole.WaitsFor(holds, time.Now())]++
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return deadLetters, waits
}

// Of many dead letters with the same error one is tried, and when it fails again, the
// others wait untried. When the broker takes it the others follow, all of them.
func TestDeadLetters_CanariesStopAtTheSameError(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, retryRefused(dlq.StrategyRule{Strategy: dlq.StrategyImmediate, Delays: []time.Duration{time.Minute}}))
		defer w.close()
		refused := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "Away", Err: kerr.InvalidRecord, Count: -1})
		r, stop := w.run()
		all := relaytest.Events(40, 2, "Away")
		for _, e := range all {
			w.write(e)
		}
		time.Sleep(3*time.Minute + 30*time.Second)
		deadLetters, waits := w.all()
		tried := 0
		for _, l := range deadLetters {
			if l.Replays > 0 {
				tried++
			}
			if l.Status == dlq.Pending && (l.Rule != "retried" || l.Strategy != dlq.StrategyImmediate) {
				t.Errorf("letter %s has rule %q and strategy %q", l.EventID, l.Rule, l.Strategy)
			}
		}
		if len(deadLetters) != 80 || tried == 0 || tried > 4 {
			t.Errorf("%d of %d letters were tried in three minutes, want a canary a minute", tried, len(deadLetters))
		}
		held := 0
		for why, n := range waits {
			if strings.HasPrefix(why, "the next canary, at ") && strings.Contains(why, "INVALID_RECORD") {
				held = n
			}
		}
		if held < 30 {
			t.Errorf("letters wait for %v, want most of 40 for the next canary, and the error", waits)
		}
		if p := r.publisher.Load(); p.WaitingUnder(dlq.StrategyImmediate) != 40 || p.WaitingUnder(dlq.StrategyFollow) != 40 || p.WaitingUnder(dlq.StrategyManual) != 0 {
			t.Errorf("%d letters wait, want 40 immediate and 40 that follow", p.State().DeadLetters)
		}
		if n := relaytest.Count(r.metrics.CanaryStops); n == 0 {
			t.Error("no stop was counted")
		}
		refused.Remove()
		time.Sleep(5 * time.Minute)
		if s := r.Status(); s.DeadLetters != 0 {
			t.Errorf("%d dead letters are left though the broker takes them", s.DeadLetters)
		}
		for _, strategy := range dlq.Strategies {
			if n := r.publisher.Load().WaitingUnder(strategy); n != 0 {
				t.Errorf("%d dead letters wait as %s, want none", n, strategy)
			}
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("Away"), all)
	})
}

// busyCPU is a container whose CPU is busy while it is set. Its memory is full otherwise.
type busyCPU struct{ atomic.Bool }

func (b *busyCPU) Load(context.Context) (publish.Load, error) {
	if b.Bool.Load() {
		return publish.Load{CPU: 97, Memory: 50}, nil
	}
	return publish.Load{CPU: 12, Memory: 99}, nil
}

// A conditional dead letter waits until its condition holds, and reports which one does not; when
// it fails with the same error for the third time it is suspended, and reports that.
func TestDeadLetters_ConditionsAndTheSameError(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		var busy busyCPU
		busy.Store(true)
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			retryRefused(dlq.StrategyRule{Strategy: dlq.StrategyConditional, Conditions: []string{dlq.ConditionCPU, dlq.ConditionBreaker}})(c)
			c.LoadMeter = &busy
		})
		defer w.close()
		refused := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "Away", Err: kerr.InvalidRecord, Count: -1})
		_, stop := w.run()
		e := relaytest.Event(1, 1, "Away")
		e.Headers = map[string]string{outbox.HeaderPriority: "7"}
		w.write(e)
		time.Sleep(5 * time.Minute)
		l, waits := w.all()
		if m := l[0].Metadata; m["cpu"] != "0.97" || m["memory"] != "0.50" || l[0].Priority != 7 {
			t.Errorf("the state at the failure is %v, and the priority %d", m, l[0].Priority)
		}
		if len(l) != 1 || l[0].Replays != 0 || waits["a condition, cpu: it is at 97 %, the limit is 80 %"] != 1 {
			t.Errorf("with a busy machine: %d replays, and it waits for %v", l[0].Replays, waits)
		}
		busy.Store(false)
		time.Sleep(time.Minute)
		l, _ = w.all()
		if m := l[0].Metadata; m["cpu"] != "0.12" || m["memory"] != "0.99" || m["relay"] == "" || m["breaker"] == "" {
			t.Errorf("the state at the failed replay is %v", m)
		}
		if l[0].Replays != 1 || l[0].Status != dlq.Pending {
			t.Errorf("the machine is idle: %d replays, %s, want one, pending", l[0].Replays, l[0].Status)
		}
		time.Sleep(12 * time.Minute)
		l, waits = w.all()
		if l[0].Status != dlq.Suspended || l[0].Replays != 2 || !strings.HasPrefix(l[0].Waiting, "the same error 3 times: refused: ") {
			t.Errorf("after some minutes: %s, %d replays, %v, want suspended because of the same error", l[0].Status, l[0].Replays, waits)
		}
		refused.Remove()
		if err := w.deadLetters().Replay(t.Context(), e.ID.UUID(), dlq.Actor{Name: "ada"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("Away"), all(e))
	})
}

func all[T any](one ...T) []T { return one }

// A dead letter waits for its window, and for the next one if nobody was there.
func TestDeadLetters_WaitForTheWindow(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, retryRefused(dlq.StrategyRule{
			Strategy: dlq.StrategyScheduled, Windows: []string{"30 * * * *"}, WindowLength: 5 * time.Minute, TimeZone: "Asia/Kolkata", // at the full hour UTC
		}))
		defer w.close()
		refused := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "Away", Err: kerr.InvalidRecord, Count: -1})
		_, stop := w.run()
		e := relaytest.Event(1, 1, "Away")
		w.write(e)
		time.Sleep(30 * time.Second)
		l, _ := w.all()
		window := time.Now().UTC().Truncate(time.Hour).Add(time.Hour)
		if len(l) != 1 || !l[0].NextAttempt.Equal(window) || l[0].Strategy != dlq.StrategyScheduled {
			t.Fatalf("letters %+v, want one for %s", l, window)
		}
		refused.Remove()
		if err := stop(); err != nil { // and it is away when the window begins
			t.Errorf("Run() error = %v", err)
		}
		time.Sleep(time.Until(window.Add(50 * time.Minute)))
		_, stop = w.run()
		time.Sleep(2 * time.Minute)
		l, waits := w.all()
		if want := "an off-peak window, which begins at " + window.Add(time.Hour).Format(time.RFC3339); l[0].Status != dlq.Pending || waits[want] != 1 {
			t.Errorf("at %s the letter is %s and waits for %v, want %q", time.Now().UTC(), l[0].Status, waits, want)
		}
		time.Sleep(time.Until(window.Add(time.Hour + time.Minute)))
		if l, _ = w.all(); l[0].Status != dlq.Resolved {
			t.Errorf("in the window the letter is %s, want resolved", l[0].Status)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("Away"), all(e))
	})
}

// slow keeps records of a topic with the producer until it is called off.
func (w *world) slow(topic string) (end func()) {
	return w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotLeaderForPartition, Count: -1}).Remove
}

// patient gives the broker all the time there is.
func patient(c *Config) {
	c.AttemptTimeout, c.BreakerFailures, c.BreakerMinCalls = 10*time.Minute, 1000, 1000
}

// A relay that stops waits for replays that are with the producer, and their results are stored; no
// event of them is published again.
func TestDeadLetters_AStopWaitsForReplays(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, patient)
		defer w.close()
		refused := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "Away", Err: kerr.InvalidRecord, Count: -1})
		_, stop := w.run()
		sent := relaytest.Events(3, 3, "Away")
		for _, e := range sent {
			w.write(e)
		}
		time.Sleep(10 * time.Second)
		refused.Remove()
		end := w.slow("Away")
		for _, e := range sent[:3] {
			if err := w.deadLetters().Replay(t.Context(), e.ID.UUID(), dlq.Actor{Name: "ada"}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second)
		if got := w.statuses(); got[dlq.Processing] != 9 {
			t.Fatalf("letters are %v, want the chains under way", got)
		}
		time.AfterFunc(2*time.Second, end)
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		for _, e := range sent[:3] {
			if l, err := w.deadLetters().Read(t.Context(), e.ID.UUID()); err != nil || l.Status != dlq.Resolved {
				t.Errorf("after the stop a letter that was with the producer is %s, %v, want resolved", l.Status, err)
			}
		}
		if got := w.statuses(); got[dlq.Blocked] != 6 || len(got) != 1 {
			t.Errorf("the others are %v, want them blocked again", got)
		}
		_, stop = w.run()
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("Away"), sent)
	})
}

// A claim can run out while the database is away and a replay is under way. What
// an operator asks for then is done, whatever becomes of that replay.
func TestDeadLetters_AnOperatorsActionOutlivesTheClaim(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, patient)
		defer w.close()
		refused := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "Away", Err: kerr.InvalidRecord, Count: -1})
		_, stop := w.run()
		e, by := relaytest.Event(1, 1, "Away"), dlq.Actor{Name: "ada"}
		w.write(e)
		time.Sleep(10 * time.Second)
		refused.Remove()
		end := w.slow("Away")
		replay := func() {
			t.Helper()
			if err := w.deadLetters().Replay(t.Context(), e.ID.UUID(), by); err != nil {
				t.Fatal(err)
			}
		}
		replay()
		time.Sleep(2 * time.Second)
		back := w.deadLettersFail()
		time.Sleep(w.cfg.ClaimFor)
		back()
		replay() // the claim has run out
		refused = w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "Away", Err: kerr.InvalidRecord, Count: 2})
		end() // the replay under way is refused, twice
		time.Sleep(time.Minute)
		refused.Remove()
		if l, err := w.deadLetters().Read(t.Context(), e.ID.UUID()); err != nil || l.Status != dlq.Resolved {
			t.Errorf("Read() = %s, %v, want what the operator asked for done", l.Status, err)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("Away"), all(e))
	})
}
