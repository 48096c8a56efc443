package orders

import (
	"regexp"
	"strings"
)

// traceParent is version-format of W3C Trace Context; later versions may append
// more after a dash.
var traceParent = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?$`)

// maxTrace bounds both headers; the standard asks for at least 512 of tracestate.
const maxTrace = 512

func validTraceParent(s string) bool {
	if len(s) > maxTrace {
		return false
	}
	m := traceParent.FindStringSubmatch(s)
	return m != nil && m[1] != "ff" && (m[1] != "00" || m[4] == "") &&
		strings.Trim(m[2], "0") != "" && strings.Trim(m[3], "0") != "" && isASCII(s)
}

func validTraceState(s string) bool { return s != "" && len(s) <= maxTrace && isASCII(s) }

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
