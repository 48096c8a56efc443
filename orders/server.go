package orders

import (
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
)

// MaxBodyBytes bounds a request body: an order and its event must fit one batch with their rows
// in the CDC log.
const MaxBodyBytes = 256 << 10

// HTTP returns the API of orders for a server:
//
//	POST  /v1/orders               create
//	GET   /v1/orders               list the orders of a customer
//	GET   /v1/orders/{id}          read
//	GET   /v1/orders/{id}/events   list its events
//	GET   /v1/orders/{id}/preview  preview a change
//	PATCH /v1/orders/{id}          update
//	POST  /v1/orders/{id}/confirm  confirm
//	POST  /v1/orders/{id}/ship     ship
//	POST  /v1/orders/{id}/cancel   cancel
//	GET   /asyncapi.json           AsyncAPI 3.0 of the topics
//
// Reads require a viewer, the rest an operator.
func (s *Service) HTTP() (apiserver.API, error) {
	topics, err := s.cfg.Publication.AsyncAPI()
	if err != nil {
		return apiserver.API{}, fmt.Errorf("describe the topics: %w", err)
	}
	return apiserver.API{
		Name: "orders", Title: "Orders", Path: "/v1/orders",
		Description: "Stores orders and their events together: each change that succeeds publishes exactly one event.",
		Routes:      []func(huma.API){func(h huma.API) { s.register(h, true) }},
		Pages: func(mux *http.ServeMux) {
			mux.HandleFunc("GET /asyncapi.json", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/vnd.aai.asyncapi+json;version=3.0.0")
				_, _ = w.Write(topics) // a disconnected client needs no response
			})
		},
		Problems: types, Guard: s.guard, Ping: s.Ready, RetryAfter: s.cfg.RetryAfter,
	}, nil
}
