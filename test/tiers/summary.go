package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strings"
)

const (
	// maxLines bounds a summary, so that the end of a log contains all of it.
	maxLines = 22
	// maxWidth bounds a line in bytes, and maxBytes the whole summary.
	maxWidth, maxBytes = 180, 1800
	// maxSaid bounds the lines of one test.
	maxSaid = 3
)

// summary returns the failed tiers, their tests, and the first and last lines
// of those. The tiers share its lines.
func summary(tiers []*tier) []string {
	var bad []*tier
	for _, t := range tiers {
		if t.err != nil {
			bad = append(bad, t)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	var names []string
	for _, t := range bad {
		names = append(names, t.name)
	}
	lines := []string{"FAILED: " + strings.Join(names, ", ")}
	left := maxLines - 1
	for i, t := range bad {
		share := max(2, left/(len(bad)-i))
		said := t.summary(share - 1)
		if left < 2 {
			break // more tiers failed than there are lines; the first line contains their names
		}
		lines = append(lines, fmt.Sprintf("%s (%v), all of it in %s", t.name, t.err, t.log()))
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

// summary returns the failures in at most so many lines.
func (t *tier) summary(most int) []string {
	list, _, err := failures(t.events())
	if err != nil {
		return []string{err.Error()}[:min(1, most)]
	}
	if len(list) == 0 {
		return endOfLog(t.log(), most)
	}
	return listed(list, most)
}

// listed returns for each failure its name and at least one line; failures
// without room are only counted.
func listed(list []failure, most int) (lines []string) {
	perTest := max(2, most/len(list))
	for i, f := range list {
		if rest := len(list) - i; len(lines)+2 >= most && rest > 1 {
			return append(lines, fmt.Sprintf("and %d more", rest))[:min(most, len(lines)+1)]
		}
		lines = append(lines, strings.TrimSpace(place(f.pkg)+" "+f.test))
		for _, s := range firstAndLast(f.said, min(maxSaid, perTest-1, most-len(lines))) {
			lines = append(lines, "  "+s)
		}
	}
	return lines[:min(most, len(lines))]
}

// flaky returns the tests that failed once and passed when repeated, with their
// first lines: each is an uninvestigated bug.
func flaky(tiers []*tier) (lines []string) {
	for _, t := range tiers {
		for _, f := range t.flaky {
			line := fmt.Sprintf("FLAKY: %s: %s %s", t.name, place(f.pkg), f.test)
			if len(f.said) > 0 {
				line += ": " + f.said[0]
			}
			lines = append(lines, cut(line, maxWidth))
		}
	}
	return lines
}

// firstAndLast omits lines in the middle: tests log at the beginning, and the
// last lines mostly contain the reason.
func firstAndLast(lines []string, most int) []string {
	if most <= 0 {
		return nil
	}
	if len(lines) <= most {
		return lines
	}
	return append([]string{}, append(lines[:most/2:most/2], lines[len(lines)-(most-most/2):]...)...)
}

const module = "github.com/scylla-outbox/scylla-outbox/"

// place is a package's folder.
func place(pkg string) string {
	pkg, _, _ = strings.Cut(pkg, " ") // "p [p.test]" does not build
	return strings.TrimPrefix(pkg, module)
}

// failed matches a line of `go test` without -json.
var failed = regexp.MustCompile(`^--- FAIL: |^FAIL\t`)

// noise matches irrelevant lines at the end of a log.
var noise = regexp.MustCompile(`^(make(\[\d+\])?: |exit status \d+$|FAIL$|\s*$)`)

// endOfLog is for a tier without Go tests: the last lines with a reason, and
// the end.
func endOfLog(file string, most int) []string {
	f, err := os.Open(file)
	if err != nil {
		return []string{err.Error()}[:min(1, most)]
	}
	defer f.Close()
	var all, why []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if noise.MatchString(line) {
			continue
		}
		all = append(all, line)
		if complaint.MatchString(line) || failed.MatchString(line) {
			why = append(why, line)
		}
	}
	if err := lines.Err(); err != nil {
		all = append(all, err.Error())
	}
	const end = 3
	if len(why) == 0 || most <= end {
		return all[max(0, len(all)-most):]
	}
	why = why[:min(len(why), most-end)]
	// They may include the end.
	for _, line := range all[max(0, len(all)-end):] {
		if line != why[len(why)-1] {
			why = append(why, line)
		}
	}
	return why
}

// cut truncates a line to this number of bytes.
func cut(line string, most int) string {
	if len(line) <= most {
		return line
	}
	return strings.ToValidUTF8(line[:most-len("…")], "") + "…"
}
