package watch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// bundle is a hub on a broker in memory, with a producer.
type bundle struct {
	*Hub
	broker   *kfake.Cluster
	producer *kgo.Client
	stop     func()
}

func setup(t testing.TB, change ...func(*Config)) *bundle {
	t.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "a", "b"), kfake.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	seeds := kgo.SeedBrokers(broker.ListenAddrs()...)
	producer, err := kgo.NewClient(seeds, kgo.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(producer.Close)
	b := &bundle{broker: broker, producer: producer}
	b.Hub, b.stop = startHub(t, broker, change...)
	return b
}

// startHub runs a hub; several on one broker are several processes.
func startHub(t testing.TB, broker *kfake.Cluster, change ...func(*Config)) (h *Hub, stop func()) {
	t.Helper()
	cfg := Config{Kafka: []kgo.Opt{kgo.SeedBrokers(broker.ListenAddrs()...), kgo.FetchMaxWait(100 * time.Millisecond)}, Refresh: 50 * time.Millisecond}
	for _, f := range change {
		f(&cfg)
	}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := h.Run(ctx); err != nil {
			t.Errorf("Run() = %v", err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return h, stop
}

// produce publishes n events of a topic, numbered from first.
func (b *bundle) produce(t testing.TB, topic string, first, n int) {
	t.Helper()
	for i := first; i < first+n; i++ {
		e := outbox.Event{
			ID: outbox.NewID(), AggregateText: "thing-" + strconv.Itoa(i%5), Sequence: 1, AggregateType: "thing", Type: "Type" + strconv.Itoa(i%2),
			Payload: []byte(`{"n":` + strconv.Itoa(i) + `}`), CreatedAt: time.Now(),
		}
		r := &kgo.Record{Topic: topic, Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")}
		if err := b.producer.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// number is the n of an event.
func number(t testing.TB, event []byte) int {
	t.Helper()
	var e struct{ Data struct{ N int } }
	if err := json.Unmarshal(event, &e); err != nil {
		t.Fatalf("event %s: %v", event, err)
	}
	return e.Data.N
}

func (b *bundle) subscribe(t testing.TB, f Filter, from Position) *Subscription {
	t.Helper()
	s, err := b.Subscribe(t.Context(), f, from)
	if err != nil {
		t.Fatalf("Subscribe() = %v", err)
	}
	return s
}

// read reads n events and returns how often each number came.
func read(t testing.TB, s *Subscription, n int) map[int]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := map[int]int{}
	for range n {
		e, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("Next() = %v after %d of %d", err, len(seen), n)
		}
		seen[number(t, e)]++
	}
	return seen
}

// idle checks that nothing more comes.
func idle(t testing.TB, s *Subscription) {
	t.Helper()
	if e, err := s.nextWithin(t.Context(), 300*time.Millisecond); !errors.Is(err, errIdle) {
		t.Errorf("Next() = %s, %v, want nothing", e, err)
	}
}

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

// Watchers that come and go, with the position of the last event that they saw,
// in other processes too, and while events come: none is lost and none double.
func TestHub_ResumesWithoutLossOrDouble(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 3000
	first := b.subscribe(t, Filter{Topics: []string{"a"}}, nil)
	at := first.Position()
	first.Close()
	produced := make(chan struct{})
	go func() { defer close(produced); b.produce(t, "a", 0, n) }()
	seen := map[int]int{}
	for hub, rounds, last := b.Hub, 0, false; len(seen) < n && !last; rounds++ {
		select {
		case <-produced:
			last = rounds > 500 // or something is lost
		default:
		}
		if rounds%3 == 2 {
			hub, _ = startHub(t, b.broker)
		}
		s, err := hub.Subscribe(t.Context(), Filter{Topics: []string{"a"}}, at)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Gaps) > 0 {
			t.Fatalf("gaps %v", s.Gaps)
		}
		for i := 0; i < 1+rounds*37%701; i++ {
			e, err := s.nextWithin(t.Context(), 300*time.Millisecond)
			if errors.Is(err, errIdle) {
				rounds += 50
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			seen[number(t, e)]++
		}
		text := s.Position().String()
		s.Close()
		if at, err = ParsePosition(text); err != nil {
			t.Fatal(err)
		}
	}
	<-produced
	for i := range n {
		if seen[i] != 1 {
			t.Errorf("event %d came %d times", i, seen[i])
		}
	}
}

func TestHub_SlowOneIsDroppedAndCostsOthersNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Buffer = 50 })
	slow := b.subscribe(t, Filter{Topics: []string{"a"}}, nil)
	defer slow.Close()
	quick := b.subscribe(t, Filter{Topics: []string{"a"}}, nil)
	defer quick.Close()
	const n = 300
	var all sync.WaitGroup
	all.Go(func() { b.produce(t, "a", 0, n) })
	if seen := read(t, quick, n); len(seen) != n {
		t.Errorf("the quick one saw %d of %d", len(seen), n)
	}
	all.Wait()
	seen := map[int]int{}
	for {
		e, err := slow.nextWithin(t.Context(), time.Minute)
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

func TestHub_SaysWhatIsNoLongerThere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.produce(t, "a", 0, 30)
	from := Position{"a": {0: 0, 1: 0, 2: 0}}
	s := b.subscribe(t, Filter{Topics: []string{"a"}}, from)
	if seen := read(t, s, 30); len(seen) != 30 || len(s.Gaps) != 0 {
		t.Fatalf("saw %d of 30, gaps %v", len(seen), s.Gaps)
	}
	after := s.Position()
	s.Close()
	var ends kadm.Offsets
	for partition, next := range after["a"] {
		ends.AddOffset("a", partition, next, -1)
	}
	deleted, err := b.adm.DeleteRecords(t.Context(), ends)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	again := b.subscribe(t, Filter{Topics: []string{"a"}}, from)
	defer again.Close()
	var missing int64
	for _, g := range again.Gaps {
		missing += g.To - g.From
	}
	if missing != 30 {
		t.Errorf("gaps %v, want 30 records", again.Gaps)
	}
	idle(t, again)
}

func TestHub_RefusesWhatItMust(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Topics, c.MaxSubscriptions = []string{"a*"}, 1 })
	for _, f := range []Filter{{}, {Topics: []string{"b"}}, {Topics: []string{"_internal"}}, {Topics: []string{"a", "a"}}, {Topics: make([]string, MaxTopics+1)}} {
		if _, err := b.Subscribe(t.Context(), f, nil); !errors.As(err, new(*FilterError)) {
			t.Errorf("Subscribe(%v) = %v", f, err)
		}
	}
	s := b.subscribe(t, Filter{Topics: []string{"a"}}, nil)
	if _, err := b.Subscribe(t.Context(), Filter{Topics: []string{"a"}}, nil); !errors.Is(err, ErrFull) {
		t.Errorf("Subscribe() beyond the bound = %v", err)
	}
	s.Close()
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

// A thousand watchers take little memory beyond their buffers, and all see all.
func TestHub_AThousandWatchers(t *testing.T) {
	t.Parallel()
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
	if len(b.topics) != 0 || b.count != 0 {
		t.Errorf("%d topics are read and %d subscriptions counted after all have left", len(b.topics), b.count)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func serve(t testing.TB, h *Hub) string {
	t.Helper()
	mux := http.NewServeMux()
	cfg := huma.DefaultConfig("Watch", "1")
	cfg.CreateHooks = nil
	h.Register(humago.New(mux, cfg))
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.ReadTimeout = 500 * time.Millisecond // must not end a stream
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

// sse is one server-sent event.
type sse struct{ id, event, data string }

func openStream(t testing.TB, url, lastID string) (next func() sse, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("GET %s = %d %v", url, resp.StatusCode, resp.Header)
	}
	in := bufio.NewScanner(resp.Body)
	next = func() sse {
		var e sse
		for in.Scan() {
			switch k, v, _ := strings.Cut(in.Text(), ": "); k {
			case "id":
				e.id = v
			case "event":
				e.event = v
			case "data":
				e.data = v
			case "":
				return e
			}
		}
		t.Fatalf("the stream ended: %v", in.Err())
		return e
	}
	return next, sync.OnceFunc(func() { cancel(); _ = resp.Body.Close() })
}

func TestStream_ResumesByLastEventID(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Heartbeat = 100 * time.Millisecond })
	url := serve(t, b.Hub) + "/v1/events/stream?topics=a,b"
	next, stop := openStream(t, url, "")
	last := next()
	if last.event != "subscribed" {
		t.Fatalf("first is %+v", last)
	}
	for range 10 { // longer than the server takes to read a request
		if last = next(); last.event != "position" {
			t.Fatalf("while nothing comes: %+v", last)
		}
	}
	b.produce(t, "a", 0, 10)
	seen := map[int]int{}
	for len(seen) < 4 {
		if last = next(); last.event == "event" {
			seen[number(t, []byte(last.data))]++
		}
	}
	stop()
	b.produce(t, "b", 10, 10)
	next, stop = openStream(t, url, last.id)
	defer stop()
	for len(seen) < 20 {
		if e := next(); e.event == "event" {
			seen[number(t, []byte(e.data))]++
		}
	}
	for i := range 20 {
		if seen[i] != 1 {
			t.Errorf("event %d came %d times", i, seen[i])
		}
	}
	for query, want := range map[string]int{"": 422, "?topics=_x": 422, "?topics=a&since=nonsense": 422} {
		resp, err := http.Get(strings.TrimSuffix(url, "?topics=a,b") + query)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("GET %s = %d, want %d", query, resp.StatusCode, want)
		}
	}
}

func TestSocket_SubscribesAndUnsubscribes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	url := serve(t, b.Hub) + "/v1/ws"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dial := func() *websocket.Conn {
		c, resp, err := websocket.Dial(ctx, url, nil)
		if err != nil {
			t.Fatalf("Dial() = %v, %v", resp, err)
		}
		t.Cleanup(func() { _ = c.CloseNow() })
		return c
	}
	c := dial()
	say := func(v any) {
		if err := wsjson.Write(ctx, c, v); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(want string) wsMessage {
		var m wsMessage
		if err := wsjson.Read(ctx, c, &m); err != nil {
			t.Fatalf("want %s: %v", want, err)
		}
		if m.Type != want {
			t.Fatalf("heard %+v, want %s", m, want)
		}
		return m
	}
	type o = map[string]any
	say(o{"type": "ping", "id": "p"})
	hear("pong")
	say(o{"type": "subscribe", "id": "one", "topics": []string{"a"}})
	last := hear("subscribed")
	say(o{"type": "subscribe", "id": "one", "topics": []string{"b"}})
	if m := hear("error"); m.Status != 409 {
		t.Errorf("the same id again: %+v", m)
	}
	for _, bad := range []o{
		{"type": "subscribe", "topics": []string{"a"}},
		{"type": "subscribe", "id": "x"},
		{"type": "nonsense"},
		{"type": "subscribe", "id": "x", "topics": []string{"a"}, "resume": "nonsense"},
	} {
		say(bad)
		if m := hear("error"); m.Status != 422 {
			t.Errorf("%v: %+v", bad, m)
		}
	}
	say(o{"type": "unsubscribe", "id": "x"})
	if m := hear("error"); m.Status != 404 {
		t.Errorf("unsubscribe of none: %+v", m)
	}
	b.produce(t, "a", 0, 3)
	for range 3 {
		last = hear("event")
	}
	say(o{"type": "unsubscribe", "id": "one"})
	hear("unsubscribed")
	b.produce(t, "a", 3, 3)
	say(o{"type": "ping"})
	hear("pong") // and no event

	c = dial()
	say(o{"type": "subscribe", "id": "back", "topics": []string{"a"}, "resume": last.Position})
	hear("subscribed")
	seen := map[int]bool{}
	for range 3 {
		seen[number(t, hear("event").Event)] = true
	}
	if !seen[3] || !seen[4] || !seen[5] {
		t.Errorf("after coming back: %v", seen)
	}
	b.stop()
	for {
		var m wsMessage
		if err := wsjson.Read(ctx, c, &m); err != nil {
			if websocket.CloseStatus(err) != websocket.StatusGoingAway {
				t.Errorf("the server stops: %v", err)
			}
			break
		}
	}
}

func TestSocket_ForeignPagesAndForeignersStayOut(t *testing.T) {
	t.Parallel()
	secret, hash := access.NewToken()
	gate, err := access.New(access.Config{Tokens: []access.Token{{Name: "ann", Role: access.Viewer, Hash: hash}}})
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t, func(c *Config) { c.Gate = gate })
	url := serve(t, b.Hub)
	for name, tt := range map[string]struct {
		opts   websocket.DialOptions
		status int
	}{
		"no token":              {websocket.DialOptions{}, 401},
		"a wrong token":         {websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer x"}}}, 401},
		"a token":               {websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + secret}}}, 101},
		"a browser's token":     {websocket.DialOptions{Subprotocols: []string{protocol, access.Subprotocol + secret}}, 101},
		"a page of another's":   {websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + secret}, "Origin": {"https://evil.example"}}}, 403},
		"a browser's bad token": {websocket.DialOptions{Subprotocols: []string{protocol, access.Subprotocol + "x"}}, 401},
	} {
		c, resp, err := websocket.Dial(t.Context(), url+"/v1/ws", &tt.opts)
		if resp == nil || resp.StatusCode != tt.status {
			t.Errorf("%s: %v, %v, want %d", name, resp, err, tt.status)
		}
		if c != nil {
			if len(tt.opts.Subprotocols) > 0 && c.Subprotocol() != protocol {
				t.Errorf("%s: subprotocol %q", name, c.Subprotocol())
			}
			_ = c.CloseNow()
		}
	}
	resp, err := http.Get(url + "/v1/events/stream?topics=a")
	if err != nil {
		t.Fatal(err)
	}
	if _ = resp.Body.Close(); resp.StatusCode != 401 {
		t.Errorf("a stream without a token = %d", resp.StatusCode)
	}
}

func TestHub_BrokerRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(ports ...int) *kfake.Cluster {
		opts := []kfake.Opt{kfake.NumBrokers(1), kfake.DataDir(dir)}
		if len(ports) > 0 {
			opts = append(opts, kfake.Ports(ports...))
		} else {
			opts = append(opts, kfake.SeedTopics(3, "a"))
		}
		c, err := kfake.NewCluster(opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	b := &bundle{broker: start()}
	addr := b.broker.ListenAddrs()[0]
	b.Hub, b.stop = startHub(t, b.broker)
	var err error
	if b.producer, err = kgo.NewClient(kgo.SeedBrokers(addr)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.producer.Close)
	s := b.subscribe(t, Filter{Topics: []string{"a"}}, nil)
	defer s.Close()
	b.produce(t, "a", 0, 10)
	read(t, s, 10)
	b.broker.Close()
	port, err := strconv.Atoi(addr[strings.LastIndex(addr, ":")+1:])
	if err != nil {
		t.Fatal(err)
	}
	start(port)
	b.produce(t, "a", 10, 10)
	seen := read(t, s, 10)
	for i := 10; i < 20; i++ {
		if seen[i] != 1 {
			t.Errorf("event %d came %d times", i, seen[i])
		}
	}
}
