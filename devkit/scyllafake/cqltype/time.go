package cqltype

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// timestampText is a date, an optional time to the millisecond, and the rest, which
// must be a time zone.
var (
	timestampText = regexp.MustCompile(`^(\d{4})-(\d+)-(\d+)(?:[ tT](\d+):(\d+)(?::(\d+)(?:\.(\d+))?)?)?`)
	zoneText      = regexp.MustCompile(`^([+-])(\d{2}):?(\d{2})$`)
	dateText      = regexp.MustCompile(`^(-?\d+)-(\d+)-(\d+)$`)
)

// ParseTimestamp parses a timestamp constant and returns milliseconds since 1970: an
// integer, "now", or a date with or without time and zone (2020-01-01,
// 2020-01-01T10:11:12.5Z, 2020-01-01 00:00:00+0100). Without a zone it is UTC, the zone
// of a server. Errors are *cqlerr.Error.
func ParseTimestamp(s string) (int64, error) {
	if strings.EqualFold(s, "now") {
		return time.Now().UnixMilli(), nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && s[0] != '+' {
		return n, nil
	}
	ms, problem := parseTimestamp(strings.ToLower(s))
	if problem != "" {
		return 0, marshalErrorf("unable to parse date '%s': %s", s, problem)
	}
	return ms, nil
}

func parseTimestamp(s string) (ms int64, problem string) {
	m := timestampText.FindStringSubmatch(s)
	if m == nil {
		return 0, "marshaling error: Unable to parse timestamp from '" + s + "'"
	}
	frac := m[7]
	if len(frac) > 3 {
		return 0, "marshaling error: Milliseconds length exceeds expected (" + strconv.Itoa(len(frac)) + ")"
	}
	n := func(i int) int { v, _ := strconv.Atoi(m[i]); return v }
	year, month, day := n(1), n(2), n(3)
	switch {
	case year < 1400:
		return 0, "Year is out of valid range: 1400..9999"
	case month < 1 || month > 12:
		return 0, "Month number is out of range 1..12"
	case day < 1 || day > 31:
		return 0, "Day of month value is out of range 1..31"
	}
	date := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	if date.Day() != day {
		return 0, "Day of month is not valid for year"
	}
	ms = date.UnixMilli() + int64(n(4))*3600_000 + int64(n(5))*60_000 + int64(n(6))*1000
	for range 3 - len(frac) {
		frac += "0"
	}
	f, _ := strconv.Atoi(frac)
	ms += int64(f)

	zone := s[len(m[0]):]
	switch trimmed := strings.Trim(zone, " "); {
	case trimmed == "" || trimmed == "z" || trimmed == "utc" || trimmed == "gmt":
	case zoneText.MatchString(zone):
		z := zoneText.FindStringSubmatch(zone)
		h, _ := strconv.Atoi(z[2])
		min, _ := strconv.Atoi(z[3])
		offset := int64(h*60+min) * 60_000
		if z[1] == "-" {
			offset = -offset
		}
		ms -= offset
	default:
		return 0, "marshaling error: Unable to parse timezone '" + zone + "'"
	}
	return ms, ""
}

// ParseDate parses a date constant, yyyy-mm-dd or the number itself, and returns days
// with 1970-01-01 as 2^31. Errors are *cqlerr.Error.
func ParseDate(s string) (uint32, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && s[0] != '+' {
		if n < 0 || n > 1<<32-1 {
			return 0, marshalErrorf("Unable to make unsigned int (for date) from %d", n)
		}
		return uint32(n), nil
	}
	m := dateText.FindStringSubmatch(s)
	if m == nil {
		return 0, marshalErrorf("Unable to coerce '%s' to a formatted date (long)", s)
	}
	year, err := strconv.ParseInt(m[1], 10, 32)
	month, _ := strconv.Atoi(m[2])
	day, _ := strconv.Atoi(m[3])
	if err != nil || month < 1 || month > 12 || day < 1 || day > 31 {
		return 0, marshalErrorf("Unable to coerce '%s' to a formatted date (long)", s)
	}
	days := floorDiv(time.Date(int(year), time.Month(month), day, 0, 0, 0, 0, time.UTC).Unix(), 86400)
	switch {
	case days < -1<<31:
		return 0, marshalErrorf("Input date %s is less than min supported date -5877641-06-23", s)
	case days > 1<<31-1:
		return 0, marshalErrorf("Input date %s is greater than max supported date 5881580-07-11", s)
	}
	return uint32(days + 1<<31), nil
}

// ParseTime parses a time constant, hh:mm:ss[.fffffffff], and returns nanoseconds since
// midnight. Errors are *cqlerr.Error.
func ParseTime(s string) (int64, error) {
	h, rest, ok1 := strings.Cut(s, ":")
	m, sec, ok2 := strings.Cut(rest, ":")
	sec, frac, hasFrac := strings.Cut(sec, ".")
	if !ok1 || !ok2 {
		return 0, marshalErrorf("Timestamp format must be hh:mm:ss[.fffffffff]")
	}
	var nanos int64
	for _, part := range []struct {
		name, text string
		limit      int64
		unit       time.Duration
	}{{"Hour", h, 24, time.Hour}, {"Minute", m, 60, time.Minute}, {"Second", sec, 60, time.Second}} {
		n, err := strconv.ParseInt(part.text, 10, 64)
		if err != nil {
			return 0, marshalErrorf("Timestamp format must be hh:mm:ss[.fffffffff]")
		}
		if n < 0 || n >= part.limit {
			return 0, marshalErrorf("%s out of bounds (%d).", part.name, n)
		}
		nanos += n * int64(part.unit)
	}
	if hasFrac {
		if len(frac) > 9 {
			return 0, marshalErrorf("more than 9 nanosecond digits: %s", s)
		}
		n, err := strconv.ParseInt((frac + "000000000")[:9], 10, 64)
		if err != nil || frac == "" || n < 0 {
			return 0, marshalErrorf("Timestamp format must be hh:mm:ss[.fffffffff]")
		}
		nanos += n
	}
	return nanos, nil
}
