package relay

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

// While the breaker is open events become dead letters; when it closes they go
// out by themselves, in order and once, before newer ones of their aggregates.
func TestDeadLetters_SpillAndComeBack(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.TailMaxInterval = Defaults().TailMaxInterval })
		defer w.close()
		r, stop := w.run()
		topics := []string{"OrderCreated", "OrderUpdated"}
		all := relaytest.Events(20, 12, topics...)
		for _, e := range all[:80] {
			w.write(e)
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		end := w.unreachable()
		for _, e := range all[80:160] {
			w.write(e)
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Minute + 10*time.Second)
		s := r.Status()
		if s.Breaker.State == publish.BreakerClosed || s.Breaker.Cause == nil || len(s.Problems) == 0 {
			t.Errorf("in the outage the breaker is %+v and the problems are %q, want open, a cause, and said", s.Breaker, s.Problems)
		}
		// Records sent before the breaker opened wait in the producer, and their aggregates behind
		// them.
		if s.Spilled < 40 || s.BlockedAggregates < 10 {
			t.Errorf("spilled %d events of %d aggregates, want most of 80 of 20", s.Spilled, s.BlockedAggregates)
		}
		open, tried := w.open(), 0
		if len(open) != s.DeadLetters {
			t.Errorf("the table has %d dead letters, the relay knows %d", len(open), s.DeadLetters)
		}
		for _, e := range open {
			tried += min(e.Attempts, 1)
		}
		// The breaker was half-open twice: dead letters that were claimed then, and not published,
		// were released. None of that was a replay that failed.
		if n := relaytest.Count(r.metrics.Replays.WithLabelValues(dlq.StrategyBreakerClose, "called_off")); n == 0 {
			t.Error("no replay was called off: the breaker let none begin")
		}
		for id := range open {
			deadLetter, err := w.deadLetters().Read(t.Context(), id)
			if err != nil {
				t.Fatalf("Read() error = %v", err)
			}
			if deadLetter.Replays != 0 || deadLetter.ErrorClass == chains.ClassBreakerOpen && deadLetter.Strategy != dlq.StrategyBreakerClose {
				t.Errorf("dead letter %s counts %d replays, strategy %s: an open breaker costs none", id, deadLetter.Replays, deadLetter.Strategy)
			}
		}
		if tried > len(open)/2 {
			t.Errorf("%d of %d dead letters used up attempts, want those alone that were sent before the breaker opened", tried, len(open))
		}
		end()
		for _, e := range all[160:] { // newer events while the breaker closes
			w.write(e)
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(2 * time.Minute)
		if s := r.Status(); len(s.Problems) > 0 || s.DeadLetters != 0 || s.InFlight != 0 {
			t.Errorf("Status() after the outage = %+v, want no dead letters and no problems", s)
		}
		var waited dto.Metric
		if err := r.metrics.DeadLetterSeconds.Write(&waited); err != nil {
			t.Fatal(err)
		}
		if h := waited.GetHistogram(); h.GetSampleCount() < uint64(len(open)) || h.GetSampleSum() < float64(len(open)) {
			t.Errorf("%d letters waited for %v s in all, want each of %d to count", h.GetSampleCount(), h.GetSampleSum(), len(open))
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		if open := w.open(); len(open) > 0 {
			t.Errorf("%d dead letters are open after all", len(open))
		}
		got := w.consume(topics...)
		relaytest.CheckOrder(t, got, all)
		relaytest.CheckTimes(t, got)
	})
}

// Beyond the limit nothing is spilled: the relay holds, and the log is the buffer.
func TestDeadLetters_HoldAfterTheLimit(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.SpillLimit, c.MaxInFlightRecords = 30, 50
		})
		defer w.close()
		r, stop := w.run()
		time.Sleep(time.Second)
		end := w.unreachable()
		all := relaytest.Events(10, 30, "OrderUpdated")
		for _, e := range all {
			w.write(e)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Minute)
		s := r.Status()
		if s.Spilled < 30 || s.Spilled > 30+publish.WriteConcurrency || !s.Holding || s.InFlight > 50 {
			t.Errorf("in the outage: want some 30 spilled (at most %d writers more), holding, at most 50 in flight: %+v", publish.WriteConcurrency, s)
		}
		end()
		time.Sleep(5 * time.Minute)
		if s := r.Status(); len(s.Problems) > 0 || s.DeadLetters != 0 {
			t.Errorf("Status() after the outage = %+v", s)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
	})
}

// An event that the broker refuses is a dead letter for an operator; the later events of its
// aggregate are blocked, events of others continue. The operator's action unblocks the blocked
// ones, in order.
func TestDeadLetters_BlockBehindARefusedEvent(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"replay", "discard", "unblock", "resolve"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.Kafka = append(c.Kafka, relaytest.NoCompression()) })
				defer w.close()
				all := relaytest.Events(5, 8, "OrderCreated", "OrderUpdated")
				schema := map[string]string{outbox.HeaderDataSchema: "/schemas/1"}
				all[5*2+3].Headers = schema
				bad := all[5*2+3] // aggregate 3, number 3
				end := w.refuse(bad.ID.UUID(), kerr.InvalidRecord)
				_, stop := w.run()
				for _, e := range all[:25] {
					w.write(e)
				}
				time.Sleep(10 * time.Second)
				deadLetter, err := w.deadLetters().Read(t.Context(), bad.ID.UUID())
				if err != nil || deadLetter.Status != dlq.Suspended || deadLetter.ErrorClass != chains.ClassRefused || deadLetter.ErrorCode != "INVALID_RECORD" ||
					string(deadLetter.Payload) != string(bad.Payload) || deadLetter.Topic != bad.Type || deadLetter.Attempts < 2 || len(deadLetter.ErrorChain) == 0 {
					t.Fatalf("Read() = %+v, %v, want the refused event, suspended, whole", deadLetter, err)
				}
				_ = stop()
				r, stop := w.run() // a restart keeps the chain
				for _, e := range all[25:] {
					w.write(e)
				}
				time.Sleep(10 * time.Second)
				if got := w.statuses(); got[dlq.Suspended] != 1 || got[dlq.Blocked] != 5 || len(got) != 2 {
					t.Errorf("dead letters = %v, want one suspended and the five behind it blocked", got)
				}
				if s := r.Status(); s.BlockedAggregates != 1 || s.DeadLetters != 6 || s.InFlight != 0 {
					t.Errorf("Status() = %+v", s)
				}
				relaytest.CheckOrder(t, w.consume("OrderCreated", "OrderUpdated"), slices.DeleteFunc(slices.Clone(all), func(e outbox.Event) bool {
					return e.AggregateID == bad.AggregateID && e.Sequence >= bad.Sequence
				}))
				if how == "replay" {
					end()
				}
				by := dlq.Actor{Name: "ada", Reason: "test"}
				act := map[string]func() error{
					"replay":  func() error { return w.deadLetters().Replay(t.Context(), bad.ID.UUID(), by) },
					"discard": func() error { return w.deadLetters().Discard(t.Context(), bad.ID.UUID(), by) },
					"unblock": func() error { return w.deadLetters().Unblock(t.Context(), bad.ID.UUID(), by) },
					"resolve": func() error { return w.deadLetters().ResolveByHand(t.Context(), bad.ID.UUID(), by) },
				}
				if err := act[how](); err != nil {
					t.Fatalf("%s error = %v", how, err)
				}
				time.Sleep(20 * time.Second)
				want, left := all, 0
				if how != "replay" {
					want = slices.DeleteFunc(slices.Clone(all), func(e outbox.Event) bool { return e.ID == bad.ID })
				}
				if how == "unblock" {
					left = 1
				}
				if s := r.Status(); s.BlockedAggregates != 0 || s.DeadLetters != left {
					t.Errorf("Status() after %s: %d blocked, %d dead letters, want 0, %d", how, s.BlockedAggregates, s.DeadLetters, left)
				}
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
				got := w.consume("OrderCreated", "OrderUpdated")
				relaytest.CheckOrder(t, got, want)
				relaytest.CheckTimes(t, got)
				for _, d := range got {
					if d.ID == bad.ID && !maps.Equal(d.Headers, schema) {
						t.Errorf("the replay has headers %v, want %v", d.Headers, schema)
					}
				}
			})
		})
	}
}

// Event types that may pass do, and do not hold others back.
func TestDeadLetters_RelaxedTypesPass(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.Orderings = map[string]string{"Viewed": OrderingRelaxed}
			c.Kafka = append(c.Kafka, relaytest.NoCompression())
		})
		defer w.close()
		all := relaytest.Events(3, 6, "OrderUpdated", "Viewed")
		strict, relaxed := all[2*3], all[3*3+1] // aggregate 0, number 3; aggregate 1, number 4
		w.refuse(strict.ID.UUID(), kerr.InvalidRecord)
		w.refuse(relaxed.ID.UUID(), kerr.InvalidRecord)
		r, stop := w.run()
		for _, e := range all {
			w.write(e)
		}
		time.Sleep(time.Minute)
		// Of aggregate 0 the number 5 is blocked behind 3, and 4 and 6 pass; of
		// aggregate 1 nothing waits for 4.
		if s := r.Status(); s.DeadLetters != 3 || s.BlockedAggregates != 1 {
			t.Errorf("Status(): %d dead letters, %d blocked aggregates, want 3, 1", s.DeadLetters, s.BlockedAggregates)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		want := slices.DeleteFunc(slices.Clone(all), func(e outbox.Event) bool {
			return e.ID == strict.ID || e.ID == relaxed.ID || e.AggregateID == strict.AggregateID && e.Sequence == 5
		})
		relaytest.CheckOrder(t, w.consume("OrderUpdated", "Viewed"), want)
	})
}

// A topic whose replicas are away takes nothing; others do. Records that the broker may have stay
// with the producer; later events become dead letters when their attempts are used up, and are
// published automatically, in order.
func TestDeadLetters_AttemptsUsedUp(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		r, stop := w.run()
		time.Sleep(time.Second)
		away := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "Away", Err: kerr.NotEnoughReplicas, Count: -1})
		var all []outbox.Event
		for i := range 200 {
			all = append(all, relaytest.Event(100+i, 1, "OrderCreated"))
			if i%20 == 0 { // eight of them after two seconds
				all = append(all, relaytest.Event(1+i/20, 1, "Away"), relaytest.Event(1+i/20, 2, "Away"))
			}
		}
		for _, e := range all {
			w.write(e)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		open := w.open()
		if s := r.Status(); len(open) < 10 || s.Breaker.State != publish.BreakerClosed || s.InFlight != 20-len(open) {
			t.Errorf("%d dead letters, %d in flight and a breaker that is %s, want most of 20, the rest, and closed", len(open), s.InFlight, s.Breaker.State)
		}
		for _, e := range open {
			if e.Status == dlq.Pending && (e.ErrorClass != chains.ClassAttemptsUsed || e.NextAttempt.IsZero()) {
				t.Errorf("dead letter %+v, want attempts used up and a next attempt", e)
			}
		}
		away.Remove()
		time.Sleep(3 * time.Minute)
		if s := r.Status(); s.DeadLetters != 0 {
			t.Errorf("%d dead letters are left after the next attempt", s.DeadLetters)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("Away", "OrderCreated"), all)
	})
}

// What an operator discards stays unpublished, though the sweep comes to its row
// only later.
func TestDeadLetters_DiscardedBeforeTheSweep(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow = time.Minute })
		defer w.close()
		r, stop := w.run()
		all := relaytest.Events(20, 4, "OrderUpdated")
		for _, e := range all[:20] {
			w.write(e)
		}
		time.Sleep(5 * time.Second)
		end := w.unreachable()
		for _, e := range all[20:60] {
			w.write(e)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		open := w.open()
		if len(open) < 20 {
			t.Fatalf("%d dead letters, want at least 20", len(open))
		}
		discarded := make(map[gocql.UUID]bool)
		for id := range open {
			if err := w.deadLetters().Discard(t.Context(), id, dlq.Actor{Name: "test"}); err != nil {
				t.Fatal(err)
			}
			if discarded[id] = true; len(discarded) == 10 {
				break
			}
		}
		time.Sleep(5 * time.Second) // the relay hears of it
		end()
		time.Sleep(5 * time.Minute)
		if s := r.Status(); s.DeadLetters != 0 || len(s.Problems) > 0 {
			t.Errorf("Status() = %+v", s)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		got := w.consume("OrderUpdated")
		for _, g := range got {
			if discarded[g.ID.UUID()] {
				t.Errorf("event %s was discarded and is in its topic", g.ID)
			}
		}
		if want := 60 - len(discarded); len(got) != want {
			t.Errorf("%d records, want %d", len(got), want)
		}
	})
}

// A relay with dead letters is killed at random moments, in and after outages.
// Nothing is lost, out of order or twice.
func TestDeadLetters_CrashesRepeatNothing(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for seed := range seeds.Range(t, 8) {
		broker := &testworld.BrokerVersions[seed%uint64(len(testworld.BrokerVersions))]
		t.Run(fmt.Sprint("seed=", seed, "/", broker.Name), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 44))
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.ConfidenceWindow = 20 * time.Second
					c.BreakerOpen = 3 * time.Second
				}, broker.Options()...)
				defer w.close()
				topics := []string{"OrderCreated", "OrderUpdated"}
				all := relaytest.Events(30, 10, topics...)
				var writing sync.WaitGroup
				writing.Go(func() {
					for _, e := range all {
						w.write(e)
						time.Sleep(200 * time.Millisecond)
					}
				})
				for range 12 {
					if rnd.IntN(2) == 0 {
						end := []func() func(){w.brokerOutage, w.unreachable}[rnd.IntN(2)]()
						time.AfterFunc(time.Duration(rnd.IntN(10000))*time.Millisecond, end)
					}
					w.crashAfter(time.Duration(rnd.IntN(9000)) * time.Millisecond)
				}
				r, stop := w.run()
				writing.Wait()
				time.Sleep(3 * time.Minute)
				if s := r.Status(); s.DeadLetters != 0 || len(s.Problems) > 0 {
					t.Errorf("Status() = %+v", s)
				}
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
				got := w.consume(topics...)
				relaytest.CheckOrder(t, got, all)
				relaytest.CheckTimes(t, got)
			})
		})
	}
}

// An event that an operator has discarded is not published when the sweep comes
// by its row, which may be later.
func TestDeadLetters_ADiscardedEventStaysUnpublished(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.ConfidenceWindow = 30 * time.Second
			c.Kafka = append(c.Kafka, relaytest.NoCompression())
		})
		defer w.close()
		r, stop := w.run()
		time.Sleep(time.Second)
		all := relaytest.Events(1, 3, "OrderUpdated")
		mend := w.refuse(all[0].ID.UUID(), kerr.InvalidRecord)
		for _, e := range all {
			w.write(e)
		}
		time.Sleep(5 * time.Second)
		mend()
		if err := w.deadLetters().Discard(t.Context(), all[0].ID.UUID(), dlq.Actor{Name: "ada", Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if s := r.Status(); s.DeadLetters != 0 || s.InFlight != 0 {
			t.Errorf("%d dead letters and %d events are left", s.DeadLetters, s.InFlight)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), all[1:])
	})
}
