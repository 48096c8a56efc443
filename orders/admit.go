package orders

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// needs describes what role an operation asks for, if it asks for any.
func (a *api) needs(h huma.API, role access.Role, op huma.Operation) huma.Operation {
	if !a.roles {
		return op
	}
	maps.Copy(op.Responses, problems(h, 401, 403))
	return access.Needs(role, op)
}

// admit lets a request in, or answers why not. It comes before the body is read.
func (a *api) admit(ctx huma.Context, next func(huma.Context)) {
	authorization := access.OrSubprotocol(ctx.Header("Authorization"), ctx.Header("Sec-WebSocket-Protocol"))
	p, err := a.gate.Authenticate(ctx.Context(), authorization, ctx.RemoteAddr())
	if err == nil {
		needed, ok := ctx.Operation().Extensions["x-role"].(access.Role)
		if !ok {
			if needed = access.Operator; ctx.Method() == http.MethodGet {
				needed = access.Viewer
			}
		}
		if err = access.Permit(p, needed); err == nil {
			next(huma.WithContext(ctx, access.With(ctx.Context(), p)))
			return
		}
	}
	bad := accessProblem(err)
	for k, vs := range bad.header {
		ctx.SetHeader(k, vs[0])
	}
	ctx.SetHeader("Content-Type", "application/problem+json")
	ctx.SetStatus(bad.Status)
	_ = json.NewEncoder(ctx.BodyWriter()).Encode(bad) // a caller that hung up misses nothing
}

func accessProblem(err error) *problem {
	var e *access.Error
	if !errors.As(err, &e) {
		return newProblem(http.StatusInternalServerError, problemInternal, "Something unexpected happened; the log has the details.")
	}
	kind := problemIdentity
	switch e.Status {
	case http.StatusUnauthorized:
		kind = problemUnauthorized
	case http.StatusForbidden:
		kind = problemForbidden
	case http.StatusTooManyRequests:
		kind = problemRate
	}
	p := newProblem(e.Status, kind, e.Detail)
	e.Header(p.header)
	return p
}
