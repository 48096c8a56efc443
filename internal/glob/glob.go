// Package glob matches the names of events by patterns.
package glob

import (
	"path"
	"strings"
)

// Match reports whether a valid pattern matches the whole name: * matches any characters, ?
// one, and [a-z] one of a class, as in path.Match. Names are no paths, so a slash is a
// character as any other.
func Match(pattern, name string) bool {
	ok, err := path.Match(plain(pattern), plain(name))
	return ok && err == nil
}

// Valid reports whether the pattern is not empty, and well formed.
func Valid(pattern string) bool {
	_, err := path.Match(plain(pattern), "")
	return err == nil && pattern != ""
}

// plain replaces slashes, which path.Match treats as separators, by a character that no
// name has.
func plain(s string) string { return strings.ReplaceAll(s, "/", "\x00") }
