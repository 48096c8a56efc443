package access

import (
	"crypto/rand"
	"crypto/rsa"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/idp"
)

func TestGate_LetsInByJWT(t *testing.T) {
	t.Parallel()
	f := idp.New(t)
	g, secrets, _ := setup(t, func(c *Config) {
		c.OIDC = OIDC{Issuer: f.URL, Audience: "outbox"}
		c.FailuresPerMinute = 100
	})
	if f.Asked.Load() != 0 {
		t.Error("the issuer is asked before anybody came")
	}
	if _, err := g.Authenticate(t.Context(), "Bearer "+secrets[Admin], "10.0.0.1:1"); err != nil || f.Asked.Load() != 0 {
		t.Errorf("a token of the configuration: %v, after %d questions to the issuer", err, f.Asked.Load())
	}
	strange, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public := f.Key.PublicKey.N.Bytes()
	type change = map[string]any
	for _, tt := range []struct {
		name   string
		key    any
		change change
		status int
		want   Principal
	}{
		{"good", f.Key, nil, 200, Principal{Name: "oidc:sub:u-17", Role: Operator}},
		{"one role as text", f.Key, change{"roles": "outbox-admin"}, 200, Principal{Name: "oidc:sub:u-17", Role: Admin}},
		{"verified address", f.Key, change{"email": "a@example.com", "email_verified": true}, 200, Principal{Name: "oidc:email:a@example.com", Role: Operator}},
		{"address of nobody knows whom", f.Key, change{"email": "root@example.com"}, 200, Principal{Name: "oidc:sub:u-17", Role: Operator}},
		{"chosen name", f.Key, change{"preferred_username": "root"}, 200, Principal{Name: "oidc:sub:u-17", Role: Operator}},
		{"a subject like an address", f.Key, change{"sub": "a@example.com"}, 200, Principal{Name: "oidc:sub:a@example.com", Role: Operator}},
		{"a subject like an address of the name", f.Key, change{"sub": "email:a@example.com"}, 200, Principal{Name: "oidc:sub:email:a@example.com", Role: Operator}},
		{"an address with a control character", f.Key, change{"email": "a@example.com\u0085", "email_verified": true}, 200, Principal{Name: "oidc:sub:u-17", Role: Operator}},
		{"longest subject", f.Key, change{"sub": strings.Repeat("s", 255)}, 200, Principal{Name: "oidc:sub:" + strings.Repeat("s", 255), Role: Operator}},
		{"subject too long", f.Key, change{"sub": strings.Repeat("s", 256)}, 401, Principal{}},
		{"no subject", f.Key, change{"sub": nil}, 401, Principal{}},
		{"subject with a line", f.Key, change{"sub": "u-17\nlevel=INFO"}, 401, Principal{}},
		{"subject that turns text around", f.Key, change{"sub": "u-\u202e17"}, 401, Principal{}},
		{"several audiences", f.Key, change{"aud": []string{"else", "outbox"}}, 200, Principal{Name: "oidc:sub:u-17", Role: Operator}},
		{"no role", f.Key, change{"roles": []string{"admin", "outbox-root", ""}}, 403, Principal{}},
		{"no claim", f.Key, change{"roles": nil}, 403, Principal{}},
		{"odd claim", f.Key, change{"roles": change{"outbox-admin": true}}, 403, Principal{}},
		{"other audience", f.Key, change{"aud": "else"}, 401, Principal{}},
		{"other issuer", f.Key, change{"iss": "https://evil.example.com"}, 401, Principal{}},
		{"run out", f.Key, change{"exp": time.Now().Add(-time.Minute).Unix()}, 401, Principal{}},
		{"not yet", f.Key, change{"nbf": time.Now().Add(time.Hour).Unix()}, 401, Principal{}},
		{"stranger's key", strange, nil, 401, Principal{}},
		{"public key as secret", public, nil, 401, Principal{}},
	} {
		p, err := g.Authenticate(t.Context(), "Bearer "+f.Sign(t, tt.key, f.Claims(tt.change)), "10.0.0.1:1")
		p.requests = nil // of the gate
		if errorStatus(err) != tt.status || p != tt.want {
			t.Errorf("%s: Authenticate() = %+v, %v, want %d %+v", tt.name, p, err, tt.status, tt.want)
		}
	}
	unsigned := "eyJhbGciOiJub25lIn0.e30."
	if _, err := g.Authenticate(t.Context(), "Bearer "+unsigned, "10.0.0.1:1"); errorStatus(err) != 401 {
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
	f := idp.New(t)
	f.Down.Store(true)
	c := &clock{time.Now()}
	g, _, _ := setup(t, func(conf *Config) { conf.OIDC, conf.Clock = OIDC{Issuer: f.URL, Audience: "outbox"}, c })
	token := "Bearer " + f.Sign(t, f.Key, f.Claims(nil))
	for range 20 {
		if _, err := g.Authenticate(t.Context(), token, "10.0.0.1:1"); errorStatus(err) != http.StatusServiceUnavailable {
			t.Fatalf("Authenticate() = %v, want 503", err)
		}
	}
	if n := f.Asked.Load(); n > 2 {
		t.Errorf("the issuer was asked %d times by 20 requests", n)
	}
	f.Down.Store(false)
	c.at = c.at.Add(issuerPause)
	if _, err := g.Authenticate(t.Context(), token, "10.0.0.1:1"); err != nil {
		t.Errorf("once it is back: %v", err)
	}
}

// The issuer's keys are not requested over an unprotected connection, where they could be
// replaced.
func TestGate_IssuerThatLeadsIntoTheClear(t *testing.T) {
	t.Parallel()
	for name, lead := range map[string]func(f *idp.Issuer, elsewhere string){
		"its keys": func(f *idp.Issuer, elsewhere string) { f.Keys = elsewhere },
		"a redirect": func(f *idp.Issuer, elsewhere string) {
			mux := http.NewServeMux()
			mux.Handle("/", f.Config.Handler)
			mux.Handle("/keys", http.RedirectHandler(elsewhere, http.StatusTemporaryRedirect))
			f.Config.Handler = mux
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := idp.New(t)
			answer, asked := f.Config.Handler, false
			lead(f, "http://keys.example.com/keys")
			// An attacker on the path answers for any name.
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
			if p, err := g.Authenticate(t.Context(), "Bearer "+f.Sign(t, f.Key, f.Claims(nil)), "10.0.0.1:1"); errorStatus(err) != http.StatusServiceUnavailable || asked {
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
	f := idp.New(t)
	c := &clock{time.Now()}
	g, _, _ := setup(t, func(conf *Config) {
		conf.OIDC, conf.FailuresPerMinute, conf.Clock = OIDC{Issuer: f.URL, Audience: "outbox"}, 1, c
	})
	if _, err := g.issuer.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.Down.Store(true)
	token := "Bearer " + f.Sign(t, f.Key, f.Claims(nil))
	before := f.Asked.Load()
	for range 10 {
		if _, err := g.Authenticate(t.Context(), token, "10.0.0.1:1"); errorStatus(err) != http.StatusServiceUnavailable {
			t.Errorf("Authenticate() = %v, want 503", err)
		}
	}
	if n := f.Asked.Load() - before; n != 1 {
		t.Errorf("the issuer was asked %d times by 10 requests, want once", n)
	}
	f.Down.Store(false)
	c.at = c.at.Add(issuerPause)
	if _, err := g.Authenticate(t.Context(), token, "10.0.0.1:1"); err != nil {
		t.Errorf("once they are back: %v", err)
	}
}

// A principal without a role has the same limits on requests and log lines as others.
func TestGate_NoRoleIsLimitedToo(t *testing.T) {
	t.Parallel()
	f := idp.New(t)
	g, _, log := setup(t, func(c *Config) {
		c.OIDC = OIDC{Issuer: f.URL, Audience: "outbox"}
		c.RequestsPerSecond, c.RequestsBurst = 0.001, 3
	})
	token := "Bearer " + f.Sign(t, f.Key, f.Claims(map[string]any{"roles": nil}))
	seen := map[int]int{}
	for range 10 {
		_, err := g.Authenticate(t.Context(), token, "10.0.0.1:1")
		seen[errorStatus(err)]++
	}
	if said := strings.Count(log.String(), "token without role"); seen[http.StatusForbidden] != 3 || seen[http.StatusTooManyRequests] != 7 || said != 3 {
		t.Errorf("answers %v and %d lines of the log, want 3 times 403, told each, and 429 then", seen, said)
	}
}

// Invalid tokens do not lock out valid ones of the same address, and however many arrive,
// the issuer's keys are requested once within keysPause.
func TestGate_WrongJWTsLockNoClientOut(t *testing.T) {
	t.Parallel()
	f := idp.New(t)
	c := &clock{time.Now()}
	g, _, _ := setup(t, func(conf *Config) {
		conf.OIDC, conf.FailuresPerMinute, conf.Clock = OIDC{Issuer: f.URL, Audience: "outbox"}, 3, c
	})
	strange, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	wrong, right := "Bearer "+f.Sign(t, strange, f.Claims(nil)), "Bearer "+f.Sign(t, f.Key, f.Claims(nil))
	seen := map[int]int{}
	for range 10 {
		_, err := g.Authenticate(t.Context(), wrong, "10.0.0.1:1")
		seen[errorStatus(err)]++
		if _, err := g.Authenticate(t.Context(), right, "10.0.0.1:2"); err != nil {
			t.Errorf("a right token after a wrong one: %v", err)
		}
	}
	if seen[http.StatusUnauthorized] != 3 || seen[http.StatusTooManyRequests] != 7 {
		t.Errorf("wrong tokens: %v, want 3 times 401, then 429", seen)
	}
	if n := f.Asked.Load(); n != 2 {
		t.Errorf("the issuer was asked %d times, want once for its description and once for its keys", n)
	}
	c.at = c.at.Add(keysPause)
	for range 3 {
		_, _ = g.Authenticate(t.Context(), wrong, "10.0.0.1:1")
	}
	if n := f.Asked.Load(); n != 3 {
		t.Errorf("after %s the issuer was asked %d times more, want once", keysPause, n-2)
	}
}
