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

// Gate lets requests in. It is safe for concurrent use.
type Gate struct {
	log      *slog.Logger
	tokens   []known
	issuer   *issuer // nil without
	requests *limits // by principal
	failures *limits // by address
}

// New returns a Gate. Every problem of the configuration is reported at once.
func New(c Config) (*Gate, error) {
	c = c.withDefaults()
	tokens, err := readTokens(c.Tokens)
	if err := errors.Join(c.validate(), err); err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	g := &Gate{
		log: c.Logger, tokens: tokens,
		requests: newLimits(rate.Limit(c.RequestsPerSecond), c.RequestsBurst, c.Now),
		failures: newLimits(rate.Limit(float64(c.FailuresPerMinute)/60), c.FailuresPerMinute, c.Now),
	}
	if c.OIDC.Issuer != "" {
		g.issuer = &issuer{conf: c.OIDC, now: c.Now}
	}
	return g, nil
}

// Reason says more than the status about why a request was not let in.
type Reason string

// The reasons of Browsers; the other errors have none.
const (
	ForeignHost   Reason = "foreign host"
	ForeignOrigin Reason = "foreign origin"
	NoJSON        Reason = "no JSON"
	Encoded       Reason = "encoded body"
)

// Error is why a request was not let in.
type Error struct {
	// Status is 401, 403, 415, 429 or 503.
	Status int
	// Reason is why, where the status does not say it.
	Reason Reason
	// Detail says it to the caller.
	Detail string
	// RetryAfter is when another attempt may help; zero if none does.
	RetryAfter time.Duration
}

func (e *Error) Error() string { return e.Detail }

// Type is the type of the problem document that tells of the error.
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

// Header adds the headers that go with the error.
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

// maxToken bounds what is looked at; JWTs with many claims are some kilobytes.
const maxToken = 16 << 10

// Authenticate says who comes with an Authorization header from an address,
// host:port. The error is an *Error.
//
// A right token is let in also from where many wrong ones came, since others may
// share the address. Only wrong ones are refused with 429 then.
func (g *Gate) Authenticate(ctx context.Context, authorization, remote string) (Principal, error) {
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
	return p, nil
}

func tooOften(wait time.Duration) error {
	return &Error{Status: http.StatusTooManyRequests, Detail: "Too many requests with this token.", RetryAfter: wait}
}

// jwt is Authenticate for what is no token of the configuration.
func (g *Gate) jwt(ctx context.Context, secret, from string) (Principal, error) {
	tooMany := func(wait time.Duration) error {
		return &Error{Status: http.StatusTooManyRequests, Detail: "Too many wrong tokens came from this address.", RetryAfter: wait}
	}
	why := errors.New("nobody's token")
	if g.issuer != nil && !made(secret) {
		p, err := g.issuer.verify(ctx, secret)
		switch {
		case err == nil:
			return p, nil
		case errors.Is(err, errIssuer):
			g.log.WarnContext(ctx, "cannot tell whose token it is", "err", err)
			return Principal{}, &Error{Status: http.StatusServiceUnavailable, Detail: "The OpenID Connect issuer cannot be asked for its keys.", RetryAfter: issuerPause}
		case errors.Is(err, errRole):
			if wait, ok := g.requests.take(p.Name); !ok {
				return Principal{}, tooOften(wait)
			}
			g.log.WarnContext(ctx, "refused: the token names no role", "name", p.Name, "remote", from)
			return Principal{}, &Error{Status: http.StatusForbidden, Detail: "The token is valid but names no role for this API."}
		}
		why = err
	}
	if wait, ok := g.failures.take(from); !ok {
		return Principal{}, tooMany(wait)
	}
	g.log.WarnContext(ctx, "refused: wrong token", "remote", from, "err", why)
	return Principal{}, &Error{Status: http.StatusUnauthorized, Detail: "The token is not known, or has run out."}
}

// bearer is the token of an Authorization header.
func bearer(header string) (string, error) {
	scheme, secret, _ := strings.Cut(header, " ")
	secret = strings.TrimSpace(secret)
	switch {
	case header == "":
		return "", &Error{Status: http.StatusUnauthorized, Detail: "Send a token: Authorization: Bearer …"}
	case !strings.EqualFold(scheme, "Bearer") || secret == "":
		return "", &Error{Status: http.StatusUnauthorized, Detail: "The Authorization header must be Bearer and a token."}
	case len(secret) > maxToken:
		return "", &Error{Status: http.StatusUnauthorized, Detail: "The token is too long to be one."}
	}
	return secret, nil
}

// Network is what wrong tokens are counted by: the address, with a port or without,
// of IPv6 the network that one customer has.
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

// Permit returns an *Error unless p may do what needs the role.
func Permit(p Principal, needed Role) error {
	if p.Role.May(needed) {
		return nil
	}
	return &Error{Status: http.StatusForbidden, Detail: fmt.Sprintf("This needs the role %s; %s has the role %s.", needed, p.Name, p.Role)}
}
