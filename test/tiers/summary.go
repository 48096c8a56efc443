package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
)

const (
	// maxLines bounds a summary, so that the end of a log contains all of it.
	maxLines = 22
	// maxWidth bounds a line in bytes, and maxBytes the whole summary.
	maxWidth, maxBytes = 180, 1800
	// maxReasons bounds the lines of one test.
	maxReasons = 3
)

// summary returns the failed tiers, and the reasons from their logs. The tiers
// share its lines.
func summary(tiers []*tier) []string {
	var bad []*tier
	var names []string
	for _, t := range tiers {
		if t.err != nil {
			bad, names = append(bad, t), append(names, t.name)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	lines := []string{"FAILED: " + strings.Join(names, ", ")}
	left := maxLines - 1
	for i, t := range bad {
		share := max(2, left/(len(bad)-i))
		if left < 2 {
			break // more tiers failed than there are lines; the first line contains their names
		}
		lines = append(lines, fmt.Sprintf("%s (%v), all of it in %s", t.name, t.err, t.log()))
		said := t.reasons(share - 1)
		for _, line := range said {
			lines = append(lines, "  "+line)
		}
		left -= 1 + len(said)
	}
	return fit(lines, maxBytes)
}

// fit shortens the longest lines until all fit.
func fit(lines []string, most int) []string {
	for width := maxWidth; width > 40; width-- {
		size := 0
		for _, line := range lines {
			size += min(len(line), width) + len("\n")
		}
		if size <= most {
			for i, line := range lines {
				lines[i] = cut(line, width)
			}
			break
		}
	}
	return lines
}

// cut truncates a line to this number of bytes.
func cut(line string, most int) string {
	if len(line) <= most {
		return line
	}
	return strings.ToValidUTF8(line[:most-len("…")], "") + "…"
}

var (
	// complaint matches a line with the reason of a failure: a message of a test,
	// a compiler or a linter, a panic, the tests that ran at a timeout, a data
	// race, a crash of the race detector.
	complaint = regexp.MustCompile(`^(panic|fatal error|SIG[A-Z]+): |^\S+\.go:\d+(:\d+)?: |^Test\S* \([0-9hms.]+\)$|^DATA RACE: |ThreadSanitizer: |^FAILED: |^(signal|error|Error|ERROR):? `)
	// failed matches a line of `go test` with a failed test or package.
	failed = regexp.MustCompile(`^--- FAIL: |^FAIL\t`)
	// noise matches irrelevant lines at the end of a log.
	noise = regexp.MustCompile(`^(make(\[\d+\])?: |exit status \d+$|FAIL$|DONE |\s*$)`)
)

// reasons returns why the tier failed, in at most so many lines: the tests that
// gotestsum lists at the end of the log, or else the lines with a reason, and the end.
func (t *tier) reasons(most int) []string {
	text, err := os.ReadFile(t.log())
	if err != nil {
		return []string{err.Error()}[:min(1, most)]
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	lines = merge(lines)
	list := tests(lines)
	for i, f := range list {
		if slices.ContainsFunc(f.said, outside.MatchString) {
			list[i].said = append(t.races(), f.said...)
		}
	}
	if len(list) > 0 {
		return listFailures(list, most)
	}
	return end(lines, most)
}

// outside matches the failure of a package by a race without a running test.
// gotestsum does not show it: the report is in the output of the last passed test.
var outside = regexp.MustCompile(`^testing: race detected outside of test execution`)

// races returns a line for each race in the events.
func (t *tier) races() []string {
	var lines []string
	if err := t.eachEvent(func(e event) {
		if e.Action == "output" {
			lines = append(lines, strings.TrimSpace(e.Output))
		}
	}); err != nil {
		return []string{err.Error()}
	}
	return slices.DeleteFunc(merge(lines), func(line string) bool { return !strings.HasPrefix(line, "DATA RACE: ") })
}

// failure is a failed test or package with its reasons.
type failure struct {
	test string
	said []string
}

// tests returns the failures of gotestsum's list. It omits failures without a reason,
// such as a test of which a subtest failed or that only ran during a race, unless all are.
func tests(lines []string) (list []failure) {
	i := slices.Index(lines, "=== Failed")
	if e := slices.Index(lines, "=== Errors"); i < 0 || e >= 0 && e < i {
		i = e
	}
	for _, line := range lines[max(i, 0):] {
		test, begins := strings.CutPrefix(line, "=== FAIL: ")
		switch {
		case i < 0:
			return nil
		case begins:
			list = append(list, failure{test: strings.TrimSpace(test[:max(strings.LastIndex(test, " ("), 0)])})
		case line == "=== Errors":
			list = append(list, failure{test: "does not build"})
		case len(list) > 0 && !noise.MatchString(line) && !raced.MatchString(line):
			last := &list[len(list)-1]
			last.said = append(last.said, line)
		}
	}
	for j := range list {
		f := &list[j]
		f.said = slices.DeleteFunc(f.said, func(line string) bool { return failed.MatchString(line) })
		if why := slices.DeleteFunc(slices.Clone(f.said), func(line string) bool { return !complaint.MatchString(line) && !outside.MatchString(line) }); len(why) > 0 {
			f.said = why
		}
	}
	if some := slices.DeleteFunc(slices.Clone(list), func(f failure) bool { return len(f.said) == 0 }); len(some) > 0 {
		return some
	}
	return list
}

// listFailures returns for each failure its name and at least one line; failures
// without room are only counted.
func listFailures(list []failure, most int) (lines []string) {
	perTest := max(2, most/len(list))
	for i, f := range list {
		if rest := len(list) - i; len(lines)+2 >= most && rest > 1 {
			return append(lines, fmt.Sprintf("and %d more", rest))[:min(most, len(lines)+1)]
		}
		lines = append(lines, f.test)
		for _, s := range f.said[:max(0, min(len(f.said), maxReasons, perTest-1, most-len(lines)))] {
			lines = append(lines, "  "+s)
		}
	}
	return lines[:min(most, len(lines))]
}

// end returns lines with a reason, and the last lines.
func end(lines []string, most int) []string {
	all := slices.DeleteFunc(slices.Clone(lines), noise.MatchString)
	const last = 3
	why := slices.DeleteFunc(slices.Clone(all), func(line string) bool { return !complaint.MatchString(line) && !failed.MatchString(line) })
	if len(why) == 0 || most <= last {
		return all[max(0, len(all)-most):]
	}
	why = why[:min(len(why), most-last)]
	for _, line := range all[max(0, len(all)-last):] {
		if line != why[len(why)-1] { // they may include the end
			why = append(why, line)
		}
	}
	return why
}

// readRepeated reads gotestsum's report on the tests that it ran again, and returns those
// that passed then.
func (t *tier) readRepeated() (flaky []string, err error) {
	report, err := os.ReadFile(t.report())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for line := range strings.Lines(string(report)) {
		name, counts, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, module)), ": ")
		var runs, failures int
		if _, err := fmt.Sscanf(counts, "%d runs, %d failures", &runs, &failures); err != nil {
			return nil, fmt.Errorf("read %s: %q: %w", t.report(), line, err)
		}
		if runs > failures {
			flaky = append(flaky, cut(fmt.Sprintf("FLAKY: %s: %s (%s)", t.name, name, counts), maxWidth))
		}
	}
	return flaky, err
}

// event is a line of `go test -json`.
type event struct{ Action, Package, Test, Output string }

// eachEvent calls f with the events of the tier, if it has any.
func (t *tier) eachEvent(f func(event)) error {
	text, err := os.ReadFile(t.events())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		var e event
		if json.Unmarshal([]byte(line), &e) == nil { // a killed process leaves half a line
			f(e)
		}
	}
	return err
}

// judge returns an error for a package that failed without a failed test (in TestMain,
// or by a data race after the last test): gotestsum runs none of its tests when it
// repeats it, so that its success is not a result.
func (t *tier) judge() error {
	failed := make(map[string]bool) // packages with a failed test
	var errs []error
	err := t.eachEvent(func(e event) {
		switch {
		case e.Action == "fail" && e.Test != "":
			failed[e.Package] = true
		case e.Action == "fail" && !failed[e.Package]:
			errs = append(errs, fmt.Errorf("%s failed, and not by a test", strings.TrimPrefix(e.Package, module)))
		}
	})
	return errors.Join(append(errs, err)...)
}

const module = "github.com/scylla-outbox/scylla-outbox/"
