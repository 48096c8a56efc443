package main

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// accepted has the names of the survivors that change no behaviour a test could notice. The
// value is whether a mutant has the name.
type accepted map[string]bool

// readAccepted reads a file with a name in each line. Lines that begin with # are the reasons.
func readAccepted(file string) (accepted, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out := make(accepted)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out[line] = false
		}
	}
	return out, nil
}

// has reports whether a mutant is accepted.
func (a accepted) has(m *mutant) bool {
	_, ok := a[m.name()]
	if ok {
		a[m.name()] = true
	}
	return ok
}

// unused returns the names of mutants in these packages that has did not find. A refactoring
// leaves them, and they can be removed.
func (a accepted) unused(packages []*goPackage) (out []string) {
	for name, found := range a {
		dir, _, _ := strings.Cut(name, " ")
		if !found && slices.ContainsFunc(packages, func(p *goPackage) bool { return p.dir == dir }) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
