package access

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/scylla-outbox/scylla-outbox/test/idp"
)

// signInWorld is a server whose users sign in at an issuer.
type signInWorld struct {
	*httptest.Server
	issuer *idp.Issuer
	conf   Config
	clock  *clock
	log    *bytes.Buffer
}

// newSignInWorld starts the server of one gate, with or without TLS.
func newSignInWorld(t *testing.T, encrypted bool) *signInWorld {
	t.Helper()
	w := &signInWorld{issuer: idp.New(t), clock: &clock{time.Now()}, log: new(bytes.Buffer)}
	w.Server = httptest.NewUnstartedServer(nil)
	if encrypted {
		w.StartTLS()
	} else {
		w.Start()
	}
	t.Cleanup(w.Close)
	w.issuer.Redirect = w.URL + CallbackPath
	w.conf = Config{
		Logger: slog.New(slog.NewTextHandler(w.log, nil)), Clock: w.clock,
		OIDC: OIDC{Issuer: w.issuer.URL, Audience: idp.Audience, ClientSecret: idp.Secret, ConsoleURL: w.URL + "/console"},
	}
	w.Config.Handler = w.handler(t, w.conf)
	return w
}

// handler returns a replica of the server.
func (w *signInWorld) handler(t *testing.T, conf Config) http.Handler {
	t.Helper()
	g, err := New(conf)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	api := humago.New(mux, huma.DefaultConfig("test", "1"))
	api.UseMiddleware(g.Huma)
	type answer struct{ Body struct{ Name, Role string } }
	me := func(ctx context.Context, _ *struct{}) (*answer, error) {
		p, _ := From(ctx)
		out := new(answer)
		out.Body.Name, out.Body.Role = p.Name, string(p.Role)
		return out, nil
	}
	huma.Register(api, Needs(Viewer, huma.Operation{OperationID: "me", Method: http.MethodGet, Path: "/v1/me"}), me)
	huma.Register(api, Needs(Operator, huma.Operation{OperationID: "change", Method: http.MethodPost, Path: "/v1/change"}), me)
	mux.HandleFunc("GET /console/", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.String()) })
	g.RegisterSignIn(mux, func(w http.ResponseWriter, _ *http.Request, e *SignInError) {
		w.WriteHeader(e.Status)
		_, _ = io.WriteString(w, e.What+"\n"+e.Fix)
	})
	refuse := func(w http.ResponseWriter, _ *http.Request, e *Error) { http.Error(w, e.Detail, e.Status) }
	return Browsers{Logger: conf.Logger, Refuse: refuse}.Wrap(mux)
}

// browser returns a browser without cookies.
func (w *signInWorld) browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: w.Client().Transport, Jar: jar}
}

// send sends a request with headers, and returns the status and body of the last response.
func (w *signInWorld) send(t *testing.T, c *http.Client, method, path string, header ...string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, w.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// location returns where a request leads, and the cookies that its response sets.
func (w *signInWorld) location(t *testing.T, c *http.Client, target string) (*url.URL, []*http.Cookie) {
	t.Helper()
	one := *c
	one.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := one.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	u, err := resp.Location()
	if err != nil {
		t.Fatalf("%s: %s leads nowhere", target, resp.Status)
	}
	return u, resp.Cookies()
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	for _, encrypted := range []bool{false, true} {
		w := newSignInWorld(t, encrypted)
		b := w.browser(t)
		if status, _ := w.send(t, b, http.MethodGet, "/v1/me"); status != http.StatusUnauthorized {
			t.Errorf("before the sign-in: %d, want 401", status)
		}
		w.issuer.Next(map[string]any{"email": "mara@example.com", "email_verified": true}, "")
		if status, body := w.send(t, b, http.MethodGet, SignInPath+"?return="+url.QueryEscape("/console/dead-letters?status=open")); status != 200 || body != "/console/dead-letters?status=open" {
			t.Errorf("the sign-in ends at %d %s", status, body)
		}
		if status, body := w.send(t, b, http.MethodGet, "/v1/me"); status != 200 || !strings.Contains(body, `"Name":"oidc:email:mara@example.com"`) || !strings.Contains(body, `"Role":"operator"`) {
			t.Errorf("me = %d %s", status, body)
		}

		// The cookies of each step.
		b = w.browser(t)
		authorize, begun := w.location(t, b, w.URL+SignInPath)
		callback, _ := w.location(t, b, authorize.String())
		_, done := w.location(t, b, callback.String())
		if len(begun) != 1 || len(done) != 2 {
			t.Fatalf("cookies: %v, then %v", begun, done)
		}
		for _, c := range append(begun, done...) {
			if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" || c.Secure != encrypted || strings.HasPrefix(c.Name, "__Host-") != encrypted {
				t.Errorf("TLS %t: cookie %s", encrypted, c)
			}
		}
		if begun[0].MaxAge != 600 || done[0].MaxAge != -1 || done[1].MaxAge != int(SessionLifetime/time.Second) {
			t.Errorf("lifetimes: %v, then %v", begun, done)
		}
		q := authorize.Query()
		if q.Get("code_challenge_method") != "S256" || q.Get("scope") != "openid email" || q.Get("state") == "" || q.Get("nonce") == "" || q.Get("state") == q.Get("nonce") {
			t.Errorf("the issuer is asked for %v", q)
		}
		for _, secret := range []string{idp.Secret, callback.Query().Get("code"), q.Get("state"), q.Get("nonce"), begun[0].Value, done[1].Value} {
			if strings.Contains(w.log.String(), secret) {
				t.Errorf("the log contains the secret %s:\n%s", secret, w.log)
			}
		}
		if !strings.Contains(w.log.String(), "name=oidc:email:mara@example.com role=operator") {
			t.Errorf("the log does not name the user:\n%s", w.log)
		}
	}
}

// Only pages of the server change something with a session, even if the browser reports nothing.
func TestSignIn_ChangesComeFromOwnPages(t *testing.T) {
	t.Parallel()
	w := newSignInWorld(t, false)
	b := w.browser(t)
	w.send(t, b, http.MethodGet, SignInPath)
	for name, tt := range map[string]struct {
		header []string
		status int
	}{
		"nothing":                {nil, 403},
		"own page":               {[]string{"Sec-Fetch-Site", "same-origin"}, 200},
		"own page, old browser":  {[]string{"Origin", w.URL}, 200},
		"other page":             {[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		"page of a sibling":      {[]string{"Sec-Fetch-Site", "same-site"}, 403},
		"page without an origin": {[]string{"Origin", "null"}, 403},
		"other page and our own": {[]string{"Sec-Fetch-Site", "same-site", "Origin", w.URL}, 403},
	} {
		if status, body := w.send(t, b, http.MethodPost, "/v1/change", tt.header...); status != tt.status {
			t.Errorf("a change by %s: %d %s, want %d", name, status, body, tt.status)
		}
	}
	if status, _ := w.send(t, b, http.MethodPost, SignOutPath, "Sec-Fetch-Site", "cross-site"); status != 403 {
		t.Errorf("another page signs out: %d", status)
	}
	if status, _ := w.send(t, b, http.MethodPost, SignOutPath, "Sec-Fetch-Site", "same-origin"); status != 204 {
		t.Errorf("sign out: %d", status)
	}
	if status, _ := w.send(t, b, http.MethodGet, "/v1/me"); status != 401 {
		t.Errorf("after signing out: %d", status)
	}
	w.issuer.Next(map[string]any{"roles": "outbox-viewer"}, "")
	w.send(t, b, http.MethodGet, SignInPath)
	if status, _ := w.send(t, b, http.MethodPost, "/v1/change", "Sec-Fetch-Site", "same-origin"); status != 403 {
		t.Errorf("a change by a viewer: %d", status)
	}
}

// A session is valid in each process with the secret, until it ends.
func TestSignIn_SessionsOfReplicas(t *testing.T) {
	t.Parallel()
	w := newSignInWorld(t, false)
	b := w.browser(t)
	w.send(t, b, http.MethodGet, SignInPath)
	other := w.conf
	other.OIDC.ClientSecret = strings.ToUpper(idp.Secret)
	elsewhere := w.conf
	elsewhere.OIDC.Audience = "else"
	for _, tt := range []struct {
		name   string
		conf   Config
		after  time.Duration
		status int
	}{
		{"another process", w.conf, 0, 200},
		{"another secret", other, 0, 401},
		{"another client", elsewhere, 0, 401},
		{"shortly before its end", w.conf, SessionLifetime - time.Minute, 200},
		{"at its end", w.conf, SessionLifetime, 401},
	} {
		c := &clock{w.clock.at.Add(tt.after)}
		tt.conf.Clock = c
		w.Config.Handler = w.handler(t, tt.conf)
		if status, body := w.send(t, b, http.MethodGet, "/v1/me"); status != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, status, body, tt.status)
		}
	}
	// The state of a sign-in is no session, although the same key seals it.
	w.Config.Handler = w.handler(t, w.conf)
	_, begun := w.location(t, w.browser(t), w.URL+SignInPath)
	if status, _ := w.send(t, w.browser(t), http.MethodGet, "/v1/me", "Cookie", sessionCookie+"="+begun[0].Value); status != 401 {
		t.Errorf("the state as a session: %d, want 401", status)
	}
}

// Each failed sign-in shows what failed and what fixes it, and starts no session.
func TestSignIn_FailuresNameTheFix(t *testing.T) {
	t.Parallel()
	w := newSignInWorld(t, false)
	w.conf.FailuresPerMinute = 100
	w.Config.Handler = w.handler(t, w.conf)
	for _, tt := range []struct {
		name   string
		change map[string]any
		refuse string
		status int
		says   string
	}{
		{"no claim", map[string]any{"roles": nil}, "", 403, `oidc:sub:u-17 has no role here.` + "\n" + `The claim "roles" of the ID token must contain outbox-viewer`},
		{"no role of ours", map[string]any{"roles": "admin"}, "", 403, "has no role here"},
		{"other nonce", map[string]any{"nonce": "of another sign-in"}, "", 502, "its nonce is not that of this sign-in"},
		{"no nonce", map[string]any{"nonce": nil}, "", 502, "its nonce"},
		{"other audience", map[string]any{"aud": "else"}, "", 502, "admin.oidc_audience"},
		{"other issuer", map[string]any{"iss": "https://evil.example.com"}, "", 502, "admin.oidc_issuer"},
		{"expired", map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}, "", 502, "the clocks"},
		{"not assigned", nil, "access_denied", 403, "access_denied: <b>refused</b> by the test\nSign in again and consent, or have the application outbox assigned"},
		{"wrong client", nil, "unauthorized_client", 403, "admin.oidc_client_secret"},
		{"a code of the issuer's own", nil, "x\u202e" + strings.Repeat("y", 999), 403, "the log of the issuer"},
	} {
		w.issuer.Next(tt.change, tt.refuse)
		b := w.browser(t)
		status, body := w.send(t, b, http.MethodGet, SignInPath)
		if status != tt.status || !strings.Contains(body, tt.says) || strings.Contains(body, "\u202e") || len(body) > 800 {
			t.Errorf("%s: %d %s\nwant %d %s", tt.name, status, body, tt.status, tt.says)
		}
		if status, _ := w.send(t, b, http.MethodGet, "/v1/me"); status != 401 {
			t.Errorf("%s: it starts a session", tt.name)
		}
	}
	w.conf.OIDC.ClientSecret = strings.Repeat("wrong", 8)
	w.Config.Handler = w.handler(t, w.conf)
	w.issuer.Next(nil, "")
	if status, body := w.send(t, w.browser(t), http.MethodGet, SignInPath); status != 502 || !strings.Contains(body, "Compare admin.oidc_audience and admin.oidc_client_secret") {
		t.Errorf("wrong secret: %d %s", status, body)
	}
	w.issuer.Down.Store(true)
	w.Config.Handler = w.handler(t, w.conf)
	if status, body := w.send(t, w.browser(t), http.MethodGet, SignInPath); status != 503 || !strings.Contains(body, "admin.oidc_issuer") {
		t.Errorf("no issuer: %d %s", status, body)
	}
}

// The response of the issuer is accepted once, in the browser that began the sign-in, and in time.
func TestSignIn_ResponsesOfOthers(t *testing.T) {
	t.Parallel()
	w := newSignInWorld(t, false)
	begin := func() (*http.Client, *url.URL) {
		b := w.browser(t)
		authorize, _ := w.location(t, b, w.URL+SignInPath)
		callback, _ := w.location(t, b, authorize.String())
		return b, callback
	}
	try := func(name string, b *http.Client, callback string) {
		t.Helper()
		if status, body := w.send(t, b, http.MethodGet, strings.TrimPrefix(callback, w.URL)); status != 400 || !strings.Contains(body, "Sign in again. It must begin at "+w.URL+"/console/") {
			t.Errorf("%s: %d %s, want 400", name, status, body)
		}
		if status, _ := w.send(t, b, http.MethodGet, "/v1/me"); status != 401 {
			t.Errorf("%s: it starts a session", name)
		}
	}
	_, callback := begin()
	try("another browser", w.browser(t), callback.String())
	b, _ := begin()
	try("the code of another", b, callback.String())
	b, _ = begin()
	try("no state", b, w.URL+CallbackPath+"?code=x")
	b, callback = begin()
	w.clock.at = w.clock.at.Add(signInTimeout)
	try("too late", b, callback.String())

	b, callback = begin()
	w.send(t, b, http.MethodGet, strings.TrimPrefix(callback.String(), w.URL))
	if status, _ := w.send(t, b, http.MethodGet, strings.TrimPrefix(callback.String(), w.URL)); status != 400 {
		t.Errorf("a response a second time: %d, want 400", status)
	}

	// Invented codes are refused by the issuer and limited by address; JWTs are still verified.
	seen := map[int]int{}
	for range 12 {
		b := w.browser(t)
		authorize, _ := w.location(t, b, w.URL+SignInPath)
		status, _ := w.send(t, b, http.MethodGet, CallbackPath+"?code=invented&state="+authorize.Query().Get("state"))
		seen[status]++
	}
	if seen[502] != DefaultFailuresPerMinute || seen[429] != 2 {
		t.Errorf("invented codes: %v", seen)
	}
	token := w.issuer.Sign(t, w.issuer.Key, w.issuer.Claims(nil))
	if status, body := w.send(t, w.browser(t), http.MethodGet, "/v1/me", "Authorization", "Bearer "+token); status != 200 {
		t.Errorf("a JWT after them: %d %s", status, body)
	}
}

// A sign-in returns to the console and nowhere else.
func TestSignIn_Return(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"":          "/console/",
		"/console/": "/console/",
		"/console/dead-letters?status=open&x=%2F": "/console/dead-letters?status=open&x=%2F",
		"/console/aggregates/a%20b":               "/console/aggregates/a%20b",
		"https://evil.example.com/console/":       "/console/",
		"//evil.example.com/console/":             "/console/",
		"/console/../../evil":                     "/console/",
		"/console/..//evil.example.com":           "/console/",
		"/console/..\\\\evil.example.com":         "/console/..%5C%5Cevil.example.com",
		"\\\\evil.example.com/console/":           "/console/",
		"/v1/me":                                  "/console/",
		"javascript:alert(1)":                     "/console/",
		"/console/x\r\nSet-Cookie: a=b":           "/console/",
		"/console/" + strings.Repeat("x", 2000):   "/console/",
	} {
		if got := home(target); got != want {
			t.Errorf("home(%q) = %q, want %q", target, got, want)
		}
	}
}

func TestSignIn_Config(t *testing.T) {
	t.Parallel()
	good := OIDC{Issuer: "https://id.example.com", Audience: "outbox", ClientSecret: idp.Secret, ConsoleURL: "https://outbox.example.com/console"}
	for _, tt := range []struct {
		name   string
		change func(*OIDC)
		says   string
	}{
		{"good", func(*OIDC) {}, ""},
		{"loopback", func(o *OIDC) { o.ConsoleURL = "http://localhost:8090/console/" }, ""},
		{"short secret", func(o *OIDC) { o.ClientSecret = "hunter2" }, "admin.oidc_client_secret: has 7 characters"},
		{"no issuer", func(o *OIDC) { o.Issuer = "" }, "the issuer is required"},
		{"no address", func(o *OIDC) { o.ConsoleURL = "" }, "such as https://outbox.example.com/console, not \"\"; the issuer's redirect URL is /console/callback there"},
		{"other path", func(o *OIDC) { o.ConsoleURL = "https://outbox.example.com/" }, "it must be a URL such as"},
		{"query", func(o *OIDC) { o.ConsoleURL += "?a=b" }, "it must be a URL such as"},
		{"in the clear", func(o *OIDC) { o.ConsoleURL = "http://outbox.example.com/console" }, "use https"},
	} {
		o := good
		tt.change(&o)
		_, err := New(Config{OIDC: o, Tokens: []Token{{Name: "a", Role: Viewer, Hash: hashPrefix + strings.Repeat("0", 64)}}})
		if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.says)
		}
	}
}

// The methods and scopes of the metadata are used.
func TestSignIn_Metadata(t *testing.T) {
	t.Parallel()
	w := newSignInWorld(t, false)
	w.issuer.Metadata = map[string]any{"scopes_supported": []string{"openid", "roles", "phone"}, "token_endpoint_auth_methods_supported": []string{"client_secret_post"}}
	authorize, _ := w.location(t, w.browser(t), w.URL+SignInPath)
	if got := authorize.Query().Get("scope"); got != "openid email roles" {
		t.Errorf("scope = %q", got)
	}
	if status, body := w.send(t, w.browser(t), http.MethodGet, SignInPath); status != 502 || !strings.Contains(body, "invalid_client") {
		t.Errorf("the secret in the body, at an issuer that reads the header: %d %s", status, body)
	}
	w = newSignInWorld(t, false)
	w.issuer.Metadata = map[string]any{"authorization_endpoint": "http://id.example.com/auth"}
	if status, body := w.send(t, w.browser(t), http.MethodGet, SignInPath); status != 503 || !strings.Contains(body, "authorization_endpoint") {
		t.Errorf("a page of the issuer in the clear: %d %s", status, body)
	}
	var e *SignInError
	if !errors.As(error(errTooManySignIns), &e) || e.Error() != e.What {
		t.Error("a sign-in error has no text")
	}
}
