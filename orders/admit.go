package orders

import (
	"errors"
	"maps"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// needs adds the role that an operation requires, if any, to its description.
func (a *api) needs(h huma.API, role access.Role, op huma.Operation) huma.Operation {
	if !a.roles {
		return op
	}
	maps.Copy(op.Responses, problems(h, 401, 403))
	return access.Needs(role, op)
}

// admit checks the token of a request before the body is read.
func (a *api) admit(ctx huma.Context, next func(huma.Context)) {
	authorization := access.OrSubprotocol(ctx.Header("Authorization"), ctx.Header("Sec-WebSocket-Protocol"))
	p, err := a.gate.Authenticate(ctx.Context(), authorization, ctx.RemoteAddr())
	if err == nil {
		needed, ok := ctx.Operation().Extensions["x-role"].(access.Role)
		if !ok { // declareSecurity has given every operation one
			needed = access.Admin
		}
		if err = access.Permit(p, needed); err == nil {
			next(huma.WithContext(ctx, access.With(ctx.Context(), p)))
			return
		}
	}
	httpapi.Answer(ctx, accessProblem(err))
}

// roleOf returns the default role of an operation. It uses the method of the
// operation, not of the request, because GET operations also serve HEAD.
func roleOf(method string) access.Role {
	if method == http.MethodGet {
		return access.Viewer
	}
	return access.Operator
}

// declareSecurity adds the security requirement to every operation of the
// description: a token with a role or, without a gate, none.
func (a *api) declareSecurity(h huma.API) {
	for _, item := range h.OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			switch {
			case op == nil || op.Security != nil:
			case !a.roles:
				delete(op.Extensions, "x-role")
				op.Security = []map[string][]string{{}}
			default:
				role := roleOf(op.Method)
				if own, ok := op.Extensions["x-role"].(access.Role); ok {
					role = own
				}
				*op = access.Needs(role, *op)
				for code, r := range problems(h, 401, 403) {
					if op.Responses[code] == nil {
						op.Responses[code] = r
					}
				}
			}
		}
	}
}

func accessProblem(err error) *problem {
	var e *access.Error
	if !errors.As(err, &e) {
		return newProblem(http.StatusInternalServerError, problemInternal, "Internal error; the log contains the details.")
	}
	p := newProblem(e.Status, e.Type(), e.Detail)
	e.Header(p.Header())
	return p
}
