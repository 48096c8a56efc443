package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// operator names a kind of change.
type operator string

const (
	// never makes a condition, or an operand of ||, false.
	never operator = "never"
	// always makes a condition, or an operand of &&, true.
	always operator = "always"
	// boundary moves a comparison by one: < becomes <=.
	boundary operator = "boundary"
	// flip negates a boolean literal or a boolean result.
	flip operator = "flip"
	// remove leaves a call, an assignment, a defer, a go, a send, a continue, a break or a
	// return without results out.
	remove operator = "remove"
	// succeed returns a nil error.
	succeed operator = "succeed"
	// skip leaves a loop out.
	skip operator = "skip"
	// zero gives a field of a composite literal its zero value.
	zero operator = "zero"
	// negative swaps + and -, and leaves a minus sign out.
	negative operator = "negative"
	// present leaves the duration out that is added to a time.
	present operator = "present"
	// extreme swaps min and max.
	extreme operator = "extreme"
	// reverse compares in the other order.
	reverse operator = "reverse"
	// cancel lets the end of a context end what should outlast it.
	cancel operator = "cancel"
)

// mutant is a change of one place.
type mutant struct {
	in      *goPackage
	file    string
	line    int
	fn      string // function or method that contains it
	op      operator
	text    string // expression or statement that is changed, on one line
	ordinal int    // 1, 2, … of those with the same function, operator and text

	// begin and end are the offsets of the changed node; before and after are inserted
	// there. Each contains %d, or none, in the place of the number of the mutant.
	begin, end    int
	before, after string
	depth         int // of the node in the tree
	// id is the number of the mutant in the compiled program, from 1.
	id int

	key     string
	verdict verdict
	detail  string
}

// name identifies the mutant in lists: no line, and no text of its neighbourhood.
func (m *mutant) name() string {
	s := fmt.Sprintf("%s %s %s: %s", m.in.dir, m.fn, m.op, m.text)
	if m.ordinal > 1 {
		s += fmt.Sprintf(" #%d", m.ordinal)
	}
	return s
}

// The functions that the compiled program has in each mutated package.
const (
	onName   = "mutant__on"   // reports whether a mutant is on
	zeroName = "mutant__zero" // returns the zero value if a mutant is on
	swapName = "mutant__swap" // returns its second value if a mutant is on
)

// finder collects the mutants of a file.
type finder struct {
	file   *token.File
	source []byte
	info   *types.Info
	out    []*mutant

	fn    string
	stack []ast.Node
	// results are those of the innermost function.
	results []*types.Signature
}

// findMutants returns the mutants of a file, in the order of the text. Only code in functions
// has some.
func findMutants(fset *token.FileSet, f *ast.File, source []byte, info *types.Info) []*mutant {
	d := &finder{file: fset.File(f.FileStart), source: source, info: info}
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		d.fn = fn.Name.Name
		if fn.Recv != nil {
			d.fn = "(" + d.sourceText(fn.Recv.List[0].Type) + ")." + d.fn
		}
		d.walk(fn.Body, makeSignature(fn.Type, info))
	}
	return d.out
}

func makeSignature(t *ast.FuncType, info *types.Info) *types.Signature {
	var results []*types.Var
	if t.Results != nil {
		for _, field := range t.Results.List {
			for range max(1, len(field.Names)) {
				results = append(results, types.NewVar(token.NoPos, nil, "", info.Types[field.Type].Type))
			}
		}
	}
	return types.NewSignatureType(nil, nil, nil, nil, types.NewTuple(results...), false)
}

// walk finds the mutants in the body of a function.
func (d *finder) walk(body ast.Node, sig *types.Signature) {
	d.results = append(d.results, sig)
	defer func() { d.results = d.results[:len(d.results)-1] }()
	ast.Inspect(body, func(n ast.Node) bool {
		if n == nil {
			d.stack = d.stack[:len(d.stack)-1]
			return true
		}
		if lit, ok := n.(*ast.FuncLit); ok {
			d.walk(lit.Body, makeSignature(lit.Type, d.info))
			return false
		}
		if decl, ok := n.(*ast.GenDecl); ok && decl.Tok == token.CONST {
			return false
		}
		d.visit(n)
		d.stack = append(d.stack, n)
		return true
	})
}

func (d *finder) visit(n ast.Node) {
	switch n := n.(type) {
	case *ast.IfStmt:
		d.condition(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			d.wrap(n.Cond, never)
		}
	case *ast.RangeStmt:
		d.loop(n)
	case *ast.CaseClause:
		d.cases(n)
	case *ast.BinaryExpr:
		d.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.SUB {
			d.swap(n, negative, d.sourceText(n.X))
		}
	case *ast.Ident:
		if d.isBoolLiteral(n) {
			d.wrap(n, flip)
		}
	case *ast.CallExpr:
		d.call(n)
	case *ast.CompositeLit:
		d.fields(n)
	case *ast.ReturnStmt:
		d.returns(n)
	case ast.Stmt:
		if d.isListed(n) && d.removable(n) {
			d.statement(n)
		}
	}
}

// add adds a mutant with what is inserted around its node.
func (d *finder) add(n ast.Node, op operator, before, after string) {
	d.out = append(d.out, &mutant{
		file: d.file.Name(), line: d.file.Line(n.Pos()), fn: d.fn, op: op, text: oneLine(d.sourceText(n)), ordinal: 1,
		begin: d.file.Offset(n.Pos()), end: d.file.Offset(n.End()), before: before, after: after, depth: len(d.stack) + 100*len(d.results),
	})
}

func (d *finder) sourceText(n ast.Node) string {
	return string(d.source[d.file.Offset(n.Pos()):d.file.Offset(n.End())])
}

// oneLine returns the beginning of a text, with single spaces.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 100 {
		s = string(r[:100]) + "…"
	}
	return s
}

// wrap adds a change of a boolean expression.
func (d *finder) wrap(e ast.Expr, op operator) {
	if !d.isBool(e) {
		return
	}
	before := map[operator]string{never: "(!" + onName + "(%d) && (", always: "(" + onName + "(%d) || (", flip: "(" + onName + "(%d) != ("}[op]
	d.add(e, op, before, "))")
}

// condition adds the changes of a condition. One that an error is there always is left out:
// every test in which something succeeds would notice.
func (d *finder) condition(e ast.Expr) {
	d.wrap(e, never)
	if b, ok := e.(*ast.BinaryExpr); !ok || b.Op != token.NEQ || d.sourceText(b.Y) != "nil" || !isError(d.info.Types[b.X].Type) {
		d.wrap(e, always)
	}
}

// cases adds the changes of the conditions of a switch without a tag.
func (d *finder) cases(n *ast.CaseClause) {
	of, ok := d.parent(1).(*ast.SwitchStmt)
	if !ok || of.Tag != nil {
		return
	}
	for _, e := range n.List {
		d.condition(e)
	}
}

// parent returns the i-th node above the one that is visited.
func (d *finder) parent(i int) ast.Node {
	if len(d.stack) <= i {
		return nil
	}
	return d.stack[len(d.stack)-1-i]
}

// isListed reports whether the statement that is visited is one of a block or a clause.
func (d *finder) isListed(n ast.Stmt) bool {
	switch of := d.parent(0).(type) {
	case *ast.BlockStmt, *ast.CaseClause:
		return true
	case *ast.CommClause:
		return n != of.Comm
	}
	return false
}

var moved = map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}

func (d *finder) binary(n *ast.BinaryExpr) {
	x, y := d.sourceText(n.X), d.sourceText(n.Y)
	switch n.Op {
	case token.LAND:
		d.wrap(n.X, always)
		d.wrap(n.Y, always)
	case token.LOR:
		d.wrap(n.X, never)
		d.wrap(n.Y, never)
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		if d.isBool(n) && !d.isConstant(n) {
			other := x + " " + moved[n.Op] + " " + y
			d.add(n, boundary, "("+onName+"(%d) && ("+escape(other)+") || !"+onName+"(%d) && (", "))")
		}
	case token.ADD:
		d.swap(n, negative, x+" - ("+y+")")
	case token.SUB:
		d.swap(n, negative, x+" + "+y)
	}
}

// escape keeps the verbs of a text that is part of a format.
func escape(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// swap adds the replacement of a number by another expression. Both are evaluated, so they
// must not call anything; a shift would take its type from the call.
func (d *finder) swap(e ast.Expr, op operator, other string) {
	t := d.info.Types[e]
	basic, ok := types.Unalias(t.Type).Underlying().(*types.Basic)
	if t.Value != nil || !ok || basic.Info()&types.IsNumeric == 0 || d.calls(e) {
		return
	}
	d.add(e, op, swapName+"(%d, ", ", "+escape(other)+")")
}

// calls reports whether an expression calls a function, other than a built-in one, receives
// from a channel, or shifts.
func (d *finder) calls(e ast.Expr) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			t := d.info.Types[n.Fun]
			if !t.IsType() && !t.IsBuiltin() {
				found = true
			}
		case *ast.UnaryExpr:
			found = found || n.Op == token.ARROW
		case *ast.BinaryExpr:
			found = found || n.Op == token.SHL || n.Op == token.SHR
		case *ast.FuncLit:
			found = true
		}
		return !found
	})
	return found
}

func (d *finder) call(n *ast.CallExpr) {
	switch fn := n.Fun.(type) {
	case *ast.Ident:
		other := map[string]string{"min": "max", "max": "min"}[fn.Name]
		if other == "" || !d.info.Types[fn].IsBuiltin() || len(n.Args) < 2 || d.info.Types[n].Value != nil || d.calls(n) {
			return
		}
		d.add(n, extreme, swapName+"(%d, ", ", "+escape(other+strings.TrimPrefix(d.sourceText(n), fn.Name))+")")
	case *ast.SelectorExpr:
		swapped := func(op operator, other string) { d.add(n, op, swapName+"(%d, ", ", "+escape(other)+")") }
		switch {
		case fn.Sel.Name == "Add" && isNamed(d.info.Types[fn.X].Type, "time", "Time") && !d.calls(fn.X):
			swapped(present, d.sourceText(fn.X))
		case d.sourceText(fn) == "cmp.Compare" && !d.calls(n.Args[0]) && !d.calls(n.Args[1]):
			swapped(reverse, "cmp.Compare("+d.sourceText(n.Args[1])+", "+d.sourceText(n.Args[0])+")")
		case d.sourceText(fn) == "context.WithoutCancel" && !d.calls(n.Args[0]):
			swapped(cancel, d.sourceText(n.Args[0]))
		}
	}
}

// fields adds the zero values of the fields of a struct.
func (d *finder) fields(n *ast.CompositeLit) {
	t := d.info.Types[n].Type
	if t == nil {
		return
	}
	if p, ok := types.Unalias(t).Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	fields, ok := types.Unalias(t).Underlying().(*types.Struct)
	if !ok {
		return
	}
	for _, elt := range n.Elts {
		kv, ok := elt.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, ok := kv.Key.(*ast.Ident)
		if lit, is := kv.Value.(*ast.CompositeLit); !ok || is && lit.Type == nil {
			continue
		}
		v := d.info.Types[kv.Value]
		if v.IsNil() || v.Type == nil || d.isBoolLiteral(kv.Value) {
			continue
		}
		if v.Value != nil && !d.isOwnDefault(kv.Value, fieldType(fields, key.Name)) {
			continue
		}
		d.add(kv.Value, zero, zeroName+"(%d, ", ")")
		d.out[len(d.out)-1].text = oneLine(d.sourceText(kv))
	}
}

func fieldType(s *types.Struct, name string) types.Type {
	for f := range s.Fields() {
		if f.Name() == name {
			return f.Type()
		}
	}
	return types.Typ[types.Invalid]
}

// isOwnDefault reports whether a constant has the field's type when it is an argument: it
// names a type, or its default type is the field's.
func (d *finder) isOwnDefault(e ast.Expr, field types.Type) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		basic := map[token.Token]types.BasicKind{token.INT: types.Int, token.STRING: types.String, token.FLOAT: types.Float64, token.CHAR: types.Int32}[e.Kind]
		return types.Identical(field, types.Typ[basic])
	case *ast.Ident:
		return d.isTyped(d.info.Uses[e], field)
	case *ast.SelectorExpr:
		return d.isTyped(d.info.Uses[e.Sel], field)
	}
	return false
}

func (d *finder) isTyped(o types.Object, field types.Type) bool {
	return o != nil && (types.Identical(o.Type(), field) || types.Identical(types.Default(o.Type()), field))
}

// returns adds the changes of a return.
func (d *finder) returns(n *ast.ReturnStmt) {
	if !d.isListed(n) {
		return
	}
	results := d.results[len(d.results)-1].Results()
	switch {
	case results.Len() == 0:
		d.statement(n)
		return
	case len(n.Results) == 0:
		return
	}
	if len(n.Results) == results.Len() {
		for i, e := range n.Results {
			if isBool(results.At(i).Type()) && d.isBool(e) && !d.isBoolLiteral(e) {
				d.wrap(e, flip)
			}
		}
	}
	last := n.Results[len(n.Results)-1]
	if !isError(results.At(results.Len()-1).Type()) || d.sourceText(last) == "nil" {
		return
	}
	var other string
	switch {
	case len(n.Results) == results.Len():
		values := make([]string, 0, results.Len())
		for _, e := range n.Results[:len(n.Results)-1] {
			values = append(values, d.sourceText(e))
		}
		other = "_ = error(" + d.sourceText(last) + "); return " + strings.Join(append(values, "nil"), ", ")
	default: // a call with several results
		values := make([]string, 0, results.Len())
		for i := range results.Len() - 1 {
			values = append(values, fmt.Sprintf("mutant__%d", i))
		}
		names := strings.Join(values, ", ")
		other = names + ", _ := " + d.sourceText(last) + "; return " + names + ", nil"
	}
	d.add(n, succeed, "if "+onName+"(%d) { "+escape(other)+" }; ", "")
}

// loop adds a loop that ends at once.
func (d *finder) loop(n *ast.RangeStmt) {
	at := d.file.Offset(n.Body.Lbrace) + 1
	head := oneLine(string(d.source[d.file.Offset(n.Pos()):d.file.Offset(n.Body.Lbrace)]))
	d.out = append(d.out, &mutant{
		file: d.file.Name(), line: d.file.Line(n.Pos()), fn: d.fn, op: skip, text: head, ordinal: 1,
		begin: at, end: at, before: " if " + onName + "(%d) { break }; ", depth: len(d.stack) + 100*len(d.results),
	})
}

// statement adds the removal of a statement.
func (d *finder) statement(n ast.Stmt) { d.add(n, remove, "if !"+onName+"(%d) { ", " }") }

// unnoticed are methods whose removal tests cannot notice deterministically: a lock, which
// the race detector checks, and what a defer frees at the end.
var (
	locks = map[string]bool{"Lock": true, "Unlock": true, "RLock": true, "RUnlock": true}
	frees = map[string]bool{"Close": true, "Stop": true, "cancel": true, "stop": true, "close": true}
)

func (d *finder) removable(n ast.Stmt) bool {
	switch n := n.(type) {
	case *ast.ExprStmt:
		call, ok := n.X.(*ast.CallExpr)
		if !ok {
			return true // a receive
		}
		name := calledName(call)
		return name != "panic" && !locks[name] && !d.logs(call)
	case *ast.DeferStmt:
		name := calledName(n.Call)
		return !locks[name] && !frees[name]
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			return false
		}
		for _, l := range n.Lhs {
			if d.sourceText(l) != "_" {
				return true
			}
		}
		return d.calls(n.Rhs[0])
	case *ast.BranchStmt:
		return n.Tok == token.CONTINUE || n.Tok == token.BREAK
	case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt:
		return true
	}
	return false
}

func calledName(call *ast.CallExpr) string {
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		return fn.Name
	case *ast.SelectorExpr:
		return fn.Sel.Name
	}
	return ""
}

// logs reports whether a call writes a log message.
func (d *finder) logs(call *ast.CallExpr) bool {
	fn, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	o := d.info.Uses[fn.Sel]
	return o != nil && o.Pkg() != nil && (o.Pkg().Path() == "log/slog" || o.Pkg().Path() == "log")
}

func (d *finder) isBool(e ast.Expr) bool     { return isBool(d.info.Types[e].Type) }
func (d *finder) isConstant(e ast.Expr) bool { return d.info.Types[e].Value != nil }

// isBoolLiteral reports whether an expression is true or false.
func (d *finder) isBoolLiteral(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && (id.Name == "true" || id.Name == "false") && d.info.Uses[id] == types.Universe.Lookup(id.Name)
}

// isBool reports whether a type is bool, and not one that is defined as bool.
func isBool(t types.Type) bool {
	basic, ok := t.(*types.Basic)
	return ok && basic.Info()&types.IsBoolean != 0
}

func isError(t types.Type) bool {
	return t != nil && types.Identical(t, types.Universe.Lookup("error").Type())
}

func isNamed(t types.Type, pkg, name string) bool {
	n, ok := types.Unalias(t).(*types.Named)
	return ok && n.Obj().Name() == name && n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == pkg
}
