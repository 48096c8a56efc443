package admin

import (
	"context"
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/clocks"
)

// Trail writes the audit trail for changes that are made without the admin API. It is safe
// for concurrent use.
type Trail struct{ audit *audit }

// NewTrail returns a Trail. It uses Session, Keyspace, Timeout and Logger.
func NewTrail(c Config) *Trail {
	c.Clock = clocks.System{}
	return &Trail{newAudit(&c, &metrics{unaudited: prometheus.NewCounter(prometheus.CounterOpts{Name: "unregistered"})})} // the log has the failures
}

// Change is a change of a Trail.
type Change struct {
	Actor, Action, Target, Reason string
	// Detail contains the other parameters, and is recorded as JSON.
	Detail any
}

// Record records a change, calls do, and records its result as JSON. If the change cannot be
// recorded, do is not called.
func (t *Trail) Record(ctx context.Context, c Change, do func(context.Context) (result any, err error)) error {
	detail, err := json.Marshal(c.Detail)
	if err != nil {
		return err
	}
	ctx = access.With(ctx, access.Principal{Name: c.Actor, Role: access.Admin})
	e := entry{Action: c.Action, Target: c.Target, Detail: string(detail), Reason: c.Reason, At: "--reason"}
	return t.audit.changeWithResult(ctx, e, func(ctx context.Context, _ dlq.Actor) (string, string, error) {
		result, err := do(ctx)
		if err != nil || result == nil {
			return "", "", err
		}
		said, err := json.Marshal(result)
		return "", string(said), err
	})
}

// AuditChange is a middleware for operations of another API: it records each change with its
// response, as the admin API does. The reason is optional, because programs
// make such changes too.
func (t *Trail) AuditChange(ctx huma.Context, next func(huma.Context)) {
	recorded := context.WithValue(ctx.Context(), remoteKey{}, ctx.RemoteAddr())
	if _, ok := access.From(recorded); !ok { // an API on loopback without tokens
		recorded = access.With(recorded, access.Principal{Name: anonymous})
	}
	routes := &routeEndpoints{audit: t.audit, reasonOptional: true}
	withReason(huma.WithContext(ctx, recorded), func(ctx huma.Context) { routes.auditChange(ctx, next) })
}

// anonymous is the actor of a change without a token.
const anonymous = "anonymous"
