package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// Gate authenticates requests. It is safe for concurrent use.
type Gate struct {
	log      *slog.Logger
	tokens   []known
	issuer   *issuer   // nil without
	signIn   *signIn   // nil without
	requests *limits   // by principal
	failures *limits   // by address
	only     Principal // of Only
}

// New returns a Gate. Its error contains every problem of the configuration.
func New(c Config) (*Gate, error) {
	c = c.withDefaults()
	tokens, err := readTokens(c.Tokens)
	if err := errors.Join(c.validate(), err); err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	g := &Gate{
		log: c.Logger, tokens: tokens,
		requests: newLimits(rate.Limit(c.RequestsPerSecond), c.RequestsBurst, c.Clock),
		failures: newLimits(rate.Limit(float64(c.FailuresPerMinute)/60), c.FailuresPerMinute, c.Clock),
	}
	if c.OIDC.Issuer != "" {
		g.issuer = &issuer{conf: c.OIDC, clock: c.Clock}
	}
	if c.OIDC.ClientSecret != "" {
		if g.signIn, err = newSignIn(g, c.OIDC); err != nil {
			return nil, fmt.Errorf("access: %w", err)
		}
	}
	return g, nil
}

// Only returns a Gate that takes every request as one of p, without a token. It is for a
// handler that only its own process calls.
func Only(p Principal) *Gate { return &Gate{log: slog.New(slog.DiscardHandler), only: p} }

// Reason distinguishes refusals with the same status.
type Reason string

// The reasons of Browsers; the other errors have none.
const (
	ForeignHost   Reason = "foreign host"
	ForeignOrigin Reason = "foreign origin"
	NoJSON        Reason = "no JSON"
	Encoded       Reason = "encoded body"
)

// Error is the reason why a request was refused.
type Error struct {
	// Status is 401, 403, 415, 429 or 503.
	Status int
	// Reason is set if the status is ambiguous.
	Reason Reason
	// Detail is the text for the caller.
	Detail string
	// RetryAfter is the time after which a retry may succeed; zero if it cannot.
	RetryAfter time.Duration
}

func (e *Error) Error() string { return e.Detail }

// Type returns the type of the error's problem document.
func (e *Error) Type() string {
	switch e.Status {
	case http.StatusUnauthorized:
		return httpapi.TypeUnauthorized
	case http.StatusForbidden:
		switch e.Reason {
		case ForeignOrigin:
			return httpapi.TypeCrossSite
		case ForeignHost:
			return httpapi.TypeHost
		}
		return httpapi.TypeForbidden
	case http.StatusUnsupportedMediaType:
		return httpapi.TypeMedia
	case http.StatusTooManyRequests:
		return httpapi.TypeRate
	case http.StatusInternalServerError:
		return httpapi.TypeInternal
	}
	return httpapi.TypeIdentity
}

// Header adds the headers of the error.
func (e *Error) Header(h http.Header) {
	if e.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="outbox"`)
	}
	if e.Reason == Encoded {
		h.Set("Accept-Encoding", "identity")
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(e.RetryAfter.Seconds())))))
	}
}

// maxToken bounds the size of a token; JWTs with many claims have some kilobytes.
const maxToken = 16 << 10

// Authenticate returns the principal of an Authorization header from an address,
// host:port. The error is an *Error.
//
// A valid token is accepted even after many invalid ones from the same address, because
// clients may share an address. Only invalid tokens are then refused with 429.
func (g *Gate) Authenticate(ctx context.Context, authorization, remote string) (Principal, error) {
	if g.only.Name != "" {
		return g.only, nil
	}
	secret, err := bearer(authorization)
	if err != nil {
		return Principal{}, err
	}
	p, ok := find(g.tokens, secret)
	if !ok {
		if p, err = g.jwt(ctx, secret, Network(remote)); err != nil {
			return Principal{}, err
		}
	}
	if wait, ok := g.requests.take(p.Name); !ok {
		return Principal{}, tooOften(wait)
	}
	p.requests = g.requests
	return p, nil
}

func tooOften(wait time.Duration) error {
	return &Error{Status: http.StatusTooManyRequests, Detail: "Too many requests with this token.", RetryAfter: wait}
}

// jwt is Authenticate for tokens that are not in the configuration.
func (g *Gate) jwt(ctx context.Context, secret, from string) (Principal, error) {
	tooMany := func(wait time.Duration) error {
		return &Error{Status: http.StatusTooManyRequests, Detail: "Too many failed authentications from this address.", RetryAfter: wait}
	}
	why := errors.New("unknown token")
	if g.issuer != nil && !made(secret) {
		p, err := g.issuer.verify(ctx, secret, "")
		switch {
		case err == nil:
			return p, nil
		case errors.Is(err, errIssuer):
			g.log.WarnContext(ctx, "failed to verify token", "err", err)
			return Principal{}, &Error{Status: http.StatusServiceUnavailable, Detail: "The OpenID Connect issuer cannot be reached.", RetryAfter: issuerPause}
		case errors.Is(err, errRole):
			if wait, ok := g.requests.take(p.Name); !ok {
				return Principal{}, tooOften(wait)
			}
			g.log.WarnContext(ctx, "refused: token without role", "name", p.Name, "remote", from)
			return Principal{}, &Error{Status: http.StatusForbidden, Detail: "The token is valid but contains no role for this API."}
		}
		why = err
	}
	if wait, ok := g.failures.take(from); !ok {
		return Principal{}, tooMany(wait)
	}
	g.log.WarnContext(ctx, "refused: wrong token", "remote", from, "err", why)
	return Principal{}, &Error{Status: http.StatusUnauthorized, Detail: "The token is unknown or has expired."}
}

// bearer returns the token of an Authorization header.
func bearer(header string) (string, error) {
	scheme, secret, _ := strings.Cut(header, " ")
	secret = strings.TrimSpace(secret)
	switch {
	case header == "":
		return "", &Error{Status: http.StatusUnauthorized, Detail: "Send a token: Authorization: Bearer …"}
	case !strings.EqualFold(scheme, "Bearer") || secret == "":
		return "", &Error{Status: http.StatusUnauthorized, Detail: "The Authorization header must be Bearer and a token."}
	case len(secret) > maxToken:
		return "", &Error{Status: http.StatusUnauthorized, Detail: "The token is too long."}
	}
	return secret, nil
}

// Network returns the key by which failed authentications are counted: the address
// without its port, for IPv6 the network of one customer.
func Network(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	ip := net.ParseIP(host)
	if ip == nil || ip.To4() != nil {
		return host
	}
	return ip.Mask(net.CIDRMask(64, 128)).String() + "/64"
}

// Permit returns an *Error unless p has the role. Producer is the role of producers, whatever their
// topics, and of operators; see PermitTopic.
func Permit(p Principal, needed Role) error {
	if p.Role.May(needed) || needed == Producer && (p.Role == Producer || p.Role.May(Operator)) {
		return nil
	}
	return &Error{Status: http.StatusForbidden, Detail: fmt.Sprintf("This needs the role %s; %s has the role %s.", needed, p.Name, p.grant())}
}
