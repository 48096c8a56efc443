package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// transport answers without a network, so that time can be virtual.
type transport struct {
	mu     sync.Mutex
	answer func(n int, r *http.Request) (*http.Response, error)
	seen   []*http.Request
	bodies []string
}

func (s *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.seen = append(s.seen, r)
	s.bodies = append(s.bodies, string(b))
	n := len(s.seen)
	s.mu.Unlock()
	return s.answer(n, r)
}

func respond(status int, body string, header ...string) (*http.Response, error) {
	w := httptest.NewRecorder()
	if status >= 400 {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		w.Header().Set(header[i], header[i+1])
	}
	w.WriteHeader(status)
	_, _ = w.WriteString(body)
	return w.Result(), nil
}

func TestClient_RepeatsWithTheSameKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &transport{answer: func(n int, _ *http.Request) (*http.Response, error) {
			switch n {
			case 1:
				return nil, io.ErrUnexpectedEOF // the answer is lost
			case 2:
				return respond(503, `{"type":"`+ProblemUnknown+`","outcome_unknown":true}`, "Retry-After", "7")
			case 3:
				return respond(503, `{"type":"`+ProblemOverloaded+`"}`, "Retry-After", "2")
			}
			return respond(201, `{"id":"x","version":1}`)
		}}
		c := &Client{URL: "http://orders/", Token: "obx_1", HTTP: &http.Client{Transport: s}}
		start := time.Now()
		o, err := c.Create(t.Context(), NewOrder{Country: "EIRE"})
		if err != nil || o.ID != "x" || len(s.seen) != 4 {
			t.Fatalf("Create() = %+v, %v after %d requests", o, err, len(s.seen))
		}
		if took := time.Since(start); took < 9*time.Second || took > 15*time.Second {
			t.Errorf("it took %s, want 9 s from Retry-After", took)
		}
		key := s.seen[0].Header.Get("Idempotency-Key")
		for i, r := range s.seen {
			if key == "" || r.Header.Get("Idempotency-Key") != key || s.bodies[i] != s.bodies[0] || r.Header.Get("Authorization") != "Bearer obx_1" {
				t.Errorf("request %d has key %q and body %q", i+1, r.Header.Get("Idempotency-Key"), s.bodies[i])
			}
		}
		if _, err := c.Create(t.Context(), NewOrder{Country: "EIRE"}); err != nil || s.seen[4].Header.Get("Idempotency-Key") == key {
			t.Error("another order has the same key")
		}
	})
}

func TestClient_DoesNotRepeatWhatIsRefused(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 403, 404, 409, 412, 422, 428, 500} {
		s := &transport{answer: func(int, *http.Request) (*http.Response, error) {
			return respond(status, `{"type":"`+ProblemShipped+`","detail":"no","current_status":"shipped","errors":[{"location":"body.a","message":"bad"}]}`, "X-Request-Id", "r1")
		}}
		_, err := (&Client{HTTP: &http.Client{Transport: s}}).Cancel(t.Context(), "x", Cancellation{})
		var p *Problem
		if !errors.As(err, &p) || p.Status != status || p.Type != ProblemShipped || p.CurrentStatus != Shipped || p.RequestID != "r1" || len(s.seen) != 1 {
			t.Errorf("%d: %v after %d requests", status, err, len(s.seen))
		}
		if !strings.Contains(err.Error(), "body.a bad") {
			t.Errorf("%d: %v does not name the field", status, err)
		}
	}
}

func TestClient_GivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &transport{answer: func(int, *http.Request) (*http.Response, error) {
			return respond(503, "gone", "Content-Type", "text/html", "Retry-After", "5")
		}}
		c := &Client{HTTP: &http.Client{Transport: s}, MaxAttempts: 3}
		var p *Problem
		if _, err := c.Get(t.Context(), "x"); !errors.As(err, &p) || p.Status != 503 || p.Type != "" || len(s.seen) != 3 {
			t.Errorf("Get() = %v after %d requests, want 3", err, len(s.seen))
		}
		// It does not wait beyond the deadline.
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if _, err := c.Get(ctx, "x"); !errors.As(err, &p) || len(s.seen) != 4 || time.Since(start) > 0 {
			t.Errorf("Get() = %v after %d requests and %s, want an immediate result", err, len(s.seen)-3, time.Since(start))
		}
	})
}

// A proxy that redirects to https by 301 turns a change into a GET; its
// response must not be taken for that of the change.
func TestClient_ARedirectIsNoChange(t *testing.T) {
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
		c := &Client{URL: here.URL}
		if _, err := c.Get(t.Context(), "x"); err != nil {
			t.Errorf("%d: Get() = %v", status, err)
		}
		made = nil
		country := "EIRE"
		_, updated := c.Update(t.Context(), "x", 1, Update{Country: &country})
		cancelled := c.CancelMessage(t.Context(), "x")
		if status >= 307 {
			if updated != nil || cancelled != nil || !slices.Equal(made, []string{`PATCH {"country":"EIRE"}`, "DELETE "}) {
				t.Errorf("%d: Update() = %v, CancelMessage() = %v, made %q", status, updated, cancelled, made)
			}
			continue
		}
		for _, err := range []error{updated, cancelled} {
			var p *Problem
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
func TestClient_AnAttemptEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &transport{answer: func(n int, r *http.Request) (*http.Response, error) {
			if n == 1 {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return respond(200, `{"id":"x"}`)
		}}
		c := &Client{HTTP: &http.Client{Transport: s}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*DefaultTimeout)
		defer cancel()
		start := time.Now()
		if o, err := c.Get(ctx, "x"); err != nil || o.ID != "x" {
			t.Errorf("Get() = %+v, %v", o, err)
		}
		if took := time.Since(start); took < DefaultTimeout || took > DefaultTimeout+time.Second {
			t.Errorf("it took %s, want %s and a pause", took, DefaultTimeout)
		}
	})
}

func TestClient_AnEmptyKeyIsARandomOne(t *testing.T) {
	t.Parallel()
	s := &transport{answer: func(int, *http.Request) (*http.Response, error) { return respond(201, `{}`) }}
	if _, err := (&Client{HTTP: &http.Client{Transport: s}}).Create(t.Context(), NewOrder{}, WithKey("")); err != nil {
		t.Fatal(err)
	}
	if s.seen[0].Header.Get("Idempotency-Key") == "" {
		t.Error("a request that may be repeated has no key")
	}
}

func TestClient_Requests(t *testing.T) {
	t.Parallel()
	s := &transport{answer: func(int, *http.Request) (*http.Response, error) { return respond(200, `{}`) }}
	c := &Client{URL: "http://orders", HTTP: &http.Client{Transport: s}}
	country := "EIRE"
	calls := []func() error{
		func() error {
			_, err := c.Update(t.Context(), "i d", 3, Update{Country: &country}, WithKey("k"), WithTrace("00-1"))
			return err
		},
		func() error { _, err := c.Confirm(t.Context(), "x", IfVersion(4)); return err },
		func() error { _, err := c.Ship(t.Context(), "x", Shipment{Carrier: "c"}); return err },
		func() error {
			_, err := c.List(t.Context(), ListQuery{CustomerID: "a&b", Since: time.Unix(0, 0).UTC(), Limit: 3, Cursor: "z"})
			return err
		},
	}
	for _, f := range calls {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for i, r := range s.seen {
		got = append(got, r.Method+" "+r.URL.RequestURI()+" "+s.bodies[i])
	}
	want := []string{
		`PATCH /v1/orders/i%20d {"country":"EIRE"}`, `POST /v1/orders/x/confirm {}`, `POST /v1/orders/x/ship {"carrier":"c"}`,
		`GET /v1/orders?cursor=z&customer_id=a%26b&limit=3&since=1970-01-01T00%3A00%3A00Z `,
	}
	if !slices.Equal(got, want) {
		t.Errorf("requests %q, want %q", got, want)
	}
	if h := s.seen[0].Header; h.Get("If-Match") != `"3"` || h.Get("Idempotency-Key") != "k" || h.Get("traceparent") != "00-1" {
		t.Errorf("headers = %v", h)
	}
	if h := s.seen[3].Header; h.Get("Idempotency-Key") != "" {
		t.Errorf("a read has a key: %v", h)
	}
	if !json.Valid([]byte(s.bodies[0])) {
		t.Error(s.bodies[0])
	}
}

// A token for https is not sent in the clear after a redirect.
func TestClient_NoRedirectIntoTheClear(t *testing.T) {
	t.Parallel()
	heard := false
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { heard = true }))
	t.Cleanup(plain.Close)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL+r.URL.Path, http.StatusPermanentRedirect)
	}))
	t.Cleanup(srv.Close)
	c := Client{URL: srv.URL, Token: "obx_secret", HTTP: srv.Client()}
	for name, ask := range map[string]func() error{
		"a change":  func() error { _, err := c.Create(t.Context(), NewOrder{}); return err },
		"a reading": func() error { _, err := c.Get(t.Context(), "x"); return err },
	} {
		var p *Problem
		if err := ask(); !errors.As(err, &p) || p.Status != http.StatusPermanentRedirect || heard {
			t.Errorf("%s: %v, sent in the clear: %t, want the redirect as a problem", name, err, heard)
		}
	}
}
