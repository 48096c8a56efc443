package subscriptions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/internal/rest/resttest"
	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
)

// consumeOne lets Consume process one message, and returns the message that the handler
// received, nil for none, and the body of the request that settled it.
func consumeOne(t *testing.T, store payload.Store, message Delivery) (got *Delivery, settled string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"messages": []any{
		map[string]any{"receipt": "r", "event_id": message.EventID, "headers": message.Headers, "data_text": ""},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	var once sync.Once
	s := &resttest.Transport{Answer: func(_ int, r *http.Request) (*http.Response, error) {
		answer := `{"messages":[],"results":[{"code":"ok"}]}`
		if strings.HasSuffix(r.URL.Path, "/receive") {
			first := false
			once.Do(func() { first = true })
			if !first {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			answer = string(body)
		} else {
			defer stop()
		}
		return resttest.Respond(200, answer)
	}}
	c := &Client{URL: "http://outbox", HTTP: &http.Client{Transport: s}}
	if err := c.Consume(ctx, "s", func(_ context.Context, d *Delivery) error {
		got = d
		return nil
	}, ConsumeOptions{Concurrency: 1, Payloads: store}); err != nil {
		t.Fatal(err)
	}
	for i, r := range s.Seen {
		if !strings.HasSuffix(r.URL.Path, "/receive") {
			settled = r.URL.Path + " " + s.Bodies[i]
		}
	}
	return got, settled
}

func TestConsume_ResolvesReferences(t *testing.T) {
	t.Parallel()
	store, err := payload.NewFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	content := []byte(`{"a":1}`)
	key := payload.Key(content, time.Now())
	message := Delivery{EventID: "e1", Headers: map[string]string{payload.Header: key, "a": "b"}}
	got, settled := consumeOne(t, store, message)
	if got != nil || !strings.Contains(settled, "/nack ") || !strings.Contains(settled, key) || !strings.Contains(settled, payload.ErrNotFound.Error()) {
		t.Fatalf("without the payload the handler received %v, then %s; want no call and a nack with the reference", got, settled)
	}
	if err := store.Put(t.Context(), key, content); err != nil {
		t.Fatal(err)
	}
	got, settled = consumeOne(t, store, message)
	if got == nil || string(got.Payload()) != string(content) || fmt.Sprint(got.Headers) != "map[a:b]" || !strings.Contains(settled, "/ack ") {
		t.Errorf("the handler received %+v, then %s; want the payload and an ack", got, settled)
	}
	if got, _ = consumeOne(t, nil, message); got == nil || len(got.Payload()) != 0 || got.Headers[payload.Header] != key {
		t.Errorf("without a store the handler received %+v, want the reference", got)
	}
	if err := got.Load(t.Context(), damaged{}); !errors.Is(err, payload.ErrDamaged) || !strings.Contains(err.Error(), "e1") {
		t.Errorf("Load() of another payload = %v", err)
	}
}

type damaged struct{ payload.Store }

func (damaged) Get(context.Context, string) ([]byte, error) { return []byte(`{"a":2}`), nil }
