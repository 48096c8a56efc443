package stream

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestHub_ShowsWhatComesAndWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.produce(t, "a", 1000, 5) // before anybody watches
	all := b.subscribe(t, Filter{Topics: []string{"a", "b"}}, nil)
	defer all.Close()
	types := b.subscribe(t, Filter{Topics: []string{"a"}, Types: []string{"Type1"}}, nil)
	defer types.Close()
	one := b.subscribe(t, Filter{Topics: []string{"a"}, Aggregate: "thing-3"}, nil)
	defer one.Close()
	b.produce(t, "a", 0, 10)
	b.produce(t, "b", 10, 10)
	seen := read(t, all, 20)
	for i := range 20 {
		if seen[i] != 1 {
			t.Errorf("event %d came %d times", i, seen[i])
		}
	}
	for n := range read(t, types, 5) {
		if n%2 != 1 {
			t.Errorf("event %d came although it is of another type", n)
		}
	}
	for n := range read(t, one, 2) {
		if n%5 != 3 {
			t.Errorf("event %d came although it is of another aggregate", n)
		}
	}
	idle(t, all)
	idle(t, types)
	idle(t, one)
}

func TestHub_SlowOneIsDroppedAndCostsOthersNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Buffer = 50 })
	slow := b.subscribe(t, Filter{Topics: []string{"a"}}, nil)
	defer slow.Close()
	quick := b.subscribe(t, Filter{Topics: []string{"a"}}, nil)
	defer quick.Close()
	const n, step = 300, 20
	saw := 0
	for from := 0; from < n; from += step { // never more than the quick one has room for
		b.produce(t, "a", from, step)
		saw += len(read(t, quick, step))
	}
	if saw != n {
		t.Errorf("the quick one saw %d of %d", saw, n)
	}
	seen := map[int]int{}
	for {
		e, err := slow.nextWithin(t.Context(), patience)
		if errors.Is(err, ErrSlow) {
			break
		}
		if err != nil {
			t.Fatalf("Next() of the slow one = %v", err)
		}
		seen[number(t, e)]++
	}
	if len(seen) > 51 {
		t.Errorf("the slow one had %d events waiting", len(seen))
	}
	back := b.subscribe(t, Filter{Topics: []string{"a"}}, slow.Position())
	defer back.Close()
	for i, times := range read(t, back, n-len(seen)) {
		seen[i] += times
	}
	for i := range n {
		if seen[i] != 1 {
			t.Errorf("event %d came %d times", i, seen[i])
		}
	}
	idle(t, back)
}

func TestHub_ATopicThatComesLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.subscribe(t, Filter{Topics: []string{"later"}}, nil)
	defer s.Close()
	b.produce(t, "later", 0, 20)
	if seen := read(t, s, 20); len(seen) != 20 {
		t.Errorf("saw %d of 20", len(seen))
	}
}

func TestHub_RefusesWhatItMust(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Topics.Patterns, c.MaxSubscriptions = []string{"a*"}, 1 })
	for _, f := range []Filter{{}, {Topics: []string{"b"}}, {Topics: []string{"_internal"}}, {Topics: []string{"a", "a"}}, {Topics: make([]string, MaxTopics+1)}} {
		if _, err := b.Subscribe(t.Context(), f, nil); !errors.As(err, new(*FilterError)) {
			t.Errorf("Subscribe(%v) = %v", f, err)
		}
	}
	s := b.subscribe(t, Filter{Topics: []string{"a"}}, nil)
	if _, err := b.Subscribe(t.Context(), Filter{Topics: []string{"a"}}, nil); !errors.Is(err, ErrFull) {
		t.Errorf("Subscribe() beyond the bound = %v", err)
	}
	resp, err := http.Get(serve(t, b.Hub) + "/v1/events/stream?topics=a")
	if err != nil {
		t.Fatal(err)
	}
	if _ = resp.Body.Close(); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a stream beyond the bound is %d with Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	if typ, _ := b.requestProblem(t, "topics=a", ""); typ != problemFull {
		t.Errorf("a stream beyond the bound is %s", typ)
	}
	s.Close()
	// Errors name invalid input without repeating it.
	for query, want := range map[string]string{"topics=b%3Cscript%3E": "query.topics", "event_type=": "query.topics", "topics=a&cursor=nonsense": "query.cursor"} {
		if typ, text := b.requestProblem(t, query, ""); typ != problemInvalid || !strings.Contains(text, `"location":"`+want+`"`) || strings.Contains(text, "script") || strings.Contains(text, "nonsense") {
			t.Errorf("%s: %s", query, text)
		}
	}
	if typ, text := b.requestProblem(t, "topics=a", "nonsense"); typ != problemInvalid || !strings.Contains(text, `"location":"header.Last-Event-ID"`) {
		t.Errorf("Last-Event-ID: %s", text)
	}
	s = b.subscribe(t, Filter{Topics: []string{"a"}}, nil)
	b.stop()
	if _, err := s.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Next() after the end = %v", err)
	}
	s.Close()
	for _, bad := range []string{"", "x", "bnVsbA", strings.Repeat("A", maxPosition+1), Position{"a": {-1: 0}}.String(), Position{"a": {0: -1}}.String()} {
		if p, err := ParsePosition(bad); err == nil {
			t.Errorf("ParsePosition(%.20q) = %v", bad, p)
		}
	}
}

// A thousand subscriptions need little memory beyond their buffers and receive every
// event. The test does not run in parallel, because the memory of other tests would
// count.
func TestHub_AThousandWatchers(t *testing.T) {
	b := setup(t)
	before := heap()
	const watchers, n = 1000, 20
	subs := make([]*Subscription, watchers)
	for i := range subs {
		subs[i] = b.subscribe(t, Filter{Topics: []string{"a"}}, nil)
	}
	if each := (heap() - before) / watchers; each > 16<<10 {
		t.Errorf("a watcher takes %d bytes", each)
	}
	b.produce(t, "a", 0, n)
	for _, s := range subs {
		if seen := read(t, s, n); len(seen) != n {
			t.Fatalf("a watcher saw %d of %d", len(seen), n)
		}
		s.Close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.topics) != 0 || b.places.Taken() != 0 {
		t.Errorf("%d topics are read and %d subscriptions counted after all have left", len(b.topics), b.places.Taken())
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// An unreachable broker delays each subscription by one timeout, not by the ones of all
// previous ones.
func TestHub_ClientsAreIndependentWhileTheBrokerIsSilent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	asked, end := make(chan struct{}), make(chan struct{})
	defer close(end)
	var once sync.Once
	b.broker.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.broker.KeepControl()
		once.Do(func() { close(asked) })
		b.broker.SleepControl(func() { <-end })
		return nil, nil, false
	})
	first, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	waited := make(chan struct{})
	all.Go(func() {
		defer close(waited)
		_, _ = b.Subscribe(first, Filter{Topics: []string{"a"}}, nil)
	})
	<-asked
	quick, cancelQuick := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancelQuick()
	done := make(chan error, 1)
	go func() {
		_, err := b.Subscribe(quick, Filter{Topics: []string{"b"}}, nil)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("Subscribe() = nil although the broker is silent")
		}
	case <-waited:
		t.Error("a watcher with little patience waits for another")
	}
	cancel()
	all.Wait()
}

// requestProblem requests a stream that is refused and returns the problem.
func (b *fixture) requestProblem(t *testing.T, query, last string) (typ, text string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/events/stream?"+query, nil)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	mux := http.NewServeMux()
	b.Register(humago.New(mux, huma.DefaultConfig("watch", "1")))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	var p huma.ErrorModel
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%s: %d %s: %v", query, w.Code, w.Body, err)
	}
	return p.Type, w.Body.String()
}

// A topic that no pattern matches is followed once the relay has published to it, and never
// one that begins with _.
func TestHub_FollowsPublishedTopics(t *testing.T) {
	t.Parallel()
	var published atomic.Pointer[[]string]
	published.Store(new([]string))
	b := setup(t, func(c *Config) {
		c.Topics = Topics{Patterns: []string{"a"}, Published: func(context.Context) []string { return *published.Load() }}
	})
	all := b.subscribe(t, Filter{Types: []string{"Type0", "Type1"}}, nil)
	defer all.Close()
	for _, topic := range []string{"own", "_own"} {
		if _, err := b.Subscribe(t.Context(), Filter{Topics: []string{topic}}, nil); !errors.As(err, new(*FilterError)) {
			t.Errorf("Subscribe(%s) = %v before the relay published to it", topic, err)
		}
		b.produce(t, topic, 1, 1)
	}
	published.Store(&[]string{"own", "_own"})
	b.subscribe(t, Filter{Topics: []string{"own"}}, nil).Close()
	if seen := read(t, all, 1); seen[1] != 1 {
		t.Errorf("received %v, want the event of topic own alone", seen)
	}
	idle(t, all)
	if _, err := b.Subscribe(t.Context(), Filter{Topics: []string{"_own"}}, nil); !errors.As(err, new(*FilterError)) {
		t.Errorf("Subscribe(_own) = %v", err)
	}
}
