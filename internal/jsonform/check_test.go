package jsonform

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

var bounds = Bounds{Depth: 3, Members: 3, Items: 2, Free: "any", FreeDepth: 4}

// verdict returns the kind and the field of an error.
func verdict(err error) string {
	var syntax *SyntaxError
	var invalid *InvalidError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &syntax):
		return "syntax " + syntax.Field
	case errors.As(err, &invalid) && len(invalid.Fields) > 0:
		names := make([]string, len(invalid.Fields))
		for i, f := range invalid.Fields {
			names[i] = f.Field
		}
		return "invalid " + strings.Join(names, ",")
	}
	return err.Error()
}

func TestCheck(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, tt := range []struct{ name, body, want string }{
		{"an object", `{"a":1,"b":{"c":[true,null]}}`, ""},
		{"a scalar", ` 7 `, ""},
		{"nothing", " ", "syntax "},
		{"two values", `{} {}`, "syntax "},
		{"an open object", `{"a":`, "syntax a"},
		{"no UTF-8", "{\"a\":\"\xff\"}", "syntax a"},
		{"a name twice", `{"a":1,"a":2}`, "invalid a"},
		{"a name twice, once escaped", `{"a":1,"\u0061":2}`, "invalid a"},
		{"as deep as allowed", `{"a":[[1]]}`, ""},
		{"one deeper", `{"a":[[[]]]}`, "invalid a[0]"},
		{"most members", `{"a":1,"b":2,"c":3}`, ""},
		{"one more", `{"a":1,"b":2,"c":3,"d":4}`, "invalid "},
		{"one more below", `{"a":{"a":1,"b":2,"c":3,"d":4}}`, "invalid a"},
		{"one item more", `{"a":[1,2,3]}`, "invalid a"},
		{"what is free has its own depth", `{"any":` + deep(4) + `}`, ""},
		{"and no more", `{"any":` + deep(5) + `}`, "invalid any[0][0][0]"},
		{"what is free has any number", `{"any":{"a":[1,2,3,4],"b":1,"c":1,"d":1}}`, ""},
		{"but no name twice", `{"any":{"x":{"a":1,"a":2}}}`, "invalid any.x.a"},
		{"freedom ends", `{"any":[1,2,3],"a":[1,2,3]}`, "invalid a"},
		{"freedom ends at a scalar", `{"any":1,"a":[1,2,3]}`, "invalid a"},
		{"a text is no name", `{"b":"any","a":[1,2,3]}`, "invalid a"},
		{"free is a member of the body", `{"a":{"any":[1,2,3]}}`, "invalid a.any"},
		{"members without end beside it", `{"any":1,"b":2,"c":3,"d":4}`, "invalid "},
	} {
		if got := verdict(Check([]byte(tt.body), bounds)); got != tt.want {
			t.Errorf("%s: Check(%s) says %q, want %q", tt.name, tt.body, got, tt.want)
		}
	}
}

// An error contains its path, however long it is.
func TestCheck_PathsAreBounded(t *testing.T) {
	t.Parallel()
	body := strings.Repeat(`{"`+strings.Repeat("n", 1000)+`":`, 200)
	var invalid *InvalidError
	if err := Check([]byte(body), Bounds{Depth: 100, Members: 1, Items: 1}); !errors.As(err, &invalid) || len(invalid.Fields[0].Field) > 700 {
		t.Errorf("Check() = %v, want a short path", err)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ body, want, items string }{
		{`{"m":[1, {"a":1,"a":2} ,"x"]}`, "", `1|{"a":1,"a":2}|"x"`},
		{` { "m" : [ null ] } `, "", "null"},
		{`{"m":[]}`, "invalid m", ""},
		{`{"m":[1,2,3,4]}`, "invalid m", ""},
		{`{"m":[1,2,3,4,`, "invalid m", ""}, // read no further
		{`{"m":[1,2`, "syntax m", ""},
		{`{"m":[1,x]}`, "syntax m[1]", ""},
		{`{"m":[1]`, "syntax ", ""},
		{`{"m":[1]} 1`, "syntax ", ""},
		{`{"m":7}`, "invalid m", ""},
		{`{"m":null}`, "invalid m", ""},
		{`{"m":[1],"m":[2]}`, "invalid m", ""},
		{`{"m":[1],"n":[2]}`, "invalid n", ""},
		{`{}`, "invalid ", ""},
		{`[]`, "invalid ", ""},
		{`null`, "invalid ", ""},
		{`x`, "syntax ", ""},
		{`[] x`, "syntax ", ""},
		{``, "syntax ", ""},
	} {
		items, err := List([]byte(tt.body), "m", 3)
		var got []string
		for _, item := range items {
			got = append(got, string(item))
		}
		if v := verdict(err); v != tt.want || strings.Join(got, "|") != tt.items {
			t.Errorf("List(%s) = %q, %q, want %q, %q", tt.body, got, v, tt.items, tt.want)
		}
	}
}

type thing struct {
	Name string `json:"name"`
	N    int    `json:"n"`
}

func explainThing(fields map[string]json.RawMessage, bad *InvalidError) thing {
	var v thing
	Take(fields, bad, "", "name", WantText, &v.Name)
	Take(fields, bad, "", "n", "a whole number", &v.N)
	Rest(fields, bad, "")
	return v
}

func TestDecode(t *testing.T) {
	t.Parallel()
	named := func(v *thing) error {
		if v.Name == "" {
			return Invalid("name", "must not be empty")
		}
		return nil
	}
	for _, tt := range []struct{ body, want string }{
		{`{"name":"x","n":3}`, ""},
		{`{"n":3}`, "invalid name"},
		{`{"name":"x","n":1.5}`, "invalid n"},
		{`{"name":"x","n":3.0}`, ""},
		{`{"name":"x","n":1e3}`, ""},
		{`{"name":"x","n":1e-3}`, "invalid n"},
		{`{"name":"x","n":1e999999}`, "invalid n"},
		{`{"name":"x","n":99999999999999999999}`, "invalid n"},
		{`{"name":7,"n":"","z":1,"N":2}`, "invalid name,n,N,z"}, // and name is not also empty
		{`{"Name":"x"}`, "invalid Name,name"},
		{`null`, "invalid "},
		{`[]`, "invalid "},
	} {
		if _, err := Decode([]byte(tt.body), explainThing, named); verdict(err) != tt.want {
			t.Errorf("Decode(%s) says %q, want %q", tt.body, verdict(err), tt.want)
		}
	}
}

func TestInvalidError_IsBounded(t *testing.T) {
	t.Parallel()
	var bad InvalidError
	if bad.OrNil() != nil {
		t.Error("an empty list is an error")
	}
	for range 10 * MaxFieldErrors {
		bad.Add("f", "p")
	}
	if last := bad.Fields[len(bad.Fields)-1]; len(bad.Fields) != MaxFieldErrors+1 || !bad.Full() || !strings.Contains(last.Problem, "more") {
		t.Errorf("%d fields, the last %+v", len(bad.Fields), last)
	}
}

// What DecodeValid accepts, Check and Decode accept as the same value.
func TestDecodeValid_AcceptsNoMoreThanCheck(t *testing.T) {
	t.Parallel()
	short := func(v *thing) error {
		if len(v.Name) > 3 {
			return Invalid("name", "is too long")
		}
		return nil
	}
	accepted := 0
	for _, body := range []string{
		`{"name":"x","n":3}`, ` {"n":0} `, `{}`, `{"name":null}`, `{"name":"\u0061"}`, `{"n":3.0}`, `{"n":1e3}`,
		`null`, ` null`, `[]`, `7`, ``, `{`, `{} {}`, `{"name":"x"} x`, `{"name":"x","name":"x"}`, `{"name":"x","n\u0061me":"y"}`,
		`{"Name":"x"}`, `{"z":1}`, `{"name":7}`, `{"name":"long"}`, "{\"name\":\"\xff\"}", `{"name":"\ud800"}`,
		`{"name":"` + strings.Repeat(" ", maxValid) + `"}`,
	} {
		got, ok := DecodeValid([]byte(body), short)
		if !ok {
			continue
		}
		accepted++
		want, err := Decode([]byte(body), explainThing, short)
		if err := errors.Join(Check([]byte(body), bounds), err); err != nil || got != want {
			t.Errorf("DecodeValid(%s) = %v, want %v, %v", body, got, want, err)
		}
	}
	if accepted < 5 {
		t.Errorf("%d bodies are valid", accepted)
	}
}
