package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// startSubscriptions runs a process of subscriptions on the engines of the fixture.
func (b *verifyFixture) startSubscriptions(t *testing.T) (url string, stop func()) {
	t.Helper()
	return b.startSubscriptionsWith(t, "")
}

// startSubscriptionsWith is startSubscriptions with a configuration.
func (b *verifyFixture) startSubscriptionsWith(t *testing.T, yaml string) (url string, stop func()) {
	t.Helper()
	conf, err := parseConfig(t, yaml, nil)
	if err != nil {
		t.Fatal(err)
	}
	conf.Scylla.Hosts, conf.Kafka.Seeds, conf.Subscriptions.Addr = []string{b.e.CQLAddr}, []string{b.e.KafkaAddr}, "127.0.0.1:0"
	session, err := conf.Scylla.Session(conf.Scylla.Keyspace)
	if err != nil {
		t.Fatal(err)
	}
	logs := new(logtest.Buffer)
	api, err := app.StartSubscriptions(context.Background(), conf, session, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(logs, nil)), conf.ListenSubscriptions)
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := api.Shutdown(); err != nil {
			t.Errorf("Shutdown() = %v", err)
		}
		sessions.Close(session)
		if t.Failed() {
			t.Log(logs)
		}
	})
	t.Cleanup(stop)
	return "http://" + api.Addr, stop
}

// Two processes share a subscription, and a consumer at one of them receives everything,
// once and in order, also after the other one has stopped.
func TestSubscriptions_TwoProcesses(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	first, _ := b.startSubscriptions(t)
	second, stopSecond := b.startSubscriptions(t)
	c := &client.Client{URL: first}
	if _, err := c.Put(t.Context(), client.Subscription{Name: "s", Topics: []string{"things"}, Start: "earliest"}); err != nil {
		t.Fatal(err)
	}
	const keys, each = 20, 10
	produce := func(from, to int) {
		for n := from; n <= to; n++ {
			for k := range keys {
				e := outbox.Event{
					ID: outbox.NewID(), AggregateID: outbox.IDFromText(fmt.Sprint("thing-", k)), Sequence: int64(n), AggregateType: "thing", Type: "ThingChanged",
					Payload: []byte(`{"n":` + strconv.Itoa(n) + `}`), CreatedAt: time.Now(),
				}
				r := &kgo.Record{Topic: "things", Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")}
				if err := b.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	produce(1, 1)
	status := func() client.Status {
		st, err := c.Status(t.Context(), "s")
		if err != nil {
			return client.Status{}
		}
		return st
	}
	world.Eventually(t, "both processes own partitions", func() bool {
		owners := map[string]bool{}
		for _, p := range status().Partitions {
			owners[p.Owner] = p.Owner != ""
		}
		return len(owners) == 2 && !owners[""] && len(status().Instances) == 2
	})
	produce(2, each/2)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	seen := map[string][]int64{}
	total := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range seen {
			n += len(slices.Compact(slices.Clone(s)))
		}
		return n
	}
	done := make(chan error, 1)
	go func() {
		done <- c.Consume(ctx, "s", func(_ context.Context, d *client.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			seen[d.AggregateID] = append(seen[d.AggregateID], d.Sequence)
			return nil
		}, client.ConsumeOptions{Logger: slog.New(slog.DiscardHandler)})
	}()
	world.Eventually(t, "everything was received from both", func() bool { return total() == keys*each/2 })
	if got, err := (&client.Client{URL: second}).Get(t.Context(), "s"); err != nil || got.Version != 1 {
		t.Errorf("the other process: %+v, %v", got, err)
	}
	stopSecond()
	produce(each/2+1, each)
	world.Eventually(t, "everything was received after one has stopped", func() bool { return total() == keys*each })
	stop()
	if err := <-done; err != nil {
		t.Errorf("Consume() = %v", err)
	}
	for key, got := range seen {
		if unique := slices.Compact(slices.Clone(got)); len(unique) != each || !slices.IsSorted(got) {
			t.Errorf("%s: %v, want 1 to %d in order", key, got, each)
		}
	}
	world.Eventually(t, "nothing is left", func() bool { st := status(); return st.Lag == 0 && st.Leased == 0 })
}

func TestSubscriptions_SettingsAreChecked(t *testing.T) {
	t.Parallel()
	var out, errOut strings.Builder
	if code := run([]string{"subscriptions", "--subscriptions-advertise", "outbox-1:8082", "--ops-addr", "off"}, &out, &errOut); code != cli.ExitUsage ||
		!strings.Contains(errOut.String(), "subscriptions.advertise") {
		t.Errorf("an advertised address without a scheme = %d %s", code, errOut.String())
	}
	conf, err := parseConfig(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	conf.Subscriptions.Addr = "0.0.0.0:0"
	ln, err := conf.ListenSubscriptions(t.Context(), slog.New(slog.DiscardHandler))
	if err == nil {
		err = errors.Join(errors.New("it listens"), ln.Close())
	}
	var addr *net.OpError
	if !strings.Contains(err.Error(), "subscriptions.addr") || errors.As(err, &addr) {
		t.Errorf("beyond loopback without TLS: %v", err)
	}
}
