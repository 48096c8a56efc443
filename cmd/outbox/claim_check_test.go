//go:build cloud

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/test/clouds/cloudtest"
	"github.com/scylla-outbox/scylla-outbox/test/ports"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// objectStore is the store of payloads of a test.
type objectStore struct {
	url, absent string // absent is that of a bucket that is missing
	// stop ends the service until start is called. Both are nil for a folder.
	stop, start func()
}

// storeOf returns a store in a folder, or a bucket of a service.
func storeOf(t *testing.T, service string) objectStore {
	t.Helper()
	if service == "folder" {
		return objectStore{url: t.TempDir()}
	}
	url, absent := cloudtest.URL(t, service, "claims"), cloudtest.URL(t, service, "absent")
	at := os.Getenv("STORAGE_EMULATOR_HOST")
	if service != "gs" {
		at = url[strings.LastIndexAny(url, "/=")+1:]
	}
	addr, stop, start := forward(t, at)
	t.Setenv("STORAGE_EMULATOR_HOST", addr)
	return objectStore{strings.Replace(url, at, addr, 1), strings.Replace(absent, at, addr, 1), stop, start}
}

// forward forwards connections at addr to a server. stop ends them and refuses others until
// start is called.
func forward(t *testing.T, to string) (addr string, stop, start func()) {
	t.Helper()
	addrs, err := ports.Take(1)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var open []io.Closer
	var all sync.WaitGroup
	start = func() {
		l, err := net.Listen("tcp", addrs[0])
		if err != nil {
			t.Fatal(err)
		}
		keep := func(c io.Closer) { mu.Lock(); defer mu.Unlock(); open = append(open, c) }
		keep(l)
		all.Go(func() {
			for {
				from, err := l.Accept()
				if err != nil {
					return
				}
				server, err := net.Dial("tcp", to)
				if err != nil {
					_ = from.Close()
					continue
				}
				keep(from)
				keep(server)
				pipe := func(a, b net.Conn) { _, _ = io.Copy(a, b); _, _ = a.Close(), b.Close() }
				all.Go(func() { pipe(from, server) })
				all.Go(func() { pipe(server, from) })
			}
		})
	}
	stop = func() {
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		open = nil
		mu.Unlock()
	}
	start()
	t.Cleanup(func() { stop(); all.Wait() })
	return addrs[0], stop, start
}

// A message that no record can carry: its payload is stored before its row, travels as a
// reference through relay, topic and subscription, is verified by the consumer, and is removed
// at the end of its lifetime. Without its store nothing is written.
func TestClaimCheck_EndToEnd(t *testing.T) {
	for _, service := range []string{"folder", "s3", "gs", "azblob"} {
		t.Run(service, func(t *testing.T) { claimCheck(t, storeOf(t, service)) })
	}
}

func claimCheck(t *testing.T, store objectStore) {
	b := setupVerify(t)
	yaml := fmt.Sprintf("messages: {max_bytes: 16777216, topics: [things]}\narchive: {url: %q}\nrelay: {confidence_window: 3s}\n", store.url)
	c, intake := b.startMessages(yaml)
	log := slog.New(slog.DiscardHandler)
	messages := "http://" + intake.Addr + "/v1/messages"
	a, err := archive.Open(t.Context(), store.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()

	large := strings.Repeat("é", 1_500_000)
	post := `{"topic":"things","key":"k","payload_text":"` + large + `"}`
	rows := func() []world.Written { t.Helper(); return world.World{Session: b.session}.Outbox(t) }
	if store.stop != nil {
		store.stop()
		began := time.Now()
		status, header, text := asked(t, "POST", messages, "", post)
		if status != 503 || header.Get("Retry-After") == "" || !strings.Contains(text, "store of large payloads") || time.Since(began) > time.Minute {
			t.Errorf("POST during an outage of the store = %d %v %s after %s, want 503 with Retry-After", status, header, text, time.Since(began))
		}
		if n := len(rows()); n != 0 {
			t.Errorf("%d rows were written without their payloads", n)
		}
		if out := b.doctor(store.url); !strings.Contains(out, "FAIL  archive can be used") {
			t.Errorf("doctor during an outage of the store:\n%s", out)
		}
		store.start()
	}
	var posted struct{ ID string }
	status, _, text := asked(t, "POST", messages, "", post)
	if err := json.Unmarshal([]byte(text), &posted); err != nil || status != 202 {
		t.Fatalf("POST = %d %s", status, text)
	}
	written := rows()
	if len(written) != 1 || written[0].ID.String() != posted.ID || len(written[0].Payload) != 0 {
		t.Fatalf("%d rows, want one without a payload", len(written))
	}
	reference := written[0].Headers[outbox.HeaderDataRef]
	if got, err := payload.Load(t.Context(), a, reference); err != nil || string(got) != large {
		t.Fatalf("the store has %d bytes, %v", len(got), err)
	}

	confs, err := c.RelayConfigs()
	if err != nil {
		t.Fatal(err)
	}
	relays, err := app.NewRelays(c, confs, b.session, log, app.NewRegistry(""))
	if err != nil {
		t.Fatal(err)
	}
	defer world.Run(t, relays.Run)()
	consumed := b.consumeOne(t, a)
	if consumed.EventID != posted.ID || string(consumed.Payload()) != large || consumed.Headers[outbox.HeaderDataRef] != "" {
		t.Errorf("the consumer received %d bytes of event %s, headers %v", len(consumed.Payload()), consumed.EventID, consumed.Headers)
	}

	content := messages + "/" + posted.ID + "/content"
	has := func(what string, want int) {
		t.Helper()
		if status, _, text := asked(t, "GET", content, "", ""); status != want || want == 200 && !strings.Contains(text, large) {
			t.Errorf("%s: GET content = %d %.300s, want %d", what, status, text, want)
		}
	}
	has("stored", 200)
	if store.stop != nil {
		store.stop()
		has("during an outage", 503)
		store.start()
	}
	if err := a.Put(t.Context(), reference, bytes.Repeat([]byte("x"), len(large))); err != nil {
		t.Fatal(err)
	}
	if _, err := payload.Load(t.Context(), a, reference); !errors.Is(err, payload.ErrDamaged) {
		t.Errorf("Load() of another payload of the same size = %v, want ErrDamaged", err)
	}
	has("damaged", 404)
	if err := a.Put(t.Context(), reference, []byte(large)); err != nil {
		t.Fatal(err)
	}

	if n := b.sweepAfter(t, c, a, c.Retention.Keep-time.Hour); n != 0 {
		t.Errorf("a sweep within the lifetime removes %d payloads", n)
	}
	has("within its lifetime", 200)
	if n := b.sweepAfter(t, c, a, c.Retention.Keep+72*time.Hour); n != 1 {
		t.Errorf("a sweep after the lifetime removes %d payloads, want 1", n)
	}
	has("after its lifetime", 404)
	if _, err := payload.Load(t.Context(), a, reference); !errors.Is(err, payload.ErrNotFound) {
		t.Errorf("Load() after the lifetime = %v, want ErrNotFound", err)
	}

	if out := b.doctor(store.url); !strings.Contains(out, "ok    archive can be used") {
		t.Errorf("doctor:\n%s", out)
	}
	if store.absent != "" {
		if out := b.doctor(store.absent); !strings.Contains(out, "FAIL  archive can be used: "+store.absent[:strings.IndexAny(store.absent+"?", "?")]) {
			t.Errorf("doctor of a bucket that is missing:\n%s", out)
		}
	}
	if strings.HasPrefix(store.url, "s3:") {
		t.Setenv("AWS_SECRET_ACCESS_KEY", "canary")
		if out := b.doctor(store.url); !strings.Contains(out, "FAIL  archive can be used") || !strings.Contains(out, "SignatureDoesNotMatch") || strings.Contains(out, "canary") {
			t.Errorf("doctor with another key:\n%s", out)
		}
	}
}

// doctor returns the report on an archive.
func (b *verifyFixture) doctor(url string) string {
	b.t.Helper()
	var out, errOut bytes.Buffer
	code := run([]string{"doctor", "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--archive-url", url}, &out, &errOut)
	if code != cli.ExitOK && code != cli.ExitFailed {
		b.t.Errorf("doctor: status %d: %s", code, errOut.String())
	}
	return out.String()
}

// consumeOne returns the first message of the topic "things" from a subscription.
func (b *verifyFixture) consumeOne(t *testing.T, payloads payload.Store) *client.Delivery {
	t.Helper()
	url, _ := b.startSubscriptions(t)
	c := &client.Client{URL: url}
	if _, err := c.Put(t.Context(), client.Subscription{Name: "s", Topics: []string{"things"}, Start: "earliest"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), world.Patience)
	defer cancel()
	var got []*client.Delivery
	if err := c.Consume(ctx, "s", func(_ context.Context, d *client.Delivery) error {
		got = append(got, d)
		cancel()
		return nil
	}, client.ConsumeOptions{Payloads: payloads, Concurrency: 1}); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if len(got) == 0 {
		t.Fatal("nothing was consumed")
	}
	return got[0]
}

// sweepAfter returns the number of payloads that a sweep removes after a time.
func (b *verifyFixture) sweepAfter(t *testing.T, c *app.Config, a *archive.Archive, after time.Duration) int {
	t.Helper()
	store, err := dlq.Open(b.session, "outbox", dlq.WithClock(world.Clock(func() time.Time { return time.Now().Add(after) })))
	if err != nil {
		t.Fatal(err)
	}
	sweeper, err := archive.NewSweeper(c.Sweep(store, a))
	if err != nil {
		t.Fatal(err)
	}
	r, err := sweeper.Sweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r.Payloads
}
