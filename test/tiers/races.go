package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// raceBegins is the line before a report of the detector.
const raceBegins = "WARNING: DATA RACE"

// raced is all that a test says which only ran while a race was found: the detector
// fails each test under way, above all those that wait for their subtests.
var raced = regexp.MustCompile(`^testing\.go:\d+: race detected during execution of test$`)

// bystander says that f has nothing to say but that a race was found meanwhile.
func (f failure) bystander() bool {
	return len(f.said) > 0 && !slices.ContainsFunc(f.said, func(line string) bool { return !raced.MatchString(line) })
}

// access begins one side of a race: its stack comes next, a function and a place by turns.
var access = regexp.MustCompile(`^(Read|Write|Previous read|Previous write|Atomic \w+|Previous atomic \w+) at 0x`)

// race is a report of the detector in one line: for each side the function that touched
// the memory, and the first one of this module that led there.
func race(report []string) string {
	var sides []string
	for i, line := range report {
		what := access.FindStringSubmatch(line)
		if what == nil {
			continue
		}
		side := strings.ToLower(what[1])
		for n, j := 0, i+1; j+1 < len(report) && strings.HasSuffix(report[j], ")"); n, j = n+1, j+2 {
			ours := strings.HasPrefix(report[j], module)
			if n == 0 || ours {
				place, _, _ := strings.Cut(report[j+1], " ")
				side += " " + filepath.Base(place)
			}
			if ours {
				break
			}
		}
		sides = append(sides, side)
	}
	return "DATA RACE: " + strings.Join(sides, "; ")
}
