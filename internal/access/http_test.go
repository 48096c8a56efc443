package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// newAPI has an operation for each role, and one without a role.
func newAPI(g *Gate) http.Handler {
	mux := http.NewServeMux()
	conf := huma.DefaultConfig("t", "1")
	Describe(&conf)
	api := humago.New(mux, conf)
	api.UseMiddleware(g.Huma)
	type out struct{ Body struct{ Name string } }
	who := func(ctx context.Context, _ *struct{}) (*out, error) {
		p, _ := From(ctx)
		o := new(out)
		o.Body.Name = p.Name
		return o, nil
	}
	for _, r := range Roles {
		huma.Register(api, Needs(r, huma.Operation{OperationID: string(r), Method: http.MethodGet, Path: "/" + string(r)}), who)
	}
	huma.Register(api, huma.Operation{OperationID: "none", Method: http.MethodGet, Path: "/none"}, who)
	return WithRequestIDs(WithSecureHeaders(mux))
}

func TestHuma_EachRoleByEachOperation(t *testing.T) {
	t.Parallel()
	g, secrets, log := setup(t, nil)
	h := newAPI(g)
	for _, tt := range []struct {
		path string
		may  map[Role]bool
	}{
		{"/viewer", map[Role]bool{Viewer: true, Operator: true, Admin: true}},
		{"/operator", map[Role]bool{Operator: true, Admin: true}},
		{"/admin", map[Role]bool{Admin: true}},
		{"/none", map[Role]bool{Admin: true}},
	} {
		for _, role := range append(Roles, "") {
			r := httptest.NewRequest(http.MethodGet, tt.path, nil)
			want := http.StatusForbidden
			if tt.may[role] {
				want = http.StatusOK
			}
			if role == "" {
				want = http.StatusUnauthorized
			} else {
				r.Header.Set("Authorization", "Bearer "+secrets[role])
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s by %q = %d, want %d: %s", tt.path, role, w.Code, want, w.Body)
			}
			if w.Code == http.StatusOK && !strings.Contains(w.Body.String(), "a-"+string(role)) {
				t.Errorf("%s by %q does not know who asks: %s", tt.path, role, w.Body)
			}
			if w.Code != http.StatusOK {
				var p huma.ErrorModel
				if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != want || p.Detail == "" || w.Header().Get("Content-Type") != "application/problem+json" {
					t.Errorf("%s by %q: no problem document: %s %v", tt.path, role, w.Body, w.Header())
				}
			}
			if (w.Header().Get("WWW-Authenticate") != "") != (want == http.StatusUnauthorized) {
				t.Errorf("%s by %q: WWW-Authenticate %q", tt.path, role, w.Header().Get("WWW-Authenticate"))
			}
		}
	}
	if !strings.Contains(log.String(), "refused: role") {
		t.Error("nothing in the log of who may not")
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	g, _, _ := setup(t, nil)
	h := newAPI(g)
	ask := func(id string) http.Header {
		r := httptest.NewRequest(http.MethodGet, "/viewer", nil)
		r.Header.Set(RequestIDHeader, id)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Header()
	}
	got := ask("abc-1")
	for k, want := range map[string]string{
		RequestIDHeader: "abc-1", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
	} {
		if got.Get(k) != want {
			t.Errorf("%s: %q, want %q", k, got.Get(k), want)
		}
	}
	if csp := got.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") {
		t.Errorf("Content-Security-Policy: %q", csp)
	}
	seen := make(map[string]bool)
	for _, odd := range []string{"", "a b", "x\ny", strings.Repeat("x", 65), "<script>"} {
		id := ask(odd).Get(RequestIDHeader)
		if id == odd || !requestIDForm.MatchString(id) || seen[id] {
			t.Errorf("for the id %q the answer has %q", odd, id)
		}
		seen[id] = true
	}
}

func TestListen_RefusesToSendTokensInTheClear(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:0": true, "localhost:0": true,
		"0.0.0.0:0": false, ":0": false, "10.1.2.3:0": false, "localhost.example.com:0": false, "[::]:0": false,
	} {
		l, err := Listen(t.Context(), addr, "", "", false, quiet)
		if err == nil {
			l.Close()
		}
		if ok := !errors.Is(err, ErrInClear); ok != want {
			t.Errorf("Listen(%q) = %v, want it allowed: %v", addr, err, want)
		}
	}
	l, err := Listen(t.Context(), "0.0.0.0:0", "", "", true, quiet)
	if err != nil {
		t.Fatalf("Listen() insecure = %v", err)
	}
	l.Close()
	for _, tt := range [][3]string{{"127.0.0.1:0", "cert", ""}, {"127.0.0.1:0", "", "key"}, {"nonsense", "", ""}, {"127.0.0.1:0", "/none", "/none"}} {
		if l, err := Listen(t.Context(), tt[0], tt[1], tt[2], true, quiet); err == nil {
			l.Close()
			t.Errorf("Listen(%q) did not fail", tt)
		}
	}
}

// quiet discards the log.
var quiet = slog.New(slog.DiscardHandler)

// The next connection uses a renewed certificate, but not one that cannot be loaded.
func TestListen_TakesARenewedCertificate(t *testing.T) {
	t.Parallel()
	cert, key := certificateFiles(t)
	l, err := Listen(t.Context(), "127.0.0.1:0", cert, key, false, quiet)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ErrorLog: slog.NewLogLogger(quiet.Handler(), slog.LevelWarn)}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	shown := func() *x509.Certificate {
		t.Helper()
		conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", l.Addr().String()) //nolint:gosec // certificates of this test's
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
	}
	first := shown()
	newCert, newKey := writeRenewed(t, first)
	if err := os.Rename(newCert, cert); err != nil {
		t.Fatal(err)
	}
	if !shown().Equal(first) {
		t.Error("a certificate is shown whose key is not there yet")
	}
	if err := os.Rename(newKey, key); err != nil {
		t.Fatal(err)
	}
	second := shown()
	if second.Equal(first) {
		t.Error("the renewed certificate is not shown")
	}
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	if !shown().Equal(second) {
		t.Error("without the file another certificate is shown")
	}
}

func TestListen_TLS(t *testing.T) {
	t.Parallel()
	cert, key := certificateFiles(t)
	l, err := Listen(t.Context(), "127.0.0.1:0", cert, key, false, quiet)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: WithSecureHeaders(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // a certificate of this test's
	t.Cleanup(client.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "HTTP/2.0" || resp.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("over TLS: %q %v %v", body, resp.Header, err)
	}
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}}).DialContext(t.Context(), "tcp", l.Addr().String()) //nolint:gosec // it is to be refused
	if err == nil {
		conn.Close()
		t.Error("TLS 1.1 is taken")
	}
}
