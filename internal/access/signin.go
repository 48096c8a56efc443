package access

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/oauth2"
)

// The paths of the sign-in.
const (
	signInHome   = "/console/"
	SignInPath   = signInHome + "sign-in"
	CallbackPath = signInHome + "callback"
	SignOutPath  = signInHome + "sign-out"
)

const (
	// SessionLifetime is the time after which a user signs in again: a working day. A role
	// that the issuer withdraws is valid until then.
	SessionLifetime = 8 * time.Hour
	// signInTimeout bounds the time between the begin of a sign-in and the response of the issuer.
	signInTimeout = 10 * time.Minute
	// minClientSecret is the minimum length of the client secret. Each user has cookies that are
	// sealed by it, and could search for a short one.
	minClientSecret = 24
	// maxReturn bounds the address to which a user returns. A cookie has 4 KiB.
	maxReturn = 1 << 10
)

// signIn signs users of a browser in by the authorization code flow of OpenID Connect, with PKCE.
//
// The browser has the state of a sign-in and the session in sealed cookies, so every process
// with the client secret accepts them and none stores them.
type signIn struct {
	gate     *Gate
	conf     OIDC
	seal     sealer
	redirect *url.URL
}

func newSignIn(g *Gate, conf OIDC) (*signIn, error) {
	u, err := url.Parse(conf.ConsoleURL)
	if err != nil {
		return nil, err
	}
	u.Path = CallbackPath
	// Another issuer or client ends all sessions, as another secret does.
	s, err := newSealer(conf.ClientSecret, "outbox console\x00"+conf.Issuer+"\x00"+conf.Audience)
	return &signIn{gate: g, conf: conf, seal: s, redirect: u}, err
}

// validateSignIn returns the errors of ClientSecret, and of ConsoleURL with it.
func (o OIDC) validateSignIn() error {
	if o.ClientSecret == "" {
		return nil
	}
	if o.Issuer == "" {
		return errors.New("admin.oidc_client_secret: the issuer is required, too")
	}
	var errs []error
	if n := len(o.ClientSecret); n < minClientSecret {
		errs = append(errs, fmt.Errorf("admin.oidc_client_secret: has %d characters; use the one that the issuer generated, of at least %d", n, minClientSecret))
	}
	u, err := url.Parse(o.ConsoleURL)
	switch {
	case err != nil || u.Host == "" || u.Path != strings.TrimSuffix(signInHome, "/") && u.Path != signInHome || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		errs = append(errs, fmt.Errorf("notifications.console_url: with admin.oidc_client_secret it must be a URL such as https://outbox.example.com/console, not %q; the issuer's redirect URL is %s there", clip(o.ConsoleURL), CallbackPath))
	case !Private(u):
		errs = append(errs, fmt.Errorf("notifications.console_url %q: use https; over http sessions could be stolen", clip(o.ConsoleURL)))
	}
	return errors.Join(errs...)
}

// SignIn returns the host of the issuer at which users of a browser sign in; empty if they cannot.
// g may be nil.
func (g *Gate) SignIn() string {
	if g == nil || g.signIn == nil {
		return ""
	}
	u, err := url.Parse(g.signIn.conf.Issuer)
	if err != nil { // validate has checked it
		return ""
	}
	return u.Host
}

// SignInError is a sign-in that failed, for a page.
type SignInError struct {
	Status int
	// What failed, and Fix is the remedy by the user or administrator.
	What, Fix string
}

func (e *SignInError) Error() string { return e.What }

// RegisterSignIn adds the sign-in to mux, if there is one. page writes the page of a sign-in that
// failed. Changes of other origins are refused before mux.
func (g *Gate) RegisterSignIn(mux *http.ServeMux, page func(http.ResponseWriter, *http.Request, *SignInError)) {
	s := g.signIn
	if s == nil {
		return
	}
	handle := func(pattern string, f func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			err := f(w, r)
			if err == nil {
				return
			}
			e, ok := errors.AsType[*SignInError](err)
			if !ok {
				g.log.ErrorContext(r.Context(), "sign-in failed", "err", err)
				e = &SignInError{http.StatusInternalServerError, "Internal error.", "The log of this server has the cause."}
			}
			page(w, r, e)
		})
	}
	handle("GET "+SignInPath, s.begin)
	handle("GET "+CallbackPath, s.finish)
	handle("POST "+SignOutPath, func(w http.ResponseWriter, _ *http.Request) error {
		http.SetCookie(w, s.cookie(sessionCookie, "", 0))
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
}

// The cookies, without their prefix.
const (
	sessionCookie = "outbox-session"
	stateCookie   = "outbox-sign-in"
)

// cookie returns a cookie of this host alone. An empty value removes it.
func (s *signIn) cookie(name, value string, age time.Duration) *http.Cookie {
	c := &http.Cookie{
		Name: s.cookieName(name), Value: value, Path: "/", MaxAge: int(age / time.Second), HttpOnly: true, Secure: s.redirect.Scheme == "https", SameSite: http.SameSiteLaxMode,
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// cookieName returns the name of a cookie. Browsers accept the prefix from this host over TLS alone, so
// no other host of the domain can set the cookie.
func (s *signIn) cookieName(name string) string {
	if s.redirect.Scheme == "https" {
		return "__Host-" + name
	}
	return name
}

// attempt is the state of a sign-in between its begin and the response of the issuer.
type attempt struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
	Return   string `json:"return"`
}

// session is a user who has signed in.
type session struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
}

// begin sends the browser to the issuer.
func (s *signIn) begin(w http.ResponseWriter, r *http.Request) error {
	p, err := s.gate.issuer.ready(r.Context())
	if err != nil {
		return s.away(r, err)
	}
	a := attempt{rand.Text(), rand.Text(), oauth2.GenerateVerifier(), home(r.URL.Query().Get("return"))}
	value, err := s.seal.seal(s.cookieName(stateCookie), a, s.gate.issuer.clock.Now().Add(signInTimeout))
	if err != nil {
		return err
	}
	http.SetCookie(w, s.cookie(stateCookie, value, signInTimeout))
	http.Redirect(w, r, s.client(p).AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), http.StatusSeeOther)
	return nil
}

// home returns an address of the console: target, or its first page if target is elsewhere.
func home(target string) string {
	u, err := url.Parse(target)
	if err != nil || len(target) > maxReturn || u.Scheme != "" || u.Host != "" || u.Opaque != "" || !strings.HasPrefix(path.Clean(u.Path), signInHome) {
		return signInHome
	}
	return (&url.URL{Path: path.Clean(u.Path), RawQuery: u.RawQuery}).String()
}

// finish receives the response of the issuer and starts the session.
func (s *signIn) finish(w http.ResponseWriter, r *http.Request) error {
	q, now := r.URL.Query(), s.gate.issuer.clock.Now()
	var a attempt
	c, err := r.Cookie(s.cookieName(stateCookie))
	if err != nil || s.seal.open(c, now, &a) != nil || subtle.ConstantTimeCompare([]byte(a.State), []byte(q.Get("state"))) != 1 {
		return &SignInError{
			http.StatusBadRequest, "This sign-in is not the latest of this browser, or has taken longer than " + signInTimeout.String() + ".",
			fmt.Sprintf("Sign in again. It must begin at %s://%s%s, the host of notifications.console_url.", s.redirect.Scheme, s.redirect.Host, signInHome),
		}
	}
	http.SetCookie(w, s.cookie(stateCookie, "", 0)) // it is valid once
	from := Network(r.RemoteAddr)
	if _, ok := s.gate.requests.take("sign-ins from " + from); !ok {
		return errTooManySignIns
	}
	p, err := s.principal(r.Context(), q, a)
	if err != nil {
		if _, ok := s.gate.failures.take(from); !ok {
			return errTooManySignIns
		}
		s.gate.log.WarnContext(r.Context(), "refused: sign-in", "name", p.Name, "remote", from, "err", err)
		return err
	}
	value, err := s.seal.seal(s.cookieName(sessionCookie), session{p.Name, p.Role}, now.Add(SessionLifetime))
	if err != nil {
		return err
	}
	http.SetCookie(w, s.cookie(sessionCookie, value, SessionLifetime))
	s.gate.log.InfoContext(r.Context(), "signed in", "name", p.Name, "role", p.Role, "remote", from)
	http.Redirect(w, r, a.Return, http.StatusSeeOther)
	return nil
}

var errTooManySignIns = &SignInError{http.StatusTooManyRequests, "Too many sign-ins from this address failed.", "Wait a minute and sign in again."}

// principal returns the user for whom the issuer responded. Of an error of the role it also
// returns the name.
func (s *signIn) principal(ctx context.Context, q url.Values, a attempt) (Principal, error) {
	if q.Has("error") {
		return Principal{}, s.newRefusal(q.Get("error"), q.Get("error_description"), http.StatusForbidden)
	}
	p, err := s.gate.issuer.ready(ctx)
	if err != nil {
		return Principal{}, issuerAway(err)
	}
	// A refusal of one code is no outage, so these requests do not use the transport that pauses.
	client := *s.conf.Client
	client.Transport = s.conf.direct
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // it contains the secret
	t, err := s.client(p).Exchange(oidc.ClientContext(ctx, &client), q.Get("code"), oauth2.VerifierOption(a.Verifier))
	if bad, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return Principal{}, s.newRefusal(bad.ErrorCode, bad.ErrorDescription, http.StatusBadGateway)
	}
	if err != nil {
		return Principal{}, issuerAway(fmt.Errorf("%w: %w", errIssuer, err))
	}
	raw, _ := t.Extra("id_token").(string)
	if raw == "" {
		return Principal{}, &SignInError{http.StatusBadGateway, "The issuer returned no ID token.", "Permit the scope openid for the client " + s.conf.Audience + " at the issuer."}
	}
	user, err := s.gate.issuer.verify(ctx, raw, a.Nonce)
	switch {
	case errors.Is(err, errRole):
		return user, &SignInError{
			http.StatusForbidden, user.Name + " has no role here.",
			fmt.Sprintf("The claim %q of the ID token must contain %[2]sviewer, %[2]soperator or %[2]sadmin. Assign one at the issuer, or name another claim in admin.oidc_role_claim.", s.conf.RoleClaim, s.conf.RolePrefix),
		}
	case errors.Is(err, errIssuer):
		return user, issuerAway(err)
	case err != nil:
		return user, &SignInError{http.StatusBadGateway, "The ID token of the issuer is not accepted: " + printable(err.Error()) + ".", "Compare admin.oidc_issuer and admin.oidc_audience with the issuer's client, and the clocks of both machines."}
	}
	return user, nil
}

// newRefusal returns the error of an error code of OAuth 2.0.
func (s *signIn) newRefusal(code, description string, status int) *SignInError {
	e := &SignInError{status, "The issuer refused the sign-in: " + printable(code) + ".", ""}
	if description != "" {
		e.What = "The issuer refused the sign-in: " + printable(code) + ": " + printable(description)
	}
	switch code {
	case "access_denied":
		e.Fix = "Sign in again and consent, or have the application " + s.conf.Audience + " assigned to you at the issuer."
	case "invalid_client", "unauthorized_client":
		e.Fix = "Compare admin.oidc_audience and admin.oidc_client_secret with the issuer's client, which must permit the authorization code flow."
	case "invalid_grant":
		e.Fix = "Sign in again. If it repeats, compare the redirect URL of the client at the issuer, which must be " + s.redirect.String() + "."
	case "invalid_scope":
		e.Fix = "Permit the scopes openid and email for the client " + s.conf.Audience + " at the issuer."
	default:
		e.Fix = "Sign in again. If it repeats, the log of the issuer has the cause."
	}
	return e
}

// away logs that the issuer cannot be reached and returns the error.
func (s *signIn) away(r *http.Request, err error) error {
	s.gate.log.WarnContext(r.Context(), "sign-in failed", "err", err)
	return issuerAway(err)
}

func issuerAway(err error) *SignInError {
	return &SignInError{
		http.StatusServiceUnavailable, "The OpenID Connect issuer cannot be reached: " + printable(err.Error()) + ".",
		"Check admin.oidc_issuer and the connection of this server to it, and sign in again. A token still works.",
	}
}

// printable returns a bounded text of another server without control characters.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}

// client returns the client of the code flow.
func (s *signIn) client(p *provider) *oauth2.Config {
	return &oauth2.Config{ClientID: s.conf.Audience, ClientSecret: s.conf.ClientSecret, Endpoint: p.endpoint, RedirectURL: s.redirect.String(), Scopes: p.scopes}
}

// session returns the user of a request with the session cookie; false without one. A token takes
// precedence.
func (g *Gate) session(ctx huma.Context) (Principal, bool, error) {
	s := g.signIn
	if s == nil || ctx.Header("Authorization") != "" {
		return Principal{}, false, nil
	}
	c, err := huma.ReadCookie(ctx, s.cookieName(sessionCookie))
	if err != nil {
		return Principal{}, false, nil //nolint:nilerr // the request has no cookie
	}
	var in session
	if s.seal.open(c, s.gate.issuer.clock.Now(), &in) != nil {
		return Principal{}, true, &Error{Status: http.StatusUnauthorized, Detail: "The session has ended; sign in again."}
	}
	if !reads(ctx.Method()) && !s.sameOrigin(ctx) {
		return Principal{}, true, &Error{Status: http.StatusForbidden, Reason: ForeignOrigin, Detail: "A session changes something only from the pages of this server. Programs send a token."}
	}
	if wait, ok := g.requests.take(in.Name); !ok {
		return Principal{}, true, tooOften(wait)
	}
	return Principal{Name: in.Name, Role: in.Role, requests: g.requests}, true, nil
}

// sameOrigin reports whether the browser states that a page of this origin sent the request.
// Unlike Browsers it refuses requests that contain nothing about it.
func (s *signIn) sameOrigin(ctx huma.Context) bool {
	if site := ctx.Header("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	return ctx.Header("Origin") == s.redirect.Scheme+"://"+s.redirect.Host
}
