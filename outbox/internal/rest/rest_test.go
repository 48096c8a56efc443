package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/api"
	"github.com/scylla-outbox/scylla-outbox/outbox/internal/rest/resttest"
)

type thing struct{ ID string }

func get(ctx context.Context, c *api.Client) (thing, error) {
	return Send[thing](ctx, c, http.MethodGet, "/v1/things/x", nil)
}

func create(ctx context.Context, c *api.Client, opts ...api.Option) (thing, error) {
	return Send[thing](ctx, c, http.MethodPost, "/v1/things", thing{"x"}, opts...)
}

func remove(ctx context.Context, c *api.Client) error {
	_, err := Send[struct{}](ctx, c, http.MethodDelete, "/v1/things/x", nil)
	return err
}

func TestSend_RepeatsWithTheSameKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &resttest.Transport{Answer: func(n int, _ *http.Request) (*http.Response, error) {
			switch n {
			case 1:
				return nil, io.ErrUnexpectedEOF // the answer is lost
			case 2:
				return resttest.Respond(503, `{"type":"urn:scylla-outbox:problem:outcome-unknown","outcome_unknown":true}`, "Retry-After", "7")
			case 3:
				return resttest.Respond(503, `{"type":"`+string(api.ErrOverloaded)+`"}`, "Retry-After", "2")
			}
			return resttest.Respond(201, `{"id":"x","version":1}`)
		}}
		c := &api.Client{URL: "http://orders/", Token: "obx_1", HTTP: &http.Client{Transport: s}}
		start := time.Now()
		o, err := create(t.Context(), c)
		if err != nil || o.ID != "x" || len(s.Seen) != 4 {
			t.Fatalf("create() = %+v, %v after %d requests", o, err, len(s.Seen))
		}
		if took := time.Since(start); took < 9*time.Second || took > 15*time.Second {
			t.Errorf("it took %s, want 9 s from Retry-After", took)
		}
		key := s.Seen[0].Header.Get("Idempotency-Key")
		for i, r := range s.Seen {
			if key == "" || r.Header.Get("Idempotency-Key") != key || s.Bodies[i] != s.Bodies[0] || r.Header.Get("Authorization") != "Bearer obx_1" {
				t.Errorf("request %d has key %q and body %q", i+1, r.Header.Get("Idempotency-Key"), s.Bodies[i])
			}
		}
		if _, err := create(t.Context(), c); err != nil || s.Seen[4].Header.Get("Idempotency-Key") == key {
			t.Error("another order has the same key")
		}
	})
}

func TestSend_DoesNotRepeatWhatIsRefused(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 403, 404, 409, 412, 422, 428, 500} {
		s := &resttest.Transport{Answer: func(int, *http.Request) (*http.Response, error) {
			return resttest.Respond(status, `{"type":"`+string(api.ErrStale)+`","detail":"no","state":"shipped","errors":[{"location":"body.a","message":"bad"}]}`, "X-Request-Id", "r1")
		}}
		_, err := create(t.Context(), &api.Client{HTTP: &http.Client{Transport: s}})
		var p *api.Problem
		if !errors.As(err, &p) || p.Status != status || !errors.Is(err, api.ErrStale) || !strings.Contains(string(p.Document), `"state":"shipped"`) || p.RequestID != "r1" || len(s.Seen) != 1 {
			t.Errorf("%d: %v after %d requests", status, err, len(s.Seen))
		}
		if !strings.Contains(err.Error(), "body.a bad") {
			t.Errorf("%d: %v does not name the field", status, err)
		}
	}
}

func TestSend_GivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &resttest.Transport{Answer: func(int, *http.Request) (*http.Response, error) {
			return resttest.Respond(503, "gone", "Content-Type", "text/html", "Retry-After", "5")
		}}
		c := &api.Client{HTTP: &http.Client{Transport: s}, MaxAttempts: 3}
		var p *api.Problem
		if _, err := get(t.Context(), c); !errors.As(err, &p) || p.Status != 503 || p.Type != "" || len(s.Seen) != 3 {
			t.Errorf("get() = %v after %d requests, want 3", err, len(s.Seen))
		}
		// It does not wait beyond the deadline.
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if _, err := get(ctx, c); !errors.As(err, &p) || len(s.Seen) != 4 || time.Since(start) > 0 {
			t.Errorf("get() = %v after %d requests and %s, want an immediate result", err, len(s.Seen)-3, time.Since(start))
		}
	})
}

// A proxy that redirects to https by 301 turns a change into a GET; its
// response must not be taken for that of the change.
func TestSend_ARedirectIsNoChange(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		var made []string
		there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			made = append(made, r.Method+" "+string(body))
			_, _ = io.WriteString(w, `{"id":"x","version":1}`)
		}))
		defer there.Close()
		here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, there.URL+r.URL.Path, status)
		}))
		defer here.Close()
		c := &api.Client{URL: here.URL}
		if _, err := get(t.Context(), c); err != nil {
			t.Errorf("%d: get() = %v", status, err)
		}
		made = nil
		_, created := create(t.Context(), c)
		removed := remove(t.Context(), c)
		if status >= 307 {
			if created != nil || removed != nil || !slices.Equal(made, []string{`POST {"ID":"x"}`, "DELETE "}) {
				t.Errorf("%d: create() = %v, remove() = %v, made %q", status, created, removed, made)
			}
			continue
		}
		for _, err := range []error{created, removed} {
			var p *api.Problem
			if !errors.As(err, &p) || p.Status != status || !strings.Contains(p.Detail, there.URL) {
				t.Errorf("%d: a redirected change = %v, want a problem with the new URL", status, err)
			}
		}
		if len(made) > 0 {
			t.Errorf("%d: %q was requested", status, made)
		}
	}
}

// A dead connection costs one attempt, not all of them.
func TestSend_AnAttemptEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &resttest.Transport{Answer: func(n int, r *http.Request) (*http.Response, error) {
			if n == 1 {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return resttest.Respond(200, `{"id":"x"}`)
		}}
		c := &api.Client{HTTP: &http.Client{Transport: s}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*api.DefaultTimeout)
		defer cancel()
		start := time.Now()
		if o, err := get(ctx, c); err != nil || o.ID != "x" {
			t.Errorf("get() = %+v, %v", o, err)
		}
		if took := time.Since(start); took < api.DefaultTimeout || took > api.DefaultTimeout+time.Second {
			t.Errorf("it took %s, want %s and a pause", took, api.DefaultTimeout)
		}
	})
}

func TestSend_AnEmptyKeyIsARandomOne(t *testing.T) {
	t.Parallel()
	s := &resttest.Transport{Answer: func(int, *http.Request) (*http.Response, error) { return resttest.Respond(201, `{}`) }}
	if _, err := create(t.Context(), &api.Client{HTTP: &http.Client{Transport: s}}, api.WithKey("")); err != nil {
		t.Fatal(err)
	}
	if s.Seen[0].Header.Get("Idempotency-Key") == "" {
		t.Error("a request that may be repeated has no key")
	}
}

func TestSend_Headers(t *testing.T) {
	t.Parallel()
	s := &resttest.Transport{Answer: func(int, *http.Request) (*http.Response, error) { return resttest.Respond(200, `{}`) }}
	c := &api.Client{HTTP: &http.Client{Transport: s}}
	if _, err := create(t.Context(), c, api.WithKey("k"), api.WithTrace("00-1")); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if h := s.Seen[0].Header; h.Get("Idempotency-Key") != "k" || h.Get("traceparent") != "00-1" {
		t.Errorf("headers = %v", h)
	}
	if h := s.Seen[1].Header; h.Get("Idempotency-Key") != "" {
		t.Errorf("a read has a key: %v", h)
	}
}

// A token for https is not sent in the clear after a redirect.
func TestSend_NoRedirectIntoTheClear(t *testing.T) {
	t.Parallel()
	heard := false
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { heard = true }))
	t.Cleanup(plain.Close)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL+r.URL.Path, http.StatusPermanentRedirect)
	}))
	t.Cleanup(srv.Close)
	c := &api.Client{URL: srv.URL, Token: "obx_secret", HTTP: srv.Client()}
	for name, ask := range map[string]func() error{
		"a change":  func() error { _, err := create(t.Context(), c); return err },
		"a reading": func() error { _, err := get(t.Context(), c); return err },
	} {
		var p *api.Problem
		if err := ask(); !errors.As(err, &p) || p.Status != http.StatusPermanentRedirect || heard {
			t.Errorf("%s: %v, sent in the clear: %t, want the redirect as a problem", name, err, heard)
		}
	}
}
