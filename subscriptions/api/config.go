package api

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// Defaults of Config.
const (
	DefaultMaxWaiting   = 20_000
	DefaultHeartbeat    = 15 * time.Second
	DefaultDrainTimeout = 30 * time.Second
)

// Config configures a Server. Service is required; all other members have defaults.
type Config struct {
	// Service receives and settles, on this instance or on others.
	Service subscriptions.Service
	// Gate authenticates requests. Nil allows everyone, which is for loopback only.
	Gate *access.Gate
	// Hosts are the accepted host names, beside IP addresses and localhost, while there is
	// no Gate: any other name may be DNS rebinding by a web page. Nil means none.
	Hosts *access.Hosts
	// Proxies are trusted reverse proxies whose forwarded headers are used as the client
	// address. Default: none.
	Proxies access.Proxies
	// Peers serves the requests of other instances below /internal/. Nil: there are none.
	Peers http.Handler
	// Audit records changes by operators. Nil records none.
	Audit func(ctx huma.Context, next func(huma.Context))
	// Ready reports whether the instance runs, for /readyz, with a detail. Nil: it does.
	Ready func() (bool, any)
	// MaxWaiting bounds the requests, streams and sockets that wait for messages, and the
	// ones of one caller at half of it. Default 20,000.
	MaxWaiting int
	// Heartbeat is the interval of heartbeats on an idle stream or socket. Default 15 s.
	Heartbeat time.Duration
	// DrainDelay is the time between shutdown, when /readyz starts to fail, and the last
	// accepted request. Default 0.
	DrainDelay time.Duration
	// DrainTimeout bounds the requests in flight after DrainDelay. Default 30 s.
	DrainTimeout time.Duration
	// Logger logs errors of the server. Default discards.
	Logger *slog.Logger
	// Registerer registers the metrics. Default: a private registry.
	Registerer prometheus.Registerer
	// Tracer makes the spans of requests, and of received messages, linked to the spans in
	// their traceparent. Nil makes none.
	Tracer trace.TracerProvider
}

func (c Config) withDefaults() Config {
	c.MaxWaiting = cmp.Or(c.MaxWaiting, DefaultMaxWaiting)
	c.Heartbeat = cmp.Or(c.Heartbeat, DefaultHeartbeat)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	if c.Ready == nil {
		c.Ready = func() (bool, any) { return true, nil }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Service == nil {
		errs = append(errs, errors.New("service is required"))
	}
	if c.MaxWaiting < 1 || c.Heartbeat <= 0 || c.DrainTimeout <= 0 || c.DrainDelay < 0 {
		errs = append(errs, fmt.Errorf("%d waiting, heartbeat %s, drain timeout %s, drain delay %s: must be positive; only the drain delay may be 0",
			c.MaxWaiting, c.Heartbeat, c.DrainTimeout, c.DrainDelay))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("subscriptions API config: %w", err)
	}
	return nil
}
