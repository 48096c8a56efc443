package cqltype

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

// durationUnit is a unit of a duration: its part (months, days, nanoseconds), and how
// many of them. Units are sorted from large to small.
type durationUnit struct {
	short, long string
	part        int
	factor      int64
}

var durationUnits = []durationUnit{
	{"y", "years", 0, 12},
	{"mo", "months", 0, 1},
	{"w", "weeks", 1, 7},
	{"d", "days", 1, 1},
	{"h", "hours", 2, 3600e9},
	{"m", "minutes", 2, 60e9},
	{"s", "seconds", 2, 1e9},
	{"ms", "milliseconds", 2, 1e6},
	{"us", "microseconds", 2, 1e3},
	{"ns", "nanoseconds", 2, 1},
}

var (
	durationPart = regexp.MustCompile(`^(\d+)((?i:mo|ms|us|µs|ns|[ywdhms]))`)
	durationISO  = regexp.MustCompile(`^P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?$`)
	durationAlt  = regexp.MustCompile(`^P(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})$`)
	durationWeek = regexp.MustCompile(`^P(\d+)W$`)
	isoUnits     = []string{"y", "mo", "d", "h", "m", "s"}
)

// ParseDuration parses a duration in any of its forms: 1y2mo3w4d5h6m7s8ms9us10ns,
// P1Y2M3DT4H5M6S, P0001-02-03T04:05:06, P4W; each may begin with a minus. Errors are
// *cqlerr.Error.
func ParseDuration(s string) (months, days int32, nanos int64, err error) {
	text, negative := strings.CutPrefix(s, "-")
	b := durationBuilder{last: -1}
	ok := false
	switch {
	case text == "":
	case text[0] != 'P':
		ok, err = b.units(text)
	case strings.HasSuffix(text, "W"):
		ok, err = b.groups(durationWeek.FindStringSubmatch(text), "w")
	case strings.Contains(text, "-"):
		ok, err = b.groups(durationAlt.FindStringSubmatch(text), isoUnits...)
	default:
		ok, err = b.groups(durationISO.FindStringSubmatch(text), isoUnits...)
	}
	if err != nil {
		return 0, 0, 0, err
	}
	if !ok {
		return 0, 0, 0, marshalErrorf("Unable to convert '%s' to a duration", s)
	}
	if negative {
		for i := range b.parts {
			b.parts[i] = -b.parts[i]
		}
	}
	return int32(b.parts[0]), int32(b.parts[1]), b.parts[2], nil
}

type durationBuilder struct {
	parts [3]int64
	last  int // index of the unit added last
}

func (b *durationBuilder) units(text string) (bool, error) {
	for text != "" {
		m := durationPart.FindStringSubmatch(text)
		if m == nil {
			return false, nil
		}
		text = text[len(m[0]):]
		name := strings.ToLower(m[2])
		if name == "µs" {
			name = "us"
		}
		if err := b.add(m[1], name); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (b *durationBuilder) groups(m []string, units ...string) (bool, error) {
	if m == nil {
		return false, nil
	}
	for i, count := range m[1:] {
		if count == "" {
			continue
		}
		if err := b.add(count, units[i]); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (b *durationBuilder) add(count, name string) error {
	i := 0
	for durationUnits[i].short != name {
		i++
	}
	u := durationUnits[i]
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		return marshalErrorf("Invalid duration. The count for the %s is out of range", u.long)
	}
	limit := int64(math.MaxInt32)
	if u.part == 2 {
		limit = math.MaxInt64
	}
	if available := (limit - b.parts[u.part]) / u.factor; n > available {
		return marshalErrorf("Invalid duration. The number of %s must be less than or equal to %d", u.long, available)
	}
	switch {
	case b.last == i:
		return marshalErrorf("Invalid duration. The %s are specified multiple times", u.long)
	case b.last > i:
		return marshalErrorf("Invalid duration. The %s should be after %s", durationUnits[b.last].long, u.long)
	}
	b.last = i
	b.parts[u.part] += n * u.factor
	return nil
}
