package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/twmb/franz-go/pkg/kadm"
)

// some allows topics that begin with a to e, and no others.
func some(c *Config) { c.Topics.Patterns = []string{"a*", "b*", "c*", "d*"} }

// A subscription without topics receives the matching events of all allowed topics, and
// none of others.
func TestFollow_ByTypeAndByAggregate(t *testing.T) {
	t.Parallel()
	b := setup(t, some)
	byType := b.subscribe(t, Filter{Types: []string{"Type1"}}, nil)
	defer byType.Close()
	byAggregate := b.subscribe(t, Filter{Aggregate: "thing-2"}, nil)
	defer byAggregate.Close()
	both := b.subscribe(t, Filter{Types: []string{"Type1"}, Aggregate: "thing-3"}, nil)
	defer both.Close()
	b.produce(t, "a", 0, 10)
	b.produce(t, "secret", 100, 10)
	b.produce(t, "_internal", 200, 10)
	b.produce(t, "b", 10, 10)
	for _, tt := range []struct {
		s    *Subscription
		want []int
	}{
		{byType, []int{1, 3, 5, 7, 9, 11, 13, 15, 17, 19}},
		{byAggregate, []int{2, 7, 12, 17}},
		{both, []int{3, 13}},
	} {
		seen := read(t, tt.s, len(tt.want))
		for _, n := range tt.want {
			if seen[n] != 1 {
				t.Errorf("%+v: %v, want %v", tt.s.filter, seen, tt.want)
			}
		}
		idle(t, tt.s)
	}
}

// New topics are followed from their first event, and concurrent events of the other
// topics arrive once.
func TestFollow_TopicsThatComeLater(t *testing.T) {
	t.Parallel()
	b := setup(t, some)
	types := []string{"Type0", "Type1"}
	s := b.subscribe(t, Filter{Types: types}, nil)
	defer s.Close()
	// Another subscription reads the new topic before the follower is notified.
	named := b.subscribe(t, Filter{Topics: []string{"c"}}, nil)
	defer named.Close()
	var all sync.WaitGroup
	all.Go(func() { b.produce(t, "a", 0, 200) })
	all.Go(func() { b.produce(t, "c", 1000, 100) })
	all.Go(func() { b.produce(t, "c2", 2000, 100); b.produce(t, "secret", 9000, 10) })
	seen := read(t, s, 400)
	all.Wait()
	wantOnce(t, seen, 0, 200, 1000, 100, 2000, 100)
	idle(t, s)
	if got := read(t, named, 100); len(got) != 100 {
		t.Errorf("the other one saw %d of 100", len(got))
	}
}

// wantOnce checks that exactly the numbers of the ranges (first, n) arrived, once each.
func wantOnce(t *testing.T, seen map[int]int, ranges ...int) {
	t.Helper()
	left := maps.Clone(seen)
	for i := 0; i < len(ranges); i += 2 {
		for n := ranges[i]; n < ranges[i]+ranges[i+1]; n++ {
			if seen[n] != 1 {
				t.Errorf("event %d came %d times", n, seen[n])
			}
			delete(left, n)
		}
	}
	if len(left) > 0 {
		t.Errorf("what was not asked for came: %v", left)
	}
}

// A client that resumes, on this process or another, misses and repeats no event of any
// topic, including new ones.
func TestFollow_Resumes(t *testing.T) {
	t.Parallel()
	b := setup(t, some)
	f := Filter{Types: []string{"Type0", "Type1"}}
	s := b.subscribe(t, f, nil)
	b.produce(t, "a", 0, 20)
	b.produce(t, "c", 100, 20) // comes while it watches
	seen := read(t, s, 40)
	at := s.Position()
	s.Close()
	b.produce(t, "a", 20, 20)
	b.produce(t, "b", 200, 20)
	b.produce(t, "d", 300, 20) // comes while it is away
	b.produce(t, "secret", 900, 5)
	other, _ := startHub(t, b.broker, some)
	at, err := ParsePosition(at.String())
	if err != nil {
		t.Fatal(err)
	}
	s, err = other.Subscribe(t.Context(), f, at)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(s.Gaps) > 0 {
		t.Errorf("gaps %+v", s.Gaps)
	}
	for n, times := range read(t, s, 60) {
		seen[n] += times
	}
	b.produce(t, "d", 320, 5)
	for n, times := range read(t, s, 5) {
		seen[n] += times
	}
	wantOnce(t, seen, 0, 40, 100, 20, 200, 20, 300, 25)
	idle(t, s)

	// The position of a subscription with topics does not contain the others, which are
	// followed from their current end.
	one := b.subscribe(t, Filter{Topics: []string{"a"}}, nil)
	at = one.Position()
	one.Close()
	b.produce(t, "a", 40, 3)
	s2 := b.subscribe(t, f, at)
	defer s2.Close()
	wantOnce(t, read(t, s2, 3), 40, 3)
	idle(t, s2)
}

// A slow follower is disconnected, can resume, and does not delay the others.
func TestFollow_SlowOneIsDropped(t *testing.T) {
	t.Parallel()
	b := setup(t, some, func(c *Config) { c.Buffer = 50 })
	f := Filter{Types: []string{"Type0", "Type1"}}
	slow := b.subscribe(t, f, nil)
	defer slow.Close()
	quick := b.subscribe(t, f, nil)
	defer quick.Close()
	const n, step = 150, 10
	saw := map[int]int{}
	for from := 0; from < n; from += step { // never more than the quick one has room for
		var both sync.WaitGroup
		both.Go(func() { b.produce(t, "a", from, step) })
		both.Go(func() { b.produce(t, "b", 1000+from, step) })
		for i, times := range read(t, quick, 2*step) {
			saw[i] += times
		}
		both.Wait()
	}
	wantOnce(t, saw, 0, n, 1000, n)
	seen := map[int]int{}
	for {
		e, err := slow.nextWithin(t.Context(), time.Minute)
		if errors.Is(err, ErrSlow) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		seen[number(t, e)]++
	}
	if len(seen) > 51 {
		t.Errorf("the slow one had %d events waiting", len(seen))
	}
	back := b.subscribe(t, f, slow.Position())
	defer back.Close()
	for i, times := range read(t, back, 2*n-len(seen)) {
		seen[i] += times
	}
	wantOnce(t, seen, 0, n, 1000, n)
}

// Too many topics are refused, at the start and when new topics exceed the limit.
func TestFollow_IsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, some)
	s := b.subscribe(t, Filter{Types: []string{"Type1"}}, nil)
	if _, err := kadm.NewClient(b.producer).CreateTopic(t.Context(), MaxFollowed, 1, nil, "dense"); err != nil {
		t.Fatal(err)
	}
	var bad *FilterError
	if _, err := s.nextWithin(t.Context(), time.Minute); !errors.As(err, &bad) {
		t.Errorf("Next() = %v, want it to say that the topics must be named", err)
	}
	s.Close()
	if _, err := b.Subscribe(t.Context(), Filter{Types: []string{"Type1"}}, nil); !errors.As(err, &bad) || bad.Field != "topics" || !strings.Contains(bad.Problem, "306 partitions") {
		t.Errorf("Subscribe() = %v", err)
	}
	if s, err := b.Subscribe(t.Context(), Filter{Topics: []string{"dense"}}, nil); err != nil {
		t.Errorf("named: %v", err)
	} else {
		s.Close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.topics) != 0 || b.places.Taken() != 0 || len(b.all) != 0 {
		t.Errorf("%d topics are read, %d subscriptions and %d followers counted after all have left", len(b.topics), b.places.Taken(), len(b.all))
	}
}

// The same over HTTP, as server-sent events and over a WebSocket.
func TestFollow_OverHTTP(t *testing.T) {
	t.Parallel()
	b := setup(t, some)
	url := serve(t, b.Hub)
	next, stop := openStream(t, url+"/v1/events/stream?event_type=Type1", "")
	next() // subscribed
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, resp, err := websocket.Dial(ctx, url+"/v1/events/ws", nil)
	if err != nil {
		t.Fatalf("Dial() = %v, %v", resp, err)
	}
	defer c.CloseNow() //nolint:errcheck // the test is over
	if err := wsjson.Write(ctx, c, map[string]any{"type": "subscribe", "id": "x", "aggregate_id": "thing-3"}); err != nil {
		t.Fatal(err)
	}
	hear := func(want string) (m wsMessage) {
		t.Helper()
		if err := wsjson.Read(ctx, c, &m); err != nil || m.Type != want {
			t.Fatalf("heard %+v, %v, want %s", m, err, want)
		}
		return m
	}
	hear("subscribed")
	b.produce(t, "a", 0, 5)
	b.produce(t, "b", 5, 5)
	var last string
	for range 5 {
		e := next()
		if e.event != "event" || !strings.Contains(e.data, `"event_type":"Type1"`) {
			t.Errorf("heard %+v", e)
		}
		last = e.id
	}
	stop()
	for range 2 {
		if m := hear("event"); !strings.Contains(string(m.Event), `"aggregate_id":"thing-3"`) {
			t.Errorf("heard %s", m.Event)
		}
	}
	if err := wsjson.Write(ctx, c, map[string]any{"type": "unsubscribe", "id": "x"}); err != nil {
		t.Fatal(err)
	}
	hear("unsubscribed")
	b.produce(t, "c", 20, 4) // a topic that comes while nobody watches
	next, stop = openStream(t, url+"/v1/events/stream?event_type=Type1", last)
	defer stop()
	next()
	seen := map[string]int{}
	for range 2 {
		seen[fmt.Sprint(number(t, []byte(next().data)))]++
	}
	if seen["21"] != 1 || seen["23"] != 1 {
		t.Errorf("after coming back: %v", seen)
	}
	for _, query := range []string{"", "?topics=", "?topics=secret&event_type=Type1"} {
		resp, err := http.Get(url + "/v1/events/stream" + query)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != 422 {
			t.Errorf("%s = %d, want 422", query, resp.StatusCode)
		}
	}
}
