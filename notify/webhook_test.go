package notify

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	oldSecret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	newSecret = "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY="
)

func mustKeys(t *testing.T, secrets ...string) Keys {
	t.Helper()
	k, err := ParseKeys(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// receiver is an HTTP server that records its requests.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	reqs   []*http.Request
	bodies [][]byte
	answer func(n int, w http.ResponseWriter) // nil: 200
}

func newReceiver(t *testing.T, answer func(n int, w http.ResponseWriter)) *receiver {
	t.Helper()
	r := &receiver{answer: answer}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		r.reqs, r.bodies = append(r.reqs, req), append(r.bodies, b)
		n := len(r.reqs)
		r.mu.Unlock()
		if r.answer != nil {
			r.answer(n, w)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) last(t *testing.T) (*http.Request, []byte) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.reqs) == 0 {
		t.Fatal("the receiver got nothing")
	}
	return r.reqs[len(r.reqs)-1], r.bodies[len(r.bodies)-1]
}

func testMessage() Message {
	return Message{
		ID: "msg_1", Type: "dead_letters.new", Key: "new/attempts_used", Severity: Warning, Title: "3 new dead letters", Text: "OrderCreated\nattempts_used",
		URL: "https://console.example/console", At: time.UnixMilli(1_700_000_000_000).UTC(), Data: map[string]any{"count": 3},
	}
}

func TestWebhook_SignedForOldAndNewSecret(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	target, err := NewWebhook(r.URL+"/hook", mustKeys(t, newSecret, oldSecret))
	if err != nil {
		t.Fatal(err)
	}
	if err := target.Send(t.Context(), testMessage()); err != nil {
		t.Fatal(err)
	}
	req, body := r.last(t)
	for name, secrets := range map[string][]string{"old": {oldSecret}, "new": {newSecret}, "both": {oldSecret, newSecret}} {
		if err := Verify(req.Header, body, mustKeys(t, secrets...)); err != nil {
			t.Errorf("a receiver with the %s secret: %v", name, err)
		}
	}
	if err := Verify(req.Header, append(body, ' '), mustKeys(t, oldSecret)); !errors.Is(err, ErrNotSigned) {
		t.Errorf("a changed body verifies: %v", err)
	}
	other := "whsec_" + strings.Repeat("QUJD", 10)
	if err := Verify(req.Header, body, mustKeys(t, other)); !errors.Is(err, ErrNotSigned) {
		t.Errorf("another secret verifies: %v", err)
	}
	h := req.Header.Clone()
	h.Set(HeaderID, "msg_2")
	if err := Verify(h, body, mustKeys(t, oldSecret)); !errors.Is(err, ErrNotSigned) {
		t.Errorf("another id verifies: %v", err)
	}
	var m Message
	if err := json.Unmarshal(body, &m); err != nil || m.ID != "msg_1" || m.Title != "3 new dead letters" || m.URL == "" {
		t.Errorf("body %s, %v", body, err)
	}
	if req.Header.Get(HeaderID) != "msg_1" || req.Method != http.MethodPost || req.URL.Path != "/hook" {
		t.Errorf("request %s %s %v", req.Method, req.URL, req.Header)
	}
}

func TestVerify_OldMessagesAreRefused(t *testing.T) {
	t.Parallel()
	keys := mustKeys(t, oldSecret)
	for age, want := range map[time.Duration]error{time.Minute: nil, 6 * time.Minute: ErrNotSigned, -6 * time.Minute: ErrNotSigned} {
		h := http.Header{}
		if err := keys.Sign(h, "m", time.Now().Add(-age), []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := Verify(h, []byte("x"), keys); !errors.Is(err, want) {
			t.Errorf("%s old: %v, want %v", age, err, want)
		}
	}
	if err := Verify(http.Header{}, nil, keys); !errors.Is(err, ErrNotSigned) {
		t.Errorf("no headers: %v", err)
	}
}

// TestKeys_AreThoseOfTheSpecification checks the example of the Standard
// Webhooks specification.
func TestKeys_AreThoseOfTheSpecification(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	body := []byte(`{"test": 2432232314}`)
	if err := mustKeys(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), body); err != nil {
		t.Fatal(err)
	}
	if got, want := h.Get(HeaderSignature), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
}

func TestWebhook_WhatAnswersMean(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status     int
		retryAfter string
		ok, final  bool
		wait       time.Duration
	}{
		{200, "", true, false, 0},
		{204, "", true, false, 0},
		{302, "", false, true, 0},
		{400, "", false, true, 0},
		{404, "", false, true, 0},
		{408, "", false, false, 0},
		{429, "7", false, false, 7 * time.Second},
		{500, "", false, false, 0},
		{503, "120", false, false, 2 * time.Minute},
	} {
		r := newReceiver(t, func(_ int, w http.ResponseWriter) {
			if tt.retryAfter != "" {
				w.Header().Set("Retry-After", tt.retryAfter)
			}
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(tt.status)
		})
		target, err := NewWebhook(r.URL, mustKeys(t, oldSecret))
		if err != nil {
			t.Fatal(err)
		}
		err = target.Send(t.Context(), testMessage())
		if (err == nil) != tt.ok || IsPermanent(err) != tt.final || RequestedWait(err) != tt.wait {
			t.Errorf("%d: error %v, final %v, wait %s", tt.status, err, IsPermanent(err), RequestedWait(err))
		}
		if len(r.reqs) != 1 {
			t.Errorf("%d: %d requests, want 1", tt.status, len(r.reqs))
		}
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if d := retryAfter("Fri, 02 Jan 2026 03:05:05 GMT", now); d != time.Minute {
		t.Errorf("a date a minute ahead: %s", d)
	}
}

func TestParseKeys_ErrorNamesTheKeyWithoutItsValue(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "hunter2hunter2", "whsec_hunter2", "whsec_" + strings.Repeat("QUJD", 40), strings.TrimPrefix(oldSecret, "whsec_")} {
		_, err := ParseKeys(oldSecret, bad)
		if err == nil || !strings.Contains(err.Error(), "secret 2 of 2") || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("ParseKeys(%q) = %v", bad, err)
		}
	}
	if _, err := ParseKeys(); err == nil {
		t.Error("no secret is no error")
	}
}

func TestParseTargets(t *testing.T) {
	t.Parallel()
	const plain = "generic://127.0.0.1:1/a?disabletls=yes"
	got, err := ParseTargets([]string{"a=" + plain, "b=webhook+https://127.0.0.1/hook", "c=smtp://u:p@127.0.0.1:25/?from=a@b.c&to=d@e.f"}, []string{oldSecret})
	if err != nil || len(got) != 3 {
		t.Fatalf("ParseTargets() = %v, %v", got, err)
	}
	for _, tt := range []struct{ pair, want string }{
		{"slack://canary-secret", "use name=URL"},
		{"a b=slack://canary-secret", "use name=URL"},
		{"a=canary-secret", "needs a URL"},
		{"a=nosuch://canary-secret", "target a"},
		{"a=slack://canary-secret", "target a"},
		{"a=pagerduty://canary-secret/canary-secret", "target a"},
		{"a=webhook+ftp://canary-secret/", "needs a URL"},
		{"a=logger://", "logger:// is not a target"},
	} {
		_, err := ParseTargets([]string{tt.pair}, []string{oldSecret})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.pair, err, tt.want)
		} else if strings.Contains(err.Error(), "canary-secret") {
			t.Errorf("%s: the error shows the URL: %v", tt.pair, err)
		}
	}
	if _, err := ParseTargets([]string{"a=webhook+https://h/"}, nil); err == nil || !strings.Contains(err.Error(), "secret") {
		t.Errorf("a webhook without a secret: %v", err)
	}
	if _, err := ParseTargets([]string{"a=" + plain, "a=" + plain}, nil); err == nil {
		t.Error("the same name twice is no error")
	}
}

func TestRedactor_HidesEveryPart(t *testing.T) {
	t.Parallel()
	raw := "smtp://canaryuser:canary%2Fpass@canaryhost:25/canarypath?to=canaryto@x.org&key=canarykey"
	r := newRedactor(raw)
	in := []error{
		errors.New("sending to " + raw),
		&url.Error{Op: "Post", URL: "https://elsewhere/canarypath", Err: errors.New("dial tcp: lookup canaryhost")},
		errors.New("auth canaryuser canary/pass failed; rcpt <canaryto@x.org> key=canarykey"),
	}
	for _, e := range in {
		got := r.err(e).Error()
		if strings.Contains(got, "canary") || strings.Contains(got, "elsewhere") {
			t.Errorf("%q became %q", e, got)
		}
		if !strings.Contains(got, "***") {
			t.Errorf("%q became %q, which is not redacted", e, got)
		}
	}
	if errors.Unwrap(r.err(in[1])) != nil {
		t.Error("the secret can be unwrapped")
	}
}

// Concurrent calls reuse their connections.
func TestWebhook_KeepsConnections(t *testing.T) {
	const concurrent = 20
	var opened atomic.Int64
	var arrived sync.WaitGroup // all calls of a round are in progress
	r := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived.Done()
		arrived.Wait()
	}))
	r.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	r.Start()
	defer r.Close()
	inTests := http.DefaultTransport.(rewriting)
	http.DefaultTransport = inTests.RoundTripper
	target, err := NewWebhook(r.URL, mustKeys(t, newSecret))
	http.DefaultTransport = inTests
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		var calls errgroup.Group
		arrived.Add(concurrent)
		for range concurrent {
			calls.Go(func() error { return target.Send(t.Context(), Message{ID: "1"}) })
		}
		if err := calls.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	// A call may begin before the connection of another one is free.
	if n := opened.Load(); n > 2*concurrent {
		t.Errorf("%d connections for %d concurrent calls", n, concurrent)
	}
}
