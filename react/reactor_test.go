package react

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

func TestReactor_EachEventOnceToWhomItIsFor(t *testing.T) {
	inBubble(t, func(b *bundle) {
		big, other := new(taker), new(taker)
		b.many("a", 1000, 5) // before the rules exist
		b.sleep(time.Second)
		r := b.start(map[string]Plugin{"big": big, "other": other}, []Rule{
			{Name: "big", Topics: []string{"a", "b"}, When: `data.n >= 10`, To: "big"},
			{Name: "other", Topics: []string{"*"}, Types: []string{"Lost", "Un*"}, To: "other"},
		})
		b.many("a", 0, 20)
		b.produce("b", "lost", "x", "Lost", `{"n":1}`)
		b.produce("b", "no", "x", "Unwanted", `{"n":1}`)
		b.sleep(10 * time.Second)
		if got := big.count(); got != 10 {
			t.Errorf("big has %d events, want 10: %v", got, big.got)
		}
		if fmt.Sprint(other.got) != "[lost]" {
			t.Errorf("other has %v, want only lost: its plugin rejects the others", other.got)
		}
		e := other.all[0]
		if e.Rule != "other" || e.Attempt != 1 || e.DeliveryID != delivery.NewID("other", &e.Event).String() || string(e.Data) != `{"n":1}` {
			t.Errorf("the plugin got %+v", e)
		}
		// Events that no rule selects are committed, too.
		if got := b.committed("big", "a") + b.committed("big", "b"); got != 27 {
			t.Errorf("%d records are committed, want 27", got)
		}
		if got := r.metric("outbox_react_deliveries_total", "big", "delivered"); got != 10 {
			t.Errorf("delivered = %v", got)
		}
		// A new topic is read from its start.
		if _, err := kadm.NewClient(b.producer).CreateTopic(b.t.Context(), testPartitions, 1, nil, "c"); err != nil {
			t.Fatal(err)
		}
		b.produce("c", "late", "x", "Lost", `{}`)
		b.sleep(30 * time.Second)
		if other.times("late") != 1 {
			t.Errorf("an event of a new topic arrived %d times", other.times("late"))
		}
	})
}

func TestReactor_TriesAgainAndGivesUp(t *testing.T) {
	inBubble(t, func(b *bundle) {
		fails := map[string]error{"dead": errTest, "wrong": Permanent(errTest), "asks": RetryAfter(errTest, 90*time.Second)}
		p := &taker{}
		p.process = func(_ context.Context, e Event) error {
			if name := e.Headers["name"]; name != "asks" || e.Attempt == 1 {
				return fails[name]
			}
			return nil
		}
		r := b.start(map[string]Plugin{"p": p}, []Rule{{Name: "r", Topics: []string{"a"}, To: "p", Attempts: 4, Backoff: 2 * time.Second, MaxBackoff: 2 * time.Minute}})
		for _, name := range []string{"dead", "wrong", "asks", "good"} {
			b.produce("a", name, name, "Made", `{}`)
		}
		b.sleep(10 * time.Minute)
		for name, want := range map[string]int{"dead": 4, "wrong": 1, "asks": 2, "good": 1} {
			if got := p.times(name); got != want {
				t.Errorf("%s was tried %d times, want %d", name, got, want)
			}
		}
		for i, want := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second} {
			if gap := p.at["dead"][i+1].Sub(p.at["dead"][i]); gap < want/2 || gap > want*3/2 {
				t.Errorf("wait %d was %s, want %s ± half", i+1, gap, want)
			}
		}
		if gap := p.at["asks"][1].Sub(p.at["asks"][0]); gap != 90*time.Second {
			t.Errorf("a plugin that requested 90 s was called after %s", gap)
		}
		if got := r.metric("outbox_react_deliveries_total", "r", "failed"); got != 2 {
			t.Errorf("failed = %v, want 2", got)
		}
		failed := 0
		for _, d := range b.store.rows {
			if d.State == delivery.Failed {
				failed++
				if d.Error != "no luck" || len(d.Value) == 0 {
					t.Errorf("a failed delivery is stored as %+v", d)
				}
			}
		}
		if failed != 2 || b.committed("r", "a") != 4 {
			t.Errorf("%d failed, %d committed; want 2 and 4", failed, b.committed("r", "a"))
		}
	})
}

// A plugin that hangs, one that panics, and one that is slow do not affect the
// others.
func TestReactor_RulesAreIsolated(t *testing.T) {
	inBubble(t, func(b *bundle) {
		release := make(chan struct{})
		defer close(release)
		good := new(taker)
		plugins := map[string]Plugin{
			"good":   good,
			"hangs":  Func(func(context.Context, Event) error { <-release; return nil }), // ignores its context
			"panics": Func(func(context.Context, Event) error { panic("oh") }),
			"times out": Func(func(ctx context.Context, _ Event) error {
				<-ctx.Done()
				return ctx.Err()
			}),
			"handles by panic": handlesByPanic{},
		}
		var rules []Rule
		for name := range plugins {
			rule := Rule{Name: strings.ReplaceAll(name, " ", "-"), Topics: []string{"a"}, To: name, Queue: 8, Concurrency: 2, Attempts: 2}
			if name == "hangs" {
				rule.Order = OrderNone // its queue may have one aggregate's events alone, which come one by one
			}
			rules = append(rules, rule)
		}
		r := b.start(plugins, rules)
		began := time.Now()
		b.many("a", 0, 200)
		b.sleep(2 * time.Second)
		if good.count() != 200 {
			t.Fatalf("the good plugin has %d events after 2 s, want 200", good.count())
		}
		for name, at := range good.at {
			if d := at[0].Sub(began); d > 2*time.Second {
				t.Errorf("%s arrived after %s", name, d)
			}
		}
		b.sleep(time.Hour)
		for rule, want := range map[string]float64{"panics": 200, "handles-by-panic": 200, "times-out": 200} {
			if got := r.metric("outbox_react_deliveries_total", rule, "failed"); got != want {
				t.Errorf("%s: %v failed, want %v", rule, got, want)
			}
		}
		// Each of its places is lost, and it reads no further than its queue.
		if got := r.metric("outbox_react_stuck", "hangs"); got != 2 {
			t.Errorf("stuck = %v, want its 2 places", got)
		}
		if got := r.metric("outbox_react_waiting", "hangs"); got != 8 {
			t.Errorf("waiting = %v, want its queue of 8", got)
		}
		if got := r.metric("outbox_react_oldest_waiting_seconds", "hangs"); got < 3600 {
			t.Errorf("the oldest is waiting for %v s, want an hour", got)
		}
		if got := b.committed("hangs", "a"); got != 0 {
			t.Errorf("%d are committed that were never delivered", got)
		}
		n := 0
		for _, d := range b.store.states("hangs") {
			if d != delivery.Pending {
				t.Errorf("a hanging delivery is %s", d)
			}
			n++
		}
		if n != 2 || !strings.Contains(b.log.String(), "plugin hangs") {
			t.Errorf("%d hanging deliveries are listed, want 2", n)
		}
		began = time.Now()
		r.stop()
		if took := time.Since(began); took > 2*DefaultDrainTimeout {
			t.Errorf("stopping took %s", took)
		}
	})
}

type handlesByPanic struct{}

func (handlesByPanic) CanHandle(Event) bool                 { panic("who?") }
func (handlesByPanic) Process(context.Context, Event) error { panic("what?") }

func TestReactor_OrderOfAnAggregate(t *testing.T) {
	inBubble(t, func(b *bundle) {
		var at, most atomic.Int64
		process := func(_ context.Context, e Event) error {
			most.Store(max(most.Load(), at.Add(1)))
			defer at.Add(-1)
			time.Sleep(100 * time.Millisecond)
			if n := number(&e.Event); n%7 == 3 && e.Attempt < 3 {
				return errTest
			}
			return nil
		}
		ordered, free := &taker{process: process}, &taker{}
		free.process = func(_ context.Context, e Event) error {
			if number(&e.Event) == 0 && e.Attempt == 1 {
				return errTest
			}
			return nil
		}
		b.start(map[string]Plugin{"ordered": ordered, "free": free}, []Rule{
			{Name: "ordered", Topics: []string{"a"}, To: "ordered", Concurrency: 3},
			{Name: "free", Topics: []string{"a"}, To: "free", Order: OrderNone, Backoff: time.Minute},
		})
		b.many("a", 0, 100)
		b.sleep(10 * time.Minute)
		last := make(map[string]int)
		for _, e := range ordered.all {
			n := number(&e.Event)
			if n < last[e.AggregateID] {
				t.Errorf("%s: %d arrived after %d", e.AggregateID, n, last[e.AggregateID])
			}
			last[e.AggregateID] = n
		}
		if got := ordered.count(); got != 100+2*14 {
			t.Errorf("%d attempts, want 128", got)
		}
		if most.Load() != 3 {
			t.Errorf("%d events at a time, want 3", most.Load())
		}
		// Without order, retries do not block later events.
		if first, next := free.at["e0"][1], free.at["e5"][0]; !first.After(next) {
			t.Errorf("e5 waited for e0: %s, %s", next, first)
		}
	})
}

func number(e *kafkarecord.Event) int {
	n, _ := strconv.Atoi(strings.Trim(string(e.Data), `{}"n:`))
	return n
}

// Waiting payloads are also bounded in bytes, independent of the queue.
func TestReactor_BytesThatWaitAreBounded(t *testing.T) {
	inBubble(t, func(b *bundle) {
		var open atomic.Bool
		p := &taker{process: func(ctx context.Context, _ Event) error {
			for !open.Load() {
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}}
		r := b.start(map[string]Plugin{"p": p}, []Rule{{Name: "r", Topics: []string{"a"}, To: "p", Timeout: time.Hour}})
		payload := `"` + strings.Repeat("x", 900_000) + `"`
		const n = 60
		for i := range n {
			b.produce("a", "e"+strconv.Itoa(i), "thing-"+strconv.Itoa(i), "Made", payload)
		}
		b.sleep(time.Minute)
		if got, most := r.metric("outbox_react_waiting", "r"), float64(maxWaitingBytes/900_000+1+takeAtOnce); got < 10 || got > most {
			t.Errorf("%v events are waiting, want some and at most %v", got, most)
		}
		open.Store(true)
		b.sleep(time.Minute)
		if got := b.committed("r", "a"); got != n {
			t.Errorf("%d committed, want %d", got, n)
		}
	})
}

// An undecidable event is a failed delivery, not a skipped event.
func TestReactor_UndecidableIsRecorded(t *testing.T) {
	inBubble(t, func(b *bundle) {
		p := new(taker)
		r := b.start(map[string]Plugin{"p": p}, []Rule{{Name: "r", Topics: []string{"a"}, To: "p", When: `data.total > 10`}})
		b.produce("a", "x", "x", "Made", `{"total": 11}`)
		b.produce("a", "y", "y", "Made", `{}`)
		b.produce("a", "z", "z", "Made", `{"total": "11"}`)
		b.sleep(10 * time.Second)
		if fmt.Sprint(p.got) != "[x]" || r.metric("outbox_react_undecided_total", "r") != 2 || r.metric("outbox_react_deliveries_total", "r", "failed") != 2 {
			t.Errorf("the plugin got %v, %v undecided", p.got, r.metric("outbox_react_undecided_total", "r"))
		}
		for _, d := range b.store.rows {
			if d.State == delivery.Failed && (d.Attempts != 0 || !strings.HasPrefix(d.Error, "when: no such")) {
				t.Errorf("an undecided delivery is %+v", d)
			}
		}
	})
}

// A repeated delivery is delivered again, whether it had failed or not, and
// stays on the list until then.
func TestReactor_Repeats(t *testing.T) {
	inBubble(t, func(b *bundle) {
		var broken atomic.Bool
		broken.Store(true)
		p := &taker{process: func(_ context.Context, e Event) error {
			if broken.Load() && e.Headers["name"] == "bad" {
				return Permanent(errTest)
			}
			return nil
		}}
		r := b.start(map[string]Plugin{"p": p}, []Rule{{Name: "r", Topics: []string{"a"}, To: "p"}})
		b.produce("a", "bad", "x", "Made", `{}`)
		b.produce("a", "good", "x", "Made", `{}`)
		b.sleep(5 * time.Second)
		broken.Store(false)
		b.store.repeatAll()
		b.sleep(5 * time.Second)
		if p.times("bad") != 2 || p.times("good") != 2 || len(b.store.asked) != 0 || r.metric("outbox_react_repeats_total", "r") != 2 {
			t.Errorf("bad arrived %d times, good %d; %d requests are left", p.times("bad"), p.times("good"), len(b.store.asked))
		}
		for id, st := range b.store.states("r") {
			if st != delivery.Delivered {
				t.Errorf("%s is %s", id, st)
			}
		}
		if p.all[0].DeliveryID != p.all[len(p.all)-1].DeliveryID && p.all[1].DeliveryID != p.all[len(p.all)-1].DeliveryID {
			t.Error("a repeated delivery has another id")
		}
	})
}

// Repeats that cannot be made because their topic is deleted do not hide
// others, however many there are.
func TestReactor_RepeatsBehindThoseOfNobody(t *testing.T) {
	inBubble(t, func(b *bundle) {
		p := &taker{}
		b.start(map[string]Plugin{"p": p}, []Rule{{Name: "r", Topics: []string{"a"}, To: "p"}})
		b.produce("a", "one", "x", "Made", `{}`)
		b.sleep(5 * time.Second)
		b.store.repeatAll()
		b.store.mu.Lock()
		for i := range 2 * repeatsAtOnce {
			id := gocql.UUID{14: byte(i >> 8), 15: byte(i)} // before all others
			b.store.rows[id] = delivery.Delivery{ID: id, Rule: "r", State: delivery.Pending}
			b.store.asked[id] = delivery.Asked{ID: id, Topic: "gone"}
		}
		b.store.mu.Unlock()
		b.sleep(10 * time.Second)
		if p.times("one") != 2 {
			t.Errorf("it arrived %d times, want twice", p.times("one"))
		}
	})
}

// An event that the topic has twice is delivered once.
func TestReactor_TheSameEventAgain(t *testing.T) {
	inBubble(t, func(b *bundle) {
		p := new(taker)
		b.start(map[string]Plugin{"p": p}, []Rule{{Name: "r", Topics: []string{"a"}, To: "p"}})
		b.produce("a", "x", "x", "Made", `{}`)
		b.produce("a", "x", "x", "Made", `{}`)
		b.sleep(5 * time.Second)
		if p.times("x") != 1 || b.committed("r", "a") != 2 {
			t.Errorf("it arrived %d times, %d committed", p.times("x"), b.committed("r", "a"))
		}
	})
}

// While the database is unavailable, nothing is committed, and nothing is lost.
func TestReactor_WithoutTheDatabase(t *testing.T) {
	inBubble(t, func(b *bundle) {
		p := new(taker)
		r := b.start(map[string]Plugin{"p": p}, []Rule{{Name: "r", Topics: []string{"a"}, To: "p"}})
		b.store.fail(errTest)
		b.many("a", 0, 20)
		b.sleep(time.Minute)
		if got := b.committed("r", "a"); got != 0 || p.count() == 0 || r.metric("outbox_react_store_errors_total", "r") == 0 {
			t.Errorf("%d committed, %d delivered", got, p.count())
		}
		b.store.fail(nil)
		b.sleep(time.Minute)
		if got := b.committed("r", "a"); got != 20 || p.count() != 20 {
			t.Errorf("%d committed, %d deliveries; want 20 and 20", got, p.count())
		}
	})
}
