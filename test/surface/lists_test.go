package surface

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// unpaged are the lists without pages, with the reason.
var unpaged = map[string]string{
	"list-groups":        "at most 200 groups, the largest first; left counts the others",
	"list-history":       "one point a step between since and until",
	"list-relays":        "the relays of the deployment, which it configures",
	"list-topics":        "the topics of the cluster",
	"list-subscriptions": "the subscriptions of the keyspace, which every process has in memory",
}

// Lists take limit and cursor, and their response has next, which is the next cursor. Their cursors
// are cursors of httpapi.Page.
func TestLists(t *testing.T) {
	t.Parallel()
	type schema struct {
		Ref        string `json:"$ref"`
		Type       any
		Properties map[string]schema
	}
	shared, _ := reflect.TypeFor[httpapi.Page]().FieldByName("Cursor")
	paged, left := 0, maps.Clone(unpaged)
	for name, document := range documents(t) {
		var d struct {
			Components struct{ Schemas map[string]schema }
			Paths      map[string]map[string]struct {
				OperationID string
				Parameters  []struct {
					Name, In string
					Schema   schema

					Description string
				}
				Responses map[string]struct {
					Content map[string]struct{ Schema schema }
				}
			}
		}
		if err := json.Unmarshal(document, &d); err != nil {
			t.Fatal(err)
		}
		for path, operations := range d.Paths {
			o, found := operations["get"]
			query, cursor := make(map[string]schema), ""
			for _, p := range o.Parameters {
				if p.In == "query" {
					query[p.Name] = p.Schema
				}
				if p.Name == "cursor" {
					cursor = p.Description
				}
			}
			_, limit := query["limit"]
			if !found || !limit && !strings.HasPrefix(o.OperationID, "list-") {
				continue
			}
			body := o.Responses["200"].Content["application/json"].Schema
			if to, ok := strings.CutPrefix(body.Ref, "#/components/schemas/"); ok {
				body = d.Components.Schemas[to]
			}
			arrays := 0
			for property, s := range body.Properties {
				if s.Type == "array" {
					arrays++
				}
				if slices.Contains([]string{"more", "has_more", "truncated", "offset", "before", "previous"}, property) {
					t.Errorf("%s: GET %s answers %s: next has the next page", name, path, property)
				}
			}
			if arrays == 0 {
				t.Errorf("%s: GET %s answers no array: %+v", name, path, body)
			}
			if unpaged[o.OperationID] != "" {
				delete(left, o.OperationID)
				if limit || body.Properties["next"].Type != nil {
					t.Errorf("%s: GET %s has pages: remove it from the exceptions", name, path)
				}
				continue
			}
			paged++
			if cursor != shared.Tag.Get("doc") {
				t.Errorf("%s: GET %s: cursor is %q: embed httpapi.Page, which refuses the cursors of other filters", name, path, cursor)
			}
			if query["limit"].Type != "integer" || query["cursor"].Type != "string" || body.Properties["next"].Type != "string" {
				t.Errorf("%s: GET %s: limit %v, cursor %v, next %v; want an integer and texts", name, path, query["limit"].Type, query["cursor"].Type, body.Properties["next"].Type)
			}
		}
	}
	if paged < 8 || len(left) > 0 {
		t.Errorf("%d lists have pages; exceptions without an operation: %v", paged, left)
	}
}
