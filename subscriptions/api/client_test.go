package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/api"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// direct is a transport without a network, for virtual time.
type direct struct {
	handler http.Handler
	// fault returns the error of a request; nil for none. It is called before it is served
	// and, with served, before its response arrives.
	fault func(r *http.Request, served bool) error

	mu    sync.Mutex
	calls map[string]int
}

func (d *direct) RoundTrip(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	if d.calls == nil {
		d.calls = map[string]int{}
	}
	d.calls[r.URL.Path]++
	fault := d.fault
	d.mu.Unlock()
	if fault != nil {
		if err := fault(r, false); err != nil {
			return nil, err
		}
	}
	r = r.Clone(r.Context())
	r.Host = "localhost"
	done := make(chan *http.Response, 1)
	go func() {
		w := httptest.NewRecorder()
		d.handler.ServeHTTP(w, r)
		done <- w.Result()
	}()
	select {
	case resp := <-done:
		if fault != nil {
			if err := fault(r, true); err != nil {
				return nil, err
			}
		}
		return resp, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func (d *direct) count(path string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls["/v1/subscriptions/orders/"+path]
}

// newClient returns a client of the fixture.
func (b *fixture) newClient() (*client.Client, *direct) {
	d := &direct{handler: b.Handler()}
	return &client.Client{URL: "http://localhost", HTTP: &http.Client{Transport: d}}, d
}

var quiet = slog.New(slog.DiscardHandler)

func TestClient_Calls(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish(5)
	c, _ := b.newClient()
	got, err := c.Receive(t.Context(), "orders", client.ReceiveOptions{Max: 5, VisibilityTimeout: time.Hour})
	if err != nil || len(got) != 5 || string(got[3].Payload()) != `{"n":3}` || time.Until(got[0].LeaseUntil) < 50*time.Minute {
		t.Fatalf("Receive() = %+v, %v", got, err)
	}
	one := func(i int) client.Settling {
		return client.Settling{Receipt: got[i].Receipt, Delay: time.Minute, Reason: "broken"}
	}
	for name, f := range map[string]func() ([]client.SettleResult, error){
		"Ack":     func() ([]client.SettleResult, error) { return c.Ack(t.Context(), "orders", got[0].Receipt) },
		"Release": func() ([]client.SettleResult, error) { return c.Release(t.Context(), "orders", got[1].Receipt) },
		"Nack":    func() ([]client.SettleResult, error) { return c.Nack(t.Context(), "orders", one(2)) },
		"Extend": func() ([]client.SettleResult, error) {
			return c.Extend(t.Context(), "orders", client.Settling{Receipt: got[3].Receipt, Delay: 2 * time.Hour})
		},
		"Reject": func() ([]client.SettleResult, error) {
			return c.Reject(t.Context(), "orders", client.Settling{Receipt: got[4].Receipt, Reason: "broken"})
		},
	} {
		if r, err := f(); err != nil || len(r) != 1 || r[0].Code != client.ResultOK || (name == "Extend") == r[0].LeaseUntil.IsZero() {
			t.Errorf("%s() = %+v, %v", name, r, err)
		}
	}
	// An error of the call has the result of each receipt.
	r, err := c.Ack(t.Context(), "orders", got[3].Receipt, got[4].Receipt+"0", "x")
	if !errors.Is(err, client.ErrInvalidReceipt) || len(r) != 3 || r[0].Code != client.ResultOK || r[1].Code != client.ResultLeaseExpired || r[2].Code != client.ResultInvalid {
		t.Errorf("Ack() = %+v, %v", r, err)
	}
}

// The pages of the leases are all leases, each once.
func TestClient_LeasePages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish(5)
	b.receive(t, 5)
	c, _ := b.newClient()
	var offsets []int64
	for cursor, pages := "", 3; pages > 0; pages-- {
		p, err := c.Leases(t.Context(), "orders", cursor, 2)
		if err != nil || (p.Next == "") != (pages == 1) || len(p.Unknown) != 0 {
			t.Fatalf("Leases(%q) = %+v, %v", cursor, p, err)
		}
		for _, l := range p.Leases {
			offsets = append(offsets, l.Offset)
		}
		cursor = p.Next
	}
	slices.Sort(offsets)
	if !slices.Equal(offsets, []int64{0, 1, 2, 3, 4}) {
		t.Errorf("leases of the offsets %v", offsets)
	}
	first, err := c.Leases(t.Context(), "orders", "", 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Leases(t.Context(), "others", first.Next, 2); err == nil || !strings.Contains(err.Error(), "query.cursor") {
		t.Errorf("the cursor of another subscription: %v", err)
	}
	if _, err := c.Leases(t.Context(), "orders", "x", 2); err == nil || !strings.Contains(err.Error(), "query.cursor") {
		t.Errorf("another cursor: %v", err)
	}
}

// A consumer processes each message once, in the order of its key, while requests fail and
// responses are lost.
func TestClient_ConsumesInOrderThroughFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		for i := range 300 {
			b.service.Publish("orders", fmt.Sprint("k", i%7), fmt.Sprint(i))
		}
		c, d := b.newClient()
		n := 0
		d.fault = func(r *http.Request, served bool) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			n++
			// A lost response of receive costs a lease; a lost one of ack is repeated.
			if n%5 == 0 && (!served || r.URL.Path != "/v1/subscriptions/orders/receive") {
				return errors.New("connection lost")
			}
			return nil
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var mu sync.Mutex
		seen := map[string][]string{}
		total := 0
		err := c.Consume(ctx, "orders", func(_ context.Context, m *client.Delivery) error {
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			seen[m.Key] = append(seen[m.Key], string(m.Data))
			if total++; total == 300 {
				stop()
			}
			return nil
		}, client.ConsumeOptions{Concurrency: 7, Logger: quiet})
		if err != nil || b.service.Open("orders") != 0 {
			t.Errorf("Consume() = %v with %d open", err, b.service.Open("orders"))
		}
		for i := range 7 {
			var want []string
			for j := i; j < 300; j += 7 {
				want = append(want, fmt.Sprint(j))
			}
			if got := seen[fmt.Sprint("k", i)]; !slices.Equal(got, want) {
				t.Errorf("key %d: %v, want %v", i, got, want)
			}
		}
	})
}

// Acknowledgements that are there together share a request.
func TestClient_BatchesAcknowledgements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.publish(1000)
		c, d := b.newClient()
		d.fault = func(*http.Request, bool) error { time.Sleep(5 * time.Millisecond); return nil } // a network
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		n := 0
		err := c.Consume(ctx, "orders", func(context.Context, *client.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			if n++; n == 1000 {
				stop()
			}
			return nil
		}, client.ConsumeOptions{Concurrency: 100, Logger: quiet})
		if err != nil || b.service.Open("orders") != 0 || d.count("ack") > 100 {
			t.Errorf("Consume() = %v with %d open and %d requests for 1,000 messages", err, b.service.Open("orders"), d.count("ack"))
		}
	})
}

// The lease of a message is extended while its handler runs, and the handler ends when the
// lease is lost.
func TestClient_ExtendsLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.publish(1)
		c, _ := b.newClient()
		ctx, stop := context.WithCancel(t.Context())
		attempts := 0
		err := c.Consume(ctx, "orders", func(ctx context.Context, m *client.Delivery) error {
			attempts = m.Attempt
			if m.Attempt == 1 {
				time.Sleep(10 * time.Minute)
				if ctx.Err() != nil || b.service.Leased("orders") != 1 {
					t.Error("the lease was not extended")
				}
				b.service.Answer(subscriptions.CodeLeaseExpired)
				began := time.Now()
				<-ctx.Done()
				if d := time.Since(began); d > 30*time.Second {
					t.Errorf("the handler ended %s after the loss of its lease", d)
				}
				b.service.Answer("")
				return ctx.Err()
			}
			stop()
			return nil
		}, client.ConsumeOptions{Logger: quiet})
		if err != nil || attempts != 2 || b.service.Open("orders") != 0 {
			t.Errorf("Consume() = %v after %d attempts with %d open", err, attempts, b.service.Open("orders"))
		}
	})
}

func TestClient_ErrorsSelectTheOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.publish(3)
		c, _ := b.newClient()
		ctx, stop := context.WithCancel(t.Context())
		began := time.Now()
		at := map[string][]time.Duration{}
		var mu sync.Mutex
		time.AfterFunc(10*time.Minute, stop)
		err := c.Consume(ctx, "orders", func(_ context.Context, m *client.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			at[m.Key] = append(at[m.Key], time.Since(began))
			switch m.Key {
			case "k0":
				return fmt.Errorf("wrapped: %w", client.Reject(errors.New("invalid")))
			case "k1":
				return client.RetryAfter(errors.New("later"), time.Minute)
			}
			return errors.New("failed")
		}, client.ConsumeOptions{Logger: quiet})
		if err != nil || len(at["k0"]) != 1 || len(at["k1"]) != 3 || at["k1"][1] != time.Minute || len(at["k2"]) != 3 || at["k2"][1] != time.Second {
			t.Errorf("Consume() = %v, deliveries at %v", err, at)
		}
		if dead := b.service.Dead("orders"); len(dead) != 3 {
			t.Errorf("%d dead letters, want 3", len(dead))
		}
	})
}

// A stopped consumer finishes the messages that it began and returns the rest.
func TestClient_StopsGracefully(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.publish(4)
		c, _ := b.newClient()
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		began := time.Now()
		err := c.Consume(ctx, "orders", func(ctx context.Context, _ *client.Delivery) error {
			select {
			case <-time.After(10 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, client.ConsumeOptions{Concurrency: 2, Logger: quiet})
		if d := time.Since(began); err != nil || d != 10*time.Second || b.service.Open("orders") != 2 || b.service.Leased("orders") != 0 {
			t.Errorf("Consume() = %v after %s with %d open and %d leased, want 10s, 2 and 0", err, d, b.service.Open("orders"), b.service.Leased("orders"))
		}
		ctx, stop = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		began = time.Now()
		err = c.Consume(ctx, "orders", func(ctx context.Context, _ *client.Delivery) error { <-ctx.Done(); return ctx.Err() },
			client.ConsumeOptions{StopTimeout: 5 * time.Second, Logger: quiet})
		if d := time.Since(began); err != nil || d != 6*time.Second {
			t.Errorf("a handler that does not end: Consume() = %v after %s, want 6s", err, d)
		}
	})
}

// Messages whose response is on its way when the consumer stops are returned.
func TestClient_ReturnsWhatArrivesWhenItStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.publish(3)
		c, d := b.newClient()
		ctx, stop := context.WithCancel(t.Context())
		d.fault = func(r *http.Request, served bool) error {
			if served && r.URL.Path == "/v1/subscriptions/orders/receive" {
				stop()
				time.Sleep(100 * time.Millisecond) // the network
				return r.Context().Err()
			}
			return nil
		}
		err := c.Consume(ctx, "orders", func(context.Context, *client.Delivery) error { t.Error("a handler began"); return nil }, client.ConsumeOptions{Logger: quiet})
		if err != nil || b.service.Leased("orders") != 0 || b.service.Open("orders") != 3 {
			t.Errorf("Consume() = %v with %d leased and %d open, want 0 and 3", err, b.service.Leased("orders"), b.service.Open("orders"))
		}
	})
}

func TestClient_ReturnsRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		c, _ := b.newClient()
		err := c.Consume(t.Context(), "none", func(context.Context, *client.Delivery) error { return nil }, client.ConsumeOptions{Logger: quiet})
		if !errors.Is(err, api.ErrNotFound) {
			t.Errorf("Consume() of an unknown subscription = %v", err)
		}
		// Unavailability is no reason to end.
		b.service.Fail(subscriptions.ErrUnavailable)
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Hour, func() { b.service.Fail(nil); b.publish(1) })
		if err := c.Consume(ctx, "orders", func(context.Context, *client.Delivery) error { stop(); return nil }, client.ConsumeOptions{Logger: quiet}); err != nil {
			t.Errorf("Consume() after an outage = %v", err)
		}
	})
}

// A consumer receives runs of one key, handles them in order, and gets the rest of a run again
// after a failure. A hung handler keeps the lease of its run only.
func TestClient_ConsumesRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		for i := range 300 {
			b.service.Publish("orders", fmt.Sprint("k", i%2), fmt.Sprint(i))
		}
		c, d := b.newClient()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var mu sync.Mutex
		seen, failed, total := map[string][]string{}, map[string]bool{}, 0
		err := c.Consume(ctx, "orders", func(_ context.Context, m *client.Delivery) error {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			if m.Offset%50 == 20 && !failed[string(m.Data)] {
				failed[string(m.Data)] = true
				return errors.New("no luck")
			}
			seen[m.Key] = append(seen[m.Key], string(m.Data))
			if total++; total == 300 {
				stop()
			}
			return nil
		}, client.ConsumeOptions{Concurrency: 2, MaxPerKey: 30, VisibilityTimeout: 10 * time.Second, Logger: quiet})
		if err != nil || b.service.Open("orders") != 0 {
			t.Errorf("Consume() = %v with %d open", err, b.service.Open("orders"))
		}
		for i := range 2 {
			var want []string
			for j := i; j < 300; j += 2 {
				want = append(want, fmt.Sprint(j))
			}
			if got := seen[fmt.Sprint("k", i)]; !slices.Equal(got, want) {
				t.Errorf("key %d: %v, want %v", i, got, want)
			}
		}
		if n := d.count("receive"); n > 60 {
			t.Errorf("%d requests for 300 messages, want runs", n)
		}
	})
}

// While a handler is unavailable its messages wait, without a count, and the consumer tries one
// at a time.
func TestClient_UnavailableHandlerCostsNoDeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.publish(100)
		c, _ := b.newClient()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		began := time.Now()
		var mu sync.Mutex
		failed, done := 0, 0
		err := c.Consume(ctx, "orders", func(_ context.Context, m *client.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			if time.Since(began) < 5*time.Minute {
				failed++
				return client.Unavailable(errors.New("no such command"))
			}
			if m.Attempt != 1 {
				t.Errorf("delivery %d of %d", m.Attempt, m.Offset)
			}
			if done++; done == 100 {
				stop()
			}
			return nil
		}, client.ConsumeOptions{Concurrency: 20, Logger: quiet})
		if err != nil || b.service.Open("orders") != 0 || failed > 20+20 || time.Since(began) > 6*time.Minute {
			t.Errorf("Consume() = %v with %d open after %d failures and %s", err, b.service.Open("orders"), failed, time.Since(began))
		}
	})
}

// A handler that does not return after its time loses its lease, and its message is delivered
// again.
func TestClient_HungHandlerLosesItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.publish(1)
		c, _ := b.newClient()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		hang := make(chan struct{})
		began := time.Now()
		err := c.Consume(ctx, "orders", func(_ context.Context, m *client.Delivery) error {
			if m.Attempt == 1 {
				<-hang // not even with its context
				return nil
			}
			if d := time.Since(began); d < time.Minute || d > 2*time.Minute {
				t.Errorf("delivered again after %s", d)
			}
			close(hang)
			stop()
			return nil
		}, client.ConsumeOptions{Timeout: time.Minute, VisibilityTimeout: 10 * time.Second, Logger: quiet})
		if err != nil || b.service.Open("orders") != 0 {
			t.Errorf("Consume() = %v with %d open", err, b.service.Open("orders"))
		}
	})
}
