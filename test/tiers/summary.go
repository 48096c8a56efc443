package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strings"
)

const (
	// maxLines is how long a summary is: whoever sees only the end of a log sees all of it.
	maxLines = 22
	// maxWidth is how long a line of it is, in bytes, and maxBytes all of it.
	maxWidth, maxBytes = 180, 1800
	// maxSaid is how many lines of what one test said are shown.
	maxSaid = 3
)

// summary says which tiers failed, the tests in them, and what those said first
// and last. The tiers share its lines.
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
			break // more tiers failed than there are lines; the first line names them
		}
		lines = append(lines, fmt.Sprintf("%s (%v), all of it in %s", t.name, t.err, t.log()))
		for _, line := range said {
			lines = append(lines, "  "+line)
		}
		left -= 1 + len(said)
	}
	return fit(lines, maxBytes)
}

// fit shortens the longest lines until there is room for all.
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

// summary says in at most so many lines what failed.
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

// listed has for each failure its name, and at least a line of what it said: without
// that a name says little, so that those without room are only counted.
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

// flaky names the tests that failed once and passed when they ran again, and what
// they said first: a bug that nobody has looked at yet.
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

// firstAndLast leaves out lines in the middle: tests log in the beginning, and
// the last word is mostly why they ended.
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

// failed is a line of `go test` without -json.
var failed = regexp.MustCompile(`^--- FAIL: |^FAIL\t`)

// noise is what a log ends with and says nothing.
var noise = regexp.MustCompile(`^(make(\[\d+\])?: |exit status \d+$|FAIL$|\s*$)`)

// endOfLog is for a tier that is no Go test: the lines that say why, up to the
// last few, and the end.
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
	// The end may have been among them.
	for _, line := range all[max(0, len(all)-end):] {
		if line != why[len(why)-1] {
			why = append(why, line)
		}
	}
	return why
}

// cut is a line of at most so many bytes.
func cut(line string, most int) string {
	if len(line) <= most {
		return line
	}
	return strings.ToValidUTF8(line[:most-len("…")], "") + "…"
}
