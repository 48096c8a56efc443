package api

import (
	"context"
	"net"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
)

// Server exposes a subscriptions.Service over HTTP: the operations of /openapi.json,
// /docs, /problems, /livez and /readyz. It is safe for concurrent use. When it begins to stop,
// requests that wait for messages end immediately, without messages.
type Server struct {
	*apiserver.Server
	cfg     Config
	api     huma.API
	waiting *access.Places
	streams streams
	spans   *trace.Messages

	// stopping ends when no request may wait any more, stop ends it.
	stopping context.Context
	stop     context.CancelFunc
}

// New returns a Server. It listens nowhere yet.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, waiting: access.NewPlaces(cfg.MaxWaiting), spans: trace.NewMessages(cfg.Tracer)}
	s.stopping, s.stop = context.WithCancel(context.Background())
	var err error
	s.Server, err = apiserver.New(apiserver.API{
		Name: "subscriptions", Title: "Subscriptions",
		Description: "Gives programs a queue over Kafka topics: receive, ack, nack, extend, reject. Delivery is at least once.",
		Routes:      []func(huma.API){s.register}, Problems: problemTypes, Permit: permit, Ready: cfg.Ready, Drain: s.stop, Peers: cfg.Peers,
		Counted: []string{"receive", "ack"},
	}, cfg.Config)
	return s, err
}

// register adds the operations to an API.
func (s *Server) register(own huma.API) {
	if s.cfg.Gate == nil {
		own.UseMiddleware(withAddress)
	}
	operators := huma.NewGroup(own)
	operators.UseSimpleModifier(func(op *huma.Operation) {
		if op.Method != http.MethodGet {
			httpapi.DescribeReason(op, false)
		}
	})
	if s.cfg.Audit != nil {
		operators.UseMiddleware(s.cfg.Audit)
	}
	s.api = operators
	s.registerOperators()
	s.registerResources()
	s.api = own
	s.registerConsume()
	s.registerStreams()
}

// withAddress adds the client address to the context of a request without a token.
func withAddress(ctx huma.Context, next func(huma.Context)) {
	host := ctx.RemoteAddr()
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	next(huma.WithContext(ctx, context.WithValue(ctx.Context(), address{}, host)))
}

// permit is apiserver.API.Permit: a token may consume or read single subscriptions.
func permit(p access.Principal, needed access.Role, name string) error {
	switch {
	case needed == access.Consumer:
		return access.PermitConsume(p, name)
	case needed == access.Viewer && name != "":
		return access.PermitRead(p, name)
	}
	return access.Permit(p, needed)
}
