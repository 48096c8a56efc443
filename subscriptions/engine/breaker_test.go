package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/plugin"
)

// While a destination is away nothing but probes is attempted, and no attempt counts, also of
// a single message, with one delivery, for minutes, and again. Afterwards the messages are
// delivered in order.
func TestPush_AnOutageCostsNoAttempts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		messages, maxReceive int
		outage               time.Duration
		err                  error
	}{
		{200, 3, 15 * time.Second, plugin.Unavailable(errTest)},
		{200, 1, 10 * time.Minute, plugin.Unavailable(errTest)},
		{1, 1, 15 * time.Second, plugin.Unavailable(errTest)},
		{50, 2, 5 * time.Minute, plugin.RetryAfter(plugin.Unavailable(errTest), 2*time.Second)},
	} {
		inBubble(t, func(w *world) {
			var away atomic.Bool
			away.Store(true)
			r := newReceiver(t, func(context.Context, plugin.Event) error {
				if away.Load() {
					return tt.err
				}
				return nil
			})
			s := pushTo(subscriptions.Subscription{})
			s.MaxReceive = tt.maxReceive
			w.put(s)
			p := w.start(plugins(r))
			for outage := range 2 {
				w.many("a", outage*tt.messages, tt.messages, min(40, tt.messages))
				before := len(r.calledNames())
				w.sleep(tt.outage)
				if n := len(r.calledNames()) - before; n > 10+int(tt.outage/(lastProbe/2)) || n < 3 {
					t.Errorf("%+v: %d calls during the outage, want probes", tt, n)
				}
				if v := testValue(t, p.reg, "outbox_subscription_push_suspended"); v != 1 {
					t.Errorf("%+v: the metric is %v during the outage", tt, v)
				}
				breaker := func() subscriptions.BreakerStatus {
					st, err := p.Status(context.Background(), "s")
					if err != nil || len(st.Instances) != 1 || st.Instances[0].Breaker == nil {
						t.Fatalf("%+v: the status is %+v, %v", tt, st.Instances, err)
					}
					return *st.Instances[0].Breaker
				}
				if b := breaker(); b.State == "closed" || b.Since.IsZero() || b.NextProbe.Before(b.Since) || !strings.Contains(b.Cause, errTest.Error()) {
					t.Errorf("%+v: the breaker is %+v during the outage", tt, b)
				}
				away.Store(false)
				w.sleep(2*lastProbe + 10*time.Second)
				if b := breaker(); b.State != "closed" || b.Since.IsZero() || !b.NextProbe.IsZero() || b.Cause != "" {
					t.Errorf("%+v: the breaker is %+v after the outage", tt, b)
				}
				away.Store(true)
			}
			r.inOrder(2*tt.messages, min(40, tt.messages), 0)
			if n := len(w.db.letters()); n != 0 {
				t.Errorf("%+v: %d dead letters", tt, n)
			}
			if v := testValue(t, p.reg, "outbox_subscription_push_suspended"); v != 0 {
				t.Errorf("%+v: the metric is %v after the outage", tt, v)
			}
		})
	}
}

// A message that the destination alone cannot process becomes a dead letter after its
// deliveries, since others are delivered meanwhile.
func TestPush_APoisonMessageIsNoOutage(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		r := newReceiver(t, func(_ context.Context, e plugin.Event) error {
			if e.Headers["name"] == "e0" {
				return plugin.Unavailable(errTest)
			}
			return nil
		})
		s := pushTo(subscriptions.Subscription{MaxReceive: 3, Backoff: time.Second})
		w.put(s)
		w.start(plugins(r))
		for i := range 120 {
			w.many("a", i, 1, 1000)
			w.sleep(time.Second)
		}
		if got := w.db.letters(); len(got) != 1 || got[0].Attempts != 3 {
			t.Errorf("dead letters %+v, want that of e0 after 3 deliveries", got)
		}
		for i := 1; i < 120; i++ {
			if n := len(r.of(fmt.Sprint("e", i))); n != 1 {
				t.Errorf("e%d is delivered %d times", i, n)
			}
		}
	})
}

// A target that answers each message with an error uses up the attempts of a few messages
// until its breaker opens, and of none afterwards. Errors of Go code about its messages are
// no outage.
func TestPush_ErrorsOfAllMessages(t *testing.T) {
	t.Parallel()
	for _, target := range []bool{true, false} {
		inBubble(t, func(w *world) {
			var bad atomic.Bool
			bad.Store(true)
			calls := atomic.Int64{}
			send := func() error {
				if calls.Add(1); bad.Load() {
					return errors.New("500 Internal Server Error")
				}
				return nil
			}
			s := pushTo(subscriptions.Subscription{MaxReceive: 3})
			w.put(s)
			w.start(func(c *Config) {
				if target {
					c.Push.Targets = map[string]notify.Target{"crm": notify.TargetFunc(func(context.Context, notify.Message) error { return send() })}
				} else {
					c.Push.Plugins = map[string]plugin.Plugin{"crm": plugin.Func(func(context.Context, plugin.Event) error { return send() })}
				}
			})
			w.many("a", 0, 50, 50)
			w.sleep(5 * time.Minute)
			bad.Store(false)
			w.sleep(2 * time.Minute)
			if n := len(w.db.letters()); target && n != 0 || !target && n != 50 {
				t.Errorf("target %v: %d dead letters after %d calls", target, n, calls.Load())
			}
		})
	}
}

// After an outage a target still fails for a quarter of the messages, the oldest ones among
// them. Probes send others too, all of which are delivered, and the failing ones become dead
// letters: after their deliveries, or at the first one if the target refuses them for good.
func TestPush_ProbesPassFailingMessages(t *testing.T) {
	t.Parallel()
	const messages, keys, maxReceive = 60, 19, 3
	for _, tt := range []struct {
		err      error
		attempts int
	}{
		{errTest, maxReceive},
		{plugin.Unavailable(errTest), maxReceive},
		{plugin.Permanent(errTest), 1},
	} {
		inBubble(t, func(w *world) {
			var mu sync.Mutex
			away, delivered := true, make(map[string]int)
			target := notify.TargetFunc(func(_ context.Context, m notify.Message) error {
				mu.Lock()
				defer mu.Unlock()
				n, err := strconv.Atoi(m.Title)
				switch {
				case err != nil:
					return plugin.Permanent(err)
				case away:
					return plugin.Unavailable(errTest)
				case n%4 == 0:
					return tt.err
				}
				delivered[m.Title]++
				return nil
			})
			s := pushTo(subscriptions.Subscription{MaxReceive: maxReceive, Backoff: time.Second})
			s.Push.Title = "{{headers.name.substring(1)}}"
			w.put(s)
			p := w.start(func(c *Config) { c.Push.Targets = map[string]notify.Target{"crm": target} })
			w.many("a", 0, messages, keys)
			w.sleep(10 * time.Second)
			mu.Lock()
			away = false
			mu.Unlock()
			for i := range 120 { // failing messages alone would be an outage
				w.produce("a", "fresh", "e"+strconv.Itoa(4*(messages+i)+1))
				w.sleep(5 * time.Second)
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range messages {
				if n := delivered[strconv.Itoa(i)]; i%4 != 0 && n != 1 {
					t.Errorf("%v: e%d is delivered %d times, want once", tt.err, i, n)
				}
			}
			letters := w.db.letters()
			for _, l := range letters {
				if l.Attempts != tt.attempts {
					t.Errorf("%v: the dead letter of %s has %d attempts, want %d", tt.err, l.Headers["name"], l.Attempts, tt.attempts)
				}
			}
			if len(letters) != messages/4 {
				t.Errorf("%v: %d dead letters, want one for each of %d failing messages", tt.err, len(letters), messages/4)
			}
			if v := testValue(t, p.reg, "outbox_subscription_push_suspended"); v != 0 {
				t.Errorf("%v: deliveries are suspended", tt.err)
			}
		})
	}
}
