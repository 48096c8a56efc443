package httpapi

import (
	"net/http"
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
}

// CommonProblems returns the problems that the APIs for programs have in common.
func CommonProblems() []ProblemKind {
	return []ProblemKind{
		{TypeMalformed, http.StatusBadRequest, "The body is not JSON.", "Fix the body.", false},
		{TypeUnauthorized, http.StatusUnauthorized, "The token is missing or unknown.", "Send Authorization: Bearer and a token.", false},
		{TypeForbidden, http.StatusForbidden, "The token's role does not allow this.", "Use a token with the role that detail names.", false},
		{TypeCrossSite, http.StatusForbidden, "A browser sent a change from a page of another origin.", "Send it from a program, or from a page of this server.", false},
		{TypeHost, http.StatusForbidden, "The server has no tokens and does not answer to the host name of the request.", "Use localhost, an IP address or a name of http.hosts, or configure http.tokens.", false},
		{TypeNoPath, http.StatusNotFound, "No such endpoint.", "See /openapi.json.", false},
		{TypeMethod, http.StatusMethodNotAllowed, "The path does not support the method.", "Use a method of the header Allow.", false},
		{TypeTooSlow, http.StatusRequestTimeout, "The body arrived too slowly.", "Retry.", true},
		{TypeTooLarge, http.StatusRequestEntityTooLarge, "The body is too large; detail has the limit.", "Make it smaller.", false},
		{TypeMedia, http.StatusUnsupportedMediaType, "The media type of the body is not JSON.", "Send it with Content-Type: application/json.", false},
		{TypeInvalid, http.StatusUnprocessableEntity, "Fields, headers or parameters are invalid; errors lists each of them.", "Fix the problems in errors.", false},
		{TypeRate, http.StatusTooManyRequests, "Too many requests with this token, or too many wrong tokens from this address.", "Retry after Retry-After.", true},
		{TypeInternal, http.StatusInternalServerError, "An internal error; the log contains the details under the request id.", "Report it to the operators of the service, with X-Request-Id.", false},
		{TypeOverloaded, http.StatusServiceUnavailable, "The service is overloaded. The request was not started.", "Retry after Retry-After.", true},
		{TypeUnavailable, http.StatusServiceUnavailable, "The database or the schema registry is unavailable. The request stored nothing.", "Retry after Retry-After.", true},
		{TypeIdentity, http.StatusServiceUnavailable, "The token cannot be verified at the moment.", "Retry after Retry-After.", true},
		{TypeStopping, http.StatusServiceUnavailable, "The server is shutting down.", "Retry on another instance.", true},
	}
}

// Examples returns an example of each of the problems with the status, by the name of its type,
// without those that no operation responds with.
func Examples(kinds []ProblemKind, status int) map[string]*huma.Example {
	out := make(map[string]*huma.Example)
	for _, k := range kinds {
		if k.Status == status && k.Type != TypeNoPath && k.Type != TypeStopping {
			out[k.Type[strings.LastIndexByte(k.Type, ':')+1:]] = &huma.Example{
				Summary: k.Meaning, Value: map[string]any{"type": k.Type, "title": Title(status, k.Type), "status": status, "detail": k.Meaning},
			}
		}
	}
	return out
}
