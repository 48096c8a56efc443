package httpapi

import (
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

const (
	headerKey = "Idempotency-Key"
	// keyForm is the pattern of keys. It permits an empty one, which OneKey refuses.
	keyForm = `^[!-~]{0,255}$`
)

// OneKey returns the errors of the Idempotency-Key header apart from its length: several
// values, of which a proxy may choose any, an empty one, as from an unset variable, or a quoted
// string without its end. Treating the first two as no key would repeat a request that the
// caller believes to be idempotent.
func OneKey(ctx huma.Context) []error {
	keys, wrong := 0, false
	ctx.EachHeader(func(name, value string) {
		if strings.EqualFold(name, headerKey) {
			_, ok := parseKey(value)
			keys, wrong = keys+1, wrong || !ok
		}
	})
	if wrong || keys > 1 {
		return []error{&huma.ErrorDetail{Location: "header." + headerKey, Message: "must be one value of 1 to 255 printable ASCII characters, quoted as a whole or not at all, or omitted"}}
	}
	return nil
}

// Key returns the key of a valid Idempotency-Key header: the content of a quoted string, the
// form of draft-ietf-httpapi-idempotency-key-header, or the bare value, as most clients send it.
// Both forms are the same key.
func Key(header string) string {
	key, _ := parseKey(header)
	return key
}

// parseKey returns the content of a string of RFC 9651, section 3.3.3, or a value that does not
// begin with a quote as it is. ok is false for an empty key and a malformed string.
func parseKey(value string) (key string, ok bool) {
	quoted, isQuoted := strings.CutPrefix(value, `"`)
	if !isQuoted {
		return value, value != ""
	}
	var b strings.Builder
	for i := 0; i < len(quoted); i++ {
		switch c := quoted[i]; c {
		case '"':
			return b.String(), i == len(quoted)-1 && b.Len() > 0
		case '\\':
			if i++; i == len(quoted) || quoted[i] != '"' && quoted[i] != '\\' {
				return value, false
			}
			b.WriteByte(quoted[i])
		default:
			b.WriteByte(c)
		}
	}
	return value, false
}
