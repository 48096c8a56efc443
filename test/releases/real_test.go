package releases

import (
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schema"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

// hostsVar names the nodes of a given cluster, userVar and passwordVar an account there.
const hostsVar, userVar, passwordVar = "OUTBOX_SCYLLA_HOSTS", "OUTBOX_SCYLLA_USERNAME", "OUTBOX_SCYLLA_PASSWORD"

var updateUncovered = flag.Bool("uncovered", false, "write testdata/uncovered.txt")

// given returns the configuration of sessions to the given cluster.
func given(keyspace string) *gocql.ClusterConfig {
	c := gocql.NewCluster(strings.Split(os.Getenv(hostsVar), ",")...)
	c.Keyspace, c.ProtoVersion, c.Timeout, c.ConnectTimeout = keyspace, 4, 10*time.Second, 10*time.Second
	if user := os.Getenv(userVar); user != "" {
		c.Authenticator = gocql.PasswordAuthenticator{Username: user, Password: os.Getenv(passwordVar)}
	}
	return c
}

// TestReal_Story is what make test-real runs on the cluster in OUTBOX_SCYLLA_HOSTS, in a fresh
// keyspace and in real time: migrations, and all services through the story of this package;
// then the relay publishes what is left, the verification finds it, and each response of the
// admin API is read. Without a cluster it runs on the embedded database with tablets, in virtual
// time. No statement may be refused.
func TestReal_Story(t *testing.T) {
	if os.Getenv(hostsVar) == "" {
		conf := scyllafake.Config{Tokens: 4}
		bubbleOn(t, time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC), conf, func(w *world) {
			w.real()
			w.statements.covered(t)
			w.conditional()
		})
		return
	}
	keyspace = "outbox_" + strconv.FormatInt(time.Now().Unix(), 36)
	w := &world{t: t, archiveDir: t.TempDir()}
	w.startBroker()
	defer w.close()
	defer func() {
		s := w.connect("")
		defer sessions.Close(s)
		if err := s.Query("DROP KEYSPACE IF EXISTS " + keyspace).Exec(); err != nil {
			t.Error(err)
		}
	}()
	w.real()
}

// With each version of the broker that gives topics ids, which subscriptions need, all services
// run the story: orders, messages, schedule, relay, dead letters, subscriptions and the inbox.
func TestStory_EachVersionOfTheBroker(t *testing.T) {
	for _, v := range testworld.BrokerVersions {
		if !v.TopicIDs || len(v.Options()) == 0 { // TestReal_Story has the newest
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			bubbleOn(t, time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC), scyllafake.Config{Tokens: 4}, (*world).real, v.Options()...)
		})
	}
}

// conditional compares the tables NAME$paxos that the story made with the tables that
// docs/operators/tablets.md says have conditional statements.
func (w *world) conditional() {
	page, err := os.ReadFile("../../docs/operators/tablets.md")
	w.must(err)
	var documented, all, made []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*`) \\|").FindAllStringSubmatch(string(page), -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			documented = append(documented, strings.Trim(name, "`"))
		}
	}
	iter := w.session.Query("SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?", keyspace).Iter()
	for name := ""; iter.Scan(&name); {
		if of, is := strings.CutSuffix(name, "$paxos"); is {
			made = append(made, of)
		} else {
			all = append(all, name)
		}
	}
	w.must(iter.Close())
	for _, name := range made {
		if !slices.Contains(documented, name) && !slices.ContainsFunc(own(), func(stmt string) bool { return strings.Contains(stmt, "."+name+" ") }) {
			w.t.Errorf("%s has conditional statements, and docs/operators/tablets.md does not name it", name)
		}
	}
	for _, name := range documented {
		if !slices.Contains(all, name) {
			w.t.Errorf("docs/operators/tablets.md names %s, and there is no such table", name)
		}
	}
	if len(made) < 10 {
		w.t.Errorf("only %q have conditional statements", made)
	}
	w.t.Logf("documented and without a conditional statement in the story: %q", slices.DeleteFunc(documented, func(name string) bool { return slices.Contains(made, name) }))
}

// real runs the scenarios in an empty keyspace.
func (w *world) real() {
	ctx := w.t.Context()
	w.statements = &statements{executed: map[string]bool{}, refused: map[string]bool{}}
	w.migrate()
	w.migrate() // it changes nothing
	w.open()
	for _, stmt := range own() {
		w.must(w.session.Query(stmt).Exec())
	}
	status := must1[schema.Report](w)(schema.Status(ctx, w.session, schema.Options{Keyspace: keyspace}))
	if !status.UpToDate() {
		w.t.Errorf("the keyspace is not up to date: %+v", status.Migrations)
	}
	w.t.Logf("keyspace %s of ScyllaDB %s", keyspace, status.Server.Version)
	facts, paths := story(w)
	order, err := gocql.ParseUUID(facts["order"][0])
	w.must(err)
	again := must1[orders.Result](w)(w.orders.Confirm(ctx, order, orders.Confirmation{}, orders.WriteOptions{IdempotencyKey: "confirm-1"}))
	if !again.Replayed || again.Order.Version != 2 {
		w.t.Errorf("a repeated change of an earlier version = %+v, want version 2", again)
	}
	get := w.api()
	for _, path := range paths {
		if code, body := get(path); code != http.StatusOK {
			w.t.Errorf("GET %s: %d %s", path, code, body)
		}
	}
	w.rest()
	w.accept()
	_, stop := w.relays()
	defer stop()
	var counts verify.Counts
	for range 60 {
		if counts = w.verified(); counts.Missing == 0 {
			break
		}
		time.Sleep(10 * time.Second)
	}
	if counts.Missing+counts.Unknown+counts.Disorder+counts.Doubles > 0 || counts.Published == 0 {
		w.t.Errorf("the relay has published %+v, want every event once and in order", counts)
	}
	w.t.Logf("%+v", counts)
	for stmt := range w.statements.refused {
		w.t.Error("refused: ", stmt)
	}
}

// verified compares the outbox with its topics.
func (w *world) verified() verify.Counts {
	v := verify.Verification{
		Scan: &verify.Scan{
			Session: w.session, Table: keyspace + "." + outbox.DefaultTableName, Ranges: 16,
			Topic: func(eventType, aggregateType string) (string, error) {
				return relay.ExpandTopic(relay.DefaultTopicTemplate, eventType, aggregateType), nil
			},
		},
		Keyspace: keyspace, Table: outbox.DefaultTableName, Kafka: testworld.Kafka(w.brokers()), Source: relay.DefaultSource,
		Window:      verify.Window{Until: time.Now()},
		DeadLetters: app.DeadLettersOf{Store: w.deadLetters, Table: keyspace + "." + outbox.DefaultTableName},
	}
	w.must(v.Run(w.t.Context()))
	return v.Ledger().Check(v.Window, nil)
}

// statements records the statements of sessions, and those that the database refused as invalid.
type statements struct {
	mu                sync.Mutex
	executed, refused map[string]bool
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
		s.executed[stmt] = true
		if cqlcode.Of(err) != cqlcode.None && cqlcode.FateOf(err) == cqlcode.Invalid {
			s.refused[fmt.Sprintf("%s: %v", stmt, err)] = true
		}
	}
}

// covered fails for a statement of the product's source that was not executed and is not in
// testdata/uncovered.txt. go test ./test/releases -run Real -uncovered writes the file.
func (s *statements) covered(t *testing.T) {
	t.Helper()
	var left []string
	found := sourceStatements(t)
	for _, f := range found {
		re := regexp.MustCompile("^" + f.pattern)
		executed := false
		for stmt := range s.executed {
			executed = executed || re.MatchString(strings.TrimSpace(stmt))
		}
		if !executed {
			left = append(left, f.file+": "+f.text)
		}
	}
	slices.Sort(left)
	left = slices.Compact(left)
	const file = "testdata/uncovered.txt"
	if *updateUncovered {
		if err := os.WriteFile(file, []byte(strings.Join(left, "\n")+"\n"), 0o644); err != nil { //nolint:gosec // readable by all
			t.Fatal(err)
		}
	}
	known, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Split(string(known), "\n")
	for _, stmt := range left {
		if !slices.Contains(listed, stmt) {
			t.Errorf("the story does not execute %s: let it, or run this test with -uncovered, which adds it to %s", stmt, file)
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
		e := expressions{names: map[string][]string{}}
		ast.Inspect(f, e.assignments)
		ast.Inspect(f, func(n ast.Node) bool {
			x, ok := n.(ast.Expr)
			if _, name := n.(*ast.Ident); name || !ok {
				return true
			}
			parts := e.parts(x, 0)
			if len(parts) == 0 || !begins.MatchString(parts[0]) {
				return true
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
			all = append(all, source{filepath.ToSlash(rel), strings.TrimSpace(strings.ReplaceAll(text.String(), unknown, "…")), strings.ReplaceAll(pattern.String(), unknown, ".*?")})
			return false
		})
		return nil
	})
	if err != nil || len(all) < 50 {
		t.Fatalf("%d statements in the source, %v", len(all), err)
	}
	return all
}

// unknown stands for a part of a statement that is no literal.
const unknown = "\x01"

// expressions flattens expressions of strings of one file.
type expressions struct{ names map[string][]string }

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
