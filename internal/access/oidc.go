package access

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/scylla-outbox/scylla-outbox/internal/clocks"
)

// OIDC is an OpenID Connect issuer whose JWTs are accepted as bearer tokens.
type OIDC struct {
	// Issuer is its URL, with /.well-known/openid-configuration below it. https,
	// or http on loopback.
	Issuer string
	// Audience is the required audience of the tokens: this API's client id.
	Audience string
	// RoleClaim is the claim with the roles: a text or a list of texts; dots lead
	// into objects. Default "roles".
	RoleClaim string
	// RolePrefix is the prefix of viewer, operator and admin in that claim. Default
	// "outbox-"; other values are ignored.
	RolePrefix string
	// ClientSecret is the secret of the client Audience. With it users of a browser can sign in
	// to the console at ConsoleURL, https://host/console, below which CallbackPath is the
	// redirect URL of the client at the issuer.
	ClientSecret, ConsoleURL string
	// Client sends requests to the issuer. Default: a client with a timeout of 10 s. The
	// issuer's keys and redirects must also use https, or http on loopback.
	Client *http.Client

	direct http.RoundTripper // to the issuer, without pauses
}

// Defaults of OIDC.
const (
	DefaultRoleClaim  = "roles"
	DefaultRolePrefix = "outbox-"
)

const (
	// issuerTimeout bounds one request to the issuer.
	issuerTimeout = 10 * time.Second
	// issuerPause is the pause after a failed request.
	issuerPause = 5 * time.Second
)

func (o OIDC) withDefaults(clock clocks.Clock) OIDC {
	o.RoleClaim = cmp.Or(o.RoleClaim, DefaultRoleClaim)
	o.RolePrefix = cmp.Or(o.RolePrefix, DefaultRolePrefix)
	own := http.Client{Timeout: issuerTimeout}
	if o.Client != nil {
		own = *o.Client
	}
	o.direct = private{cmp.Or(own.Transport, http.DefaultTransport)}
	own.Transport = &line{next: o.direct, clock: clock}
	o.Client = &own
	return o
}

// private is a transport that sends no unencrypted requests.
type private struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p private) RoundTrip(r *http.Request) (*http.Response, error) {
	if !Private(r.URL) {
		return nil, fmt.Errorf("%s://%s is not encrypted, so an attacker on the network could sign tokens; use https", r.URL.Scheme, clip(r.URL.Host))
	}
	return p.next.RoundTrip(r)
}

// Private reports whether a connection to an address is encrypted or stays on this machine,
// so that a secret may be sent to it and its responses cannot be changed on the way.
func Private(u *url.URL) bool {
	return u.Scheme == "https" || u.Scheme == "http" && LoopbackHost(u.Hostname())
}

// line is the transport to the issuer. It sends no requests for issuerPause after a failure,
// because any token of an unknown key causes a request. Its errors are errIssuer.
type line struct {
	next  http.RoundTripper
	clock clocks.Clock

	mu     sync.Mutex
	failed time.Time
	err    error
}

// RoundTrip implements http.RoundTripper.
func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	failed, err := l.failed, l.err
	l.mu.Unlock()
	if err != nil && l.clock.Now().Sub(failed) < issuerPause {
		return nil, err
	}
	resp, err := l.next.RoundTrip(r)
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", errIssuer, err)
	case resp.StatusCode >= http.StatusBadRequest:
		err = errors.Join(fmt.Errorf("%w: it answers %s", errIssuer, resp.Status), resp.Body.Close())
		resp = nil
	}
	l.mu.Lock()
	l.failed, l.err = l.clock.Now(), err
	l.mu.Unlock()
	return resp, err
}

func (o OIDC) validate() error {
	if o.Issuer == "" {
		return o.validateSignIn()
	}
	var errs []error
	u, err := url.Parse(o.Issuer)
	switch {
	case err != nil || u.Host == "":
		errs = append(errs, fmt.Errorf("OpenID Connect issuer %q: must be a URL such as https://id.example.com", clip(o.Issuer)))
	case !Private(u):
		errs = append(errs, fmt.Errorf("OpenID Connect issuer %q: use https; over http its keys could be replaced", clip(o.Issuer)))
	}
	if o.Audience == "" {
		errs = append(errs, errors.New("OpenID Connect audience is required; without it tokens for other services would be accepted"))
	}
	return errors.Join(append(errs, o.validateSignIn())...)
}

// issuer verifies tokens. It requests the issuer's keys at the first token, so that
// neither depends on the other to start.
type issuer struct {
	conf  OIDC
	clock clocks.Clock

	group singleflight.Group

	mu       sync.Mutex
	provider *provider // nil until the issuer responded
	failed   time.Time
	err      error
}

// provider contains the parts that the metadata of the issuer determines.
type provider struct {
	verifier *oidc.IDTokenVerifier
	endpoint oauth2.Endpoint
	scopes   []string // of a sign-in
}

// errIssuer means that the issuer cannot be reached, so a token cannot be verified.
var errIssuer = errors.New("the OpenID Connect issuer cannot be reached")

// errRole means that the token is valid and contains no role.
var errRole = errors.New("the token contains no role")

// ready returns the provider, whose metadata it requests once.
func (i *issuer) ready(ctx context.Context) (*provider, error) {
	i.mu.Lock()
	p, failed, err := i.provider, i.failed, i.err
	i.mu.Unlock()
	if p != nil {
		return p, nil
	}
	if err != nil && i.clock.Now().Sub(failed) < issuerPause {
		return nil, err
	}
	// The fetch serves all waiting callers, so the context of one of them must not cancel
	// it.
	ch := i.group.DoChan("", func() (any, error) {
		p, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), i.conf.Client), i.conf.Issuer)
		i.mu.Lock()
		defer i.mu.Unlock()
		if err != nil {
			i.failed, i.err = i.clock.Now(), fmt.Errorf("%w: %w", errIssuer, err)
			return nil, i.err
		}
		if i.provider, err = i.readMetadata(ctx, p); err != nil {
			i.failed, i.err = i.clock.Now(), fmt.Errorf("%w: %w", errIssuer, err)
			return nil, i.err
		}
		return i.provider, nil
	})
	select {
	case r := <-ch:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*provider), nil //nolint:forcetypeassert // it is what the function above returns
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", errIssuer, ctx.Err())
	}
}

// publicKey are the accepted signature algorithms: those whose key only the issuer has.
var publicKey = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// readMetadata reads the metadata of the issuer. The verifier also reports whether it had the keys.
func (i *issuer) readMetadata(ctx context.Context, p *oidc.Provider) (*provider, error) {
	var said struct {
		Keys       string   `json:"jwks_uri"`
		Algorithms []string `json:"id_token_signing_alg_values_supported"`
		Scopes     []string `json:"scopes_supported"`
		Methods    []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := p.Claims(&said); err != nil {
		return nil, fmt.Errorf("read the issuer's metadata: %w", err)
	}
	algorithms := slices.DeleteFunc(said.Algorithms, func(a string) bool { return !slices.Contains(publicKey, a) })
	client := *i.conf.Client
	client.Transport = &keyFetch{url: said.Keys, next: client.Transport, clock: i.clock}
	set := oidc.NewRemoteKeySet(oidc.ClientContext(context.WithoutCancel(ctx), &client), said.Keys)
	out := &provider{endpoint: p.Endpoint(), scopes: []string{oidc.ScopeOpenID, "email"}}
	out.verifier = oidc.NewVerifier(i.conf.Issuer, keys{set}, &oidc.Config{ClientID: i.conf.Audience, Now: i.clock.Now, SupportedSigningAlgs: algorithms})
	if u, err := url.Parse(out.endpoint.AuthURL); err == nil && u.Host != "" && !Private(u) {
		return nil, errors.New("its authorization_endpoint is not encrypted; use https")
	}
	// Basic is the default of the standard. One method is chosen, because a code that is sent
	// twice may revoke the tokens of the first attempt.
	out.endpoint.AuthStyle = oauth2.AuthStyleInHeader
	if slices.Contains(said.Methods, "client_secret_post") && !slices.Contains(said.Methods, "client_secret_basic") {
		out.endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	// Some issuers add the claim with the roles only for the scope of its name.
	if claim, _, _ := strings.Cut(i.conf.RoleClaim, "."); slices.Contains(said.Scopes, claim) {
		out.scopes = append(out.scopes, claim)
	}
	return out, nil
}

// verify returns the principal of a JWT, which must contain the nonce unless that is empty.
func (i *issuer) verify(ctx context.Context, secret, nonce string) (Principal, error) {
	provider, err := i.ready(ctx)
	if err != nil {
		return Principal{}, err
	}
	var away error
	t, err := provider.verifier.Verify(context.WithValue(oidc.ClientContext(ctx, i.conf.Client), awayKey{}, &away), secret)
	if away != nil {
		return Principal{}, fmt.Errorf("%w: %w", errIssuer, away)
	}
	if err != nil {
		return Principal{}, fmt.Errorf("verify the token: %w", err)
	}
	if nonce != "" && subtle.ConstantTimeCompare([]byte(t.Nonce), []byte(nonce)) != 1 {
		return Principal{}, errors.New("verify the token: its nonce is not that of this sign-in")
	}
	var claims map[string]any
	if err := t.Claims(&claims); err != nil {
		return Principal{}, fmt.Errorf("read the token: %w", err)
	}
	name, err := nameIn(claims, t.Subject)
	if err != nil {
		return Principal{}, err
	}
	p := Principal{Name: "oidc:" + name, Role: i.conf.role(claims)}
	if p.Role == "" {
		return p, errRole
	}
	return p, nil
}

// maxName bounds a name of the issuer. OpenID Connect bounds a subject to 255.
const maxName = 255

// nameIn returns the e-mail address if the issuer has verified it, and otherwise the
// subject. Users may choose other names and so impersonate others in the audit trail. The
// claim is part of the name, so that no subject can equal an address.
func nameIn(claims map[string]any, subject string) (string, error) {
	email, _ := claims["email"].(string)
	if verified, _ := claims["email_verified"].(bool); verified && nameable(email) {
		return "email:" + email, nil
	}
	if !nameable(subject) {
		return "", fmt.Errorf("the subject of the token must be 1 to %d bytes of printable text", maxName)
	}
	return "sub:" + subject, nil
}

// nameable reports whether audits and logs can contain a name as it is.
func nameable(s string) bool {
	return s != "" && len(s) <= maxName && utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// role returns the highest role in the claims; empty for none.
func (o OIDC) role(claims map[string]any) (best Role) {
	var at any = claims
	for part := range strings.SplitSeq(o.RoleClaim, ".") {
		m, _ := at.(map[string]any)
		at = m[part]
	}
	var values []any
	switch v := at.(type) {
	case string:
		values = []any{v}
	case []any:
		values = v
	}
	for _, v := range values {
		text, _ := v.(string)
		name, ok := strings.CutPrefix(text, o.RolePrefix)
		if r, err := ParseRole(name); ok && err == nil && r.May(cmp.Or(best, Viewer)) {
			best = r
		}
	}
	return best
}
