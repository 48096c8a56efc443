package api

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// Defaults of Config.
const (
	DefaultMaxWaiting = 20_000
	DefaultHeartbeat  = 15 * time.Second
)

// Config configures a Server. Service is required; all other members have defaults.
type Config struct {
	// Config is what the servers of the APIs for programs have in common. Its Tracer makes the
	// spans of received messages, too, linked to the spans in their traceparent.
	apiserver.Config
	// Service receives and settles, on this instance or on others.
	Service subscriptions.Service
	// Peers serves the requests of other instances below /internal/. Nil: there are none.
	Peers http.Handler
	// Audit records changes by operators. Nil records none.
	Audit func(ctx huma.Context, next func(huma.Context))
	// Ready reports whether the instance runs, for /readyz, with a detail. Nil: it does.
	Ready httpapi.Readiness
	// MaxWaiting bounds the requests, streams and sockets that wait for messages, and the
	// ones of one caller at half of it. Default 20,000.
	MaxWaiting int
	// Heartbeat is the interval of heartbeats on an idle stream or socket. Default 15 s.
	Heartbeat time.Duration
}

func (c Config) withDefaults() Config {
	c.MaxWaiting = cmp.Or(c.MaxWaiting, DefaultMaxWaiting)
	c.Heartbeat = cmp.Or(c.Heartbeat, DefaultHeartbeat)
	if c.Ready == nil {
		c.Ready = func() (bool, any) { return true, nil }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Service == nil {
		errs = append(errs, errors.New("service is required"))
	}
	if c.MaxWaiting < 1 || c.Heartbeat <= 0 {
		errs = append(errs, fmt.Errorf("%d waiting, heartbeat %s: must be positive", c.MaxWaiting, c.Heartbeat))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("subscriptions API config: %w", err)
	}
	return nil
}
