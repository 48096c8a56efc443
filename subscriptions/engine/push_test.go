package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/plugin"
)

// receiver is a plugin that records its calls and checks that the calls of a key do not
// overlap.
type receiver struct {
	t  *testing.T
	do func(ctx context.Context, e plugin.Event) error // nil accepts

	mu      sync.Mutex
	calls   []plugin.Event
	ids     map[string]string // delivery id by event
	done    map[string][]string
	running map[string]bool
	now     int
	most    int
}

func newReceiver(t *testing.T, do func(ctx context.Context, e plugin.Event) error) *receiver {
	return &receiver{t: t, do: do, ids: make(map[string]string), done: make(map[string][]string), running: make(map[string]bool)}
}

func (r *receiver) CanHandle(e plugin.Event) bool { return e.Headers["name"] != "unwanted" }

func (r *receiver) Process(ctx context.Context, e plugin.Event) (err error) {
	name, key := e.Headers["name"], e.AggregateID
	r.mu.Lock()
	if r.running[key] {
		r.t.Errorf("%s: two calls of key %s at a time", name, key)
	}
	if id := r.ids[name]; id != "" && id != e.DeliveryID || e.DeliveryID == "" {
		r.t.Errorf("%s has the delivery ids %q and %q", name, id, e.DeliveryID)
	}
	r.ids[name], r.running[key] = e.DeliveryID, true
	r.calls = append(r.calls, e)
	r.now++
	r.most = max(r.most, r.now)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.running[key] = false
		r.now--
		if err == nil {
			r.done[key] = append(r.done[key], name)
		}
	}()
	if r.do != nil {
		return r.do(ctx, e)
	}
	return nil
}

// calledNames returns the names of the events of the calls.
func (r *receiver) calledNames() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.calls {
		out = append(out, r.calls[i].Headers["name"])
	}
	return out
}

// of returns the calls with an event.
func (r *receiver) of(name string) (out []plugin.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.calls {
		if e.Headers["name"] == name {
			out = append(out, e)
		}
	}
	return out
}

// inOrder fails the test unless the events e0 … of many were delivered in the order of
// their key, each at most once more than repeats allows.
func (r *receiver) inOrder(n, keys, repeats int) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range keys {
		key := "k" + itoa(k)
		var want []string
		for i := k; i < n; i += keys {
			want = append(want, "e"+itoa(i))
		}
		got := slices.Compact(slices.Clone(r.done[key]))
		if !slices.Equal(got, want) {
			r.t.Errorf("key %s: delivered %v, want %v", key, r.done[key], want)
		}
		if more := len(r.done[key]) - len(want); more > repeats {
			r.t.Errorf("key %s: %d repeated deliveries, at most %d are allowed", key, more, repeats)
		}
	}
}

func plugins(p plugin.Plugin) func(*Config) {
	return func(c *Config) { c.Push.Plugins = map[string]plugin.Plugin{"crm": p} }
}

func pushTo(s subscriptions.Subscription) subscriptions.Subscription {
	s.Name, s.Topics, s.Push = "s", []string{"a"}, &subscriptions.Push{To: "crm", Concurrency: max(1, s.MaxReceive)}
	return s
}

// Messages are delivered in the order of their key, at most concurrency at a time, and
// never again after a restart. The happy path stores nothing.
func TestPush_DeliversInOrderOfKeys(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		r := newReceiver(t, func(context.Context, plugin.Event) error { time.Sleep(50 * time.Millisecond); return nil })
		s := pushTo(subscriptions.Subscription{})
		s.Push.Concurrency = 3
		w.put(s)
		p := w.start(plugins(r))
		w.many("a", 0, 200, 10)
		w.produce("a", "k0", "unwanted")
		w.sleep(time.Minute)
		r.inOrder(200, 10, 0)
		if r.most != 3 {
			t.Errorf("%d calls at a time, want 3", r.most)
		}
		if n := len(r.of("unwanted")); n != 0 {
			t.Error("an event that CanHandle refuses is delivered")
		}
		if w.db.saved != 0 {
			t.Errorf("%d messages were stored, want none", w.db.saved)
		}
		_, err := p.Receive(context.Background(), "s", subscriptions.Receive{Max: 1})
		if err == nil || !strings.HasPrefix(err.Error(), "push: ") {
			t.Errorf("Receive() = %v, want an error of the field push", err)
		}
		p.stop()
		w.start(plugins(r))
		w.sleep(time.Minute)
		r.inOrder(200, 10, 0)
	})
}

// A failed call is repeated after the backoff, or the delay that it asks for, up to
// max_receive; a permanent error is a dead letter at the first one. The key continues.
func TestPush_Retries(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var mu sync.Mutex
		at := make(map[string][]time.Time)
		r := newReceiver(t, func(_ context.Context, e plugin.Event) error {
			name := e.Headers["name"]
			mu.Lock()
			defer mu.Unlock()
			at[name] = append(at[name], time.Now())
			switch {
			case name == "never":
				return errTest
			case name == "gone":
				return plugin.Permanent(errors.New("410 gone"))
			case name == "later" && e.Attempt == 1:
				return plugin.RetryAfter(errTest, time.Minute)
			case name == "flaky" && e.Attempt < 3:
				panic("no luck")
			}
			return nil
		})
		s := pushTo(subscriptions.Subscription{MaxReceive: 3, Backoff: 2 * time.Second})
		w.put(s)
		p := w.start(plugins(r))
		for _, name := range []string{"never", "gone", "later", "flaky"} {
			w.produce("a", name, name)
			w.produce("a", name, "after "+name)
		}
		w.sleep(5 * time.Minute)
		for name, want := range map[string]int{"never": 3, "gone": 1, "later": 2, "flaky": 3, "after never": 1, "after gone": 1, "after later": 1, "after flaky": 1} {
			calls := r.of(name)
			if len(calls) != want || calls[len(calls)-1].Attempt != want {
				t.Errorf("%s: %d calls, want %d", name, len(calls), want)
			}
		}
		if d := at["later"][1].Sub(at["later"][0]); d < time.Minute || d > 61*time.Second {
			t.Errorf("the second attempt came after %s, want the requested minute", d)
		}
		got := make(map[string]string)
		for _, l := range w.db.letters() {
			got[l.Headers["name"]] = l.ErrorClass + ": " + l.ErrorText
		}
		if len(got) != 2 || got["never"] != ClassMaxReceive+": no luck" || got["gone"] != ClassRejected+": 410 gone" {
			t.Errorf("dead letters %v, want never and gone", got)
		}
		if n := w.db.rowCount(); n != 0 {
			t.Errorf("%d messages are left in the database", n)
		}
		if n := testValue(t, p.reg, "outbox_subscription_push_duration_seconds"); n != 13 {
			t.Errorf("%v calls are counted, want 13", n)
		}
		if !strings.Contains(w.log.String(), "the plugin panicked") {
			t.Error("the panic is not logged")
		}
	})
}

// A call that does not end with its context keeps its place and its key, and only these.
// Its late result counts.
func TestPush_AHangBlocksItsKeyOnly(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		free := make(chan struct{})
		r := newReceiver(t, func(ctx context.Context, e plugin.Event) error {
			switch e.Headers["name"] {
			case "hangs":
				<-free
			case "slow":
				<-ctx.Done()
				if e.Attempt == 1 {
					return ctx.Err()
				}
			}
			return nil
		})
		s := pushTo(subscriptions.Subscription{VisibilityTimeout: 5 * time.Second})
		s.Push.Concurrency = 2
		w.put(s)
		p := w.start(plugins(r))
		w.produce("a", "hanging", "hangs")
		w.produce("a", "hanging", "behind")
		w.produce("a", "slow", "slow")
		w.many("a", 0, 50, 10)
		w.sleep(10 * time.Minute)
		if len(r.of("hangs")) != 1 || len(r.of("behind")) != 0 || len(r.of("slow")) != 2 {
			t.Errorf("%d calls of the hanging event, %d of the one behind it, %d of the slow one; want 1, 0, 2", len(r.of("hangs")), len(r.of("behind")), len(r.of("slow")))
		}
		r.inOrder(50, 10, 0)
		if n := testValue(t, p.reg, "outbox_subscription_push_stuck"); n != 1 {
			t.Errorf("%v calls are stuck, want 1", n)
		}
		st, err := p.Status(context.Background(), "s")
		if err != nil || len(st.Instances) != 1 || !strings.Contains(st.Instances[0].LastError, "has not returned") {
			t.Errorf("Status() = %+v, %v; want the hanging call", st.Instances, err)
		}
		close(free)
		w.sleep(time.Minute)
		if len(r.of("hangs")) != 1 || len(r.of("behind")) != 1 {
			t.Errorf("%v after the end of the call", r.calledNames())
		}
		if n := testValue(t, p.reg, "outbox_subscription_push_stuck"); n != 0 {
			t.Errorf("%v calls are stuck, want none", n)
		}
		if l := w.db.letters(); len(l) != 0 {
			t.Errorf("dead letters %v", l)
		}
	})
}

// A process that joins gets partitions without a repeated delivery: calls in flight end
// first. So does a stop.
func TestPush_RebalanceAndStopRepeatNothing(t *testing.T) {
	t.Parallel()
	for _, takes := range []time.Duration{2 * time.Second, 29 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				r := newReceiver(t, func(ctx context.Context, _ plugin.Event) error { return retry.Wait(ctx, takes) })
				s := pushTo(subscriptions.Subscription{})
				s.Push.Concurrency = 4
				w.put(s)
				first := w.start(plugins(r))
				w.many("a", 0, 200, 8)
				w.sleep(15 * time.Second)
				w.start(plugins(r))
				w.sleep(50 * time.Second)
				first.stop()
				w.sleep(200 * takes)
				r.inOrder(200, 8, 0)
				if n := len(r.calledNames()); n != 200 {
					t.Errorf("%d calls, want one for each of 200 messages", n)
				}
			})
		})
	}
}

// The messages of a process that is killed are delivered by the next owner, in order; only
// those in flight are repeated.
func TestPush_OwnerKilled(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		r := newReceiver(t, func(ctx context.Context, _ plugin.Event) error {
			select {
			case <-time.After(300 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		s := pushTo(subscriptions.Subscription{})
		s.Push.Concurrency = 4
		w.put(s)
		first := w.start(plugins(r))
		w.start(plugins(r))
		w.many("a", 0, 400, 8)
		w.sleep(5 * time.Second)
		first.kill()
		w.sleep(10 * time.Minute)
		r.inOrder(400, 8, 4)
	})
}

func TestPush_PauseSeekAndDeadLetters(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		ctx := context.Background()
		r := newReceiver(t, nil)
		w.put(pushTo(subscriptions.Subscription{}))
		p := w.start(plugins(r))
		if err := p.Pause(ctx, "s", "test"); err != nil {
			t.Fatal(err)
		}
		w.sleep(2 * time.Second)
		w.many("a", 0, 8, 4)
		w.sleep(time.Minute)
		if got := r.calledNames(); len(got) != 0 {
			t.Fatalf("%v are delivered while it is paused", got)
		}
		if n, err := p.Purge(ctx, "s", subscriptions.Purge{DryRun: true}, "test"); err != nil || n != 8 {
			t.Errorf("Purge() = %d, %v, want 8", n, err)
		}
		if err := p.Resume(ctx, "s", "test"); err != nil {
			t.Fatal(err)
		}
		w.sleep(5 * time.Second)
		r.inOrder(8, 4, 0)
		if err := p.Seek(ctx, "s", subscriptions.Seek{To: subscriptions.StartEarliest, Partition: -1}, "test"); err != nil {
			t.Fatal(err)
		}
		w.sleep(10 * time.Second)
		if n := len(r.calledNames()); n != 16 {
			t.Errorf("%d calls after a seek to the beginning, want 16", n)
		}
	})
}

// A subscription is delivered by the processes that have its destination, and a change of
// the destination continues at the position.
func TestPush_Destinations(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		ctx := context.Background()
		r := newReceiver(t, nil)
		var mu sync.Mutex
		var sent []notify.Message
		target := notify.TargetFunc(func(_ context.Context, m notify.Message) error {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, m)
			return nil
		})
		w.put(pushTo(subscriptions.Subscription{}))
		w.put(subscriptions.Subscription{Name: "pulled", Topics: []string{"a"}})
		without := w.start(func(c *Config) { c.Push.Targets = map[string]notify.Target{"ops": target} })
		w.start(plugins(r), func(c *Config) { c.PluginsOnly = true })
		w.many("a", 0, 40, 8)
		w.sleep(time.Minute)
		r.inOrder(40, 8, 0)
		if out, err := without.Receive(ctx, "pulled", subscriptions.Receive{Max: 100}); err != nil || len(out) != 8 {
			t.Errorf("%d messages of the other subscription, %v; want the first ones of 8 keys", len(out), err)
		}
		for text, bad := range map[string]subscriptions.Push{
			"push.to": {To: "nowhere"}, "push.severity": {To: "ops", Severity: "bad"}, "push.concurrency": {To: "ops", Concurrency: 1001},
			"push.title": {To: "ops", Title: "{{nothing}}"}, "push.text": {To: "ops", Text: "{{"},
		} {
			s := pushTo(subscriptions.Subscription{})
			s.Push = &bad
			if _, err := without.Put(ctx, s, "test"); err == nil || !strings.HasPrefix(err.Error(), text) {
				t.Errorf("Put(%+v) = %v, want an error of %s", bad, err, text)
			}
		}
		s := pushTo(subscriptions.Subscription{})
		s.Push = &subscriptions.Push{To: "ops", Title: "{{subscription}}: {{.headers.name}}"}
		if _, err := without.Put(ctx, s, "test"); err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Minute)
		w.produce("a", "k", "last")
		w.sleep(10 * time.Second)
		if len(sent) != 1 || sent[0].Title != "s: last" || sent[0].Type != "event.s" || len(r.calledNames()) != 40 {
			t.Errorf("sent %+v, %d calls of the former plugin; want the last event alone", sent, len(r.calledNames()))
		}
	})
}

// testValue returns a gauge, or the number of observations of a histogram.
func testValue(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
