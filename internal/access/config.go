package access

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Defaults of Config.
const (
	// DefaultRequestsPerSecond is how many requests a principal may make.
	DefaultRequestsPerSecond = 50
	// DefaultRequestsBurst is how many of them may come at once.
	DefaultRequestsBurst = 100
	// DefaultFailuresPerMinute is how often an address may come with a wrong token.
	DefaultFailuresPerMinute = 10
)

// Config is who may come in.
type Config struct {
	// Tokens are the bearer tokens. At least one, unless there is an issuer.
	Tokens []Token
	// OIDC lets in who has a JWT of an issuer. Without an Issuer nobody.
	OIDC OIDC
	// RequestsPerSecond and RequestsBurst bound what a principal may ask. Defaults
	// 50 and 100.
	RequestsPerSecond float64
	RequestsBurst     int
	// FailuresPerMinute bounds how often an address may come with a token that is
	// nobody's. Beyond that it hears 429, tokens that are right excepted, and the
	// log keeps quiet. Default 10.
	FailuresPerMinute int
	// Logger gets who was refused and why, never a token. Default discards.
	Logger *slog.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	c.RequestsPerSecond = cmp.Or(c.RequestsPerSecond, DefaultRequestsPerSecond)
	c.RequestsBurst = cmp.Or(c.RequestsBurst, DefaultRequestsBurst)
	c.FailuresPerMinute = cmp.Or(c.FailuresPerMinute, DefaultFailuresPerMinute)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.OIDC = c.OIDC.withDefaults(c.Now)
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.RequestsPerSecond <= 0 || c.RequestsBurst < 1 {
		errs = append(errs, fmt.Errorf("requests: %g a second and %d at once: must be positive", c.RequestsPerSecond, c.RequestsBurst))
	}
	if c.FailuresPerMinute < 1 {
		errs = append(errs, fmt.Errorf("failures per minute %d: must be at least 1", c.FailuresPerMinute))
	}
	if len(c.Tokens) == 0 && c.OIDC.Issuer == "" {
		errs = append(errs, errors.New("nobody could come in: there are no tokens and no OpenID Connect issuer"))
	}
	return errors.Join(append(errs, c.OIDC.validate())...)
}
