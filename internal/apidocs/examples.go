package apidocs

import (
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"
)

// Example is a request of an operation and its responses by status.
type Example struct {
	Request json.RawMessage            `json:"request,omitempty"`
	Answers map[string]json.RawMessage `json:"answers"`
}

// AddExamples adds the examples, by id of the operation, to the descriptions of operations.
func AddExamples(doc *huma.OpenAPI, all map[string]Example) {
	for _, path := range doc.Paths {
		for _, op := range []*huma.Operation{path.Get, path.Post} {
			if op == nil {
				continue
			}
			e, ok := all[op.OperationID]
			if !ok {
				continue
			}
			if op.RequestBody != nil {
				for _, media := range op.RequestBody.Content {
					media.Example = e.Request
				}
			}
			for code, answer := range e.Answers {
				if r := op.Responses[code]; r != nil && r.Content["application/json"] != nil {
					r.Content["application/json"].Example = answer
				}
			}
		}
	}
}
