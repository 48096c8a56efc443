// Command mutants changes one line of the code at a time and expects a test to
// detect it. It reports the changes that no test detected, and then exits with
// status 1.
//
//	go run ./test/mutants             # all
//	go run ./test/mutants -only acks  # those with "acks" in their name
//	go run ./test/mutants -again      # including mutants that were detected before
//
// It does not modify the tree: the compiler reads the changed file from an
// overlay. The result of each is written to bin/mutants.jsonl immediately, so
// that an interrupted run can resume: a detected mutant is skipped until its
// file, or the package of its test, changes.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() { os.Exit(run()) }

func run() int {
	only := flag.String("only", "", "run mutants whose name contains this")
	timeout := flag.Duration("timeout", 5*time.Minute, "timeout of a test; a timeout counts as detected if the mutant can hang")
	processes := flag.Int("processes", runtime.NumCPU(), "number of concurrent tests")
	file := flag.String("results", filepath.Join("bin", "mutants.jsonl"), "file of the results")
	again := flag.Bool("again", false, "also run mutants that were detected before")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	before, err := openResults(*file)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		return 1
	}
	defer before.close()
	var mu sync.Mutex
	var wg sync.WaitGroup
	tried, known, bad := 0, 0, 0
	free := make(chan struct{}, *processes)
	for _, m := range mutants {
		if !strings.Contains(m.name, *only) {
			continue
		}
		if err := m.locate("."); err != nil {
			fmt.Fprintln(os.Stderr, "mutants:", err)
			return 1
		}
		key, err := m.key(".")
		if err == nil && !*again && before.noticed(key) {
			known++
			continue
		}
		free <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-free }()
			began := time.Now()
			r := result{Name: m.name, Key: key}
			r.Verdict, r.Detail = m.try(ctx, *timeout)
			r.Seconds = time.Since(began).Round(time.Second).Seconds()
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() != nil {
				return // interrupted
			}
			tried++
			if !r.Verdict.good() {
				bad++
			}
			if err := before.add(r); err != nil {
				fmt.Fprintln(os.Stderr, "mutants:", err)
			}
			fmt.Printf("%-9s %5.0fs  %s  (%s)\n", r.Verdict, r.Seconds, r.Name, r.Detail)
		})
	}
	wg.Wait()
	fmt.Printf("%d mutants, %d not noticed; %d were noticed before\n", tried, bad, known)
	if bad > 0 || tried+known == 0 || ctx.Err() != nil {
		return 1
	}
	return 0
}

// verdict is the result of a mutant.
type verdict string

const (
	noticed  verdict = "noticed"
	hung     verdict = "hung" // the test took too long
	survived verdict = "SURVIVED"
	broken   verdict = "ERROR"
)

// good reports whether a test detected the mutant.
func (v verdict) good() bool { return v == noticed || v == hung }

// try runs the test on the broken code.
func (m *mutant) try(ctx context.Context, timeout time.Duration) (v verdict, detail string) {
	dir, err := os.MkdirTemp("", "outbox-mutant-")
	if err != nil {
		return broken, err.Error()
	}
	defer os.RemoveAll(dir)
	overlay, err := m.overlay(dir)
	if err != nil {
		return broken, err.Error()
	}
	binary := filepath.Join(dir, "test")
	module, pkg := inModule(m.pkg)
	build := exec.CommandContext(ctx, "go", "test", "-c", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, pkg)
	build.Dir = module
	if out, err := build.CombinedOutput(); err != nil {
		return broken, fmt.Sprintf("does not compile: %s", out)
	}
	test := exec.CommandContext(ctx, binary, "-test.run", m.run, "-test.failfast", "-test.v", "-test.timeout", timeout.String())
	test.Dir = m.pkg
	// A program that the test builds has the mutant too.
	test.Env = append(append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay), m.env...)
	out, err := test.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return broken, ctx.Err().Error()
	case !bytes.Contains(out, []byte("=== RUN")):
		return broken, "no test is called " + m.run
	case err == nil:
		return survived, m.pkg + " " + m.run + " stays green"
	case bytes.Contains(out, []byte("panic: test timed out")):
		return hung, "for " + timeout.String()
	}
	return noticed, firstComplaint(out)
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
	return ".", pkg
}

// overlay writes the changed file and the overlay file of the compiler.
func (m *mutant) overlay(dir string) (string, error) {
	text, err := m.apply(".")
	if err != nil {
		return "", err
	}
	file, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	mutated := filepath.Join(dir, filepath.Base(m.file))
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: mutated}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(os.WriteFile(mutated, text, 0o600), os.WriteFile(overlay, list, 0o600))
}

// apply returns the changed file of the tree in root. The old text must occur
// exactly once.
func (m *mutant) apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(m.old)); n != 1 {
		return nil, fmt.Errorf("%s contains %d times %q, want once", m.file, n, m.old)
	}
	return bytes.Replace(text, []byte(m.old), []byte(m.new), 1), nil
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
