package orders

import (
	"errors"
	"maps"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
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
	httpapi.Answer(ctx, accessProblem(err))
}

func accessProblem(err error) *problem {
	var e *access.Error
	if !errors.As(err, &e) {
		return newProblem(http.StatusInternalServerError, problemInternal, "Something unexpected happened; the log has the details.")
	}
	p := newProblem(e.Status, e.Type(), e.Detail)
	e.Header(p.Header())
	return p
}
