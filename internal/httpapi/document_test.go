package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

type (
	partOfBoth struct {
		Kind  string    `json:"kind" enum:"a,b"`
		Inner innerPart `json:"inner"`
	}
	innerPart struct {
		Names []string `json:"names"`
	}
	partInput  struct{ Body partOfBoth }
	partOutput struct {
		Body struct {
			Parts []partOfBoth `json:"parts"`
		}
	}
	decoded struct {
		Word string `json:"word" enum:"x,y"`
	}
	rawInput     struct{ RawBody []byte }
	firstProblem struct {
		Problem
		First string `json:"first,omitempty"`
	}
	otherProblem struct {
		Problem
		Other string `json:"other,omitempty" enum:"m,n"`
	}
)

// completeDocument returns a handler with an API, and its description.
func completeDocument(t *testing.T) (http.Handler, map[string]any) {
	t.Helper()
	mux := http.NewServeMux()
	h := humago.New(mux, huma.DefaultConfig("test", "1"))
	huma.Register(h, huma.Operation{OperationID: "parts", Method: http.MethodPost, Path: "/parts", Responses: Describe[firstProblem](h, "", 409)},
		func(_ context.Context, in *partInput) (*partOutput, error) {
			out := &partOutput{}
			out.Body.Parts = []partOfBoth{in.Body}
			return out, nil
		})
	RegisterDecoding[decoded](h, true, huma.Operation{OperationID: "raw", Method: http.MethodPost, Path: "/raw", Responses: Describe[otherProblem](h, "", 409), Errors: []int{404}},
		func(context.Context, *rawInput) (*partOutput, error) { return &partOutput{}, nil })
	CompleteDocument(h.OpenAPI())
	text, err := json.Marshal(h.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return mux, doc
}

// at returns a part of a document.
func at(doc any, path ...string) any {
	for _, name := range path {
		m, _ := doc.(map[string]any)
		doc = m[name]
	}
	return doc
}

func TestCompleteDocument_Responses(t *testing.T) {
	t.Parallel()
	_, doc := completeDocument(t)
	schemas, _ := at(doc, "components", "schemas").(map[string]any)
	for _, tt := range []struct {
		name   string
		closed bool
	}{{"PartOfBoth", false}, {"InnerPart", false}, {"PartOutputBody", false}, {"Problem", false}, {"ErrorDetail", false}, {"PartOfBothInput", true}, {"InnerPartInput", true}, {"Decoded", true}} {
		if schemas[tt.name] == nil {
			t.Errorf("there is no schema %s", tt.name)
			continue
		}
		if got := at(schemas, tt.name, "additionalProperties") == false; got != tt.closed {
			t.Errorf("%s refuses further members: %v, want %v", tt.name, got, tt.closed)
		}
	}
	if at(schemas, "PartOfBoth", "properties", "kind", "enum") != nil || at(schemas, "PartOfBoth", "properties", "kind", "x-extensible-enum") == nil {
		t.Errorf("a response has %v, want an enumeration that may grow", at(schemas, "PartOfBoth", "properties", "kind"))
	}
	if at(schemas, "PartOfBothInput", "properties", "kind", "enum") == nil {
		t.Error("a request has no enumeration")
	}
	for name, want := range map[string]string{"PartOfBoth": "#/components/schemas/InnerPart", "PartOfBothInput": "#/components/schemas/InnerPartInput"} {
		if got := at(schemas, name, "properties", "inner", "$ref"); got != want {
			t.Errorf("%s contains %v, want %s", name, got, want)
		}
	}
	if got := at(schemas, "InnerPart", "properties", "names", "type"); got != "array" {
		t.Errorf("a list is %v, want an array that is not null", got)
	}
}

func TestCompleteDocument_Problems(t *testing.T) {
	t.Parallel()
	_, doc := completeDocument(t)
	schemas, _ := at(doc, "components", "schemas").(map[string]any)
	for name := range schemas {
		if name != "Problem" && (strings.HasSuffix(name, "Problem") || name == "ErrorModel") {
			t.Errorf("there is another problem, %s", name)
		}
	}
	for _, member := range []string{"title", "first", "other"} {
		if at(schemas, "Problem", "properties", member) == nil {
			t.Errorf("Problem has no %s", member)
		}
	}
	for path, codes := range map[string][]string{"/parts": {"409"}, "/raw": {"404", "409"}} {
		for _, code := range codes {
			got := at(doc, "paths", path, "post", "responses", code, "content", ProblemContentType, "schema", "$ref")
			if got != "#/components/schemas/Problem" {
				t.Errorf("%s %s is %v, want a Problem", path, code, got)
			}
		}
	}
}

func TestRegisterDecoding(t *testing.T) {
	t.Parallel()
	_, doc := completeDocument(t)
	body, _ := at(doc, "paths", "/raw", "post", "requestBody").(map[string]any)
	if at(body, "content", "application/json", "schema", "$ref") != "#/components/schemas/Decoded" || body["required"] == true {
		t.Errorf("the body is %v, want an optional Decoded", body)
	}
}

// Requests are validated as before: an unknown member is refused at any depth.
func TestCompleteDocument_Validation(t *testing.T) {
	t.Parallel()
	h, _ := completeDocument(t)
	for body, want := range map[string]int{
		`{"kind":"a","inner":{"names":["n"]}}`:       200,
		`{"kind":"c","inner":{"names":["n"]}}`:       422,
		`{"kind":"a","inner":{"names":null}}`:        422,
		`{"kind":"a","inner":{"names":[]},"more":1}`: 422,
		`{"kind":"a","inner":{"names":[],"more":1}}`: 422,
		`{"kind":"a"}`: 422,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/parts", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s = %d %s, want %d", body, w.Code, w.Body, want)
		}
	}
}
