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

// failure is a failed test, or a package without a failed test.
type failure struct {
	pkg, test string
	// said contains the lines with the reason, without indentation.
	said []string
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
	// ImportPath is a package that does not build, FailedBuild the one for which
	// Package failed.
	ImportPath, FailedBuild string
}

// failures reads a file of events and returns the failures by package, and the
// tests that failed and passed when repeated (flaky). A missing file has none.
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

// verdict is the result of a part that failed.
type verdict struct {
	part
	said   []string // when it failed last
	passed bool     // after that
}

// readFailures omits a test if one of its subtests failed, and a package if one
// of its tests did.
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
			continue // the events of a killed process may end anywhere
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
				// It was detected without a running test, and printed after the output of
				// this test.
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
				// A test that ends its process has no end event.
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

// rank sorts bystanders to the end.
func rank(f failure) int {
	if f.bystander() {
		return 1
	}
	return 0
}

// holds reports whether o is a part of p.
func (p part) holds(o part) bool {
	return o.pkg == p.pkg && o != p && (p.test == "" || strings.HasPrefix(o.test, p.test+"/"))
}

var (
	// deadly matches a line after which a process ends.
	deadly = regexp.MustCompile(`^(panic|fatal error|SIG[A-Z]+): `)
	// complaint matches a line with the reason of a failure: a message of a test,
	// a compiler or a linter, a panic, the tests that ran at a timeout, a data
	// race, a crash of the race detector.
	complaint = regexp.MustCompile(deadly.String() + `|^\S+\.go:\d+(:\d+)?: |^Test\S* \([0-9hms.]+\)$|^DATA RACE: |ThreadSanitizer: |^FAILED: |^(signal|error|Error): `)
)

// complaints returns the lines with a reason, or else all.
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
