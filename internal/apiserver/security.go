package apiserver

import (
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// refusal is the problem of a request without access. It has a name of its own in the description
// until all problems are united.
type refusal struct{ httpapi.Problem }

// admit checks the token of a request before the body is read.
func (s *Server) admit(ctx huma.Context, next func(huma.Context)) {
	authorization := access.OrSubprotocol(ctx.Header("Authorization"), ctx.Header("Sec-WebSocket-Protocol"))
	p, err := s.cfg.Gate.Authenticate(ctx.Context(), authorization, ctx.RemoteAddr())
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
	httpapi.Answer(ctx, access.Problem(err))
}

// defaultRole returns the default role of an operation. It uses the method of the
// operation, not of the request, because GET operations also serve HEAD.
func defaultRole(method string) access.Role {
	if method == http.MethodGet {
		return access.Viewer
	}
	return access.Operator
}

// declareSecurity adds the security requirement to every operation of the description: a token
// with a role, or none where the server has no tokens.
func declareSecurity(h huma.API, problems []httpapi.ProblemKind) {
	for _, item := range h.OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			role, ok := op.Extensions["x-role"].(access.Role)
			if !ok {
				role = defaultRole(op.Method)
			}
			*op = access.OrOpen(access.Needs(role, *op))
			for _, code := range []int{http.StatusUnauthorized, http.StatusForbidden} {
				if name := strconv.Itoa(code); op.Responses[name] == nil {
					op.Responses[name] = httpapi.Describe[refusal](h, "", code)[name]
					op.Responses[name].Content[httpapi.ProblemContentType].Examples = httpapi.Examples(problems, code)
				}
			}
		}
	}
}
