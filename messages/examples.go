package messages

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// exampleID is the message of all examples.
const exampleID = "01a20109-115f-773c-90e3-075874bcb49a"

type object = map[string]any

func exampleAccepted() object {
	return object{
		"id": exampleID, "state": Scheduled, "created_at": "2026-11-22T02:15:01.215Z", "deliver_at": "2026-11-22T02:30:01.215Z",
		"self": "/v1/messages/" + exampleID,
	}
}

func exampleWaiting() object {
	return object{
		"id": exampleID, "state": Scheduled, "topic": "reminders", "key": "customer-42",
		"created_at": "2026-11-22T02:15:01.215Z", "deliver_at": "2026-11-22T02:30:01.215Z",
		"history": []object{
			{"state": Received, "at": "2026-11-22T02:15:01.215Z"},
			{"state": Scheduled, "at": "2026-11-22T02:15:01.215Z", "detail": "for 2026-11-22T02:30:01.215Z"},
		},
	}
}

func exampleDueNow() object {
	m := exampleWaiting()
	m["deliver_at"] = "2026-11-22T02:20:44.018Z"
	m["history"] = []object{
		{"state": Received, "at": "2026-11-22T02:15:01.215Z"},
		{"state": Scheduled, "at": "2026-11-22T02:15:01.215Z", "detail": "for later"},
		{"state": Scheduled, "at": "2026-11-22T02:20:44.018Z", "detail": "made due by hand: for 2026-11-22T02:20:44.018Z"},
	}
	return m
}

func exampleTally() object {
	return object{
		"messages": 3, "by_topic": object{"reminders": 3}, "by_client": object{"billing": 3},
		"first_due": "2026-11-22T02:30:01.215Z", "last_due": "2026-11-23T02:30:01.215Z",
	}
}

// exampleRequests and exampleAnswers are by operation.
var (
	exampleRequests = map[string]any{
		"post-message": object{"topic": "reminders", "key": "customer-42", "payload": object{"text": "hello"}, "delay": "15m"},
		"post-messages": object{"messages": []object{
			{"topic": "reminders", "key": "customer-42", "payload": object{"text": "hello"}, "delay": "15m"},
			{"topic": "billing", "payload_text": "this topic accepts no messages"},
		}},
		"deliver-messages-now": object{"filter": object{"topic": "reminders", "created_until": "2026-11-22T02:20:40Z"}, "rate": 200},
		"cancel-messages":      object{"filter": object{"client": "billing", "created_since": "2026-11-22T02:00:00Z", "created_until": "2026-11-22T02:20:40Z"}, "dry_run": true},
	}
	exampleAnswers = map[string]any{
		"post-message": exampleAccepted(),
		"post-messages": object{"accepted": 1, "rejected": 1, "results": []object{
			{"index": 0, "status": http.StatusAccepted, "message": exampleAccepted()},
			{"index": 1, "status": http.StatusUnprocessableEntity, "problem": exampleProblem(http.StatusUnprocessableEntity)},
		}},
		"get-message": exampleWaiting(),
		"get-message-content": object{
			"content_type": "application/json", "headers": object{"x-request-id": "01a20109-115e-7d0e"}, "payload_text": `{"text":"hello"}`, "payload_bytes": 16,
		},
		"deliver-message-now": exampleDueNow(),
		"deliver-messages-now": object{
			"dry_run": false, "preview": exampleTally(), "result": object{"changed": 2, "gone": 1},
			"next": "MTc5NTMxMjgwMTIxNS8wMWEyMDEwOS0xMTVmLTc3M2MtOTBlMy0wNzU4NzRiY2I0OWE",
		},
		"cancel-messages": object{"dry_run": true, "preview": exampleTally()},
		"list-messages":   object{"messages": []object{exampleWaiting()}},
	}
)

// exampleProblem returns a problem of a response with the status.
func exampleProblem(status int) object {
	p := object{"status": status}
	kind, detail := problemUnavailable, "The database is unavailable. Nothing was stored; retry later."
	switch status {
	case http.StatusBadRequest:
		kind, detail = problemMalformed, "The body is not JSON."
	case http.StatusForbidden:
		kind, detail = problemCrossSite, "A page of another origin may not change anything here."
	case http.StatusNotFound:
		kind, detail = problemNotFound, "There is no message "+exampleID+", or it is too long ago."
	case http.StatusConflict:
		kind, detail = problemTooLate, "The message is released or published and can no longer be cancelled."
	case http.StatusRequestEntityTooLarge:
		kind, detail = httpapi.TypeTooLarge, "request body is too large"
	case http.StatusUnsupportedMediaType:
		kind, detail = problemMedia, "Send the body as application/json."
	case http.StatusUnprocessableEntity:
		kind, detail = problemInvalid, "The message is invalid; errors lists every invalid field."
		p["errors"] = []object{{"location": "body.topic", "message": "does not accept messages; allowed are reminders"}}
	case http.StatusTooManyRequests:
		kind, detail = problemQuota, "Your quota is used up; retry later."
	}
	p["type"], p["title"], p["detail"] = kind, httpapi.Title(kind), detail
	return p
}

func exampleNotWaiting() object {
	return object{
		"title": httpapi.Title(problemNotWaiting), "status": http.StatusConflict, "type": problemNotWaiting,
		"detail": whyNotWaiting(Cancelled), "message_id": exampleID, "state": Cancelled,
	}
}

// addExamples puts the examples where the operations on messages are described.
func addExamples(doc *huma.OpenAPI) {
	for name, path := range doc.Paths {
		if !strings.HasPrefix(name, Path) && !strings.HasPrefix(name, "/v1/messages/") {
			continue
		}
		for _, op := range []*huma.Operation{path.Get, path.Post, path.Delete} {
			if op == nil {
				continue
			}
			if v, ok := exampleRequests[op.OperationID]; ok {
				for _, media := range op.RequestBody.Content {
					media.Example = v
				}
			}
			for code, r := range op.Responses {
				if media := r.Content["application/problem+json"]; media != nil && media.Example == nil {
					status, _ := strconv.Atoi(code) // responses without a numeric code have no example
					media.Example = exampleProblem(status)
					if op.OperationID == "deliver-message-now" && status == http.StatusConflict {
						media.Example = exampleNotWaiting()
					}
				}
				if media := r.Content["application/json"]; media != nil {
					media.Example = exampleAnswers[op.OperationID]
				}
			}
		}
	}
}
