package httpapi

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// No response contains null for a list, and no request may: a client would have to tell it from
// an empty list.
func init() { huma.DefaultArrayNullable = false } //nolint:gochecknoinits // huma has no other place for it

// RegisterDecoding is huma.Register for an operation whose handler decodes the body, a T, from
// bytes; huma would describe it as a file. optional permits a request without a body.
func RegisterDecoding[T, I, O any](h huma.API, optional bool, op huma.Operation, handler func(context.Context, *I) (*O, error)) {
	body := &huma.RequestBody{}
	op.RequestBody, op.SkipValidateBody = body, true
	huma.Register(h, op, handler)
	body.Required = !optional
	body.Content = map[string]*huma.MediaType{
		"application/json": {Schema: h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")},
	}
}

const (
	schemaPrefix = "#/components/schemas/"
	problemName  = "Problem"
)

// CompleteDocument completes the description of an API, so that clients made from it accept
// what later versions respond. Call it once all operations are registered.
//
//   - Objects in responses may have further members, and texts further values. A type that
//     requests contain too is described twice; the one of requests, which is strict, is named
//     with the suffix Input.
//   - A read with an ETag may be conditional, and a change that is refused with 428 requires
//     If-Match.
//   - All problems are one schema with the members of each.
//   - It has nothing that Discreet removes from responses.
func CompleteDocument(doc *huma.OpenAPI) {
	d := &document{schemas: doc.Components.Schemas.Map()}
	for _, path := range doc.Paths {
		for _, op := range []*huma.Operation{path.Get, path.Put, path.Post, path.Patch, path.Delete} {
			if op == nil {
				continue
			}
			describeConditions(op)
			for _, p := range op.Parameters {
				p.Schema.PatternDescription = "" // huma's, which is in the message already
				switch p.Name {
				case headerKey:
					p.Schema = &huma.Schema{Type: huma.TypeString, Pattern: keyForm}
				case "If-Match", "If-None-Match":
					if op.Method == http.MethodGet {
						continue // a read answers with the whole response to any other value
					}
					most := maxMatch
					p.Schema = &huma.Schema{Type: huma.TypeString, Pattern: matchForm, MaxLength: &most, Examples: []any{`"1"`}}
					if !p.Required { // an empty header is treated as absent
						p.Schema.Pattern = `^$|` + matchForm
					}
				}
			}
			if op.RequestBody != nil {
				d.requests = append(d.requests, listMedia(op.RequestBody.Content)...)
			}
			for _, r := range op.Responses {
				d.responses = append(d.responses, listMedia(r.Content)...)
			}
		}
	}
	for _, r := range doc.Components.Responses {
		d.responses = append(d.responses, listMedia(r.Content)...)
	}
	d.uniteProblems()
	d.splitShared()
	d.openResponses()
}

// describeConditions describes the conditions of NotModified and of If-Match.
func describeConditions(op *huma.Operation) {
	if op.Responses["428"] != nil {
		for _, p := range op.Parameters {
			p.Required = p.Required || p.Name == "If-Match"
		}
	}
	if ok := op.Responses["200"]; op.Method == http.MethodGet && ok != nil && ok.Headers["ETag"] != nil {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: "If-None-Match", In: "header", Description: "ETags of responses that the client has: 304 if it is one of them",
			Schema: &huma.Schema{Type: huma.TypeString},
		})
		op.Responses["304"] = &huma.Response{Description: "The client has the response"}
	}
}

// document are the schemas of a description, and the media of its requests and responses.
type document struct {
	schemas             map[string]*huma.Schema
	requests, responses []media
}

type media struct {
	kind string
	*huma.MediaType
}

func listMedia(content map[string]*huma.MediaType) (all []media) {
	for kind, m := range content {
		if m.Schema != nil {
			all = append(all, media{kind, m})
		}
	}
	return all
}

// visit calls do for each schema below the media, once.
func (d *document) visit(all []media, do func(*huma.Schema)) {
	seen := make(map[*huma.Schema]bool)
	var walk func(*huma.Schema)
	walk = func(s *huma.Schema) {
		if s == nil || seen[s] {
			return
		}
		seen[s] = true
		if s.Ref != "" {
			walk(d.schemas[schemaName(s)])
		}
		walk(s.Items)
		walk(s.Not)
		if more, ok := s.AdditionalProperties.(*huma.Schema); ok {
			walk(more)
		}
		for _, p := range s.Properties {
			walk(p)
		}
		for _, of := range slices.Concat(s.OneOf, s.AnyOf, s.AllOf) {
			walk(of)
		}
		do(s)
	}
	for _, m := range all {
		walk(m.Schema)
	}
}

func schemaName(s *huma.Schema) string { return strings.TrimPrefix(s.Ref, schemaPrefix) }

// uniteProblems replaces the schemas of problems by one.
func (d *document) uniteProblems() {
	names := make(map[string]bool)
	for _, m := range d.responses {
		if m.kind == ProblemContentType && m.Schema.Ref != "" {
			names[schemaName(m.Schema)] = true
		}
	}
	if len(names) == 0 {
		return
	}
	var one *huma.Schema
	for _, name := range slices.Sorted(maps.Keys(names)) {
		s := d.schemas[name]
		if one == nil {
			one = clone(s)
			continue
		}
		for member, p := range s.Properties {
			if one.Properties[member] == nil {
				one.Properties[member] = p
			}
		}
	}
	for name := range names {
		delete(d.schemas, name)
	}
	delete(d.schemas, "ErrorModel") // huma's own, which no response has any more
	d.schemas[problemName] = one
	d.visit(d.responses, func(s *huma.Schema) {
		if names[schemaName(s)] {
			s.Ref = schemaPrefix + problemName
		}
	})
	if detail := d.schemas["ErrorDetail"]; detail != nil {
		delete(detail.Properties, "value")
		detail.PrecomputeMessages() // of the changed schema
	}
}

// splitShared gives requests schemas of their own. Theirs keep the objects, which validate
// requests.
func (d *document) splitShared() {
	named := func(all []media) map[string]bool {
		names := make(map[string]bool)
		d.visit(all, func(s *huma.Schema) {
			if s.Ref != "" {
				names[schemaName(s)] = true
			}
		})
		return names
	}
	inRequests, inResponses := named(d.requests), named(d.responses)
	shared := maps.Clone(inRequests)
	maps.DeleteFunc(shared, func(name string, _ bool) bool { return !inResponses[name] })
	if len(shared) == 0 {
		return
	}
	for name := range shared {
		if d.schemas[name+"Input"] != nil {
			panic(fmt.Sprintf("two schemas are named %sInput", name))
		}
		d.schemas[name+"Input"] = d.schemas[name]
	}
	d.visit(d.requests, func(s *huma.Schema) {
		if name := schemaName(s); s.Ref != "" && shared[name] {
			s.Ref += "Input"
		}
	})
	for name := range shared {
		d.schemas[name] = clone(d.schemas[name+"Input"])
	}
	// The copies refer to the schemas of requests.
	for name := range shared {
		d.visit([]media{{"", &huma.MediaType{Schema: d.schemas[name]}}}, func(s *huma.Schema) {
			if base, ok := strings.CutSuffix(schemaName(s), "Input"); ok && s.Ref != "" && shared[base] {
				s.Ref = schemaPrefix + base
			}
		})
	}
}

// openResponses permits what later versions add to responses.
func (d *document) openResponses() {
	d.visit(d.responses, func(s *huma.Schema) {
		if s.AdditionalProperties == false {
			s.AdditionalProperties = nil
		}
		if len(s.Enum) > 0 {
			s.Extensions = maps.Clone(s.Extensions)
			if s.Extensions == nil {
				s.Extensions = make(map[string]any, 1)
			}
			s.Description = strings.TrimLeft(strings.TrimSuffix(s.Description, ".")+". One of "+values(s.Enum)+"; later versions may add others.", ". ")
			s.Extensions["x-extensible-enum"], s.Enum = s.Enum, nil
		}
	})
}

// values lists the values of an enumeration.
func values(enum []any) string {
	texts := make([]string, len(enum))
	for i, v := range enum {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, ", ")
}

// clone copies a schema with all that is below it.
func clone(s *huma.Schema) *huma.Schema {
	if s == nil {
		return nil
	}
	c := *s
	c.Items, c.Not = clone(s.Items), clone(s.Not)
	if more, ok := s.AdditionalProperties.(*huma.Schema); ok {
		c.AdditionalProperties = clone(more)
	}
	c.Properties = make(map[string]*huma.Schema, len(s.Properties))
	for name, p := range s.Properties {
		c.Properties[name] = clone(p)
	}
	all := func(of []*huma.Schema) (out []*huma.Schema) {
		for _, one := range of {
			out = append(out, clone(one))
		}
		return out
	}
	c.OneOf, c.AnyOf, c.AllOf = all(s.OneOf), all(s.AnyOf), all(s.AllOf)
	return &c
}
