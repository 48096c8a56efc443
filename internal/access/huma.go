package access

import (
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

const (
	scheme       = "bearer"
	roleKey      = "access.role"
	consumersKey = "access.consumers"
)

// Needs sets and describes the role that an operation needs. It changes op and returns
// it, for use within huma.Register.
func Needs(role Role, op huma.Operation) huma.Operation {
	if op.Metadata == nil {
		op.Metadata = make(map[string]any)
	}
	op.Metadata[roleKey] = role
	op.Security = []map[string][]string{{scheme: {}}}
	if op.Extensions == nil {
		op.Extensions = make(map[string]any)
	}
	op.Extensions["x-role"] = role
	return op
}

// OrOpen describes that an operation of a server without tokens needs none, so that the description
// does not depend on the configuration. It changes op and returns it.
func OrOpen(op huma.Operation) huma.Operation {
	op.Security = append(op.Security, map[string][]string{})
	return op
}

// OrConsumer admits the consumers of subscriptions to an operation, too, which limits them to
// their subscriptions by PermitConsume. It changes op and returns it.
func OrConsumer(op huma.Operation) huma.Operation {
	if op.Metadata == nil {
		op.Metadata = make(map[string]any)
	}
	op.Metadata[consumersKey] = true
	return op
}

// Describe adds authentication to the description of an API.
func Describe(c *huma.Config) {
	if c.Components.SecuritySchemes == nil {
		c.Components.SecuritySchemes = make(map[string]*huma.SecurityScheme)
	}
	c.Components.SecuritySchemes[scheme] = &huma.SecurityScheme{
		Type: "http", Scheme: "bearer", Description: "A token of the configuration, or a JWT of its OpenID Connect issuer. x-role is the role that an operation needs.",
	}
}

// Huma is a middleware that authenticates requests and checks the role that Needs gives
// the operation. An operation without a role needs Admin, so that none is open by
// mistake.
func (g *Gate) Huma(ctx huma.Context, next func(huma.Context)) {
	p, ok, err := g.session(ctx)
	if !ok {
		p, err = g.Authenticate(ctx.Context(), ctx.Header("Authorization"), ctx.RemoteAddr())
	}
	if err == nil {
		needed, ok := ctx.Operation().Metadata[roleKey].(Role)
		if !ok {
			needed = Admin
		}
		if p.Role != Consumer || ctx.Operation().Metadata[consumersKey] != true {
			err = Permit(p, needed)
		}
		if err == nil {
			next(huma.WithContext(ctx, With(ctx.Context(), p)))
			return
		}
		g.log.WarnContext(ctx.Context(), "refused: role", "name", p.Name, "role", p.Role, "needs", needed, "operation", ctx.Operation().OperationID)
	}
	httpapi.Answer(ctx, Problem(err))
}

// Problem returns an error of this package as a problem document of RFC 9457; another one is internal.
func Problem(err error) *httpapi.Problem {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Status: http.StatusInternalServerError, Detail: "Internal error; see the log."}
	}
	p := httpapi.New(e.Type(), e.Detail)
	e.Header(p.Header())
	return &p
}
