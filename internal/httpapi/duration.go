package httpapi

import (
	"math"
	"regexp"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Duration is a duration in a body, in Go's form without a sign: 90s, 15m, 1h30m.
type Duration string

var ofDurationForm = regexp.MustCompile(`^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`)

// Schema describes the form. Bounds are in the description of the field: a pattern cannot
// compare.
func (Duration) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: ofDurationForm.String()}
}

// Parse returns the duration, the longest for one that is longer; ok is false for another form.
func (d Duration) Parse() (parsed time.Duration, ok bool) {
	if !ofDurationForm.MatchString(string(d)) {
		return 0, false
	}
	parsed, err := time.ParseDuration(string(d))
	if err != nil { // it overflows
		parsed = math.MaxInt64
	}
	return parsed, true
}
