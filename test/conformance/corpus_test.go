package conformance

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

//go:embed corpus/*.cql
var corpusFiles embed.FS

// corpusFile is one file of the corpus.
type corpusFile struct {
	name  string // without .cql
	cases []*corpusCase
}

type corpusCase struct {
	name  string
	steps []*step
}

func (c *corpusCase) keyspace() string { return "c_" + c.name }

// step is one request, or several with each.
type step struct {
	where   string // file:line
	text    string // as in the file, for messages and recorded answers
	options options
	cql     string
	values  []value
	// prepared is true if values were given, even ().
	prepared bool
	batch    *batch
	// reason and scylla are set where ScyllaDB differs.
	reason string
	scylla []string
}

type options struct {
	meta, skipMeta, names bool
	pageSize              int32
	timestamp             *int64
	consistency, serial   string
	from, to              int // each
	each                  bool
	wait                  time.Duration
	until                 bool // the answer is no error
}

type batch struct {
	kind  string
	items []batchItem
}

type batchItem struct {
	cql      string
	values   []value
	prepared bool
}

// readCorpus reads all files, in order.
func readCorpus(t testing.TB) []corpusFile {
	t.Helper()
	paths, err := fs.Glob(corpusFiles, "corpus/*.cql")
	if err != nil {
		t.Fatal(err)
	}
	var files []corpusFile
	for _, p := range paths {
		text, err := corpusFiles.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		f := corpusFile{name: strings.TrimSuffix(path.Base(p), ".cql")}
		if f.cases, err = parseCorpus(path.Base(p), string(text)); err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

var caseName = regexp.MustCompile(`^[a-z0-9_]+$`)

// parseCorpus reads one file.
func parseCorpus(name, text string) ([]*corpusCase, error) {
	var (
		cases  []*corpusCase
		reason []string
		lines  []string // of the current statement
		start  int
	)
	for i, line := range strings.Split(text, "\n") {
		fail := func(format string, args ...any) ([]*corpusCase, error) {
			return nil, fmt.Errorf("%s:%d: %s", name, i+1, fmt.Sprintf(format, args...))
		}
		line = strings.TrimRight(line, " ")
		var last *corpusCase
		if len(cases) > 0 {
			last = cases[len(cases)-1]
		}
		switch {
		case len(lines) == 0 && (line == "" || line[0] == '#'):
			continue
		case len(lines) == 0 && strings.HasPrefix(line, "case "):
			n := strings.TrimPrefix(line, "case ")
			if !caseName.MatchString(n) {
				return fail("bad name of a case: %q", n)
			}
			cases = append(cases, &corpusCase{name: n})
			continue
		case len(lines) == 0 && strings.HasPrefix(line, "! "):
			reason = append(reason, line[2:])
			continue
		case len(lines) == 0 && strings.HasPrefix(line, "> "):
			if last == nil || len(last.steps) == 0 || last.steps[len(last.steps)-1].reason == "" {
				return fail("an answer of ScyllaDB without a reason")
			}
			s := last.steps[len(last.steps)-1]
			s.scylla = append(s.scylla, line[2:])
			continue
		}
		if last == nil {
			return fail("a statement before the first case")
		}
		if len(lines) == 0 {
			start = i + 1
		}
		lines = append(lines, line)
		if !strings.HasSuffix(line, ";") {
			continue
		}
		s := &step{where: fmt.Sprintf("%s:%d", name, start), text: strings.Join(lines, "\n"), reason: strings.Join(reason, " ")}
		if err := s.parse(); err != nil {
			return fail("%v", err)
		}
		last.steps = append(last.steps, s)
		lines, reason = nil, nil
	}
	if len(lines) > 0 {
		return nil, fmt.Errorf("%s:%d: the statement must end with ;", name, start)
	}
	for _, c := range cases {
		for _, s := range c.steps {
			if (s.reason == "") != (s.scylla == nil) {
				return nil, fmt.Errorf("%s: a reason without ScyllaDB's answer", s.where)
			}
		}
	}
	return cases, nil
}

// parse parses the text of the step.
func (s *step) parse() error {
	rest := strings.TrimSuffix(s.text, ";")
	if strings.HasPrefix(rest, "[") {
		list, after, ok := strings.Cut(rest[1:], "]")
		if !ok {
			return fmt.Errorf("options without ]")
		}
		for _, o := range strings.Fields(list) {
			if err := s.options.set(o); err != nil {
				return err
			}
		}
		rest = strings.TrimLeft(after, " ")
	}
	if after, ok := strings.CutPrefix(rest, "batch "); ok {
		kind, items, ok := strings.Cut(after, " {")
		if !ok || !strings.HasSuffix(items, "}") {
			return fmt.Errorf("a batch is written: batch KIND { … }")
		}
		s.batch = &batch{kind: kind}
		for _, text := range strings.Split(strings.TrimSuffix(items, "}"), ";;") {
			text = strings.TrimSpace(text)
			if text == "" {
				continue
			}
			var item batchItem
			var err error
			if item.values, item.prepared, item.cql, err = cutValues(text); err != nil {
				return err
			}
			s.batch.items = append(s.batch.items, item)
		}
		return nil
	}
	var err error
	s.values, s.prepared, s.cql, err = cutValues(rest)
	return err
}

func (o *options) set(text string) (err error) {
	name, arg, _ := strings.Cut(text, "=")
	switch name {
	case "meta":
		o.meta = true
	case "skipmeta":
		o.skipMeta = true
	case "names":
		o.names = true
	case "page":
		var n int
		n, err = strconv.Atoi(arg)
		o.pageSize = int32(n)
	case "ts":
		var n int64
		n, err = strconv.ParseInt(arg, 10, 64)
		o.timestamp = &n
	case "cl":
		o.consistency = arg
	case "scl":
		o.serial = arg
	case "each":
		o.each = true
		_, err = fmt.Sscanf(arg, "%d..%d", &o.from, &o.to)
	case "until":
		o.until = true
	case "wait":
		o.wait, err = time.ParseDuration(arg)
	default:
		err = fmt.Errorf("unknown option %q", text)
	}
	return err
}

// requests returns the steps that the modes of s generate; s itself without
// one.
func (s *step) requests() []*step {
	if !s.options.each {
		return []*step{s}
	}
	var all []*step
	for i := s.options.from; i <= s.options.to; i++ {
		one := *s
		one.cql = strings.ReplaceAll(s.cql, "{i}", strconv.Itoa(i))
		all = append(all, &one)
	}
	return all
}

func TestParseCorpus(t *testing.T) {
	t.Parallel()
	cases, err := parseCorpus("x.cql", "# c\ncase a\n[ts=5 page=2] (int:1, text:a,\n null) SELECT 1\n FROM t;\n! because\n! it is\nbatch logged { A ;; (unset) B };\n> void\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) != 1 || len(cases[0].steps) != 2 {
		t.Fatalf("parseCorpus() = %+v", cases)
	}
	first, second := cases[0].steps[0], cases[0].steps[1]
	if first.where != "x.cql:3" || first.cql != "SELECT 1\n FROM t" || len(first.values) != 3 || *first.options.timestamp != 5 || first.options.pageSize != 2 {
		t.Errorf("first step = %+v", first)
	}
	if second.reason != "because it is" || second.scylla[0] != "void" || len(second.batch.items) != 2 || !second.batch.items[1].prepared {
		t.Errorf("second step = %+v", second)
	}
	for _, bad := range []string{"SELECT 1;", "case a\nSELECT 1", "case a\n> void", "case a\n! why\nSELECT 1;", "case A", "case a\n[x] SELECT 1;", "case a\n(int:x) SELECT 1;"} {
		if _, err := parseCorpus("x.cql", bad); err == nil {
			t.Errorf("parseCorpus(%q) succeeded", bad)
		}
	}
}
