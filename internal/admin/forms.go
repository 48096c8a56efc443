package admin

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// describeForms adds the forms to the description that the handlers check: their messages name
// the fix, and huma's the pattern.
func describeForms(doc *huma.OpenAPI) {
	tags := func(s *huma.Schema) { s.Items.Pattern = dlq.TagPattern }
	for _, path := range doc.Paths {
		if path.Get == nil {
			continue
		}
		for _, p := range path.Get.Parameters {
			if p.Name == "tag" {
				tags(p.Schema)
				p.Schema.MinItems = new(1)
			}
		}
	}
	schemas := doc.Components.Schemas.Map()
	tags(schemas["Labels"].Properties["add_tags"])
	tags(schemas["Labels"].Properties["remove_tags"])
	tags(schemas["FilterBody"].Properties["tags"])
	for _, name := range []string{"JobTarget", "NewJobBody"} {
		schemas[name].Properties["ids"].Items.Pattern = `^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`
	}
	schemas["RedeliverBody"].Properties["follow"].Pattern = httpapi.Duration("").Schema(nil).Pattern
	schemas["NewJobBody"].Properties["follow"].Pattern = httpapi.Duration("").Schema(nil).Pattern
}
