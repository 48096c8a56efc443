package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// verdict is the result of a mutant.
type verdict string

const (
	noticed   verdict = "noticed"
	hung      verdict = "hung" // the tests took too long
	survived  verdict = "SURVIVED"
	unreached verdict = "UNREACHED" // no test executes it
)

// detected reports whether a test failed.
func (v verdict) detected() bool { return v == noticed || v == hung }

// testsElsewhere are tests that check the code of other folders.
type testsElsewhere struct {
	code  string // prefix of the folders that they check
	tests string // folder of their package
	run   string // of those the tests with these names; all if empty
	env   []string
}

// distant lists the tests that check a folder beside those of its own package, the fastest
// first.
var distant = []testsElsewhere{
	{code: "relay/internal", tests: "relay"},
	{code: "dlq", tests: "relay"},
	{code: "outbox", tests: "orders"},
	{code: "outbox", tests: "test/sim/appending"},
	{code: "outbox/inbox", tests: "test/sim/inbox"},
	{code: "subscriptions/internal", tests: "subscriptions/engine"},
	{code: "subscriptions", tests: "test/sim/subscribing"},
	{code: "schedule", tests: "test/sim/later"},
	{code: "internal", tests: "internal/admin"},
	{code: "internal", tests: "messages"},
	{code: "relay", tests: "test/sim", env: []string{"SIM_FIRST=1", "SIM_SEEDS=20"}},
}

func (t testsElsewhere) check(m *mutant) bool {
	return m.in.dir != t.tests && (m.in.dir == t.code || strings.HasPrefix(m.in.dir, t.code+"/"))
}

// runner runs mutants.
type runner struct {
	options
	out     io.Writer
	results *results
	overlay string
	dir     string
	mu      sync.Mutex
	counts  map[verdict]int
	known   int
	// failed are the tests that fail without a mutant.
	failed []string
}

// runAll runs the mutants, first by the tests of their own packages.
func (r *runner) runAll(ctx context.Context, mutants []*mutant) (err error) {
	r.counts = make(map[verdict]int)
	keys := newKeys(".", r.near)
	var left []*mutant
	for _, m := range mutants {
		key, err := keys.of(m)
		if err != nil {
			return err
		}
		m.key = key
		if v, ok := r.results.last[key]; ok && !r.again && v != hung {
			r.known++
			r.counts[v]++
			if !v.detected() {
				fmt.Fprintf(r.out, "%-9s       %s:%d  %s\n", v, m.file, m.line, m.name())
			}
			continue
		}
		left = append(left, m)
	}
	if len(left) == 0 {
		return nil
	}
	if r.dir, err = os.MkdirTemp("", "outbox-mutants-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.dir)
	if r.overlay, err = writeOverlay(r.dir, left); err != nil {
		return err
	}
	byPackage := make(map[*goPackage][]*mutant)
	var packages []*goPackage
	for _, m := range left {
		if byPackage[m.in] == nil {
			packages = append(packages, m.in)
		}
		byPackage[m.in] = append(byPackage[m.in], m)
	}
	slices.SortFunc(packages, func(a, b *goPackage) int { return cmp.Compare(a.dir, b.dir) })
	var tougher []*mutant
	for _, p := range packages {
		still, err := r.try(ctx, testsElsewhere{tests: p.dir}, byPackage[p])
		if err != nil {
			return err
		}
		tougher = append(tougher, still...)
	}
	if !r.near {
		for _, t := range distant {
			checked := slices.DeleteFunc(slices.Clone(tougher), func(m *mutant) bool { return !t.check(m) || m.verdict.detected() })
			if _, err := r.try(ctx, t, checked); err != nil {
				return err
			}
		}
	}
	for _, m := range tougher {
		if !m.verdict.detected() {
			r.report(m)
		}
	}
	return ctx.Err()
}

// try runs mutants with the tests of a package and returns those that none detected.
func (r *runner) try(ctx context.Context, t testsElsewhere, mutants []*mutant) (left []*mutant, err error) {
	if len(mutants) == 0 {
		return nil, nil
	}
	s, err := r.compile(ctx, t)
	if err != nil || s == nil {
		for _, m := range mutants {
			m.verdict = cmp.Or(m.verdict, unreached)
		}
		return mutants, err
	}
	defer os.Remove(s.binary)
	r.each(ctx, len(s.tests), func(i int) { s.trace(ctx, s.tests[i]) })
	for _, test := range s.tests {
		if test.failed && ctx.Err() == nil {
			r.failed = append(r.failed, fmt.Sprintf("%s of %s (%s)", test.name, t.tests, test.detail))
		}
	}
	r.each(ctx, len(mutants), func(i int) {
		m := mutants[i]
		v, detail := s.run(ctx, m)
		if ctx.Err() != nil {
			return
		}
		if v != unreached || m.verdict == "" {
			m.verdict, m.detail = v, detail
		}
		if v.detected() {
			r.report(m)
		}
	})
	return slices.DeleteFunc(slices.Clone(mutants), func(m *mutant) bool { return m.verdict.detected() }), ctx.Err()
}

// each calls f for 0 to n-1, in several goroutines.
func (r *runner) each(ctx context.Context, n int, f func(i int)) {
	var wg sync.WaitGroup
	free := make(chan struct{}, r.processes)
	for i := range n {
		free <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-free }()
			f(i)
		})
	}
	wg.Wait()
}

// report records and prints the result of a mutant.
func (r *runner) report(m *mutant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[m.verdict]++
	if err := r.results.add(result{Name: m.name(), Key: m.key, Verdict: m.verdict, Detail: m.detail}); err != nil {
		fmt.Fprintln(r.out, "mutants:", err)
	}
	if r.verbose || m.verdict != noticed {
		fmt.Fprintf(r.out, "%-9s %s:%d  %s  %s\n", m.verdict, m.file, m.line, m.name(), m.detail)
	}
}

// suite is a compiled test binary with mutants in it.
type suite struct {
	testsElsewhere
	binary  string
	overlay string
	tests   []*test
}

// test is a function of a suite.
type test struct {
	name    string
	took    time.Duration
	reached map[int]bool // mutants, by number
	failed  bool
	detail  string
}

// compile returns the tests of a package, nil if it has none.
func (r *runner) compile(ctx context.Context, t testsElsewhere) (*suite, error) {
	s := &suite{testsElsewhere: t, binary: filepath.Join(r.dir, "test"), overlay: r.overlay}
	module, pkg := inModule(t.tests)
	if _, err := goCommand(ctx, module, "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", s.overlay, "-o", s.binary, pkg); err != nil {
		return nil, err
	}
	if _, err := os.Stat(s.binary); err != nil {
		return nil, nil // without test files
	}
	out, err := s.command(ctx, nil, "-test.list", cmp.Or(t.run, ".")).Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", t.tests, err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example") {
			s.tests = append(s.tests, &test{name: name})
		}
	}
	return s, nil
}

// command runs the binary with at most 16 GiB of addresses: a mutant may allocate without end.
func (s *suite) command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -v 16777216; exec "$0" "$@"`, s.binary}, args...)...)
	cmd.Dir = s.testsElsewhere.tests
	// A program that a test builds has the mutants too.
	cmd.Env = append(append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+s.overlay), append(s.env, env...)...)
	return cmd
}

// output runs a command, and ends the processes that it left: a test that hangs in virtual time
// does so in a process of its own.
func output(cmd *exec.Cmd) ([]byte, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = kill, time.Second
	out, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = kill() // none is left, as a rule
	}
	return out, err
}

// trace runs a test without a mutant, and records what it reaches.
func (s *suite) trace(ctx context.Context, t *test) {
	file := filepath.Join(filepath.Dir(s.binary), t.name+".trace")
	defer os.Remove(file)
	began := time.Now()
	out, err := output(s.command(ctx, []string{traceEnv + "=" + file}, "-test.run", "^"+t.name+"$", "-test.short", "-test.timeout", "20m"))
	t.took, t.failed, t.detail = time.Since(began), err != nil, firstComplaint(out)
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.failed, t.detail = true, err.Error()
	}
	t.reached = make(map[int]bool)
	for number := range strings.FieldsSeq(string(text)) {
		id, _ := strconv.Atoi(number) // support writes numbers
		t.reached[id] = true
	}
}

// quick is how long the tests take that run before the others of a mutant.
const quick = 2 * time.Second

// run runs the tests that reach a mutant, until one fails.
func (s *suite) run(ctx context.Context, m *mutant) (v verdict, detail string) {
	var tests []*test
	for _, t := range s.tests {
		if !t.failed && t.reached[m.id] {
			tests = append(tests, t)
		}
	}
	if len(tests) == 0 {
		return unreached, ""
	}
	slices.SortFunc(tests, func(a, b *test) int { return cmp.Compare(a.took, b.took) })
	for len(tests) > 0 {
		n, took := 0, time.Duration(0)
		for n < len(tests) && (n == 0 || took+tests[n].took <= quick) {
			took += tests[n].took
			n++
		}
		if took > quick { // the rest together
			n, took = len(tests), 0
			for _, t := range tests {
				took += t.took
			}
		}
		names := make([]string, n)
		for i, t := range tests[:n] {
			names[i] = regexp.QuoteMeta(t.name)
		}
		tests = tests[n:]
		limit := 20*time.Second + 10*took
		out, err := output(s.command(ctx, []string{idEnv + "=" + strconv.Itoa(m.id)}, "-test.run", "^("+strings.Join(names, "|")+")$", "-test.failfast", "-test.short", "-test.timeout", limit.String()))
		switch {
		case err == nil:
		case bytes.Contains(out, []byte("panic: test timed out")):
			return hung, "for " + limit.Round(time.Second).String()
		default:
			return noticed, firstComplaint(out)
		}
	}
	return survived, ""
}

// inModule returns the folder of the module that contains a package's folder,
// and the path of the folder within it.
func inModule(pkg string) (module, inside string) {
	for module = filepath.Clean(pkg); module != "."; module = filepath.Dir(module) {
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
			rel, _ := filepath.Rel(module, pkg) // both are below the working directory
			return module, "./" + filepath.ToSlash(rel)
		}
	}
	return ".", "./" + filepath.ToSlash(pkg)
}

// firstComplaint returns the first line of the test's output with a reason.
func firstComplaint(out []byte) string {
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "_test.go:") || strings.Contains(line, "world.go:") || strings.HasPrefix(line, "panic:") {
			if strings.Contains(line, "make sim") || strings.Contains(line, "simulated:") {
				continue
			}
			return line[:min(len(line), 160)]
		}
	}
	return "red"
}
