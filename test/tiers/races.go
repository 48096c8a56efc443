package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// raceBegins is the first line of a report of the detector.
const raceBegins = "WARNING: DATA RACE"

var (
	// raced matches the message of a test that ran during a race: the detector fails
	// each running test, including tests that wait for their subtests.
	raced = regexp.MustCompile(`^testing\.go:\d+: race detected during execution of test$`)
	// access starts one side of a race, followed by its stack: functions alternating
	// with positions.
	access = regexp.MustCompile(`^(Read|Write|Previous read|Previous write|Atomic \w+|Previous atomic \w+) at 0x`)
)

// merge replaces each report of the detector by one line.
func merge(lines []string) (out []string) {
	for len(lines) > 0 {
		begin := slices.Index(lines, raceBegins)
		if begin < 0 {
			break
		}
		report := lines[begin+1:]
		end := slices.Index(report, "==================")
		if end < 0 {
			end = len(report)
		}
		out = append(append(out, lines[:begin]...), race(report[:end]))
		lines = report[min(len(report), end+1):]
	}
	return append(out, lines...)
}

// race returns a report of the detector in one line: for each side the function
// that accessed the memory, and its first caller in this module.
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
