package admin

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

type reasonKey struct{}

// withReason is a middleware that keeps the reason of a change for its entry in the audit trail.
func withReason(ctx huma.Context, next func(huma.Context)) {
	reason, wrong := httpapi.Reason(ctx)
	if wrong != nil {
		answerProblem(ctx, invalid(ctx.Context(), wrong.Location, wrong.Message))
		return
	}
	next(huma.WithValue(ctx, reasonKey{}, reason))
}

// requestReason returns the reason of a request, empty for none.
func requestReason(ctx context.Context) string {
	reason, _ := ctx.Value(reasonKey{}).(string)
	return reason
}
