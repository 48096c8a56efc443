// Command schemas writes the JSON Schema of the Kubernetes objects that the chart renders, from
// the Go types of the modules that define them. It parses their source and compiles none of it,
// so that none of them is a dependency of this repository. kubeconform reads it without network.
//
//	go run ./test/deploy/schemas >test/deploy/schemas.json
package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// modules contains the module of each import path's prefix.
var modules = map[string]string{
	"k8s.io/api":          "k8s.io/api@v0.37.2",
	"k8s.io/apimachinery": "k8s.io/apimachinery@v0.37.2",
	"github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring": "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring@v0.95.2",
	"github.com/kedacore/keda/v2":                                            "github.com/kedacore/keda/v2@v2.21.0",
}

// kinds contains the package of each kind by apiVersion/kind.
var kinds = map[string]string{
	"apps/v1/Deployment":                      "k8s.io/api/apps/v1",
	"batch/v1/Job":                            "k8s.io/api/batch/v1",
	"v1/Service":                              "k8s.io/api/core/v1",
	"v1/ServiceAccount":                       "k8s.io/api/core/v1",
	"v1/Secret":                               "k8s.io/api/core/v1",
	"policy/v1/PodDisruptionBudget":           "k8s.io/api/policy/v1",
	"networking.k8s.io/v1/NetworkPolicy":      "k8s.io/api/networking/v1",
	"monitoring.coreos.com/v1/PodMonitor":     "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1",
	"monitoring.coreos.com/v1/PrometheusRule": "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1",
	"keda.sh/v1alpha1/ScaledObject":           "github.com/kedacore/keda/v2/apis/keda/v1alpha1",
}

type schema = map[string]any

// marshaled contains the types with a JSON form of their own.
var marshaled = map[string]schema{
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString": {"type": []string{"integer", "string"}},
	"k8s.io/apimachinery/pkg/api/resource.Quantity":   {"type": []string{"number", "string"}, "pattern": `^[0-9.]+([numkMGTPE]i?|e[0-9]+)?$`},
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":       {"type": "string"},
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":  {"type": "string"},
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":   {"type": "string"},
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":   {},
	"k8s.io/apimachinery/pkg/runtime.RawExtension":    {},
}

// basic contains the JSON types of Go's.
var basic = map[string]schema{
	"string": {"type": "string"}, "bool": {"type": "boolean"}, "float64": {"type": "number"},
	"int": {"type": "integer"}, "int32": {"type": "integer"}, "int64": {"type": "integer"}, "uint64": {"type": "integer"},
	"uint": {"type": "integer"}, "uint32": {"type": "integer"}, "uint16": {"type": "integer"}, "any": {},
}

// declared is a type and the file that declares it.
type declared struct {
	spec    *ast.TypeSpec
	doc     string
	imports map[string]string
}

type generator struct {
	types map[string]map[string]declared // by import path and name
	enums map[string][]string            // constants by import path and type
	defs  map[string]schema
	dirs  map[string]string // of the modules
}

func main() {
	g := generator{types: map[string]map[string]declared{}, enums: map[string][]string{}, defs: map[string]schema{}, dirs: map[string]string{}}
	var known []schema
	fmt.Println(`{"$schema": "https://json-schema.org/draft/2020-12/schema",`)
	fmt.Println(`"allOf": [`)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		pkg := kinds[kind]
		if g.dir(pkg) == "" {
			check(fmt.Errorf("%s: no module has the package %s", kind, pkg))
		}
		is := schema{"properties": schema{"apiVersion": schema{"const": path.Dir(kind)}, "kind": schema{"const": path.Base(kind)}}}
		known = append(known, is)
		printJSON(schema{"if": is, "then": g.ref(pkg, path.Base(kind))})
		fmt.Println(",")
	}
	printJSON(schema{"anyOf": known}) // another kind has no schema here
	fmt.Println("],")
	printMap("$defs", g.defs)
	fmt.Println("}")
}

// printMap prints an object with a line for each key.
func printMap[V any](name string, m map[string]V) {
	fmt.Printf("%q: {\n", name)
	keys := slices.Sorted(maps.Keys(m))
	for i, k := range keys {
		fmt.Printf("%q: ", k)
		printJSON(m[k])
		if i < len(keys)-1 {
			fmt.Print(",")
		}
		fmt.Println()
	}
	fmt.Print("}")
}

func printJSON(v any) {
	b, err := json.Marshal(v)
	check(err)
	fmt.Printf("%s", b)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

// dir returns the folder of a package.
func (g *generator) dir(pkg string) string {
	for prefix, module := range modules {
		rest, ok := strings.CutPrefix(pkg, prefix)
		if !ok || rest != "" && rest[0] != '/' {
			continue
		}
		if g.dirs[prefix] == "" {
			out, err := exec.Command("go", "mod", "download", "-json", module).Output()
			check(err)
			var m struct{ Dir string }
			check(json.Unmarshal(out, &m))
			g.dirs[prefix] = m.Dir
		}
		return filepath.Join(g.dirs[prefix], rest)
	}
	return ""
}

// load parses a package once. A package of no module has no types: its values are not checked.
func (g *generator) load(pkg string) map[string]declared {
	if types, ok := g.types[pkg]; ok {
		return types
	}
	types := map[string]declared{}
	g.types[pkg] = types
	files, err := filepath.Glob(filepath.Join(g.dir(pkg), "*.go"))
	check(err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || strings.Contains(name, "generated") || g.dir(pkg) == "" {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		check(err)
		imports := map[string]string{}
		for _, i := range f.Imports {
			p := strings.Trim(i.Path.Value, `"`)
			local := path.Base(p)
			if i.Name != nil {
				local = i.Name.Name
			}
			imports[local] = p
		}
		for _, d := range f.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range decl.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					types[s.Name.Name] = declared{s, decl.Doc.Text() + comments(decl.Doc) + comments(s.Doc), imports}
				case *ast.ValueSpec:
					if typ, ok := s.Type.(*ast.Ident); ok && decl.Tok == token.CONST && len(s.Values) == 1 {
						if v, ok := s.Values[0].(*ast.BasicLit); ok && v.Kind == token.STRING {
							key := pkg + "." + typ.Name
							g.enums[key] = append(g.enums[key], strings.Trim(v.Value, "\"`"))
						}
					}
				}
			}
		}
	}
	return types
}

// comments returns the lines of a comment with its markers, which Text removes.
func comments(c *ast.CommentGroup) (text string) {
	if c != nil {
		for _, line := range c.List {
			text += line.Text + "\n"
		}
	}
	return text
}

// ref returns the schema of a named type, and defines it.
func (g *generator) ref(pkg, name string) schema {
	key := pkg + "." + name
	if s, ok := marshaled[key]; ok {
		return s
	}
	d, ok := g.load(pkg)[name]
	if !ok {
		if g.dir(pkg) != "" {
			check(fmt.Errorf("%s is not declared", key))
		}
		return schema{}
	}
	st, ok := d.spec.Type.(*ast.StructType)
	if !ok {
		if values := g.enums[key]; strings.Contains(d.doc, "+enum") && len(values) > 0 {
			return schema{"enum": values}
		}
		return g.of(pkg, d, d.spec.Type)
	}
	id := strings.NewReplacer("k8s.io/", "", "github.com/", "", "/", ".").Replace(key)
	if _, ok := g.defs[id]; !ok {
		def := schema{"type": "object", "additionalProperties": false}
		g.defs[id] = def // before its fields, which may refer to it
		properties, required := schema{}, []string{}
		g.fields(pkg, d, st, properties, &required)
		def["properties"] = properties
		if len(required) > 0 {
			def["required"] = required
		}
	}
	return schema{"$ref": "#/$defs/" + id}
}

// fields adds the fields of a struct, and those of its inlined ones.
func (g *generator) fields(pkg string, d declared, st *ast.StructType, properties schema, required *[]string) {
	for _, f := range st.Fields.List {
		if f.Tag == nil {
			continue
		}
		name, options, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
		switch {
		case name == "-":
		case name == "":
			at, typ := typeName(pkg, d, f.Type)
			if inner, ok := g.load(at)[typ]; ok {
				if st, ok := inner.spec.Type.(*ast.StructType); ok {
					g.fields(at, inner, st, properties, required)
				}
			}
		case name == "status": // of the cluster, never of a manifest
		default:
			properties[name] = g.of(pkg, d, f.Type)
			marks := comments(f.Doc)
			if !strings.Contains(options, "omit") && !strings.Contains(marks, "+optional") || strings.Contains(marks, "+required") {
				if name != "metadata" && name != "creationTimestamp" {
					*required = append(*required, name)
				}
			}
		}
	}
}

// typeName returns the package and name of a type that is not a literal.
func typeName(pkg string, d declared, e ast.Expr) (at, name string) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(pkg, d, e.X)
	case *ast.Ident:
		return pkg, e.Name
	case *ast.SelectorExpr:
		return d.imports[e.X.(*ast.Ident).Name], e.Sel.Name
	}
	return "", ""
}

// of returns the schema of a type expression.
func (g *generator) of(pkg string, d declared, e ast.Expr) schema {
	switch e := e.(type) {
	case *ast.StarExpr:
		return g.of(pkg, d, e.X)
	case *ast.ArrayType:
		if id, ok := e.Elt.(*ast.Ident); ok && id.Name == "byte" {
			return schema{"type": "string"}
		}
		return schema{"type": "array", "items": g.of(pkg, d, e.Elt)}
	case *ast.MapType:
		return schema{"type": "object", "additionalProperties": g.of(pkg, d, e.Value)}
	case *ast.Ident:
		if s, ok := basic[e.Name]; ok {
			return s
		}
		return g.ref(pkg, e.Name)
	case *ast.SelectorExpr:
		return g.ref(typeName(pkg, d, e))
	}
	return schema{}
}
