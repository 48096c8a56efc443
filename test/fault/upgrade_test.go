//go:build fault

package fault

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// shareOfStep is the number of requests that are answered while a step is made; it begins
// after a quarter of them.
const shareOfStep = 160

// Two relays, two order services and two processes of subscriptions are upgraded one after the
// other during a load, and back again, so that both versions run side by side. Nothing is lost,
// repeated or out of order, and a consumer receives each event. The versions are this tree's and harness.Next; with OUTBOX_EARLIER, the path of an
// earlier program, they are that one and this tree's.
func TestFault_RollingUpgradeAndBack(t *testing.T) {
	t.Parallel()
	before, after := os.Getenv("OUTBOX_EARLIER"), harness.Binary(t, "relay")
	if before == "" {
		before, after = after, harness.Next(t)
	}
	addrs := harness.FreeAddrs(t, 12)
	s := &storm{cql: addrs[0], kafka: addrs[1], admin: addrs[4]}
	engines := harness.Start(t, "engines", "engines", "--data-dir", t.TempDir(), "--cql-addr", s.cql, "--kafka-addr", s.kafka, "--tokens", "16")
	harness.Reachable(t, s.cql)
	migrate := func(program string) {
		p := harness.StartProgram(t, "migrate", program, "schema", "migrate", "--scylla-hosts", s.cql, "--components", "schedule,subscriptions,orders")
		if code := p.Wait(); code != 0 {
			t.Fatalf("schema migrate: status %d\n%s", code, p.Log())
		}
	}
	migrate(before)
	apis, relayAdmins, queues := addrs[2:4], addrs[6:8], addrs[8:10]
	var orders, relays, serving []*harness.Process
	for i := range 2 {
		orders = append(orders, harness.StartProgram(t, "orders", before, "orders", "--scylla-hosts", s.cql, "--orders-addr", apis[i], "--ops-addr", addrs[4+i]))
		relays = append(relays, harness.StartProgram(t, "relay", before, "relay", "--scylla-hosts", s.cql, "--kafka-seeds", s.kafka, "--ops-addr", relayAdmins[i],
			"--relay-confidence-window", window.String(), "--relay-session-timeout", relaySession.String(), "--relay-shards", "4"))
		serving = append(serving, harness.StartProgram(t, "subscriptions", before, "subscriptions", "--scylla-hosts", s.cql, "--kafka-seeds", s.kafka,
			"--subscriptions-addr", queues[i], "--ops-addr", addrs[10+i]))
	}
	order := func(i int, program string) func() {
		return func() { orders[i].Upgrade(program); harness.Ready(t, apis[i]) }
	}
	relay := func(i int, program string) func() {
		return func() { relays[i].Upgrade(program); awaitShards(t, relayAdmins) }
	}
	serve := func(i int, program string) func() {
		return func() { serving[i].Upgrade(program); harness.Reachable(t, queues[i]) }
	}
	mixed := func() {
		if one, two := harness.Version(relayAdmins[0]), harness.Version(relayAdmins[1]); one == two || one == "" || two == "" {
			t.Errorf("the relays have the versions %q and %q, want two", one, two)
		}
	}
	steps := []func(){
		func() { migrate(after) },
		order(0, after), serve(0, after), order(1, after), relay(0, after), mixed, relay(1, after), serve(1, after),
		relay(0, before), mixed, serve(0, before), order(0, before), relay(1, before), order(1, before), serve(1, before),
	}
	for i := range apis {
		harness.Ready(t, apis[i])
	}
	awaitShards(t, relayAdmins)
	consumed := consumeAll(t, queues)

	balancer := newBalancer(apis)
	front := httptest.NewServer(balancer)
	defer front.Close()
	defer balancer.allow(math.MaxInt) // a failed test leaves no request that waits
	s.api, s.lines, s.rate = front.Listener.Addr().String(), len(steps)*shareOfStep, 300
	load := s.load(t)
	for i, step := range steps {
		balancer.await(t, i*shareOfStep+shareOfStep/4)
		step()
		balancer.allow((i + 2) * shareOfStep)
	}
	s.judge(t, load)
	consumed(s.lines)
	t.Logf("verify: %s", harness.Must(t, "verify", "--subscription", upgraded, "--scylla-hosts", s.cql, "--kafka-seeds", s.kafka))
	for _, p := range slices.Concat(relays, orders, serving) {
		p.Stop()
	}
	engines.Stop()
}

// upgraded is the subscription of the upgrade.
const upgraded = "upgraded"

// consumeAll consumes the events of orders from a subscription, at the first of its processes. The
// returned function waits until every message is settled, and checks the number of events.
func consumeAll(t *testing.T, queues []string) (end func(events int)) {
	t.Helper()
	for _, addr := range queues {
		harness.Reachable(t, addr)
	}
	c := &client.Client{URL: "http://" + queues[0]}
	if _, err := c.Put(t.Context(), client.Subscription{Name: upgraded, Topics: []string{"Order*"}, Start: "earliest", VisibilityTimeout: "5s", MaxReceive: 1000}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := make(map[string]bool)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- c.Consume(ctx, upgraded, func(_ context.Context, d *client.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			seen[d.EventID] = true
			return nil
		}, client.ConsumeOptions{VisibilityTimeout: 5 * time.Second})
	}()
	return func(events int) {
		t.Helper()
		defer stop()
		harness.Until(t, "every message settled", func() bool {
			st, err := c.Status(t.Context(), upgraded)
			return err == nil && st.Lag == 0 && st.DeadLetters == 0 && st.Deferred == 0
		})
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Consume() = %v", err)
		}
		if len(seen) != events {
			t.Errorf("%d events were consumed, want %d", len(seen), events)
		}
	}
}

// balancer distributes requests over order services. A request to one that has stopped has
// no answer, so its client repeats it. Beyond the allowed number of answers requests wait:
// the load lasts as long as the steps take.
type balancer struct {
	proxies []*httputil.ReverseProxy
	mu      struct {
		sync.Mutex
		changed           *sync.Cond
		requests          int
		answered, allowed int
	}
}

func newBalancer(apis []string) *balancer {
	b := new(balancer)
	for _, api := range apis {
		p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: api})
		p.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
		p.ModifyResponse = func(r *http.Response) error {
			if r.StatusCode < 300 {
				b.mu.Lock()
				b.mu.answered++
				b.mu.Unlock()
			}
			return nil
		}
		b.proxies = append(b.proxies, p)
	}
	b.mu.changed = sync.NewCond(&b.mu)
	b.mu.allowed = shareOfStep
	return b
}

// ServeHTTP implements http.Handler.
func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	for b.mu.answered >= b.mu.allowed {
		b.mu.changed.Wait()
	}
	b.mu.requests++
	p := b.proxies[b.mu.requests%len(b.proxies)]
	b.mu.Unlock()
	p.ServeHTTP(w, r)
}

// allow allows so many answers.
func (b *balancer) allow(n int) {
	b.mu.Lock()
	b.mu.allowed = n
	b.mu.Unlock()
	b.mu.changed.Broadcast()
}

// await waits for so many answers.
func (b *balancer) await(t *testing.T, n int) {
	t.Helper()
	harness.Until(t, "answers to the load", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.mu.answered >= n
	})
}
