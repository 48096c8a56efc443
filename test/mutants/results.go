package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// result is the result of a mutant.
type result struct {
	Name    string  `json:"name"`
	Key     string  `json:"key"`
	Verdict verdict `json:"verdict"`
	Seconds float64 `json:"seconds"`
	Detail  string  `json:"detail"`
}

// results are the ones of all runs, in a file with a line for each. It is not safe
// for concurrent use.
type results struct {
	file *os.File
	last map[string]verdict // by key
}

// openResults reads the results of the runs before.
func openResults(name string) (*results, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	r := &results{last: make(map[string]verdict)}
	old, err := os.Open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		defer old.Close()
		lines := bufio.NewScanner(old)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var one result
			if json.Unmarshal(lines.Bytes(), &one) == nil { // the last line may be truncated
				r.last[one.Key] = one.Verdict
			}
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
	if r.file, err = os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(r.file) // ends a truncated line
	return r, err
}

func (r *results) close() { _ = r.file.Close() }

// add writes down a result.
func (r *results) add(one result) error {
	line, err := json.Marshal(one)
	if err != nil {
		return err
	}
	r.last[one.Key] = one.Verdict
	_, err = fmt.Fprintf(r.file, "%s\n", line)
	return err
}

// noticed reports whether the mutant was detected in the last run. A mutant
// that hung is run again: the machine may have been the reason.
func (r *results) noticed(key string) bool { return r.last[key] == noticed }

// key identifies a mutant together with its inputs: the change, the file, its
// package, the package of its test.
func (m *mutant) key(root string) (string, error) {
	text, err := m.apply(root)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q %q %q\n%s", m.file, m.pkg, m.run, m.env, text)
	for _, dir := range []string{filepath.Dir(m.file), m.pkg} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			return "", err
		}
		for _, name := range files { // in order
			b, err := os.ReadFile(name)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(name), len(b), b)
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:12]), nil
}
