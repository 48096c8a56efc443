package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Variables of the environment that the compiled mutants read: the number of the one that is
// on, and a file that receives the numbers of those that are reached.
const (
	idEnv    = "OUTBOX_MUTANT"
	traceEnv = "OUTBOX_MUTANT_TRACE"
)

// support is the file that each mutated package gets: its name, and the highest number.
const support = `package %s

import (
	mutant__os "os"
	mutant__strconv "strconv"
	mutant__atomic "sync/atomic"
)

var (
	mutant__id, _ = mutant__strconv.Atoi(mutant__os.Getenv("` + idEnv + `"))
	mutant__trace = mutant__os.Getenv("` + traceEnv + `")
	mutant__seen  [%d + 1]mutant__atomic.Bool
)

func mutant__on(id int) bool {
	if mutant__trace != "" && mutant__seen[id].CompareAndSwap(false, true) {
		f, err := mutant__os.OpenFile(mutant__trace, mutant__os.O_APPEND|mutant__os.O_CREATE|mutant__os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		defer f.Close()
		if _, err := f.WriteString(mutant__strconv.Itoa(id) + "\n"); err != nil {
			panic(err)
		}
	}
	return id == mutant__id
}

func mutant__zero[T any](id int, v T) T {
	if mutant__on(id) {
		var zero T
		return zero
	}
	return v
}

func mutant__swap[T any](id int, a, b T) T {
	if mutant__on(id) {
		return b
	}
	return a
}
`

// writeOverlay writes the files of the packages with all mutants in them, and returns the
// overlay file of the compiler. It numbers the mutants.
func writeOverlay(dir string, mutants []*mutant) (string, error) {
	byFile := make(map[string][]*mutant)
	packages := make(map[*goPackage]bool)
	for i, m := range mutants {
		m.id = i + 1
		byFile[m.file] = append(byFile[m.file], m)
		packages[m.in] = true
	}
	replaced := make(map[string]string)
	write := func(file string, text []byte) error {
		file, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		at := filepath.Join(dir, fmt.Sprintf("%d.go", len(replaced)))
		replaced[file] = at
		return os.WriteFile(at, text, 0o600)
	}
	for p := range packages {
		if err := write(filepath.Join(p.dir, "zz_mutants.go"), fmt.Appendf(nil, support, p.name, len(mutants))); err != nil {
			return "", err
		}
		for file, source := range p.sources {
			if byFile[file] == nil {
				continue
			}
			if err := write(file, instrument(source, byFile[file])); err != nil {
				return "", err
			}
		}
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, list, 0o600)
}

// instrument returns the text of a file with mutants, each behind a condition. It only
// inserts, so that line numbers stay.
func instrument(source []byte, mutants []*mutant) []byte {
	outermostFirst := slices.Clone(mutants)
	slices.SortStableFunc(outermostFirst, func(a, b *mutant) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(b.end, a.end), cmp.Compare(a.depth, b.depth))
	})
	before, after := make(map[int]string), make(map[int]string)
	for _, m := range outermostFirst {
		before[m.begin] += fillNumber(m.before, m.id)
		after[m.end] = fillNumber(m.after, m.id) + after[m.end]
	}
	var out strings.Builder
	for i := range len(source) + 1 {
		out.WriteString(after[i])
		out.WriteString(before[i])
		if i < len(source) {
			out.WriteByte(source[i])
		}
	}
	return []byte(out.String())
}

// fillNumber fills the number of a mutant in.
func fillNumber(format string, id int) string {
	args := make([]any, strings.Count(strings.ReplaceAll(format, "%%", ""), "%d"))
	for i := range args {
		args[i] = id
	}
	return fmt.Sprintf(format, args...)
}
