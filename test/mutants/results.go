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

// keys computes what identifies a mutant together with its inputs. The files of a folder are
// read once.
type keys struct {
	root    string
	near    bool
	folders map[string][]byte
}

func newKeys(root string, near bool) *keys {
	return &keys{root: root, near: near, folders: make(map[string][]byte)}
}

// of returns the key of a mutant: its name, its package, and the packages of its tests.
func (k *keys) of(m *mutant) (string, error) {
	sum := sha256.New()
	dirs := []string{m.in.dir}
	if !k.near {
		for _, t := range distant {
			if t.check(m) {
				dirs = append(dirs, t.tests)
			}
		}
	}
	fmt.Fprintf(sum, "%s", m.name())
	for _, dir := range dirs {
		text, err := k.folder(dir)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "\n%s %x", dir, text)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:12]), nil
}

// folder returns the checksum of the Go files of a folder.
func (k *keys) folder(dir string) ([]byte, error) {
	if sum := k.folders[dir]; sum != nil {
		return sum, nil
	}
	files, err := filepath.Glob(filepath.Join(k.root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	for _, name := range files { // in order
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(name), len(b), b)
	}
	k.folders[dir] = sum.Sum(nil)
	return k.folders[dir], nil
}
