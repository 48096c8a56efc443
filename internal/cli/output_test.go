package cli

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// A terminal has a bold header, coloured states and relative times; columns stay aligned.
func TestTable_OfATerminal(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	text := func(r rows) string {
		var out strings.Builder
		r.out, r.now = &out, now
		fmt.Fprintln(&r, "EVENT\tSTATUS\tFAILED\tTAGS")
		for status, at := range map[string]time.Time{"suspended (unblocked)": now.Add(-90 * time.Minute)} {
			fmt.Fprintf(&r, "e-1\t%s\t%s\tvip\n", status, At(&r, at))
		}
		fmt.Fprintf(&r, "e-2\tunknown\t%s\tvip\n", At(&r, now.Add(72*time.Hour)))
		if err := r.print(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for name, x := range map[string]struct {
		rows rows
		want string
	}{
		"file, narrow": {rows{cut: 1}, "" +
			"EVENT  STATUS                 FAILED\n" +
			"e-1    suspended (unblocked)  2026-01-02 10:30:00Z\n" +
			"e-2    unknown                2026-01-05 12:00:00Z\n"},
		"terminal": {rows{colour: true, relative: true}, "" +
			"\x1b[1mEVENT  STATUS                 FAILED  TAGS\x1b[0m\n" +
			"e-1    \x1b[33msuspended (unblocked)\x1b[0m  1h ago  vip\n" +
			"e-2    unknown                in 3d   vip\n"},
		"terminal without colour": {rows{relative: true, cut: 1}, "" +
			"EVENT  STATUS                 FAILED\n" +
			"e-1    suspended (unblocked)  1h ago\n" +
			"e-2    unknown                in 3d\n"},
	} {
		if got := text(x.rows); got != x.want {
			t.Errorf("%s:\n%q, want\n%q", name, got, x.want)
		}
	}
	if isTerminal(io.Discard) {
		t.Error("a writer counts as a terminal")
	}
	if got := At(io.Discard, time.Time{}); got != "-" {
		t.Errorf("no time is %q", got)
	}
}

// A terminal has colours unless NO_COLOR is set, to any text, or it has none.
func TestTable_NoColour(t *testing.T) {
	for _, x := range []struct {
		terminal       bool
		noColour, term string
		want           bool
	}{
		{true, "", "xterm", true},
		{true, "1", "xterm", false},
		{true, "0", "xterm", false},
		{true, "", "dumb", false},
		{false, "", "xterm", false},
	} {
		t.Setenv("NO_COLOR", x.noColour)
		t.Setenv("TERM", x.term)
		if got := hasColours(x.terminal); got != x.want {
			t.Errorf("coloured() with %+v = %t", x, got)
		}
	}
}
