package console

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"testing"
)

var colour = regexp.MustCompile(`--([a-z-]+): light-dark\(#([0-9a-f]{6}), #([0-9a-f]{6})\);`)

// palette maps a name to its light and dark colours.
func palette(t *testing.T) map[string][2]string {
	t.Helper()
	out := make(map[string][2]string)
	for _, m := range colour.FindAllStringSubmatch(sources(t, ".css")["static/css/palette.css"], -1) {
		out[m[1]] = [2]string{m[2], m[3]}
	}
	return out
}

// luminance is the relative luminance of WCAG 2.2.
func luminance(hex string) float64 {
	part := func(i int) float64 {
		n, err := strconv.ParseUint(hex[i:i+2], 16, 8)
		if err != nil {
			panic(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*part(0) + 0.7152*part(2) + 0.0722*part(4)
}

func contrast(a, b string) float64 {
	x, y := luminance(a), luminance(b)
	return (math.Max(x, y) + 0.05) / (math.Min(x, y) + 0.05)
}

// Text has a contrast of 4.5 to 1 to its background, and other distinguishable parts 3 to
// 1 (WCAG 2.2, 1.4.3 and 1.4.11), light and dark.
func TestPalette_Contrast(t *testing.T) {
	t.Parallel()
	colours := palette(t)
	type pair struct{ fore, back string }
	text := []pair{
		{"on-accent", "accent"},
		{"on-danger", "danger"},
		{"accent", "accent-soft"},
		{"text", "accent-soft"},
		{"text", "danger-soft"},
		{"text", "warn-soft"},
		{"text", "ok-soft"},
		{"danger", "danger-soft"},
		{"warn", "warn-soft"},
		{"ok", "ok-soft"},
		{"muted", "accent-soft"},
	}
	for _, back := range []string{"bg", "surface", "sunken"} {
		for _, fore := range []string{"text", "muted", "accent", "danger", "ok", "warn"} {
			text = append(text, pair{fore, back})
		}
	}
	for _, s := range []string{"pending", "blocked", "processing", "failed", "suspended", "resolved", "archived"} {
		text = append(text, pair{s, s + "-soft"})
	}
	for _, c := range []string{"code-key", "code-string", "code-number", "code-word"} {
		text = append(text, pair{c, "sunken"})
	}
	shapes := []pair{
		{"edge", "surface"},
		{"edge", "bg"},
		{"bar", "surface"},
		{"in", "surface"},
		{"out", "surface"},
		{"accent", "surface"},
		{"accent", "bg"},
		{"accent", "sunken"},
		{"danger", "bg"},
	}
	check := func(pairs []pair, least float64) {
		for _, p := range pairs {
			for i, theme := range []string{"light", "dark"} {
				fore, back := colours[p.fore][i], colours[p.back][i]
				if fore == "" || back == "" {
					t.Fatalf("the palette has no %s or no %s", p.fore, p.back)
				}
				if got := contrast(fore, back); got < least {
					t.Errorf("%s: --%s on --%s has a contrast of %.2f, want %.1f", theme, p.fore, p.back, got, least)
				}
			}
		}
	}
	check(text, 4.5)
	check(shapes, 3)
	if got := fmt.Sprintf("%.2f", contrast("000000", "ffffff")); got != "21.00" {
		t.Errorf("black on white has a contrast of %s, want 21.00", got)
	}
}

// Colours are only in the palette, so that the test above covers them all.
func TestPalette_IsAllThereIs(t *testing.T) {
	t.Parallel()
	literal := regexp.MustCompile(`#[0-9a-fA-F]{3,8}\b`)
	colours := palette(t)
	used := regexp.MustCompile(`var\(--([a-z-]+)\)`)
	for name, text := range sources(t, ".css") {
		if name == "static/css/palette.css" {
			continue
		}
		for _, m := range literal.FindAllString(regexp.MustCompile(`(?m)^#[a-z]+`).ReplaceAllString(text, ""), -1) {
			t.Errorf("%s has the colour %s: put it into palette.css", name, m)
		}
		for _, m := range used.FindAllStringSubmatch(text, -1) {
			if _, ok := colours[m[1]]; !ok && m[1] != "share" && m[1] != "as-of" {
				t.Errorf("%s uses --%s, which the palette lacks", name, m[1])
			}
		}
	}
}
