package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// ProblemKind is an entry of an API's error catalogue.
type ProblemKind struct {
	// Type is the type of the problem.
	Type string `json:"type" format:"uri"`
	// Status is its HTTP status.
	Status int `json:"status"`
	// Meaning is the meaning of the problem, and Do the suggested fix.
	Meaning string `json:"meaning"`
	Do      string `json:"do"`
	// Retry reports whether the same request may succeed later.
	Retry bool `json:"retry" doc:"The same request may succeed later"`
	// Title is its title, which follows from the type.
	Title string `json:"title"`
}

// catalogue has every type of problems once, so that a type has one status and one meaning in
// all APIs.
var catalogue = []ProblemKind{
	{Type: TypeMalformed, Status: http.StatusBadRequest, Meaning: "The body is not JSON.", Do: "Send one JSON object in UTF-8."},
	{Type: TypeHandshake, Status: http.StatusBadRequest, Meaning: "The request is not a valid WebSocket handshake of RFC 6455.", Do: "Fix the header in detail; WebSocket libraries set it correctly."},
	{Type: TypeUnauthorized, Status: http.StatusUnauthorized, Meaning: "The token is missing or unknown.", Do: "Send Authorization: Bearer and a token."},
	{Type: TypeForbidden, Status: http.StatusForbidden, Meaning: "The token's role does not allow this.", Do: "Use a token with the role that detail names."},
	{Type: TypeCrossSite, Status: http.StatusForbidden, Meaning: "A browser sent a change from a page of another origin.", Do: "Send it from a program, or from a page of this server."},
	{Type: TypeHost, Status: http.StatusForbidden, Meaning: "The server has no tokens and does not answer to the host name of the request.", Do: "Use localhost, an IP address or a configured host name, or configure tokens."},
	{Type: TypeNoPath, Status: http.StatusNotFound, Meaning: "No such endpoint.", Do: "See /openapi.json."},
	{Type: TypeNotFound, Status: http.StatusNotFound, Meaning: "What the path or the body names does not exist.", Do: "Check the names."},
	{Type: TypeOrderNotFound, Status: http.StatusNotFound, Meaning: "There is no order with that id.", Do: "Check the id."},
	{Type: TypeMessageNotFound, Status: http.StatusNotFound, Meaning: "There is no message with that id, or it is too long ago.", Do: "Check the id."},
	{Type: TypeSubscriptionNotFound, Status: http.StatusNotFound, Meaning: "There is no subscription with that name.", Do: "Check the name; PUT creates it."},
	{Type: TypeTopicNotFound, Status: http.StatusNotFound, Meaning: "The topic does not exist, or watch.topics does not allow it.", Do: "Check the name and watch.topics."},
	{Type: TypeMethod, Status: http.StatusMethodNotAllowed, Meaning: "The path does not support the method.", Do: "Use a method of the header Allow."},
	{Type: TypeTooSlow, Status: http.StatusRequestTimeout, Meaning: "The body arrived too slowly.", Do: "Retry.", Retry: true},
	{Type: TypeRefused, Status: http.StatusConflict, Meaning: "The state of what is to be changed does not permit the change; detail has the reason.", Do: "Follow hint, if there is one; otherwise read the state."},
	{Type: TypeCancelled, Status: http.StatusConflict, Meaning: "The order is cancelled and can no longer be changed.", Do: "Read the order."},
	{Type: TypeShipped, Status: http.StatusConflict, Meaning: "The order is shipped and can no longer be changed.", Do: "Read the order."},
	{Type: TypeConfirmed, Status: http.StatusConflict, Meaning: "The order is already confirmed.", Do: "No action is required."},
	{Type: TypeUnconfirmed, Status: http.StatusConflict, Meaning: "Only a confirmed order can be shipped.", Do: "Confirm it first."},
	{Type: TypeTooManyChanges, Status: http.StatusConflict, Meaning: "The order was updated too often. It can only be confirmed, shipped or cancelled.", Do: "Cancel it and create another."},
	{Type: TypeTooLate, Status: http.StatusConflict, Meaning: "The message is released or published and can no longer be cancelled.", Do: "No action is required: it is published."},
	{
		Type: TypeNotWaiting, Status: http.StatusConflict, Meaning: "The message is not waiting and cannot be delivered now; state contains its state.",
		Do: "None, if it is released or published; replay it if it is a dead letter; submit it again if it was cancelled.",
	},
	{
		Type: TypeLeaseExpired, Status: http.StatusConflict,
		Meaning: "Some leases have ended: by time, by an earlier action, or because another process owns the partition. Nothing was changed for them.",
		Do:      "Discard the work or make it idempotent: the messages may be delivered again.",
	},
	{Type: TypeStale, Status: http.StatusPreconditionFailed, Meaning: "If-Match does not match the current version.", Do: "Read it again, and repeat the change if it still applies."},
	{Type: TypeTooLarge, Status: http.StatusRequestEntityTooLarge, Meaning: "The body is too large; detail has the limit.", Do: "Make it smaller."},
	{Type: TypeMedia, Status: http.StatusUnsupportedMediaType, Meaning: "The media type of the body is not JSON.", Do: "Send it with Content-Type: application/json."},
	{Type: TypeInvalid, Status: http.StatusUnprocessableEntity, Meaning: "Fields, headers or parameters are invalid; errors lists each of them.", Do: "Fix the problems in errors."},
	{Type: TypeKeyReuse, Status: http.StatusUnprocessableEntity, Meaning: "The Idempotency-Key belongs to another request.", Do: "Use a new key for a new request, and the same body for a retry."},
	{Type: TypeReceipt, Status: http.StatusUnprocessableEntity, Meaning: "Some receipts are no receipts of this subscription.", Do: "Send the receipt of the message as it is, to the subscription that delivered it."},
	{Type: TypeUpgrade, Status: http.StatusUpgradeRequired, Meaning: "The path is a WebSocket, and the request does not ask for one.", Do: "Connect with a WebSocket client, or use the path that ends with /stream."},
	{Type: TypeNeedsMatch, Status: http.StatusPreconditionRequired, Meaning: "The change needs If-Match.", Do: "Send the ETag of what it changes."},
	{Type: TypeRate, Status: http.StatusTooManyRequests, Meaning: "Too many requests with this token, or too many wrong tokens from this address.", Do: "Retry after Retry-After.", Retry: true},
	{Type: TypeQuota, Status: http.StatusTooManyRequests, Meaning: "The client has used up its quota.", Do: "Retry after Retry-After; without it, send fewer messages per request.", Retry: true},
	{Type: TypeTooManyWaiting, Status: http.StatusTooManyRequests, Meaning: "As many requests wait for messages as may, or the caller has half of them.", Do: "Retry after Retry-After, or with a shorter wait.", Retry: true},
	{Type: TypeTooManyWatchers, Status: http.StatusTooManyRequests, Meaning: "The event streams are at their limit, or the caller has half of them.", Do: "Retry after Retry-After.", Retry: true},
	{Type: TypeTooManyListeners, Status: http.StatusTooManyRequests, Meaning: "The streams of changes are at their limit, or the caller has half of them.", Do: "Retry after Retry-After.", Retry: true},
	{Type: TypeTooManyReads, Status: http.StatusTooManyRequests, Meaning: "As many expensive reads, or reads of topics, run as may, or the caller has half of them.", Do: "Retry after Retry-After.", Retry: true},
	{Type: TypeInternal, Status: http.StatusInternalServerError, Meaning: "An internal error; the log contains the details under the request id.", Do: "Report it to the operators of the service, with X-Request-Id."},
	{Type: TypeOverloaded, Status: http.StatusServiceUnavailable, Meaning: "The service is overloaded. The request was not started.", Do: "Retry after Retry-After.", Retry: true},
	{Type: TypeUnavailable, Status: http.StatusServiceUnavailable, Meaning: "The database or the schema registry is unavailable. The request stored nothing, unless outcome_unknown is true.", Do: "Retry after Retry-After.", Retry: true},
	{Type: TypeNoSubscriptions, Status: http.StatusServiceUnavailable, Meaning: "The database or the broker cannot be reached, or the process is starting or stopping.", Do: "Retry after Retry-After.", Retry: true},
	{Type: TypeBroker, Status: http.StatusServiceUnavailable, Meaning: "The broker cannot be reached, is too slow, or refuses the read.", Do: "Retry after Retry-After.", Retry: true},
	{Type: TypeIdentity, Status: http.StatusServiceUnavailable, Meaning: "The token cannot be verified at the moment.", Do: "Retry after Retry-After.", Retry: true},
	{
		Type: TypeUnknown, Status: http.StatusServiceUnavailable, Meaning: "The outcome is unknown: the change, or a part of it, may be stored, now or within a minute.",
		Do: "Retry with the same Idempotency-Key; without one, read first. Receipts can be settled again.", Retry: true,
	},
	{Type: TypeStopping, Status: http.StatusServiceUnavailable, Meaning: "The server is shutting down.", Do: "Retry on another instance.", Retry: true},
}

// kinds is the catalogue by type, with TypeHungUp.
var kinds = func() map[string]ProblemKind {
	byType := map[string]ProblemKind{TypeHungUp: {Type: TypeHungUp, Status: StatusHungUp}}
	for _, k := range catalogue {
		k.Title = Title(k.Type)
		byType[k.Type] = k
	}
	return byType
}()

// common are the types that every API has.
var common = []string{
	TypeMalformed, TypeUnauthorized, TypeForbidden, TypeCrossSite, TypeHost, TypeNoPath, TypeMethod, TypeTooSlow, TypeTooLarge, TypeMedia, TypeInvalid,
	TypeRate, TypeInternal, TypeUnavailable, TypeIdentity, TypeStopping,
}

// Kinds returns the catalogue of an API with the types, and the ones that every API has, sorted
// by status.
func Kinds(types ...string) []ProblemKind {
	types = slices.Concat(common, types)
	all := make([]ProblemKind, len(types))
	for i, typ := range types {
		all[i] = kind(typ)
	}
	slices.SortStableFunc(all, func(a, b ProblemKind) int { return a.Status - b.Status })
	return all
}

func kind(typ string) ProblemKind {
	k, ok := kinds[typ]
	if !ok {
		panic("httpapi: the catalogue has no type " + typ)
	}
	return k
}

// ServeProblems serves the catalogue of an API at /problems.
func ServeProblems(mux *http.ServeMux, all []ProblemKind) {
	mux.HandleFunc("GET /problems", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"problems": all}) // a disconnected client needs no response
	})
}

// DescribeProblems describes the catalogue of an API in Markdown.
func DescribeProblems(all []ProblemKind) string {
	var b strings.Builder
	b.WriteString("\n\n## Problems\n\nEvery error is a problem document (RFC 9457) with one of these types. A type is an identifier, not a link; `GET /problems` lists them as JSON.\n\n" +
		"| status | type | meaning | action |\n|---|---|---|---|\n")
	for _, p := range all {
		fmt.Fprintf(&b, "| %d | `%s` | %s | %s |\n", p.Status, p.Type, p.Meaning, p.Do)
	}
	return b.String()
}

// Examples returns an example of each of the problems with the status, by the name of its type,
// without the problems that no operation responds with.
func Examples(all []ProblemKind, status int) map[string]*huma.Example {
	out := make(map[string]*huma.Example)
	for _, k := range all {
		if k.Status == status && k.Type != TypeNoPath && k.Type != TypeStopping {
			out[k.Type[strings.LastIndexByte(k.Type, ':')+1:]] = &huma.Example{
				Summary: k.Meaning, Value: map[string]any{"type": k.Type, "title": k.Title, "status": status, "detail": k.Meaning},
			}
		}
	}
	return out
}
