package messages

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// brokenStore fails after it has stored a payload, while err is set. While it is silent it
// returns a payload after the time that a client waits.
type brokenStore struct {
	payload.Store
	err    error
	silent bool
}

func (s *brokenStore) Put(ctx context.Context, key string, content []byte) error {
	return errors.Join(s.Store.Put(ctx, key, content), s.err)
}

func (s *brokenStore) Get(ctx context.Context, key string) ([]byte, error) {
	if s.silent {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(world.Patience / 10):
		}
	}
	content, err := s.Store.Get(ctx, key)
	return content, errors.Join(err, s.err)
}

func setupPayloads(t *testing.T) (b *fixture, store *brokenStore, dir string) {
	t.Helper()
	dir = t.TempDir()
	folder, err := payload.NewFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	store = &brokenStore{Store: folder}
	return setup(t, func(c *Config) { c.Payloads, c.MaxMessageBytes = store, MaxStoredBytes }), store, dir
}

func TestHTTP_StoresLargePayloadsOutsideOfTheEvent(t *testing.T) {
	t.Parallel()
	b, _, dir := setupPayloads(t)
	large := strings.Repeat("é", 1_500_000)
	for _, tt := range []struct{ name, more, key string }{
		{"immediate", `,"headers":{"x":"y"}`, ""},
		{"with a key", `,"headers":{"x":"y"},"key":"k"`, "k"},
		{"later", `,"headers":{"x":"y"},"key":"k","delay":"48h"`, "k"},
	} {
		r := world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"t","payload_text":"`+large+`"`+tt.more+`}`)
		if r.Status != 202 {
			t.Fatalf("%s: POST = %d %s", tt.name, r.Status, r.Text)
		}
		id := r.ID(t)
		if tt.name == "later" {
			if r := world.Request(t, b.handler, "GET", "/v1/messages/"+id.String()+"/content", ""); r.Status != 200 {
				t.Fatalf("%s: GET content = %d", tt.name, r.Status)
			}
			m, err := b.schedule.Read(t.Context(), id)
			ref, err2 := payload.Parse(m.Headers[outbox.HeaderDataRef])
			if err != nil || err2 != nil || len(m.Payload) != 0 || m.Headers[outbox.HeaderPartitionKey] != "" || m.Key != "k" ||
				ref.Day.Format(time.DateOnly) != time.Now().UTC().Add(48*time.Hour).Format(time.DateOnly) {
				t.Errorf("%s: %d bytes, key %q, headers %v, %v, %v; want a reference of the day on which it is due", tt.name, len(m.Payload), m.Key, m.Headers, err, err2)
			}
			continue
		}
		e := b.events(t)[id]
		if len(e.Payload) != 0 || e.ContentType != "text/plain; charset=utf-8" || e.Headers["x"] != "y" || e.Headers[outbox.HeaderPartitionKey] != tt.key {
			t.Errorf("%s: event of %d bytes, type %q, headers %v", tt.name, len(e.Payload), e.ContentType, e.Headers)
		}
		if err := e.Validate(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		r = world.Request(t, b.handler, "GET", "/v1/messages/"+id.String()+"/content", "")
		headers := fmt.Sprint(r.Body["headers"])
		if r.Status != 200 || r.Body["payload_text"] != large || !strings.Contains(headers, "x:y") || strings.Contains(headers, outbox.HeaderDataRef) {
			t.Errorf("%s: GET content = %d, %d bytes, headers %s", tt.name, r.Status, len(fmt.Sprint(r.Body["payload_text"])), headers)
		}
		if err := os.Remove(filepath.Join(dir, filepath.FromSlash(e.Headers[outbox.HeaderDataRef]))); err != nil {
			t.Fatal(err)
		}
		if r = world.Request(t, b.handler, "GET", "/v1/messages/"+id.String()+"/content", ""); r.Status != 404 {
			t.Errorf("%s: GET content without the payload = %d %s", tt.name, r.Status, r.Text)
		}
	}
}

func TestHTTP_KeepsPayloadsThatFitInTheEvent(t *testing.T) {
	t.Parallel()
	b, _, _ := setupPayloads(t)
	fits := strings.Repeat("x", outbox.MaxEventBytes-100) // with the header of the request's id
	r := world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"t","payload_text":"`+fits+`"}`)
	if e := b.events(t)[r.ID(t)]; string(e.Payload) != fits || e.Headers[outbox.HeaderDataRef] != "" {
		t.Errorf("event of %d bytes, headers %v; want the payload in it", len(e.Payload), e.Headers)
	}
}

func TestHTTP_RefusesWhatNoStoreCanTake(t *testing.T) {
	t.Parallel()
	b, _, _ := setupPayloads(t)
	none := newHandler(b.another(t, func(c *Config) { c.MaxMessageBytes = outbox.MaxEventBytes }))
	reference := payload.Key([]byte("x"), time.Now())
	for _, tt := range []struct {
		name, body, location string
		withStore            bool
	}{
		{"no store", `{"topic":"t","payload_text":"` + strings.Repeat("x", outbox.MaxEventBytes+1) + `"}`, "body.payload", false},
		{"too large for the store", `{"topic":"t","payload_text":"` + strings.Repeat("x", MaxStoredBytes+1) + `"}`, "body.payload", true},
		{"a reference of the client", `{"topic":"t","headers":{"ce_dataref":"` + reference + `"}}`, "body.headers.ce_dataref", true},
		{"headers that do not fit", `{"topic":"t","payload_text":"x","headers":{"x":"` + strings.Repeat("x", outbox.MaxEventBytes) + `"}}`, "body.payload", true},
	} {
		h := none
		if tt.withStore {
			h = b.handler
		}
		r := world.Request(t, h, "POST", "/v1/messages", tt.body)
		if r.Status != 422 || !strings.Contains(r.Text, `"`+tt.location+`"`) {
			t.Errorf("%s: POST = %d %.300s, want 422 for %s", tt.name, r.Status, r.Text, tt.location)
		}
	}
	if n := len(b.events(t)); n != 0 {
		t.Errorf("%d events", n)
	}
}

// A crash between payload and message, or a failure of the store, leaves no event. The
// retry completes the message with the same payload.
func TestHTTP_ARetryCompletesALargeMessage(t *testing.T) {
	t.Parallel()
	b, store, dir := setupPayloads(t)
	body := `{"topic":"t","payload_text":"` + strings.Repeat("x", outbox.MaxEventBytes+1) + `"}`
	store.err = errors.New("disk full")
	for range 2 {
		r := world.Request(t, b.handler, "POST", "/v1/messages", body, "Idempotency-Key", "k")
		if r.Status != 503 || r.Header.Get("Retry-After") == "" {
			t.Errorf("POST while the store fails = %d %s, want 503 with Retry-After", r.Status, r.Text)
		}
	}
	r := world.Request(t, b.handler, "POST", "/v1/messages", body)
	if r.Status != 503 || !strings.Contains(r.Text, "store of large payloads") || !strings.Contains(r.Text, "Nothing was stored") {
		t.Errorf("POST without a key = %d %s", r.Status, r.Text)
	}
	if n := len(b.events(t)); n != 0 {
		t.Fatalf("%d events refer to payloads that were not acknowledged", n)
	}
	store.err = nil
	r = world.Request(t, b.handler, "POST", "/v1/messages", body, "Idempotency-Key", "k")
	if r.Status != 202 || len(b.events(t)) != 1 {
		t.Fatalf("POST again = %d %s, %d events", r.Status, r.Text, len(b.events(t)))
	}
	e := b.events(t)[r.ID(t)]
	if _, err := outbox.LoadPayload(t.Context(), store, e); err != nil {
		t.Error(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "payloads", "*", "*"))
	if err != nil || len(files) != 1 {
		t.Errorf("payloads %q, %v; want one of all attempts", files, err)
	}
	store.err = errors.New("unreachable")
	if r = world.Request(t, b.handler, "GET", "/v1/messages/"+e.ID.String()+"/content", ""); r.Status != 503 {
		t.Errorf("GET content while the store fails = %d", r.Status)
	}
	store.err, store.silent = nil, true
	b.brief()
	if r = world.Request(t, b.handler, "GET", "/v1/messages/"+e.ID.String()+"/content", ""); r.Status != 503 || r.Header.Get("Retry-After") == "" {
		t.Errorf("GET content while the store is silent = %d", r.Status)
	}
}
