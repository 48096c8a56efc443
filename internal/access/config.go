package access

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/scylla-outbox/scylla-outbox/internal/clocks"
)

// Defaults of Config.
const (
	// DefaultRequestsPerSecond is the request rate of a principal.
	DefaultRequestsPerSecond = 50
	// DefaultRequestsBurst is the request burst of a principal.
	DefaultRequestsBurst = 100
	// DefaultFailuresPerMinute is the rate of failed authentications of an address.
	DefaultFailuresPerMinute = 10
)

// Config configures a Gate.
type Config struct {
	// Tokens are the bearer tokens. At least one is required without an issuer.
	Tokens []Token
	// OIDC accepts the JWTs of an issuer. An empty Issuer disables it.
	OIDC OIDC
	// RequestsPerSecond and RequestsBurst bound the requests of a principal. Defaults 50
	// and 100.
	RequestsPerSecond float64
	RequestsBurst     int
	// FailuresPerMinute bounds the failed authentications of an address. Beyond it,
	// invalid tokens receive 429 and are not logged; valid tokens are still accepted.
	// Default 10.
	FailuresPerMinute int
	// Logger logs refused requests with the reason, never a token. Default discards.
	Logger *slog.Logger
	// Clock is the clock. Default that of the host.
	Clock clocks.Clock
}

func (c Config) withDefaults() Config {
	c.RequestsPerSecond = cmp.Or(c.RequestsPerSecond, DefaultRequestsPerSecond)
	c.RequestsBurst = cmp.Or(c.RequestsBurst, DefaultRequestsBurst)
	c.FailuresPerMinute = cmp.Or(c.FailuresPerMinute, DefaultFailuresPerMinute)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Clock = clocks.Or(c.Clock)
	c.OIDC = c.OIDC.withDefaults(c.Clock)
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.RequestsPerSecond <= 0 || c.RequestsBurst < 1 {
		errs = append(errs, fmt.Errorf("requests: rate %g per second and burst %d must be positive", c.RequestsPerSecond, c.RequestsBurst))
	}
	if c.FailuresPerMinute < 1 {
		errs = append(errs, fmt.Errorf("failures per minute %d: must be at least 1", c.FailuresPerMinute))
	}
	if len(c.Tokens) == 0 && c.OIDC.Issuer == "" {
		errs = append(errs, errors.New("configure tokens or an OpenID Connect issuer; without them every request would be refused"))
	}
	return errors.Join(append(errs, c.OIDC.validate())...)
}
