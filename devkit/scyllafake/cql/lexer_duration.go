package cql

import "strings"

// units are the units of a duration such as 1h30m, longer ones first.
var units = []string{"mo", "ms", "us", "µs", "ns", "y", "w", "d", "h", "m", "s"}

// scanUnits reads 1h30m: digits and a unit, one or more times. It returns 0
// if s does not begin with such a pair.
func scanUnits(s string) int {
	n := 0
	for {
		d := digits(s[n:])
		if d == 0 {
			return n
		}
		u := unit(s[n+d:])
		if u == 0 {
			return n
		}
		n += d + u
	}
}

func unit(s string) int {
	for _, u := range units {
		if len(s) >= len(u) && equalASCII(s[:len(u)], u) {
			return len(u)
		}
	}
	return 0
}

// equalASCII compares s with lower, ignoring the case of A-Z only: Unicode folding
// would accept a Greek mu for the micro sign.
func equalASCII(s, lower string) bool {
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// scanISODuration reads P1Y2M3DT4H5M6S, P3W or P0001-02-03T04:05:06; s begins
// with P. Its letters are upper-case only.
func scanISODuration(s string) int {
	if n := matchPattern(s, "P0000-00-00T00:00:00"); n > 0 {
		return n
	}
	if d := digits(s[1:]); d > 0 && strings.HasPrefix(s[1+d:], "W") {
		return 1 + d + 1
	}
	n := 1 + designators(s[1:], "YMD")
	if strings.HasPrefix(s[n:], "T") {
		n += 1 + designators(s[n+1:], "HMS")
	}
	return n
}

// designators reads numbers, each followed by one of the letters, in their order.
func designators(s, letters string) int {
	n := 0
	for i := range len(letters) {
		if d := digits(s[n:]); d > 0 && n+d < len(s) && s[n+d] == letters[i] {
			n += d + 1
		}
	}
	return n
}

// matchPattern returns len(pattern) if s begins with it; 0 matches any digit.
func matchPattern(s, pattern string) int {
	if len(s) < len(pattern) {
		return 0
	}
	for i := range len(pattern) {
		if pattern[i] == '0' {
			if !isDigit(s[i]) {
				return 0
			}
		} else if s[i] != pattern[i] {
			return 0
		}
	}
	return len(pattern)
}
