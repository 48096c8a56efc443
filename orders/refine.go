package orders

import (
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// The patterns of texts: without control characters and, if required, not
// blank. Spaces are the ones of unicode.IsSpace.
const (
	textForm     = `^[^\x00-\x1f\x7f-\x9f]*$`
	notBlankForm = `^[^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000][^\x00-\x1f\x7f-\x9f]*$`
)

// refine adds constraints that struct tags cannot express. It changes the
// description only: the handlers validate bodies and headers themselves.
func refine(doc *huma.OpenAPI) {
	schemas := doc.Components.Schemas.Map()
	for _, name := range []string{"NewOrder", "NewLine", "Address", "Update", "Cancellation", "Shipment"} {
		if schemas[name] == nil {
			continue // not all operations are offered everywhere
		}
		for _, p := range schemas[name].Properties {
			switch {
			case p.Type != huma.TypeString || p.Format != "" || p.Pattern != "":
			case p.MinLength != nil && *p.MinLength > 0:
				p.Pattern = notBlankForm
			default:
				p.Pattern = textForm
			}
		}
	}
	least := 1
	if s := schemas["NewOrder"]; s != nil {
		order := s.Properties
		order["currency"].Pattern = ""
		for _, code := range Currencies() {
			order["currency"].Enum = append(order["currency"].Enum, code)
		}
		order["address"] = &huma.Schema{OneOf: []*huma.Schema{order["address"], {Type: "null"}}}
	}
	if s := schemas["Update"]; s != nil {
		s.MinProperties = &least
	}
	for name, path := range doc.Paths {
		if !strings.HasPrefix(name, "/v1/orders") {
			continue // an operation of another server, with headers of its own
		}
		for _, op := range []*huma.Operation{path.Get, path.Post, path.Patch} {
			if op == nil {
				continue
			}
			for _, p := range op.Parameters {
				if p.Name == "customer_id" {
					p.Schema = &huma.Schema{Type: huma.TypeString, Pattern: notBlankForm, MinLength: &least, MaxLength: ptr(MaxReference)}
				}
			}
		}
	}
}

func ptr[T any](v T) *T { return &v }
