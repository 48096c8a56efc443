package orders

import (
	"fmt"
	"maps"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// types are those beside the ones that every API has.
var types = []string{
	problemNotFound, problemCancelled, problemShipped, problemConfirmed, problemUnconfirmed, problemTooOften, problemStale, problemKeyReuse,
	problemNeedsMatch, problemOverload, problemUnknown,
}

// exampleMembers are members of the examples of problems, by type.
var exampleMembers = map[string]map[string]any{
	problemInvalid:     {"errors": []map[string]any{{"location": "body.lines[0].quantity", "message": fmt.Sprintf("must be from 1 to %d", MaxQuantity)}}},
	problemCancelled:   {"current_status": StatusCancelled},
	problemShipped:     {"current_status": StatusShipped},
	problemConfirmed:   {"current_status": StatusConfirmed},
	problemUnconfirmed: {"current_status": StatusPlaced},
	problemUnknown:     {"outcome_unknown": true, "order_id": exampleID},
}

// problemExamples are the problems that a response with the status may be.
func problemExamples(status int) map[string]*huma.Example {
	out := httpapi.Examples(httpapi.Kinds(types...), status)
	for _, e := range out {
		v := e.Value.(map[string]any) //nolint:forcetypeassert // as Examples makes it
		maps.Copy(v, exampleMembers[fmt.Sprint(v["type"])])
	}
	return out
}

// exampleID is the order of all examples.
const exampleID = "01a1fdab-a873-7804-8159-8f6ba00d992c"

func exampleOrder(version int, status Status, more map[string]any) map[string]any {
	self := "/v1/orders/" + exampleID
	o := map[string]any{
		"id": exampleID, "version": version, "status": status, "customer_id": "17850", "country": "Finland",
		"placed_at": "2026-11-21T10:34:07.859Z", "currency": "EUR",
		"lines": []map[string]any{{"sku": "71053", "description": "Lantern", "quantity": 2, "unit_price": "3.39"}},
		"total": "6.78", "created_at": "2026-11-21T10:34:07.859Z", "updated_at": "2026-11-21T10:34:07.859Z",
		"links": map[string]any{"self": self, "confirm": self + "/confirm", "ship": self + "/ship", "cancel": self + "/cancel"},
	}
	for k, v := range more {
		o[k] = v
	}
	return o
}

// exampleRequests and exampleAnswers are by operation.
var (
	exampleRequests = map[string]any{
		"create-order": map[string]any{
			"customer_id": "17850", "country": "Finland", "currency": "EUR",
			"lines": []map[string]any{{"sku": "71053", "description": "Lantern", "quantity": 2, "unit_price": "3.39"}},
		},
		"update-order": map[string]any{
			"address": map[string]any{"name": "A. Virtanen", "street": "Mannerheimintie 1", "city": "Helsinki", "postcode": "00100"},
			"lines":   []map[string]any{{"sku": "71053", "description": "Lantern", "quantity": 3, "unit_price": "3.39"}},
		},
		"confirm-order": map[string]any{},
		"ship-order":    map[string]any{"carrier": "Posti", "tracking": "JJFI1"},
		"cancel-order":  map[string]any{"reason": "changed my mind"},
	}
	exampleAnswers = map[string]any{
		"create-order":  exampleOrder(1, StatusPlaced, nil),
		"get-order":     exampleOrder(1, StatusPlaced, nil),
		"update-order":  exampleOrder(2, StatusPlaced, map[string]any{"address": map[string]any{"name": "A. Virtanen", "street": "Mannerheimintie 1", "city": "Helsinki", "postcode": "00100"}}),
		"confirm-order": exampleOrder(2, StatusConfirmed, map[string]any{"confirmed_at": "2026-11-21T10:35:00.000Z"}),
		"ship-order":    exampleOrder(3, StatusShipped, map[string]any{"confirmed_at": "2026-11-21T10:35:00.000Z", "shipped_at": "2026-11-21T12:00:00.000Z", "carrier": "Posti", "tracking": "JJFI1"}),
		"cancel-order":  exampleOrder(2, StatusCancelled, map[string]any{"cancelled_at": "2026-11-21T10:36:00.000Z", "cancel_reason": "changed my mind"}),
		"list-order-events": map[string]any{
			"events": []map[string]any{
				{"event_id": "01a1fdab-b0c1-7d52-9a63-0c1de2a9f3b4", "version": 2, "type": EventUpdated, "status": StatusConfirmed, "at": "2026-11-21T10:35:00.000Z"},
				{"event_id": "01a1fdab-a873-7804-8159-8f6ba00d992d", "version": 1, "type": EventCreated, "status": StatusPlaced, "at": "2026-11-21T10:34:07.859Z"},
			},
		},
		"preview-order-change": map[string]any{
			"change": ChangeConfirm, "allowed": true, "status": StatusPlaced, "version": 1, "status_after": StatusConfirmed, "version_after": 2, "event_type": EventUpdated,
		},
		"list-orders": map[string]any{
			"orders": []map[string]any{{
				"id": exampleID, "version": 1, "status": StatusPlaced, "country": "Finland", "placed_at": "2026-11-21T10:34:07.859Z", "currency": "EUR",
				"total": "6.78", "lines": 1, "created_at": "2026-11-21T10:34:07.859Z", "updated_at": "2026-11-21T10:34:07.859Z",
				"links": map[string]any{
					"self": "/v1/orders/" + exampleID, "confirm": "/v1/orders/" + exampleID + "/confirm",
					"ship": "/v1/orders/" + exampleID + "/ship", "cancel": "/v1/orders/" + exampleID + "/cancel",
				},
			}},
			"links": map[string]any{},
		},
	}
)

// addExamples puts the examples where the operations are described.
func addExamples(doc *huma.OpenAPI) {
	for _, path := range doc.Paths {
		for _, op := range []*huma.Operation{path.Get, path.Post, path.Patch} {
			if op == nil {
				continue
			}
			if v, ok := exampleRequests[op.OperationID]; ok && op.RequestBody != nil {
				for _, media := range op.RequestBody.Content {
					media.Example = v
				}
			}
			if v, ok := exampleAnswers[op.OperationID]; ok {
				for code, r := range op.Responses {
					if media := r.Content["application/json"]; code[0] == '2' && media != nil {
						media.Example = v
					}
				}
			}
		}
	}
}
