package releases

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// uncovered are the statements of the source that the scenarios of make test-real do not
// execute, with the reason.
var uncovered = map[string]string{
	"internal/app/clients.go: SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?":                              "of a keyspace without the tables of a component; the driver reads this row too",
	"dlq/store_read.go: SELECT event_id, payload, content_type FROM … WHERE event_id IN ?":                                            "of a page with more than eight payloads; TestPayloads_LargeOnesAfterSmallOnes",
	"dlq/statements.go: DELETE FROM ….dead_letter_edits WHERE event_id = ? AND edited_id = ?":                                         "only after a purge between the two writes of an edit",
	"schema/migrate.go: SELECT column_name FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ? AND column_name = ?": "no migration adds a column yet",
	"subscriptions/store/statements.go: UPDATE ….subscription_messages SET message_key = ?, state = ?, attempts = ?, next_attempt = ?, first_at = ?, error = ?, dead_letter_id = ?, edited = ? WHERE subscription = ? AND topic = ? AND topic_partition = ? AND record_offset = ?": "a message that is stored again has its record in memory, unless the process died between a row and a position",
}

// statements records the statements of sessions, and the statements that the database refused as
// invalid.
type statements struct {
	mu sync.Mutex
	// executed has the number of executions of each.
	executed map[string]int
	refused  map[string]bool
}

func newStatements() *statements {
	return &statements{executed: map[string]int{}, refused: map[string]bool{}}
}

// ObserveQuery implements gocql.QueryObserver.
func (s *statements) ObserveQuery(_ context.Context, q gocql.ObservedQuery) {
	s.add(q.Err, q.Statement)
}

// ObserveBatch implements gocql.BatchObserver.
func (s *statements) ObserveBatch(_ context.Context, b gocql.ObservedBatch) {
	s.add(b.Err, b.Statements...)
}

func (s *statements) add(err error, all ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stmt := range all {
		s.executed[strings.TrimSpace(stmt)]++
		if cqlcode.Of(err) != cqlcode.None && cqlcode.ClassifyFate(err) == cqlcode.Invalid {
			s.refused[fmt.Sprintf("%s: %v", stmt, err)] = true
		}
	}
}

// checkCovered fails for a statement of the product's source that was not executed, unless uncovered
// has its reason, and for an entry of uncovered that was executed or does not exist.
func (s *statements) checkCovered(t *testing.T) {
	t.Helper()
	executed := slices.Collect(maps.Keys(s.executed))
	left := map[string]bool{}
	found := sourceStatements(t)
	for _, f := range found {
		if !slices.ContainsFunc(executed, regexp.MustCompile("^(?:"+f.pattern+")$").MatchString) {
			left[f.file+": "+f.text] = true
		}
	}
	for _, stmt := range slices.Sorted(maps.Keys(left)) {
		if uncovered[stmt] == "" {
			t.Errorf("make test-real does not execute %s: let a scenario do it, or add it to uncovered with the reason", stmt)
		}
	}
	for stmt := range uncovered {
		if !left[stmt] {
			t.Errorf("uncovered contains a statement that was executed, or that the source does not have: %s", stmt)
		}
	}
	t.Logf("%d of %d statements of the source were executed", len(found)-len(left), len(found))
}

// source is a statement in the source: the beginning that is known.
type source struct{ file, text, pattern string }

var (
	begins = regexp.MustCompile(`^(SELECT|INSERT INTO|UPDATE|DELETE) `)
	verbs  = regexp.MustCompile(`%[a-z]`)
)

// sourceStatements returns the statements of the product.
func sourceStatements(t *testing.T) (all []source) {
	t.Helper()
	const root = "../.."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && rel != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"test", "devkit", "examples", "docs", "bin"}, rel)):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		e := expressions{names: map[string][]string{}, extended: map[string]bool{}}
		ast.Inspect(f, e.assignments)
		ast.Inspect(f, e.extensions)
		ast.Inspect(f, e.aliases)
		var above []ast.Node
		ast.Inspect(f, func(n ast.Node) bool {
			if n == nil {
				above = above[:len(above)-1]
				return true
			}
			x, ok := n.(ast.Expr)
			if _, name := n.(*ast.Ident); name || !ok {
				above = append(above, n)
				return true
			}
			parts := e.parts(x, 0)
			if len(parts) == 0 || !begins.MatchString(parts[0]) {
				above = append(above, n)
				return true
			}
			end, ok := e.end(above[len(above)-1], x)
			if !ok {
				return false
			}
			var text, pattern strings.Builder
			for _, p := range parts {
				text.WriteString(p)
				for i, literal := range strings.Split(verbs.ReplaceAllString(p, "\x00"), "\x00") {
					if i > 0 {
						pattern.WriteString(".*?")
					}
					pattern.WriteString(regexp.QuoteMeta(literal))
				}
			}
			all = append(all, source{filepath.ToSlash(rel), strings.TrimSpace(strings.ReplaceAll(text.String(), unknown, "…")), strings.ReplaceAll(pattern.String(), unknown, ".*?") + end})
			return false
		})
		return nil
	})
	if err != nil || len(all) < 50 {
		t.Fatalf("%d statements in the source, %v", len(all), err)
	}
	return all
}

// unknown replaces a part of a statement that is no literal.
const unknown = "\x01"

// expressions flattens expressions of strings of one file.
type expressions struct {
	names map[string][]string
	// extended are the names of variables, constants and fields whose statement is a part of
	// others: they are operands of +, or something is added to them.
	extended map[string]bool
}

// extensions records the names that are extended.
func (e *expressions) extensions(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if n.Op == token.ADD {
			e.extended[exprName(n.X)], e.extended[exprName(n.Y)] = true, true
		}
	case *ast.AssignStmt:
		if n.Tok == token.ADD_ASSIGN {
			e.extended[exprName(n.Lhs[0])] = true
		}
	}
	return true
}

// aliases records that the value of an extended name is extended.
func (e *expressions) aliases(n ast.Node) bool {
	if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
		for i := range a.Lhs {
			if name := exprName(a.Rhs[i]); e.extended[exprName(a.Lhs[i])] && name != "" {
				e.extended[name] = true
			}
		}
	}
	return true
}

// end returns the end of the pattern of a statement: empty, or ".*" where the source adds to it
// elsewhere. It returns false for a prefix that is compared with.
func (e *expressions) end(above ast.Node, x ast.Expr) (end string, ok bool) {
	var name string
	switch n := above.(type) {
	case *ast.CallExpr:
		switch exprName(n.Fun) {
		case "CutPrefix":
			return "", false
		case "WriteString":
			return ".*", true
		}
	case *ast.AssignStmt:
		name = exprName(n.Lhs[min(slices.Index(n.Rhs, x), len(n.Lhs)-1)])
	case *ast.ValueSpec:
		name = exprName(n.Names[slices.Index(n.Values, x)])
	case *ast.KeyValueExpr:
		name = exprName(n.Key)
	}
	if e.extended[name] {
		return ".*", true
	}
	return "", true
}

// exprName returns the name of a variable, a constant or a field; empty for another expression.
func exprName(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

// assignments records the strings of variables and constants.
func (e *expressions) assignments(n ast.Node) bool {
	record := func(name ast.Expr, value ast.Expr) {
		if id, ok := name.(*ast.Ident); ok {
			if parts := e.parts(value, 0); len(parts) > 0 {
				if _, twice := e.names[id.Name]; twice {
					parts = []string{unknown}
				}
				e.names[id.Name] = parts
			}
		}
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		for i := range min(len(n.Lhs), len(n.Rhs)) {
			if len(n.Lhs) == len(n.Rhs) {
				record(n.Lhs[i], n.Rhs[i])
			}
		}
	case *ast.ValueSpec:
		for i := range min(len(n.Names), len(n.Values)) {
			record(n.Names[i], n.Values[i])
		}
	}
	return true
}

// parts returns the literals of a string expression, with unknown for the other operands; nil
// for an expression without literals.
func (e *expressions) parts(x ast.Expr, depth int) []string {
	if depth > 20 {
		return nil
	}
	switch x := x.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(x.Value); err == nil && x.Kind == token.STRING {
			return []string{text}
		}
	case *ast.Ident:
		return e.names[x.Name]
	case *ast.BinaryExpr:
		if x.Op != token.ADD {
			return nil
		}
		left, right := e.parts(x.X, depth+1), e.parts(x.Y, depth+1)
		if left == nil && right == nil {
			return nil
		}
		if left == nil {
			left = []string{unknown}
		}
		if right == nil {
			right = []string{unknown}
		}
		return slices.Concat(left, right)
	}
	return nil
}
