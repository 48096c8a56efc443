package httpapi

import (
	"math"
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[Duration]time.Duration{
		"0": 0, "0s": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "1.5ms": 1500 * time.Microsecond, "2µs": 2 * time.Microsecond, "99999999999999h": math.MaxInt64,
	} {
		if got, ok := text.Parse(); got != want || !ok {
			t.Errorf("%s = %s, %t, want %s", text, got, ok, want)
		}
	}
	for _, text := range []Duration{"", "1", "-1s", "+1s", ".5s", "1.s", "s", "1d", " 1s", "1s ", "1S"} {
		if got, ok := text.Parse(); ok {
			t.Errorf("%q = %s, want that it is refused", text, got)
		}
	}
}
