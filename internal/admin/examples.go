package admin

import (
	_ "embed"
	"encoding/json"
	"net/http"

	"github.com/scylla-outbox/scylla-outbox/internal/apidocs"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// examplesJSON contains the examples by operation. A test sends the requests and compares
// the responses; with -update it writes them.
//
//go:embed examples.json
var examplesJSON []byte

func readExamples() map[string]apidocs.Example {
	var all map[string]apidocs.Example
	if err := json.Unmarshal(examplesJSON, &all); err != nil {
		panic("admin: examples.json: " + err.Error()) // it is in the binary
	}
	return all
}

// exampleProblem returns a typical problem with the status.
func exampleProblem(status int) map[string]any {
	p := map[string]any{"status": status, "request_id": "D2ULQnVMrSJgy1sF"}
	example := func(kind, detail string) {
		p["type"], p["title"], p["detail"] = kind, httpapi.Title(kind), detail
	}
	switch status {
	case http.StatusBadRequest:
		example(httpapi.TypeMalformed, "validation failed")
		p["errors"] = []map[string]any{{"location": "body", "message": "body is not JSON: unexpected end, at byte 43"}}
	case http.StatusUnauthorized:
		example(httpapi.TypeUnauthorized, "Send a token: Authorization: Bearer …")
	case http.StatusForbidden:
		example(httpapi.TypeForbidden, "This needs the role operator; mara has the role viewer.")
	case http.StatusNotFound:
		example(httpapi.TypeNotFound, "There is no dead letter of this event.")
	case http.StatusConflict:
		example(httpapi.TypeRefused, "The dead letter is pending and is retried automatically.")
	case http.StatusPreconditionFailed:
		example(httpapi.TypeStale, "The dead letter has changed; read it again. It is at version 4.")
	case http.StatusRequestEntityTooLarge:
		example(httpapi.TypeTooLarge, "request body is too large limit=1048576 bytes")
	case http.StatusUnsupportedMediaType:
		example(httpapi.TypeMedia, "Send the body as JSON, with the header Content-Type: application/json.")
	case http.StatusUnprocessableEntity:
		example(httpapi.TypeInvalid, "The request has invalid fields; see errors.")
		p["errors"] = []map[string]any{{"location": "body.ids[0]", "message": "must be an id such as " + exampleID}}
	case http.StatusPreconditionRequired:
		example(httpapi.TypeNeedsMatch, "The version of the dead letter is missing: send its ETag as If-Match.")
	case http.StatusTooManyRequests:
		example(httpapi.TypeRate, "Too many requests with this token.")
	case http.StatusServiceUnavailable:
		example(httpapi.TypeUnavailable, "The database cannot be reached; retry later.")
	default:
		panic("admin: no example of a problem with status " + http.StatusText(status)) // of an operation that was just added
	}
	if status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge { // huma's own
		delete(p, "request_id")
	}
	return p
}

// exampleID is an event id.
const exampleID = "01a2005c-395d-72e3-8401-994110828553"
