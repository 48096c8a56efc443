package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
)

// recorder is a target that remembers, and answers with the next of errs.
type recorder struct {
	mu   sync.Mutex
	errs []error
	got  []Message
	at   []time.Time
}

func (r *recorder) Send(_ context.Context, m Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got, r.at = append(r.got, m), append(r.at, time.Now())
	if len(r.errs) == 0 {
		return nil
	}
	err := r.errs[0]
	r.errs = r.errs[1:]
	return err
}

func (r *recorder) ids() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.got {
		out = append(out, m.ID)
	}
	return out
}

// running is a running dispatcher in a bubble.
type running struct {
	*Dispatcher
	log  *logtest.Buffer
	stop func() time.Duration // and wait; how long that took
	reg  *prometheus.Registry
}

func start(t *testing.T, conf Config) *running {
	t.Helper()
	r := &running{log: new(logtest.Buffer), reg: prometheus.NewRegistry()}
	conf.Logger = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	conf.Registerer = r.reg
	var err error
	if r.Dispatcher, err = New(conf); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run() = %v", err)
		}
	}()
	r.stop = sync.OnceValue(func() time.Duration {
		began := time.Now()
		cancel()
		<-done
		return time.Since(began)
	})
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *running) metric(t *testing.T, name, target string) float64 {
	t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == target {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Errorf("no metric %s of %s", name, target)
	return -1
}

func TestDispatcher_HangingTargetCostsTheOthersNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		hangs := TargetFunc(func(context.Context, Message) error { <-release; return nil }) // ignores its context
		good := &recorder{}
		d := start(t, Config{Targets: map[string]Target{"hangs": hangs, "good": good}, QueueSize: 10})
		for i := range 30 {
			began := time.Now()
			d.Notify(Message{ID: fmt.Sprint(i)})
			if took := time.Since(began); took != 0 {
				t.Fatalf("Notify() waited %s", took)
			}
			synctest.Wait()
		}
		if got := len(good.ids()); got != 30 {
			t.Errorf("the good target has %d messages, want all 30", got)
		}
		// One is in flight, ten are queued.
		if got := d.metric(t, "outbox_notifications_dropped_total", "hangs"); got != 19 {
			t.Errorf("%v dropped, want 19", got)
		}
		if n := strings.Count(d.log.String(), "notifications dropped"); n != 1 {
			t.Errorf("the drop was logged %d times, want once:\n%s", n, d.log)
		}
		time.Sleep(time.Hour)
		if got := d.metric(t, "outbox_notifications_target_stuck", "hangs"); got != 1 {
			t.Errorf("stuck = %v", got)
		}
		if took := d.stop(); took > DefaultDrainTimeout {
			t.Errorf("stopping took %s, want at most the drain timeout", took)
		}
		close(release)
	})
}

func TestDispatcher_TriesAgainAndGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fails := errors.New("500")
		flaky := &recorder{errs: []error{fails, fails, After(fails, 90*time.Second)}}
		dead := &recorder{errs: []error{fails, fails, fails, fails, fails}}
		wrong := &recorder{errs: []error{Permanent(errors.New("400"))}}
		d := start(t, Config{Targets: map[string]Target{"flaky": flaky, "dead": dead, "wrong": wrong}, Attempts: 4, Backoff: time.Second})
		d.Notify(Message{ID: "a"})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := flaky.ids(); fmt.Sprint(got) != "[a a a a]" {
			t.Errorf("flaky got %v", got)
		}
		for i, want := range []struct{ min, max time.Duration }{{500 * time.Millisecond, time.Second}, {time.Second, 2 * time.Second}, {90 * time.Second, 99 * time.Second}} {
			if gap := flaky.at[i+1].Sub(flaky.at[i]); gap < want.min || gap > want.max {
				t.Errorf("wait %d was %s, want %s to %s", i+1, gap, want.min, want.max)
			}
		}
		if len(dead.ids()) != 4 || len(wrong.ids()) != 1 {
			t.Errorf("dead was tried %d times, want 4; wrong %d times, want 1", len(dead.ids()), len(wrong.ids()))
		}
		for target, want := range map[string]float64{"flaky": 0, "dead": 1, "wrong": 1} {
			if got := d.metric(t, "outbox_notifications_failed_total", target); got != want {
				t.Errorf("%s: %v failed, want %v", target, got, want)
			}
		}
		d.Notify(Message{ID: "b"}) // a failed message does not block later ones
		synctest.Wait()
		if got := wrong.ids(); fmt.Sprint(got) != "[a b]" {
			t.Errorf("wrong got %v", got)
		}
		d.stop()
	})
}

// A delay requested by a receiver, such as until the year 9999, is bounded by
// the maximum backoff.
func TestDispatcher_WaitsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		far := retryAfter("Fri, 31 Dec 9999 23:59:59 GMT", time.Now())
		slow := &recorder{errs: []error{After(errors.New("503"), far)}}
		d := start(t, Config{Targets: map[string]Target{"slow": slow}, Backoff: time.Second})
		d.Notify(Message{ID: "a"})
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(slow.at) != 2 || slow.at[1].Sub(slow.at[0]) != DefaultMaxBackoff {
			t.Errorf("sent at %v, want twice, %s apart", slow.at, DefaultMaxBackoff)
		}
		d.stop()
	})
}

func TestDispatcher_StopDeliversWhatIsQueued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := &recorder{}
		target := TargetFunc(func(ctx context.Context, m Message) error {
			time.Sleep(time.Second)
			return slow.Send(ctx, m)
		})
		waits := &recorder{errs: []error{errors.New("x"), errors.New("x")}}
		d := start(t, Config{Targets: map[string]Target{"slow": target, "waits": waits}, Backoff: time.Minute, MaxBackoff: time.Minute})
		for i := range 3 {
			d.Notify(Message{ID: fmt.Sprint(i)})
		}
		synctest.Wait()
		if took := d.stop(); took > 4*time.Second {
			t.Errorf("stopping took %s", took)
		}
		if got := slow.ids(); fmt.Sprint(got) != "[0 1 2]" {
			t.Errorf("slow got %v", got)
		}
		if got := waits.ids(); fmt.Sprint(got) != "[0 0 1 2]" { // 0: one more attempt, immediately, then dropped
			t.Errorf("waits got %v", got)
		}
	})
}

func TestDispatcher_PanicIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := start(t, Config{Targets: map[string]Target{"mad": TargetFunc(func(context.Context, Message) error { panic("boo") })}})
		d.Notify(Message{ID: "a"})
		synctest.Wait()
		if !strings.Contains(d.log.String(), "panicked: boo") {
			t.Errorf("log: %s", d.log)
		}
		d.stop()
	})
}

// A message that is queued while another is removed from the queue is counted.
func TestDispatcher_QueuedIsWhatWaits(t *testing.T) {
	t.Parallel()
	d, err := New(Config{Targets: map[string]Target{"a": &recorder{}}})
	if err != nil {
		t.Fatal(err)
	}
	w := d.workers["a"]
	w.offer(Message{ID: "1"})
	stop, cancel := context.WithCancel(t.Context())
	over, giveUp := context.WithCancel(t.Context())
	offered := make(chan struct{})
	queued := &between{then: func() {
		go func() {
			defer close(offered)
			w.offer(Message{ID: "2"})
		}()
		if w.mu.TryLock() { // without the lock the message is queued before the gauge is set
			w.mu.Unlock()
			<-offered
		}
	}}
	w.metrics.queued = queued
	sending, let := make(chan struct{}), make(chan struct{})
	w.target = TargetFunc(func(context.Context, Message) error {
		close(sending)
		<-let
		return nil
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.run(stop, over)
	}()
	<-sending
	<-offered
	if got := queued.value(); got != 1 {
		t.Errorf("outbox_notifications_queued = %v while one waits", got)
	}
	giveUp()
	cancel()
	close(let)
	<-ended
}

// between is a gauge that does something before the first number is written.
type between struct {
	then func()
	mu   sync.Mutex
	v    float64
}

func (*between) Inc() {}

func (b *between) Set(v float64) {
	if then := b.then; then != nil {
		b.then = nil
		then()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.v = v
}

func (b *between) value() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.v
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Config{
		"queue": {QueueSize: -1}, "attempts": {Attempts: -1}, "backoff": {Backoff: time.Hour, MaxBackoff: time.Second},
		"timeout": {Timeout: -1}, "nil target": {Targets: map[string]Target{"a": nil}},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	d, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if n := d.Notify(Message{}); n != 0 {
		t.Errorf("Notify() without targets = %d", n)
	}
	if err := d.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestMetrics_StartAtZero(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	if _, err := New(Config{Targets: map[string]Target{"a": &recorder{}}, Registerer: reg}); err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(reg); n != 6 || err != nil {
		t.Errorf("%d metrics, %v, want 6", n, err)
	}
}
