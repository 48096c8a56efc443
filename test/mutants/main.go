// Command mutants breaks the code in one line at a time and expects a test to
// notice. It says which breaks survived, and ends with status 1 if any did.
//
//	go run ./test/mutants             # all
//	go run ./test/mutants -only acks  # those with "acks" in their name
//
// The tree itself is not touched: the compiler is told of the broken file alone.
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
	"time"
)

func main() { os.Exit(run()) }

func run() int {
	only := flag.String("only", "", "those with this in their name")
	timeout := flag.Duration("timeout", 5*time.Minute, "how long a test may take; one that takes longer has noticed")
	processes := flag.Int("processes", runtime.NumCPU(), "how many are tried at the same time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var mu sync.Mutex
	var wg sync.WaitGroup
	tried, bad := 0, 0
	free := make(chan struct{}, *processes)
	for _, m := range mutants {
		if !strings.Contains(m.name, *only) {
			continue
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			began := time.Now()
			v, detail := m.try(ctx, *timeout)
			mu.Lock()
			defer mu.Unlock()
			tried++
			if v != noticed {
				bad++
			}
			fmt.Printf("%-9s %5.0fs  %s  (%s)\n", v, time.Since(began).Seconds(), m.name, detail)
		})
	}
	wg.Wait()
	fmt.Printf("%d mutants, %d not noticed\n", tried, bad)
	if bad > 0 || tried == 0 {
		return 1
	}
	return 0
}

// verdict is what came of a mutant.
type verdict string

const (
	noticed  verdict = "noticed"
	survived verdict = "SURVIVED"
	broken   verdict = "ERROR"
)

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
	build := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-o", binary, m.pkg)
	if out, err := build.CombinedOutput(); err != nil {
		return broken, fmt.Sprintf("does not compile: %s", out)
	}
	test := exec.CommandContext(ctx, binary, "-test.run", m.run, "-test.failfast", "-test.v", "-test.timeout", timeout.String())
	test.Dir = m.pkg
	test.Env = append(os.Environ(), m.env...)
	out, err := test.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return broken, ctx.Err().Error()
	case !bytes.Contains(out, []byte("=== RUN")):
		return broken, "no test is called " + m.run
	case err == nil:
		return survived, m.pkg + " " + m.run + " stays green"
	}
	return noticed, firstComplaint(out)
}

// overlay writes the broken file and the list that tells the compiler of it.
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

// apply returns the broken file of the tree in root. What is to be broken must
// stand there exactly once.
func (m *mutant) apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(m.old)); n != 1 {
		return nil, fmt.Errorf("%s has %d times %q, want once", m.file, n, m.old)
	}
	return bytes.Replace(text, []byte(m.old), []byte(m.new), 1), nil
}

// firstComplaint is the first line in which the test says what it noticed.
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
