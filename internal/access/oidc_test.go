package access

import (
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// fakeIssuer is an OpenID Connect issuer on loopback.
type fakeIssuer struct {
	*httptest.Server
	key   *rsa.PrivateKey
	keys  string       // where its keys are; with it
	asked atomic.Int64 // requests, of any kind
	down  atomic.Bool
}

func newFakeIssuer(t *testing.T) *fakeIssuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeIssuer{key: key}
	mux := http.NewServeMux()
	answer := func(path string, v func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			f.asked.Add(1)
			if f.down.Load() {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v())
		})
	}
	answer("/.well-known/openid-configuration", func() any {
		return map[string]any{
			"issuer": f.URL, "jwks_uri": cmp.Or(f.keys, f.URL+"/keys"), "authorization_endpoint": f.URL + "/auth", "token_endpoint": f.URL + "/token",
			"id_token_signing_alg_values_supported": []string{"RS256"},
		}
	})
	answer("/keys", func() any {
		return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k1", Algorithm: "RS256", Use: "sig"}}}
	})
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeIssuer) sign(t *testing.T, key any, claims map[string]any) string {
	t.Helper()
	alg := jose.RS256
	if _, ok := key.([]byte); ok {
		alg = jose.HS256
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k1"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := jwt.Signed(s).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// claims returns the claims of a valid token with changes.
func (f *fakeIssuer) claims(change map[string]any) map[string]any {
	c := map[string]any{
		"iss": f.URL, "aud": "outbox", "sub": "u-17", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
		"roles": []string{"other", "outbox-viewer", "outbox-operator"},
	}
	for k, v := range change {
		if v == nil {
			delete(c, k)
		} else {
			c[k] = v
		}
	}
	return c
}

func TestGate_LetsInByJWT(t *testing.T) {
	t.Parallel()
	f := newFakeIssuer(t)
	g, secrets, _ := setup(t, func(c *Config) {
		c.OIDC = OIDC{Issuer: f.URL, Audience: "outbox"}
		c.FailuresPerMinute = 100
	})
	if f.asked.Load() != 0 {
		t.Error("the issuer is asked before anybody came")
	}
	if _, err := g.Authenticate(t.Context(), "Bearer "+secrets[Admin], "10.0.0.1:1"); err != nil || f.asked.Load() != 0 {
		t.Errorf("a token of the configuration: %v, after %d questions to the issuer", err, f.asked.Load())
	}
	strange, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public := f.key.PublicKey.N.Bytes()
	type change = map[string]any
	for _, tt := range []struct {
		name   string
		key    any
		change change
		status int
		want   Principal
	}{
		{"good", f.key, nil, 200, Principal{Name: "oidc:sub:u-17", Role: Operator}},
		{"one role as text", f.key, change{"roles": "outbox-admin"}, 200, Principal{Name: "oidc:sub:u-17", Role: Admin}},
		{"verified address", f.key, change{"email": "a@example.com", "email_verified": true}, 200, Principal{Name: "oidc:email:a@example.com", Role: Operator}},
		{"address of nobody knows whom", f.key, change{"email": "root@example.com"}, 200, Principal{Name: "oidc:sub:u-17", Role: Operator}},
		{"chosen name", f.key, change{"preferred_username": "root"}, 200, Principal{Name: "oidc:sub:u-17", Role: Operator}},
		{"a subject like an address", f.key, change{"sub": "a@example.com"}, 200, Principal{Name: "oidc:sub:a@example.com", Role: Operator}},
		{"a subject like an address of the name", f.key, change{"sub": "email:a@example.com"}, 200, Principal{Name: "oidc:sub:email:a@example.com", Role: Operator}},
		{"an address with a control character", f.key, change{"email": "a@example.com\u0085", "email_verified": true}, 200, Principal{Name: "oidc:sub:u-17", Role: Operator}},
		{"longest subject", f.key, change{"sub": strings.Repeat("s", 255)}, 200, Principal{Name: "oidc:sub:" + strings.Repeat("s", 255), Role: Operator}},
		{"subject too long", f.key, change{"sub": strings.Repeat("s", 256)}, 401, Principal{}},
		{"no subject", f.key, change{"sub": nil}, 401, Principal{}},
		{"subject with a line", f.key, change{"sub": "u-17\nlevel=INFO"}, 401, Principal{}},
		{"subject that turns text around", f.key, change{"sub": "u-\u202e17"}, 401, Principal{}},
		{"several audiences", f.key, change{"aud": []string{"else", "outbox"}}, 200, Principal{Name: "oidc:sub:u-17", Role: Operator}},
		{"no role", f.key, change{"roles": []string{"admin", "outbox-root", ""}}, 403, Principal{}},
		{"no claim", f.key, change{"roles": nil}, 403, Principal{}},
		{"odd claim", f.key, change{"roles": change{"outbox-admin": true}}, 403, Principal{}},
		{"other audience", f.key, change{"aud": "else"}, 401, Principal{}},
		{"other issuer", f.key, change{"iss": "https://evil.example.com"}, 401, Principal{}},
		{"run out", f.key, change{"exp": time.Now().Add(-time.Minute).Unix()}, 401, Principal{}},
		{"not yet", f.key, change{"nbf": time.Now().Add(time.Hour).Unix()}, 401, Principal{}},
		{"stranger's key", strange, nil, 401, Principal{}},
		{"public key as secret", public, nil, 401, Principal{}},
	} {
		p, err := g.Authenticate(t.Context(), "Bearer "+f.sign(t, tt.key, f.claims(tt.change)), "10.0.0.1:1")
		p.requests = nil // of the gate
		if statusOf(err) != tt.status || p != tt.want {
			t.Errorf("%s: Authenticate() = %+v, %v, want %d %+v", tt.name, p, err, tt.status, tt.want)
		}
	}
	unsigned := "eyJhbGciOiJub25lIn0.e30."
	if _, err := g.Authenticate(t.Context(), "Bearer "+unsigned, "10.0.0.1:1"); statusOf(err) != 401 {
		t.Errorf("an unsigned token: %v, want 401", err)
	}
}

func TestGate_RoleClaimInside(t *testing.T) {
	t.Parallel()
	o := OIDC{RoleClaim: "realm_access.roles", RolePrefix: "ox:"}
	for want, claims := range map[Role]map[string]any{
		Admin: {"realm_access": map[string]any{"roles": []any{"ox:viewer", "ox:admin", 7, nil}}},
		"":    {"realm_access": "ox:admin", "roles": []any{"ox:admin"}},
	} {
		if got := o.role(claims); got != want {
			t.Errorf("role(%v) = %q, want %q", claims, got, want)
		}
	}
}

// While the issuer is unreachable, tokens are not reported as invalid, and not every
// request is sent to the issuer.
func TestGate_IssuerAway(t *testing.T) {
	t.Parallel()
	f := newFakeIssuer(t)
	f.down.Store(true)
	c := &clock{time.Now()}
	g, _, _ := setup(t, func(conf *Config) { conf.OIDC, conf.Clock = OIDC{Issuer: f.URL, Audience: "outbox"}, c })
	token := "Bearer " + f.sign(t, f.key, f.claims(nil))
	for range 20 {
		if _, err := g.Authenticate(t.Context(), token, "10.0.0.1:1"); statusOf(err) != http.StatusServiceUnavailable {
			t.Fatalf("Authenticate() = %v, want 503", err)
		}
	}
	if n := f.asked.Load(); n > 2 {
		t.Errorf("the issuer was asked %d times by 20 requests", n)
	}
	f.down.Store(false)
	c.at = c.at.Add(issuerPause)
	if _, err := g.Authenticate(t.Context(), token, "10.0.0.1:1"); err != nil {
		t.Errorf("once it is back: %v", err)
	}
}

// The issuer's keys are not requested over an unprotected connection, where they could be
// replaced.
func TestGate_IssuerThatLeadsIntoTheClear(t *testing.T) {
	t.Parallel()
	for name, lead := range map[string]func(f *fakeIssuer, elsewhere string){
		"its keys": func(f *fakeIssuer, elsewhere string) { f.keys = elsewhere },
		"a redirect": func(f *fakeIssuer, elsewhere string) {
			mux := http.NewServeMux()
			mux.Handle("/", f.Config.Handler)
			mux.Handle("/keys", http.RedirectHandler(elsewhere, http.StatusTemporaryRedirect))
			f.Config.Handler = mux
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeIssuer(t)
			answer, asked := f.Config.Handler, false
			lead(f, "http://keys.example.com/keys")
			// Whoever is on the way answers for any name.
			onTheWay := roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.URL.Host != "keys.example.com" {
					return http.DefaultTransport.RoundTrip(r)
				}
				asked = true
				w := httptest.NewRecorder()
				answer.ServeHTTP(w, r)
				return w.Result(), nil
			})
			g, _, _ := setup(t, func(c *Config) {
				c.OIDC = OIDC{Issuer: f.URL, Audience: "outbox", Client: &http.Client{Transport: onTheWay}}
			})
			if p, err := g.Authenticate(t.Context(), "Bearer "+f.sign(t, f.key, f.claims(nil)), "10.0.0.1:1"); statusOf(err) != http.StatusServiceUnavailable || asked {
				t.Errorf("Authenticate() = %+v, %v, asked in the clear: %t, want 503", p, err, asked)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A token is not invalid, and does not count as a failure, while the keys of the issuer
// cannot be fetched.
func TestGate_KeysAway(t *testing.T) {
	t.Parallel()
	f := newFakeIssuer(t)
	c := &clock{time.Now()}
	g, _, _ := setup(t, func(conf *Config) {
		conf.OIDC, conf.FailuresPerMinute, conf.Clock = OIDC{Issuer: f.URL, Audience: "outbox"}, 1, c
	})
	if _, err := g.issuer.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.down.Store(true)
	token := "Bearer " + f.sign(t, f.key, f.claims(nil))
	before := f.asked.Load()
	for range 10 {
		if _, err := g.Authenticate(t.Context(), token, "10.0.0.1:1"); statusOf(err) != http.StatusServiceUnavailable {
			t.Errorf("Authenticate() = %v, want 503", err)
		}
	}
	if n := f.asked.Load() - before; n != 1 {
		t.Errorf("the issuer was asked %d times by 10 requests, want once", n)
	}
	f.down.Store(false)
	c.at = c.at.Add(issuerPause)
	if _, err := g.Authenticate(t.Context(), token, "10.0.0.1:1"); err != nil {
		t.Errorf("once they are back: %v", err)
	}
}

// A principal without a role has the same limits on requests and log lines as others.
func TestGate_NoRoleIsLimitedToo(t *testing.T) {
	t.Parallel()
	f := newFakeIssuer(t)
	g, _, log := setup(t, func(c *Config) {
		c.OIDC = OIDC{Issuer: f.URL, Audience: "outbox"}
		c.RequestsPerSecond, c.RequestsBurst = 0.001, 3
	})
	token := "Bearer " + f.sign(t, f.key, f.claims(map[string]any{"roles": nil}))
	seen := map[int]int{}
	for range 10 {
		_, err := g.Authenticate(t.Context(), token, "10.0.0.1:1")
		seen[statusOf(err)]++
	}
	if said := strings.Count(log.String(), "token without role"); seen[http.StatusForbidden] != 3 || seen[http.StatusTooManyRequests] != 7 || said != 3 {
		t.Errorf("answers %v and %d lines of the log, want 3 times 403, told each, and 429 then", seen, said)
	}
}

// Invalid tokens do not lock out valid ones of the same address, and however many arrive,
// the issuer's keys are requested once within keysPause.
func TestGate_WrongJWTsLockNoClientOut(t *testing.T) {
	t.Parallel()
	f := newFakeIssuer(t)
	c := &clock{time.Now()}
	g, _, _ := setup(t, func(conf *Config) {
		conf.OIDC, conf.FailuresPerMinute, conf.Clock = OIDC{Issuer: f.URL, Audience: "outbox"}, 3, c
	})
	strange, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	wrong, right := "Bearer "+f.sign(t, strange, f.claims(nil)), "Bearer "+f.sign(t, f.key, f.claims(nil))
	seen := map[int]int{}
	for range 10 {
		_, err := g.Authenticate(t.Context(), wrong, "10.0.0.1:1")
		seen[statusOf(err)]++
		if _, err := g.Authenticate(t.Context(), right, "10.0.0.1:2"); err != nil {
			t.Errorf("a right token after a wrong one: %v", err)
		}
	}
	if seen[http.StatusUnauthorized] != 3 || seen[http.StatusTooManyRequests] != 7 {
		t.Errorf("wrong tokens: %v, want 3 times 401, then 429", seen)
	}
	if n := f.asked.Load(); n != 2 {
		t.Errorf("the issuer was asked %d times, want once for its description and once for its keys", n)
	}
	c.at = c.at.Add(keysPause)
	for range 3 {
		_, _ = g.Authenticate(t.Context(), wrong, "10.0.0.1:1")
	}
	if n := f.asked.Load(); n != 3 {
		t.Errorf("after %s the issuer was asked %d times more, want once", keysPause, n-2)
	}
}
