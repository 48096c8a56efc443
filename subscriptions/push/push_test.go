package push_test

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/plugin"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/push"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A start changes a stored subscription only if it differs, and never resumes a paused one.
func TestRun_StoresSubscriptions(t *testing.T) {
	t.Parallel()
	session, seeds, stop := startEmbedded("OrderCreated")
	defer stop()
	stored, err := store.Open(session, schema.DefaultKeyspace)
	if err != nil {
		t.Fatal(err)
	}
	s := subscriptions.Subscription{Name: "s", Topics: []string{"OrderCreated"}, Start: subscriptions.StartEarliest, Push: &subscriptions.Push{To: "code"}}
	called := make(chan struct{}, 1)
	code := plugin.Func(func(context.Context, plugin.Event) error {
		select {
		case called <- struct{}{}:
		default:
		}
		return nil
	})
	// run starts and stops a program with a subscription; started waits for its effect.
	run := func(s subscriptions.Subscription, started func()) (store.Resource, error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			ended <- push.Run(ctx, push.Config{Session: session, Kafka: []kgo.Opt{kgo.SeedBrokers(seeds...)}, Plugins: map[string]plugin.Plugin{"code": code}, Subscriptions: []subscriptions.Subscription{s}})
		}()
		started()
		cancel()
		err := <-ended
		r, lost := stored.Get(t.Context(), "s")
		if lost != nil {
			t.Fatal(lost)
		}
		return r, err
	}
	delivered := func() {
		publish(seeds, "OrderCreated", "order", `{}`)
		<-called
	}
	if r, err := run(s, delivered); err != nil || r.Version != 1 {
		t.Fatalf("the first start = %v, version %d", err, r.Version)
	}
	if r, err := run(s, delivered); err != nil || r.Version != 1 {
		t.Errorf("the second start = %v, version %d, want no change", err, r.Version)
	}
	if _, err := stored.Pause(t.Context(), "s", "ann"); err != nil {
		t.Fatal(err)
	}
	s.MaxReceive = 7
	if r, err := run(s, func() {
		world.Eventually(t, "another field is stored", func() bool {
			r, err := stored.Get(t.Context(), "s")
			return err == nil && r.MaxReceive == 7
		})
	}); err != nil || r.Version != 3 || !r.Paused {
		t.Errorf("a start with another field = %v, version %d, paused %t", err, r.Version, r.Paused)
	}
	s.Push = &subscriptions.Push{To: "nobody"}
	for name, cfg := range map[string]push.Config{
		"no plugins":     {Session: session},
		"no destination": {Session: session, Kafka: []kgo.Opt{kgo.SeedBrokers(seeds...)}, Plugins: map[string]plugin.Plugin{"code": code}, Subscriptions: []subscriptions.Subscription{s}},
	} {
		if err := push.Run(t.Context(), cfg); err == nil {
			t.Errorf("%s: Run() succeeded", name)
		}
	}
}
