package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/test/subfake"
)

// cluster is a number of instances with a network in memory, for virtual time.
type cluster struct {
	t         testing.TB
	instances []*instance

	mu      sync.Mutex
	fault   map[string]func(ctx context.Context, serve func() *http.Response) (*http.Response, error) // by host
	calls   map[string]int
	claimed map[string]string
	made    map[string]string // the instance that made a receipt which another one has now
	reports []subscriptions.InstanceStatus
	broken  error // of the database
	reads   int
}

type instance struct {
	*Service
	engine *subfake.Service
	name   string
}

// Owner implements Receipts.
func (c *cluster) Owner(_, receipt string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	owner, ok := subfake.Owner(receipt)
	return cmp.Or(c.made[receipt], owner), ok
}

// Holders implements Receipts: a partition has the instance that made the receipt, unless
// another one has claimed it.
func (c *cluster) Holders(_ context.Context, _ string, receipts []string) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]string, len(receipts))
	for i, r := range receipts {
		owner, _ := subfake.Owner(r)
		owner = cmp.Or(c.made[r], owner)
		out[i] = cmp.Or(c.claimed[owner], owner)
	}
	return out, c.broken
}

// claim gives the partition of an instance to another one.
func (c *cluster) claim(from, to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claimed[from] = to
}

var key = []byte("0123456789abcdef")

func start(t testing.TB, n int) *cluster {
	t.Helper()
	c := &cluster{t: t, fault: map[string]func(context.Context, func() *http.Response) (*http.Response, error){}, calls: map[string]int{}, claimed: map[string]string{}, made: map[string]string{}}
	for i := range n {
		name := fmt.Sprintf("i%d", i)
		engine := subfake.New(name)
		if _, err := engine.Put(t.Context(), subscriptions.Subscription{Name: "s", Topics: []string{"t"}, VisibilityTimeout: time.Hour}, ""); err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{Local: engine, Instance: name, Key: key, Reports: c, Receipts: c, HTTP: &http.Client{Transport: c}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		c.instances = append(c.instances, &instance{s, engine, name})
	}
	c.report()
	return c
}

// report writes a report of each instance.
func (c *cluster) report() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports = nil
	for _, i := range c.instances {
		c.reports = append(c.reports, subscriptions.InstanceStatus{Instance: i.name, Address: "http://" + i.name, At: time.Now(), Partitions: 1})
	}
}

// Instances implements Reports.
func (c *cluster) Instances(context.Context, string) ([]subscriptions.InstanceStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	return slices.Clone(c.reports), c.broken
}

// RoundTrip implements http.RoundTripper.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	fault := c.fault[r.URL.Host]
	_, op, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, pathPrefix), "/")
	c.calls[op]++
	c.mu.Unlock()
	at := slices.IndexFunc(c.instances, func(i *instance) bool { return i.name == r.URL.Host })
	serve := func() *http.Response {
		w := httptest.NewRecorder()
		c.instances[at].Handler().ServeHTTP(w, r)
		return w.Result()
	}
	if fault != nil {
		return fault(r.Context(), serve)
	}
	done := make(chan *http.Response, 1)
	go func() { done <- serve() }()
	select {
	case resp := <-done:
		return resp, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func (c *cluster) inject(i int, f func(ctx context.Context, serve func() *http.Response) (*http.Response, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault[c.instances[i].name] = f
}

func (c *cluster) countCalls(op string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[op]
}

func dead(context.Context, func() *http.Response) (*http.Response, error) {
	return nil, errors.New("connection refused")
}

func hangs(ctx context.Context, _ func() *http.Response) (*http.Response, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// answersLate serves a request and loses the response for a time.
func answersLate(d time.Duration) func(context.Context, func() *http.Response) (*http.Response, error) {
	return func(ctx context.Context, serve func() *http.Response) (*http.Response, error) {
		resp := serve()
		select {
		case <-time.After(d):
			return resp, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (i *instance) receive(t testing.TB, r subscriptions.Receive) []subscriptions.Message {
	t.Helper()
	out, err := i.Receive(t.Context(), "s", r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (i *instance) settle(t testing.TB, a subscriptions.Action, receipts ...string) []subscriptions.Code {
	t.Helper()
	actions := make([]subscriptions.Settle, len(receipts))
	for j, r := range receipts {
		actions[j] = subscriptions.Settle{Action: a, Receipt: r}
	}
	results, err := i.Settle(t.Context(), "s", actions)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]subscriptions.Code, len(results))
	for j := range results {
		out[j] = results[j].Code
	}
	return out
}

func TestReceive_FromEveryInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 3)
		for i, in := range c.instances {
			for k := range 5 {
				in.engine.Publish("s", fmt.Sprint("k", i, "-", k), `{"n":1}`)
			}
		}
		got := map[string]int{}
		var receipts []string
		for range 30 {
			for _, m := range c.instances[0].receive(t, subscriptions.Receive{Max: 2}) {
				got[m.Topic]++
				receipts = append(receipts, m.Receipt)
			}
		}
		if got["t-i0"] != 5 || got["t-i1"] != 5 || got["t-i2"] != 5 {
			t.Fatalf("one instance received %v, want 5 of each", got)
		}
		// Any instance settles them, in the order of the request.
		codes := c.instances[2].settle(t, subscriptions.ActionAck, append(receipts, "forged", "i1/s/9/9")...)
		for i := range receipts {
			if codes[i] != subscriptions.CodeOK {
				t.Errorf("receipt %s: %s", receipts[i], codes[i])
			}
		}
		if codes[15] != subscriptions.CodeInvalid || codes[16] != subscriptions.CodeLeaseExpired {
			t.Errorf("forged and expired: %v", codes[15:])
		}
		for _, in := range c.instances {
			if n := in.engine.Open("s"); n != 0 {
				t.Errorf("%s has %d open messages", in.name, n)
			}
		}
	})
}

// A backlog of this instance does not delay the messages of its peers.
func TestReceive_InTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 2)
		for i := range 100 {
			c.instances[0].engine.Publish("s", fmt.Sprint(i), `{}`)
		}
		c.instances[1].engine.Publish("s", "k", `{}`)
		for n := 1; ; n++ {
			if got := c.instances[0].receive(t, subscriptions.Receive{Max: 1}); got[0].Topic == "t-i1" {
				break
			}
			if n > 4 {
				t.Fatal("the message of the peer waits behind the backlog")
			}
		}
		// A peer without messages is not asked each time.
		before := c.countCalls(opReceive)
		for range 50 {
			c.instances[0].receive(t, subscriptions.Receive{Max: 1})
		}
		if n := c.countCalls(opReceive) - before; n > 1 {
			t.Errorf("50 requests that this instance could serve asked the peer %d times", n)
		}
	})
}

// One long poll per peer serves all requests that wait, and reads no reports for each.
func TestReceive_WaitsForPeersWithOnePoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 3)
		const consumers = 50
		got := make(chan subscriptions.Message, consumers)
		for range consumers {
			go func() {
				for _, m := range c.instances[0].receive(t, subscriptions.Receive{Max: 1, Wait: 20 * time.Second}) {
					got <- m
				}
			}()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := c.instances[1].engine.Waiting() + c.instances[2].engine.Waiting(); n != 2 {
			t.Errorf("%d requests wait at the peers, want one each", n)
		}
		if c.reads > 3 {
			t.Errorf("%d reads of the reports for %d waiting requests", c.reads, consumers)
		}
		began := time.Now()
		for i := range consumers {
			c.instances[1+i%2].engine.Publish("s", fmt.Sprint(i), `{}`)
		}
		for range consumers {
			<-got
		}
		if d := time.Since(began); d > 0 {
			t.Errorf("the messages arrived after %s, want immediately", d)
		}
		for _, in := range c.instances {
			if n := in.engine.Leased("s"); in != c.instances[0] && n != consumers/2 {
				t.Errorf("%s has %d leases, want %d", in.name, n, consumers/2)
			}
		}
	})
}

// A message that arrives when no request waits is released, and the delivery not counted.
func TestReceive_LateMessagesAreReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 2)
		ctx, hangUp := context.WithCancel(t.Context())
		go func() {
			if _, err := c.instances[0].Receive(ctx, "s", subscriptions.Receive{Max: 1, Wait: 20 * time.Second}); err != nil {
				t.Errorf("Receive() error = %v", err)
			}
		}()
		time.Sleep(time.Second)
		hangUp()
		synctest.Wait()
		c.instances[1].engine.Publish("s", "k", `{}`)
		synctest.Wait()
		if n := c.instances[1].engine.Leased("s"); n != 0 {
			t.Errorf("%d leases for a request that has ended", n)
		}
		got := c.instances[1].receive(t, subscriptions.Receive{Max: 1})
		if len(got) != 1 || got[0].Attempt != 1 {
			t.Errorf("after the release: %+v, want the first attempt", got)
		}
	})
}

func TestReceive_AutoAckOfAPeer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 2)
		c.instances[1].engine.Publish("s", "k", `{}`)
		got := c.instances[0].receive(t, subscriptions.Receive{Max: 1, AutoAck: true, Wait: time.Second})
		if len(got) != 1 || got[0].Receipt != "" || c.instances[1].engine.Open("s") != 0 {
			t.Errorf("auto ack = %+v with %d open", got, c.instances[1].engine.Open("s"))
		}
	})
}

// slowAck is an engine whose acknowledgements take a second, like one that waits for a commit.
type slowAck struct{ *subfake.Service }

func (s slowAck) Receive(ctx context.Context, name string, r subscriptions.Receive) ([]subscriptions.Message, error) {
	out, err := s.Service.Receive(ctx, name, r)
	if r.AutoAck && len(out) > 0 {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return out, err
}

// A message of a peer that arrives while the local engine acknowledges another one does not
// lose that.
func TestReceive_AutoAckOfBoth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 2)
		c.instances[0].Service.cfg.Local = slowAck{c.instances[0].engine}
		got := make(chan int)
		go func() {
			got <- len(c.instances[0].receive(t, subscriptions.Receive{Max: 2, AutoAck: true, Wait: 20 * time.Second}))
		}()
		time.Sleep(3 * time.Second)
		c.instances[0].engine.Publish("s", "a", `{}`)
		time.Sleep(time.Millisecond)
		c.instances[1].engine.Publish("s", "b", `{}`)
		n := <-got
		time.Sleep(5 * time.Second)
		if acknowledged := 2 - c.instances[0].engine.Open("s") - c.instances[1].engine.Open("s"); acknowledged != n || n == 0 {
			t.Errorf("%d messages are acknowledged, %d were received", acknowledged, n)
		}
	})
}

// A request whose caller has gone ends, instead of waiting in rounds that end at once.
func TestReceive_EndsWithItsCaller(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2} {
		c := start(t, n)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		done := make(chan error, 1)
		go func() {
			_, err := c.instances[0].Receive(ctx, "s", subscriptions.Receive{Max: 1, Wait: subscriptions.MaxWait})
			done <- err
		}()
		select {
		case <-done:
		case <-time.After(subscriptions.MaxWait / 2):
			t.Fatalf("of %d instances: a request of a caller that has gone still waits", n)
		}
	}
}

// Peers that die, hang or answer late do not keep requests from the messages of others, nor
// longer than they want to wait.
func TestReceive_BrokenPeers(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(context.Context, func() *http.Response) (*http.Response, error){
		"dead": dead, "hangs": hangs, "answers late": answersLate(3 * time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t, 3)
				c.inject(1, fault)
				go func() {
					time.Sleep(10 * time.Second)
					c.instances[2].engine.Publish("s", "k", `{}`)
				}()
				began := time.Now()
				got := c.instances[0].receive(t, subscriptions.Receive{Max: 1, Wait: 20 * time.Second})
				// The first request may have asked the broken one for DefaultTimeout.
				if d := time.Since(began); len(got) != 1 || got[0].Topic != "t-i2" || d > 10*time.Second+DefaultTimeout {
					t.Errorf("received %+v after %s", got, d)
				}
				began = time.Now()
				if got := c.instances[0].receive(t, subscriptions.Receive{Max: 1, Wait: 2 * time.Second}); len(got) != 0 || time.Since(began) > 2*time.Second+DefaultTimeout {
					t.Errorf("nothing to receive = %+v after %s", got, time.Since(began))
				}
			})
		})
	}
}

func TestSettle_OwnersThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 3)
		var receipts []string
		for _, in := range c.instances {
			in.engine.Publish("s", "k", `{}`)
			receipts = append(receipts, in.receive(t, subscriptions.Receive{Max: 1})[0].Receipt)
		}
		owner := func(i int) int {
			return slices.IndexFunc(receipts, func(r string) bool { return strings.HasPrefix(r, fmt.Sprintf("i%d/", i)) })
		}
		ordered := []string{receipts[owner(0)], receipts[owner(1)], receipts[owner(2)]}
		want := func(step string, codes ...subscriptions.Code) {
			t.Helper()
			began := time.Now()
			if got := c.instances[0].settle(t, subscriptions.ActionExtend, ordered...); !slices.Equal(got, codes) {
				t.Errorf("%s: %v, want %v", step, got, codes)
			}
			if d := time.Since(began); d > handOverWait+DefaultTimeout {
				t.Errorf("%s: took %s", step, d)
			}
		}
		const ok, unavailable = subscriptions.CodeOK, subscriptions.CodeUnavailable
		want("all run", ok, ok, ok)
		c.inject(1, dead)
		c.inject(2, hangs)
		want("one is dead, one hangs", ok, unavailable, unavailable)
		c.instances[1].engine.Fail(fmt.Errorf("x: %w", subscriptions.ErrUnavailable))
		c.inject(1, nil)
		c.inject(2, answersLate(time.Second))
		want("one is starting, one answers late", ok, unavailable, ok)
		c.instances[1].engine.Fail(nil)
		c.inject(1, dead)
		time.Sleep(DefaultStale)
		want("dead without a recent report", ok, unavailable, ok)
		c.inject(1, nil)
		want("it runs although its reports are old", ok, ok, ok)
		c.mu.Lock()
		c.reports = c.reports[:1]
		c.mu.Unlock()
		time.Sleep(3 * time.Second)
		before := c.countCalls(opSettle)
		want("without reports", ok, unavailable, unavailable)
		if c.countCalls(opSettle) != before {
			t.Error("an instance without a report was called")
		}
		c.mu.Lock()
		c.broken = errors.New("database down")
		c.mu.Unlock()
		time.Sleep(3 * time.Second)
		want("the database is down", ok, unavailable, unavailable)
	})
}

// The local engine's outage does not hide the results of peers.
func TestSettle_LocalEngineUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 2)
		c.instances[1].engine.Publish("s", "k", `{}`)
		m, err := c.instances[1].engine.Receive(t.Context(), "s", subscriptions.Receive{Max: 1})
		if err != nil {
			t.Fatal(err)
		}
		c.instances[0].engine.Fail(fmt.Errorf("x: %w", subscriptions.ErrUnavailable))
		if got := c.instances[0].settle(t, subscriptions.ActionAck, "i0/s/1/1", m[0].Receipt); got[0] != subscriptions.CodeUnavailable || got[1] != subscriptions.CodeOK {
			t.Errorf("Settle() = %v, want unavailable and ok", got)
		}
	})
}

// A process at the address of another one that has stopped gets none of its requests.
func TestSettle_AnotherInstanceAtTheAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 2)
		c.mu.Lock()
		c.reports = append(c.reports, subscriptions.InstanceStatus{Instance: "i9", Address: "http://i1", At: time.Now(), Partitions: 1})
		c.mu.Unlock()
		if got := c.instances[0].settle(t, subscriptions.ActionAck, "i9/s/1/1"); got[0] != subscriptions.CodeUnavailable {
			t.Errorf("Settle() = %v, want unavailable", got)
		}
		c.claim("i9", "i1")
		if got := c.instances[0].settle(t, subscriptions.ActionAck, "i9/s/1/1"); got[0] != subscriptions.CodeLeaseExpired {
			t.Errorf("Settle() = %v, want what the next owner says", got)
		}
	})
}

// While a partition changes its owner, a request waits for the next one: none is answered 503.
func TestSettle_WaitsForTheNextOwner(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		to    string
		moves func(c *cluster)
	}{
		"the owner gives it to a peer":        {"i2", func(c *cluster) { c.instances[1].engine.Answer(subscriptions.CodeUnavailable) }},
		"the owner has stopped":               {"i2", func(c *cluster) { c.inject(1, dead) }},
		"the owner has stopped and left":      {"i2", func(c *cluster) { c.inject(1, dead); c.reports = c.reports[:1:1] }},
		"this instance is the next one":       {"i0", func(c *cluster) { c.inject(1, dead) }},
		"the owner does not know its actions": {"i2", func(c *cluster) { c.instances[1].engine.Answer(subscriptions.CodeUnknown) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cl := start(t, 3)
				next := cl.instances[cl.findInstance(c.to)]
				next.engine.Publish("s", "k", `{}`)
				m, err := next.engine.Receive(t.Context(), "s", subscriptions.Receive{Max: 1})
				if err != nil {
					t.Fatal(err)
				}
				receipt := m[0].Receipt
				cl.made[receipt] = "i1"
				c.moves(cl)
				time.AfterFunc(4*time.Second, func() { cl.report(); cl.claim("i1", c.to) })
				began := time.Now()
				if got := cl.instances[0].settle(t, subscriptions.ActionAck, receipt); got[0] != subscriptions.CodeOK {
					t.Errorf("Settle() = %v after %s", got, time.Since(began))
				}
				if n := next.engine.Open("s"); n != 0 {
					t.Errorf("%d messages are open", n)
				}
			})
		})
	}
}

// slow is an engine that gives a partition up while an action waits for its confirmation.
type slow struct {
	*subfake.Service
	calls atomic.Int32
	wait  time.Duration
	code  subscriptions.Code
}

func (s *slow) Settle(ctx context.Context, name string, actions []subscriptions.Settle) ([]subscriptions.Result, error) {
	if s.calls.Add(1) == 1 {
		time.Sleep(s.wait)
		return []subscriptions.Result{{Code: s.code}}, nil
	}
	return s.Service.Settle(ctx, name, actions)
}

// An action that waited long for its confirmation when its owner gave the partition up is repeated
// at the next one, too. One that had no confirmation in time is the caller's to repeat.
func TestSettle_MovedAfterALongWait(t *testing.T) {
	t.Parallel()
	for code, want := range map[subscriptions.Code]subscriptions.Code{subscriptions.CodeUnavailable: subscriptions.CodeOK, subscriptions.CodeUnknown: subscriptions.CodeUnknown} {
		synctest.Test(t, func(t *testing.T) {
			c := start(t, 1)
			local := &slow{Service: c.instances[0].engine, wait: handOverWait, code: code}
			s, err := New(Config{Local: local, Instance: "i0", Key: key, Reports: c, Receipts: c})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			local.Publish("s", "k", `{}`)
			m, err := s.Receive(t.Context(), "s", subscriptions.Receive{Max: 1})
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.Settle(t.Context(), "s", []subscriptions.Settle{{Action: subscriptions.ActionAck, Receipt: m[0].Receipt}})
			if err != nil || got[0].Code != want {
				t.Errorf("after %s: Settle() = %+v, %v, want %s", code, got, err, want)
			}
		})
	}
}

func (c *cluster) findInstance(name string) int {
	return slices.IndexFunc(c.instances, func(i *instance) bool { return i.name == name })
}

func TestStatusAndPurge_OfAllInstances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 3)
		for i, in := range c.instances {
			for range i + 1 {
				in.engine.Publish("s", "k", `{}`)
			}
		}
		st, err := c.instances[1].Status(t.Context(), "s")
		if err != nil || len(st.Partitions) != 3 || st.Waiting != 6 || st.Partitions[0].Topic != "t-i0" {
			t.Errorf("Status() = %+v, %v", st, err)
		}
		if n, err := c.instances[0].Purge(t.Context(), "s", subscriptions.Purge{DryRun: true}, "p"); n != 0 || err != nil {
			t.Errorf("Purge() of messages written at the same time = %d, %v", n, err)
		}
		time.Sleep(time.Second)
		c.mu.Lock()
		c.reports[2].Partitions = 0 // it had none when it reported
		c.mu.Unlock()
		for _, dry := range []bool{true, false} {
			if n, err := c.instances[0].Purge(t.Context(), "s", subscriptions.Purge{DryRun: dry}, "p"); n != 6 || err != nil {
				t.Errorf("Purge(dry run %v) = %d, %v, want 6", dry, n, err)
			}
		}
		c.inject(2, dead)
		if _, err := c.instances[0].Purge(t.Context(), "s", subscriptions.Purge{}, "p"); !errors.Is(err, subscriptions.ErrUnavailable) {
			t.Errorf("Purge() without an instance = %v, want an error", err)
		}
	})
}

// The owner of a partition reports a message; without its answer nothing is concluded.
func TestProgress_OfTheOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 3)
		c.instances[2].engine.Publish("s", "k", `{}`)
		if _, err := c.instances[2].engine.Receive(t.Context(), "s", subscriptions.Receive{Max: 1}); err != nil {
			t.Fatal(err)
		}
		for _, i := range c.instances {
			got, err := i.Progress(t.Context(), "s", subscriptions.Place{Topic: "t-i2"})
			if err != nil || got.State != subscriptions.ProgressProcessing || got.Owner != "i2" || got.LeaseUntil.IsZero() || got.Detail != "" {
				t.Errorf("Progress() at %s = %+v, %v", i.name, got, err)
			}
		}
		c.inject(2, dead)
		got, err := c.instances[0].Progress(t.Context(), "s", subscriptions.Place{Topic: "t-i2"})
		if err != nil || got.State != subscriptions.ProgressWaiting || got.Owner != "" || !strings.Contains(got.Detail, "may be processing") {
			t.Errorf("Progress() without the owner = %+v, %v", got, err)
		}
		if _, err := c.instances[0].Progress(t.Context(), "none", subscriptions.Place{}); !errors.Is(err, subscriptions.ErrNotFound) {
			t.Errorf("Progress() of no subscription = %v", err)
		}
	})
}

// The leases of all instances are one list, and a release finds the owner.
func TestLeases_OfAllInstances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 3)
		for _, i := range c.instances {
			i.engine.Publish("s", "k", `{}`)
			if got, err := i.engine.Receive(t.Context(), "s", subscriptions.Receive{Max: 1, Consumer: "at-" + i.name}); err != nil || len(got) != 1 {
				t.Fatalf("Receive() = %+v, %v", got, err)
			}
			time.Sleep(time.Second)
		}
		c.report()
		p, err := c.instances[1].Leases(t.Context(), "s", "", 2)
		if err != nil || len(p.Leases) != 2 || p.Next == "" || p.Leases[0].Consumer != "at-i0" || p.Leases[1].Consumer != "at-i1" {
			t.Fatalf("Leases() = %+v, %v", p, err)
		}
		if p, err = c.instances[0].Leases(t.Context(), "s", p.Next, 2); err != nil || len(p.Leases) != 1 || p.Next != "" || p.Leases[0].Consumer != "at-i2" {
			t.Fatalf("the next page = %+v, %v", p, err)
		}
		id := subscriptions.LeaseID{Topic: "t-i2", Number: 1}
		if err := c.instances[0].EndLease(t.Context(), "s", id, subscriptions.ActionRelease, "eve"); err != nil || c.instances[2].engine.Leased("s") != 0 {
			t.Errorf("EndLease() = %v, %d leased", err, c.instances[2].engine.Leased("s"))
		}
		if err := c.instances[0].EndLease(t.Context(), "s", id, subscriptions.ActionRelease, "eve"); !errors.Is(err, subscriptions.ErrLeaseEnded) {
			t.Errorf("EndLease() again = %v", err)
		}
		c.inject(2, dead)
		if p, err = c.instances[0].Leases(t.Context(), "s", "", 10); err != nil || len(p.Leases) != 2 || p.Next != "" || !slices.Equal(p.Unknown, []string{"i2"}) {
			t.Errorf("Leases() without an instance = %+v, %v", p, err)
		}
		if err := c.instances[0].EndLease(t.Context(), "s", id, subscriptions.ActionRelease, "eve"); !errors.Is(err, subscriptions.ErrUnavailable) {
			t.Errorf("EndLease() without the owner = %v", err)
		}
	})
}

// A request between instances is accepted only with a signature of a recent time.
func TestHandler_RefusesForgedRequests(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	h := c.instances[0].Handler()
	now := fmt.Sprint(time.Now().UnixMilli())
	path, body := pathPrefix+"s/status", "{}"
	right := newSigner(key)
	for _, tt := range []struct {
		name, path, instance, at, signature string
		want                                int
	}{
		{"right", path, "i0", now, right.sign(path, "i0", now, bodyDigest([]byte(body))), 200},
		{"no signature", path, "i0", now, "", 401},
		{"another key", path, "i0", now, newSigner([]byte("another key of bytes")).sign(path, "i0", now, bodyDigest([]byte(body))), 401},
		{"the key of receipts", path, "i0", now, signer{key}.sign(path, "i0", now, bodyDigest([]byte(body))), 401},
		{"another body", path, "i0", now, right.sign(path, "i0", now, bodyDigest([]byte("[]"))), 401},
		{"another path", path, "i0", now, right.sign(pathPrefix+"x/status", "i0", now, bodyDigest([]byte(body))), 401},
		{"another instance", path, "i1", now, right.sign(path, "i1", now, bodyDigest([]byte(body))), 421},
		{"moved to this instance", path, "i0", now, right.sign(path, "i1", now, bodyDigest([]byte(body))), 401},
		{"old", path, "i0", "1000", right.sign(path, "i0", "1000", bodyDigest([]byte(body))), 401},
		{"no such operation", pathPrefix + "s/x", "i0", now, right.sign(pathPrefix+"s/x", "i0", now, bodyDigest([]byte(body))), 400},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, tt.path, strings.NewReader(body))
		r.Header.Set(headerInstance, tt.instance)
		r.Header.Set(headerTime, tt.at)
		r.Header.Set(headerDigest, bodyDigest([]byte(body)))
		r.Header.Set(headerSignature, tt.signature)
		read := &countingReader{Reader: strings.NewReader(body)}
		r.Body = io.NopCloser(read)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s = %d %s, want %d", tt.name, w.Code, w.Body, tt.want)
		}
		if refused := w.Code == http.StatusUnauthorized || w.Code == http.StatusMisdirectedRequest; refused == (read.n > 0) {
			t.Errorf("%s = %d after %d bytes of its body", tt.name, w.Code, read.n)
		}
	}
	// A body that is not the signed one, or too long, has no effect.
	for _, sent := range []string{"[]", "", strings.Repeat(" ", maxRequest+1)} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(sent))
		signed := bodyDigest([]byte(body))
		if len(sent) > maxRequest {
			signed = bodyDigest([]byte(sent))
		}
		r.Header.Set(headerInstance, "i0")
		r.Header.Set(headerTime, now)
		r.Header.Set(headerDigest, signed)
		r.Header.Set(headerSignature, right.sign(path, "i0", now, signed))
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusUnauthorized && w.Code != http.StatusBadRequest {
			t.Errorf("a body of %d bytes = %d", len(sent), w.Code)
		}
	}
}

// countingReader counts the bytes that are read.
type countingReader struct {
	io.Reader
	n int
}

func (r *countingReader) Read(b []byte) (n int, err error) {
	n, err = r.Reader.Read(b)
	r.n += n
	return n, err
}

// The messages of a long poll with runs are given to one request, so that no two consumers
// have parts of a run.
func TestGive_DoesNotShareRuns(t *testing.T) {
	t.Parallel()
	for _, perKey := range []int{0, 100} {
		g := &group{}
		key := poll{instance: "i1", perKey: perKey}
		for range 3 {
			g.mu.waiters = append(g.mu.waiters, &waiter{request: subscriptions.Receive{Max: 2, MaxPerKey: perKey}, wake: func() {}})
		}
		waiters := slices.Clone(g.mu.waiters)
		rest := g.give(key, make([]subscriptions.Message, 7))
		got := []int{len(waiters[0].got), len(waiters[1].got), len(waiters[2].got), len(rest)}
		if want := map[int][]int{0: {2, 2, 2, 1}, 100: {2, 0, 0, 5}}[perKey]; !slices.Equal(got, want) {
			t.Errorf("with %d per key the messages go to %v, want %v", perKey, got, want)
		}
	}
}

// The status has the consumers that wait, at whichever instance, also at one without partitions.
func TestStatus_WaitingConsumers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 3)
		c.mu.Lock()
		c.reports[2].Partitions = 0
		c.mu.Unlock()
		ctx, stop := context.WithCancel(t.Context())
		for name, at := range map[string][]int{"ann/web": {0, 0}, "bob": {2}} {
			for _, i := range at {
				go func() {
					_, _ = c.instances[i].Receive(ctx, "s", subscriptions.Receive{Max: 1, Wait: subscriptions.MaxWait, Consumer: name})
				}()
			}
		}
		synctest.Wait()
		want := []subscriptions.WaitingConsumer{{Consumer: "ann/web", Instance: "i0", Requests: 2}, {Consumer: "bob", Instance: "i2", Requests: 1}}
		for _, i := range c.instances {
			st, err := i.Status(t.Context(), "s")
			slices.SortFunc(st.Consumers, func(a, b subscriptions.WaitingConsumer) int { return cmp.Compare(a.Consumer, b.Consumer) })
			if err != nil || !slices.Equal(st.Consumers, want) {
				t.Errorf("the consumers by %s are %+v, %v, want %+v", i.name, st.Consumers, err, want)
			}
		}
		stop()
		synctest.Wait()
		if st, err := c.instances[1].Status(t.Context(), "s"); err != nil || len(st.Consumers) > 0 {
			t.Errorf("the consumers after they have gone: %+v, %v", st.Consumers, err)
		}
	})
}
