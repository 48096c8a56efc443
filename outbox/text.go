package outbox

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// jsonHeaders returns headers as a column of type text has them: a JSON object.
func jsonHeaders(headers map[string]string) string {
	text, _ := json.Marshal(headers) // texts alone
	return string(text)
}

// parseHeaders is the reverse of jsonHeaders for every writer: a value that is no text is its JSON,
// and null is no header.
func parseHeaders(text string) (headers map[string]string, problem string) {
	if strings.TrimSpace(text) == "" {
		return nil, ""
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		return nil, "is no JSON object: " + err.Error()
	}
	for key, value := range values {
		var v *string
		switch err := json.Unmarshal(value, &v); {
		case err != nil: // a number, a boolean, an object or a list
			s := string(value)
			v = &s
		case v == nil:
			continue
		}
		if headers == nil {
			headers = make(map[string]string, len(values))
		}
		headers[key] = *v
	}
	return headers, ""
}

// parseTime returns the time of a column of type bigint or text, from its value as text, truncated
// to milliseconds; empty is zero.
func parseTime(typ columnType, text string) (t time.Time, problem string) {
	if text == "" {
		return time.Time{}, ""
	}
	if typ == typeBigint {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return time.Time{}, "is no number"
		}
		return timeOfNumber(n), ""
	}
	for _, layout := range []string{"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05"} { // each with any fraction
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC().Truncate(time.Millisecond), ""
		}
	}
	return time.Time{}, fmt.Sprintf("is %q: write times as RFC 3339 has them, such as 2026-11-30T18:00:00.123Z", clip([]byte(text)))
}

// timeOfNumber returns the time of a number since 1970. The units of times from 1973 to 5138 have
// sizes of their own, except that nanoseconds end in 2262.
func timeOfNumber(n int64) time.Time {
	const seconds, millis, micros = 1e11, 1e14, 1e17 // below these
	switch size := max(n, -n); {
	case size < 0: // the least number has no positive one
		return time.Unix(0, n).UTC().Truncate(time.Millisecond)
	case size < seconds:
		return time.Unix(n, 0).UTC()
	case size < millis:
		return time.UnixMilli(n).UTC()
	case size < micros:
		return time.UnixMicro(n).UTC().Truncate(time.Millisecond)
	}
	return time.Unix(0, n).UTC().Truncate(time.Millisecond)
}
