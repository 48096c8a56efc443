package notifications

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// fixture is a store with watchers, which append to notices, and one clock.
type fixture struct {
	*testing.T
	store   *dlq.Store
	now     atomic.Int64 // Unix milliseconds
	mu      sync.Mutex
	notices []dlq.Notice
}

func setup(t *testing.T) *fixture {
	t.Helper()
	b := &fixture{T: t}
	b.now.Store(time.Date(2026, 3, 4, 12, 30, 0, 0, time.UTC).UnixMilli())
	session := world.Start(t).Session
	var err error
	b.store, err = dlq.Open(session, schema.DefaultKeyspace, dlq.WithClock(world.Clock(b.clock)), dlq.WithTimeouts(30*time.Second, time.Minute))
	b.must(err)
	return b
}

func (b *fixture) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *fixture) clock() time.Time        { return time.UnixMilli(b.now.Load()).UTC() }
func (b *fixture) advance(d time.Duration) { b.now.Add(d.Milliseconds()) }

// watcher is a process; change may be nil.
func (b *fixture) watcher(owner string, change func(*Config)) *Watcher {
	b.Helper()
	c := Config{
		Store: b.store, Owner: owner, Registerer: prometheus.NewRegistry(), ConsoleURL: "https://ops.example/console",
		Interval: time.Hour, // of a claim; tests poll themselves
		Delivery: notify.Config{Targets: map[string]notify.Target{"test": notify.TargetFunc(func(_ context.Context, m notify.Message) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.notices = append(b.notices, m.Data.(dlq.Notice))
			return nil
		})}},
	}
	if change != nil {
		change(&c)
	}
	w, err := New(c)
	b.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.dispatch.Run(ctx) // returns nil
	}()
	b.Cleanup(func() { cancel(); <-done })
	return w
}

// poll polls and returns the delivered notices.
func (b *fixture) poll(w *Watcher) []dlq.Notice {
	b.Helper()
	before := sent(b, w)
	b.mu.Lock()
	b.notices = nil
	b.mu.Unlock()
	b.must(w.Poll(b.Context()))
	want := int(sent(b, w) - before)
	for deadline := time.Now().Add(5 * time.Minute); ; {
		b.mu.Lock()
		notices := b.notices
		b.mu.Unlock()
		if len(notices) >= want {
			return notices
		}
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d notices were delivered", len(notices), want)
		}
		time.Sleep(time.Millisecond) // polls to the deadline
	}
}

// sent is how many notices a watcher has queued.
func sent(b *fixture, w *Watcher) (n float64) {
	return b.metric(w, "outbox_notifications_raised_total")
}

// metric is the sum of a metric over its labels.
func (b *fixture) metric(w *Watcher, name string) (sum float64) {
	b.Helper()
	families, err := w.conf.Registerer.(*prometheus.Registry).Gather()
	b.must(err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// write stores n dead letters that fail now or earlier.
func (b *fixture) write(n int, change func(i int, l *dlq.DeadLetter)) (ids []gocql.UUID) {
	b.Helper()
	for i := range n {
		l := &dlq.DeadLetter{
			Table: "outbox.outbox_messages", EventID: gocql.MustRandomUUID(), AggregateID: fmt.Sprint("a", i), AggregateType: "order", EventType: "OrderCreated",
			Sequence: int64(i + 1), ErrorClass: "record_too_large", ErrorText: "record of 1,234,567 bytes is too large", Payload: []byte("canary"), Status: dlq.Suspended, FirstFailedAt: b.clock(),
		}
		if change != nil {
			change(i, l)
		}
		_, err := b.store.Write(b.Context(), l)
		b.must(err)
		ids = append(ids, l.EventID)
	}
	return ids
}

func titles(notices []dlq.Notice) (out []string) {
	for _, n := range notices {
		t := n.Title
		if n.Resolved {
			t = "over: " + t
		}
		out = append(out, t)
	}
	return out
}

func (b *fixture) want(notices []dlq.Notice, want ...string) {
	b.Helper()
	got := titles(notices)
	ok := len(got) == len(want)
	for i := range want {
		ok = ok && strings.Contains(got[i], want[i])
	}
	if !ok {
		b.Fatalf("notices %q, want %q", got, want)
	}
}

// The dead letters of a subscription are notified like others, but not the dead letters that an
// operator creates to redeliver messages.
func TestWatcher_OfASubscription(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.watcher("one", func(c *Config) { c.Backlog, c.RatePerMinute, c.ResolutionRate, c.BlockedAge = -1, -1, -1, -1 })
	b.want(b.poll(w))
	b.advance(time.Hour)
	b.write(2, func(_ int, l *dlq.DeadLetter) {
		l.Table, l.ErrorClass, l.EventType, l.AggregateID = "subscription.inventory", "max_receive", "", ""
	})
	b.write(3, func(_ int, l *dlq.DeadLetter) { l.Table, l.ErrorClass = "subscription.inventory", dlq.ClassRedelivery })
	b.advance(30 * time.Second)
	notices := b.poll(w)
	b.want(notices, "2 new dead letters, max_receive in subscription inventory")
	if n := notices[0]; n.Subscription != "inventory" || !strings.Contains(n.Text, "outbox dlq list --error-class max_receive --table subscription.inventory\n") || !strings.HasSuffix(n.URL, "?error_class=max_receive&status=open&table=subscription.inventory") {
		t.Errorf("notice %+v", n)
	}
}

// Each table has notices of its own, with its name. Dead letters that are closed, before they were
// found or while their notice waited, are not announced.
func TestWatcher_OpenOnesByTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.watcher("one", func(c *Config) { c.Backlog, c.RatePerMinute, c.ResolutionRate, c.BlockedAge = -1, -1, -1, -1 })
	b.want(b.poll(w))
	of := func(name string) func(int, *dlq.DeadLetter) {
		return func(_ int, l *dlq.DeadLetter) { l.Table, l.ErrorClass = "subscription."+name, "rejected" }
	}
	discard := func(ids ...gocql.UUID) {
		t.Helper()
		for _, id := range ids {
			b.must(b.store.Discard(t.Context(), id, dlq.Actor{Name: "ada", Reason: "known"}))
		}
	}
	b.advance(time.Hour)
	b.write(3, of("mail"))
	stock := b.write(2, of("stock"))
	discard(b.write(1, of("audit"))...)
	discard(stock[1])
	b.advance(30 * time.Second)
	notices := b.poll(w)
	b.want(notices, "3 new dead letters, OrderCreated: rejected in subscription mail", "1 new dead letter, OrderCreated: rejected in subscription stock")
	if n := notices[0]; n.Key == notices[1].Key || !strings.Contains(n.Text, "--table subscription.mail") {
		t.Errorf("notice %+v", n)
	}
	// The next ones wait for the window, and one is discarded meanwhile.
	b.advance(time.Minute)
	later := b.write(2, of("mail"))
	gone := b.write(1, of("stock"))
	b.want(b.poll(w))
	discard(later[0], gone[0])
	b.advance(DefaultGroupWindow)
	notices = b.poll(w)
	b.want(notices, "1 new dead letter, OrderCreated: rejected in subscription mail")
	if s := notices[0].Samples; len(s) != 1 || s[0].EventID != later[1] {
		t.Errorf("samples %+v, want the open one", s)
	}
}

func TestWatcher_NewDeadLettersAreGroupedAndNotRepeated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	off := func(c *Config) { c.Backlog, c.RatePerMinute, c.ResolutionRate, c.BlockedAge = -1, -1, -1, -1 }
	w := b.watcher("one", off)
	b.write(3, nil) // before the first poll: not new
	b.advance(time.Hour)
	b.want(b.poll(w))

	ids := b.write(5, nil)
	b.write(1, func(_ int, l *dlq.DeadLetter) { l.EventType = "OrderCancelled" })
	b.write(2, func(_ int, l *dlq.DeadLetter) { l.Status, l.ErrorClass = dlq.Blocked, "behind" })
	b.advance(30 * time.Second)
	notices := b.poll(w)
	b.want(notices, "5 new dead letters, OrderCreated: record_too_large", "1 new dead letter, OrderCancelled: record_too_large")
	n := notices[0]
	if n.Rule != dlq.RuleNew || n.Count != 5 || len(n.Samples) != DefaultSamples || n.Samples[0].Error == "" ||
		n.URL != "https://ops.example/console/dead-letters?error_class=record_too_large&event_type=OrderCreated&status=open&table=outbox.outbox_messages" ||
		!strings.HasPrefix(n.Samples[0].URL, "https://ops.example/console/dead-letters/") || !strings.HasSuffix(n.Runbook, "/runbook.md#outboxdeadletters") || n.Subscription != "" {
		t.Errorf("notice %+v", n)
	}
	if s := fmt.Sprintf("%+v", notices); strings.Contains(s, "canary") {
		t.Errorf("the notice contains the payload: %s", s)
	}
	for _, want := range []string{n.Samples[0].EventID.String(), "For example: record of 1,234,567 bytes is too large\n", n.Runbook} {
		if !strings.Contains(n.Text, want) {
			t.Errorf("text %q lacks %q", n.Text, want)
		}
	}
	// A dead letter that failed shortly before and was stored late counts too; none
	// counts twice.
	b.write(2, func(_ int, l *dlq.DeadLetter) { l.FirstFailedAt = b.clock().Add(-time.Minute) })
	b.advance(30 * time.Second)
	b.want(b.poll(w)) // within the window
	b.advance(DefaultGroupWindow)
	b.want(b.poll(w), "2 new dead letters, OrderCreated")
	b.advance(DefaultGroupWindow)
	b.want(b.poll(w))

	// A second process sends no notice, and takes over after the first has stopped.
	b.write(4, nil)
	two := b.watcher("two", off)
	b.want(b.poll(two))
	w.leave(t.Context())
	b.want(b.poll(two), "4 new dead letters, OrderCreated")
	b.want(b.poll(w))
	if got := b.metric(w, "outbox_notifications_on_duty") + b.metric(two, "outbox_notifications_on_duty"); got != 1 {
		t.Errorf("%v watchers are on duty", got)
	}
	// A restart repeats no notice.
	two.leave(t.Context())
	three := b.watcher("three", off)
	b.want(b.poll(three))
	_ = ids
}

func TestWatcher_ManyGroupsAreAFewNotices(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.watcher("one", func(c *Config) { c.RatePerMinute = -1 })
	b.want(b.poll(w))
	b.write(25, func(i int, l *dlq.DeadLetter) { l.EventType = fmt.Sprint("Type", i) })
	b.advance(time.Second)
	notices := b.poll(w)
	if len(notices) != maxNotices+1 || !strings.Contains(notices[maxNotices].Title, "15 new dead letters, others in 15 more groups") {
		t.Errorf("notices %q", titles(notices))
	}
}

func TestWatcher_BacklogWithHysteresis(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.watcher("one", func(c *Config) { c.Backlog, c.GroupWindow, c.RatePerMinute = 10, -1, -1 })
	ids := b.write(10, nil)
	b.want(b.poll(w))
	more := b.write(1, nil)
	b.want(b.poll(w), "11 dead letters are open, more than 10")
	b.advance(time.Minute)
	b.want(b.poll(w)) // already notified
	settle := func(ids []gocql.UUID) {
		for _, id := range ids {
			b.must(b.store.Discard(t.Context(), id, dlq.Actor{Name: "eve"}))
		}
	}
	settle(more)
	b.want(b.poll(w)) // 10: no longer over the limit, not yet well below
	more = b.write(1, nil)
	b.want(b.poll(w)) // above the limit again: the same alert
	b.advance(DefaultRepeat)
	notices := b.poll(w)
	b.want(notices, "11 dead letters are open")
	if !notices[0].Critical || notices[0].Value != 11 || notices[0].Limit != 10 {
		t.Errorf("notice %+v", notices[0])
	}
	key := notices[0].Key
	settle(append(more, ids[:2]...))
	b.want(b.poll(w)) // 8: once is not enough
	// The process on duty changes; the state of the rule does not.
	w.leave(t.Context())
	w = b.watcher("two", func(c *Config) { c.Backlog, c.GroupWindow, c.RatePerMinute = 10, -1, -1 })
	notices = b.poll(w)
	b.want(notices, "over: 8 dead letters are open, the limit is 10")
	if notices[0].Key != key {
		t.Errorf("key %s, want %s", notices[0].Key, key)
	}
	b.want(b.poll(w))
	if got := b.metric(w, "outbox_dead_letters"); got != 8 {
		t.Errorf("outbox_dead_letters = %v, want 8", got)
	}
}

func TestWatcher_Rate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.watcher("one", func(c *Config) { c.RatePerMinute, c.GroupWindow = 10, -1 })
	b.want(b.poll(w))
	b.write(6, nil)
	b.advance(30 * time.Second)
	b.want(b.poll(w)) // six in half a minute are below ten per minute
	b.write(6, nil)
	b.advance(30 * time.Second)
	b.want(b.poll(w), "12 events a minute become dead letters, more than 10")
	b.advance(30 * time.Second)
	b.want(b.poll(w))
	b.advance(30 * time.Second)
	b.want(b.poll(w), "over: 0 events a minute become dead letters, the limit is 10")
}

func TestWatcher_ResolutionRate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.watcher("one", func(c *Config) { c.GroupWindow, c.RatePerMinute = -1, -1 })
	ids := b.write(20, nil)
	b.want(b.poll(w)) // too young to be resolved
	b.advance(3 * time.Hour)
	for _, id := range ids[:9] {
		b.must(b.store.Discard(t.Context(), id, dlq.Actor{Name: "eve"}))
	}
	b.want(b.poll(w), "only 45 % of a day's dead letters are resolved, less than 50 %")
	for _, id := range ids[9:11] {
		b.must(b.store.Discard(t.Context(), id, dlq.Actor{Name: "eve"}))
	}
	b.want(b.poll(w))
	b.want(b.poll(w), "over: 55 % of a day's dead letters are resolved")
}

// With too few dead letters the resolution rate is not reported as good.
func TestWatcher_ResolutionRateOfFew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.watcher("one", func(c *Config) { c.GroupWindow, c.RatePerMinute = -1, -1 })
	b.write(20, nil)
	b.want(b.poll(w)) // too young to be resolved
	b.advance(3 * time.Hour)
	b.want(b.poll(w), "only 0 % of a day's dead letters are resolved, less than 50 %")
	b.write(3, nil)
	b.advance(25 * time.Hour)
	b.want(b.poll(w))
	notices := b.poll(w)
	b.want(notices, "over: fewer than 20 events of a day became dead letters")
	if notices[0].Value != 0 || !strings.Contains(notices[0].Text, "0 of 3 that failed first") {
		t.Errorf("notice %+v", notices[0])
	}
}

// Text of events is one word in the commands of notices.
func TestWatcher_CommandsAreSafeToPaste(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.watcher("one", func(c *Config) { c.RatePerMinute, c.ResolutionRate = -1, -1 })
	b.want(b.poll(w))
	b.write(1, func(_ int, l *dlq.DeadLetter) {
		l.EventType, l.AggregateID, l.Status, l.ErrorClass = "It's; reboot", "$(reboot)", dlq.Blocked, "refused"
	})
	b.write(1, func(_ int, l *dlq.DeadLetter) { l.EventType = "It's; reboot" })
	b.advance(DefaultBlockedAge + time.Minute)
	text := ""
	for _, n := range b.poll(w) {
		text += n.Text + "\n"
	}
	for _, want := range []string{`--event-type 'It'\''s; reboot'`, `--aggregate-id '$(reboot)'`} {
		if !strings.Contains(text, want) {
			t.Errorf("notices are %q, want %q in them", text, want)
		}
	}
}

func TestWatcher_BlockedForTooLong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.watcher("one", func(c *Config) { c.GroupWindow, c.RatePerMinute = -1, -1 })
	ids := b.write(2, func(i int, l *dlq.DeadLetter) {
		l.AggregateID, l.Sequence = "order-1", int64(i+1)
		if i == 1 {
			l.Status, l.ErrorClass = dlq.Blocked, "behind"
		}
	})
	b.want(b.poll(w))
	b.advance(DefaultBlockedAge + time.Minute)
	notices := b.poll(w)
	b.want(notices, "blocked behind a dead letter for 1h1m0s")
	if !strings.Contains(notices[0].Text, "--aggregate-id order-1") || len(notices[0].Samples) != 1 || notices[0].Samples[0].EventID != ids[1] {
		t.Errorf("notice %+v", notices[0])
	}
	for _, id := range ids {
		b.must(b.store.Discard(t.Context(), id, dlq.Actor{Name: "eve"}))
	}
	b.want(b.poll(w))
	b.want(b.poll(w), "over: no event is blocked")
}

// fakeOutages are the outages that relays report.
type fakeOutages struct {
	now []Outage
	err error
}

// Current implements Outages.
func (f *fakeOutages) Current(context.Context) ([]Outage, error) { return slices.Clone(f.now), f.err }

// An outage of the broker is notified after two minutes, with the time of its first failure,
// also if another process takes over; once, and again when the broker is back.
func TestWatcher_Outage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	relays := new(fakeOutages)
	with := func(c *Config) { c.Outages = relays }
	w := b.watcher("one", with)
	b.want(b.poll(w))
	began := b.clock().Add(-10 * time.Second)
	relays.now = []Outage{{Of: "relay outbox at pod-a", Since: began, Cause: "connection refused", Unreachable: true}}
	b.want(b.poll(w))
	b.advance(DefaultOutageAge / 2)
	b.want(b.poll(w))
	w.leave(t.Context())
	w = b.watcher("two", with)
	b.advance(DefaultOutageAge)
	again := relays.now[0] // of another table
	again.Since = again.Since.Add(time.Second)
	relays.now = append(relays.now, again, Outage{Of: "relay outbox at pod-b", Since: b.clock(), Cause: "timeout", Unreachable: true})
	notices := b.poll(w)
	at := began.Format(time.RFC3339)
	b.want(notices, "broker unreachable since "+at+", as relay outbox at pod-a reports")
	n := notices[0]
	if !n.Critical || n.Rule != dlq.RuleOutage || n.Count != 2 || newMessage(&n).Type != "relay.outage" || !n.Since.Equal(began) || !strings.HasSuffix(n.Runbook, "/runbook.md#outboxbreakeropen") {
		t.Errorf("notice %+v", n)
	}
	for _, want := range []string{"pod-b", "pod-a, since ", "pod-a, since " + at + ": connection refused", "Since " + at + ".", n.Runbook} {
		if strings.Count(n.Text, want) != 1 {
			t.Errorf("the text does not have %q once: %s", want, n.Text)
		}
	}
	if strings.Contains(n.Title+n.Text, "breaker of") {
		t.Errorf("the notice is about a breaker, which is closed: %+v", n)
	}
	b.advance(time.Minute)
	b.want(b.poll(w))
	relays.now = nil
	b.want(b.poll(w))
	notices = b.poll(w)
	b.want(notices, "over: the broker accepts events again")
	if !strings.Contains(notices[0].Text, "It is over after 4m10s") {
		t.Errorf("text %q", notices[0].Text)
	}
}

// A broker that answers with errors is not called unreachable.
func TestWatcher_OutageOfABrokerThatAnswers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.watcher("one", func(c *Config) {
		c.Outages = &fakeOutages{now: []Outage{{Of: "relay outbox at pod-a", Since: b.clock().Add(-time.Hour), Cause: "NOT_ENOUGH_REPLICAS"}}}
	})
	b.want(b.poll(w), "the broker accepts no events since")
}

// A poll that cannot read the outages fails, so that it is counted and retried.
func TestWatcher_OutagesUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	away := errors.New("away")
	w := b.watcher("one", func(c *Config) { c.Outages = &fakeOutages{err: away} })
	if err := w.Poll(t.Context()); !errors.Is(err, away) {
		t.Errorf("Poll() = %v, want the error of the outages", err)
	}
}

// A target that blocks, panics or fails affects neither the others nor the polls.
func TestWatcher_TargetsAreIsolated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release := make(chan struct{})
	w := b.watcher("one", func(c *Config) {
		c.Delivery.Targets["blocks"] = notify.TargetFunc(func(context.Context, notify.Message) error { <-release; return nil })
		c.Delivery.Targets["panics"] = notify.TargetFunc(func(context.Context, notify.Message) error { panic("boo") })
		c.Backlog, c.RatePerMinute, c.Delivery.DrainTimeout = 1, -1, time.Millisecond
	})
	b.Cleanup(func() { close(release) })
	b.want(b.poll(w))
	for i := range 3 {
		b.write(1, nil)
		b.advance(DefaultGroupWindow)
		if notices := b.poll(w); len(notices) == 0 {
			t.Fatalf("poll %d sent nothing", i)
		}
	}
}

func TestWatcher_RunStops(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.watcher("one", nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for deadline := time.Now().Add(5 * time.Minute); b.metric(w, "outbox_notifications_on_duty") == 0; {
		if time.Now().After(deadline) {
			t.Fatal("Run() does not poll")
		}
		time.Sleep(time.Millisecond) // polls to the deadline
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run() = %v", err)
	}
	two := b.watcher("two", nil)
	b.poll(two)
	if b.metric(two, "outbox_notifications_on_duty") != 1 {
		t.Error("the duty was not left")
	}
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(*Config){
		"interval": func(c *Config) { c.Interval = 1 }, "group window": func(c *Config) { c.GroupWindow = -2 }, "blocked age": func(c *Config) { c.BlockedAge = 1 },
		"backlog": func(c *Config) { c.Backlog = -2 }, "rate": func(c *Config) { c.RatePerMinute = -3 }, "resolution": func(c *Config) { c.ResolutionRate = 50 },
		"console": func(c *Config) { c.ConsoleURL = "ops" }, "store": func(c *Config) { c.Store = nil },
	} {
		c := Config{Store: &dlq.Store{}, Owner: "x"}
		f(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
