// Package idp is an OpenID Connect issuer for tests.
package idp

import (
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/oauth2"
)

// Audience is the client id of the product at the issuer, and Secret its secret.
const (
	Audience = "outbox"
	Secret   = "a-secret-of-the-client-at-the-issuer"
)

// Issuer is an issuer on loopback. It signs every user in without a question. Its fields may
// be changed before the first request.
type Issuer struct {
	*httptest.Server
	// Key signs the tokens.
	Key *rsa.PrivateKey
	// Keys is the URL of its keys. Default its own.
	Keys string
	// Metadata replaces members of its metadata.
	Metadata map[string]any
	// Redirect is the URL to which it sends users back, as registered for the client.
	Redirect string
	// Asked counts the requests of metadata and keys, and Down refuses them.
	Asked atomic.Int64
	Down  atomic.Bool

	mu     sync.Mutex
	codes  map[string]url.Values // by code: the request that it answers
	change map[string]any        // of the claims of the next tokens
	refuse string
}

// New starts an issuer that ends with the test.
func New(t *testing.T) *Issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	f := &Issuer{Key: key, codes: make(map[string]url.Values)}
	mux := http.NewServeMux()
	answer := func(path string, v func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			f.Asked.Add(1)
			if f.Down.Load() {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			respond(w, http.StatusOK, v())
		})
	}
	answer("/.well-known/openid-configuration", func() any {
		m := map[string]any{
			"issuer": f.URL, "jwks_uri": cmp.Or(f.Keys, f.URL+"/keys"), "authorization_endpoint": f.URL + "/auth", "token_endpoint": f.URL + "/token",
			"id_token_signing_alg_values_supported": []string{"RS256"},
		}
		for k, v := range f.Metadata {
			m[k] = v
		}
		return m
	})
	answer("/keys", func() any {
		return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k1", Algorithm: "RS256", Use: "sig"}}}
	})
	mux.HandleFunc("GET /auth", f.authorize)
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) { f.exchange(t, w, r) })
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

// Next sets the user of the next sign-ins by changes of Claims, or their refusal by an error
// code of OAuth 2.0.
func (f *Issuer) Next(change map[string]any, refuse string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.change, f.refuse = change, refuse
}

// authorize is the authorization endpoint.
func (f *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := r.URL.Query()
	if q.Get("client_id") != Audience || q.Get("redirect_uri") != f.Redirect {
		http.Error(w, "unknown client or redirect_uri", http.StatusBadRequest) // and never a redirect
		return
	}
	back := url.Values{"state": {q.Get("state")}}
	switch {
	case f.refuse != "":
		back.Set("error", f.refuse)
		back.Set("error_description", "<b>refused</b> by the test")
	case q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" || q.Get("state") == "" || q.Get("nonce") == "":
		back.Set("error", "invalid_request")
	case !slices.Contains(strings.Fields(q.Get("scope")), "openid"):
		back.Set("error", "invalid_scope")
	default:
		code := rand.Text()
		f.codes[code] = q
		back.Set("code", code)
	}
	http.Redirect(w, r, f.Redirect+"?"+back.Encode(), http.StatusFound)
}

// exchange is the token endpoint. A code is valid once.
func (f *Issuer) exchange(t *testing.T, w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	refuse := func(status int, code string) { respond(w, status, map[string]string{"error": code}) }
	if id, secret, _ := r.BasicAuth(); id != Audience || secret != Secret {
		refuse(http.StatusUnauthorized, "invalid_client")
		return
	}
	code := r.FormValue("code")
	asked, ok := f.codes[code]
	delete(f.codes, code)
	if !ok || r.FormValue("grant_type") != "authorization_code" || r.FormValue("redirect_uri") != asked.Get("redirect_uri") ||
		oauth2.S256ChallengeFromVerifier(r.FormValue("code_verifier")) != asked.Get("code_challenge") {
		refuse(http.StatusBadRequest, "invalid_grant")
		return
	}
	claims := f.Claims(map[string]any{"nonce": asked.Get("nonce")})
	for k, v := range f.change {
		if claims[k] = v; v == nil {
			delete(claims, k)
		}
	}
	respond(w, http.StatusOK, map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "id_token": f.Sign(t, f.Key, claims)})
}

func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// Sign returns a JWT that a key signs.
func (f *Issuer) Sign(t *testing.T, key any, claims map[string]any) string {
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

// Claims returns the claims of a valid token with changes; nil removes a claim.
func (f *Issuer) Claims(change map[string]any) map[string]any {
	c := map[string]any{
		"iss": f.URL, "aud": Audience, "sub": "u-17", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
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
