package api

import (
	"log/slog"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// Operators returns the operations for operators, to be registered at another API that
// checks their roles and audits changes: list, get, status, leases,
// release of a lease, pause, resume, acknowledgement of skips, seek and purge.
// It has no operations on messages, and none that creates or deletes a subscription.
func Operators(service subscriptions.Service, log *slog.Logger) func(huma.API) {
	return func(api huma.API) {
		s := &Server{cfg: Config{Service: service, Logger: log}.withDefaults(), api: api}
		s.registerOperators()
	}
}
