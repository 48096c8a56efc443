package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
)

// failure is a test that failed, or a package with none to name.
type failure struct {
	pkg, test string
	// said are the lines in which it says why, without indentation.
	said []string
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
	// ImportPath is a package that does not build, FailedBuild the one for which
	// Package failed.
	ImportPath, FailedBuild string
}

// failures reads from a file of events what failed, by package, and what failed and
// passed when it ran again (flaky). A file that is not there has none.
func failures(file string) (failed, flaky []failure, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return readFailures(f)
}

// part is a test, or a package where test is empty.
type part struct{ pkg, test string }

// verdict is what became of a part that failed.
type verdict struct {
	part
	said   []string // when it failed last
	passed bool     // after that
}

// readFailures leaves out a test where one of its subtests failed, and a package
// where one of its tests did.
func readFailures(r io.Reader) (failed, flaky []failure, err error) {
	said := make(map[part][]string)
	var open []part // they have not ended
	var bad []*verdict
	of := func(p part) *verdict {
		if i := slices.IndexFunc(bad, func(v *verdict) bool { return v.part == p }); i >= 0 {
			return bad[i]
		}
		return nil
	}
	fail := func(p part) {
		v := of(p)
		if v == nil {
			v = &verdict{part: p}
			bad = append(bad, v)
		}
		v.said, v.passed = complaints(said[p]), false
		delete(said, p)
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // the events of a process that was killed end anywhere
		}
		p := part{cmp.Or(e.Package, e.ImportPath), e.Test}
		switch e.Action {
		case "run":
			open = append(open, p)
		case "output", "build-output":
			said[p] = append(said[p], e.Output)
		case "pass", "skip":
			open = slices.DeleteFunc(open, func(o part) bool { return o == p })
			if slices.Contains(said[p], raceBegins+"\n") {
				// It was found when no test ran, and printed after what this one said.
				all := part{pkg: p.pkg}
				said[all] = append(said[all], said[p]...)
			}
			delete(said, p)
			if v := of(p); v != nil {
				v.passed = e.Action == "pass"
			}
		case "fail", "build-fail":
			open = slices.DeleteFunc(open, func(o part) bool { return o == p })
			if p.test == "" {
				// A test that takes its process with it has no end of its own.
				for _, o := range open {
					if o.pkg == p.pkg && slices.ContainsFunc(said[o], deadly.MatchString) {
						fail(o)
					}
				}
			}
			if e.FailedBuild == "" {
				fail(p)
			}
		}
	}
	for _, v := range bad {
		if slices.ContainsFunc(bad, func(o *verdict) bool { return v.holds(o.part) }) {
			continue
		}
		if f := (failure{v.pkg, v.test, v.said}); v.passed {
			flaky = append(flaky, f)
		} else {
			failed = append(failed, f)
		}
	}
	byPackage := func(a, b failure) int { return cmp.Compare(a.pkg, b.pkg) }
	slices.SortStableFunc(failed, func(a, b failure) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), byPackage(a, b))
	})
	slices.SortStableFunc(flaky, byPackage)
	return failed, flaky, lines.Err()
}

// rank puts those last that only were there.
func rank(f failure) int {
	if f.bystander() {
		return 1
	}
	return 0
}

// holds says that o is a part of p.
func (p part) holds(o part) bool {
	return o.pkg == p.pkg && o != p && (p.test == "" || strings.HasPrefix(o.test, p.test+"/"))
}

var (
	// deadly is a line after which a process ends.
	deadly = regexp.MustCompile(`^(panic|fatal error|SIG[A-Z]+): `)
	// complaint is a line that says why something failed: a message of a test, a
	// compiler or a linter, a panic, the tests that ran at a timeout, a data race, a
	// crash of the race detector.
	complaint = regexp.MustCompile(deadly.String() + `|^\S+\.go:\d+(:\d+)?: |^Test\S* \([0-9hms.]+\)$|^DATA RACE: |ThreadSanitizer: |^FAILED: |^(signal|error|Error): `)
)

// complaints are the lines that say why, or else all.
func complaints(output []string) []string {
	var all, why, lines []string
	for line := range strings.Lines(strings.Join(output, "")) {
		lines = append(lines, strings.TrimSpace(line))
	}
	for i, line := range lines {
		if line == raceBegins {
			report := lines[i+1:]
			if end := slices.Index(report, "=================="); end >= 0 {
				report = report[:end]
			}
			line = race(report)
		}
		if line == "" || line == "FAIL" || strings.HasPrefix(line, "FAIL\t") || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		all = append(all, line)
		if complaint.MatchString(line) {
			why = append(why, line)
		}
	}
	if len(why) == 0 {
		return all
	}
	if said := slices.DeleteFunc(slices.Clone(why), raced.MatchString); len(said) > 0 {
		return said
	}
	return why
}
