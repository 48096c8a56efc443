package httpapi

import (
	"regexp"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

const (
	headerKey = "Idempotency-Key"
	// keyForm is the pattern of keys: bare, or as a string of RFC 9651, section 3.3.3.
	keyForm = `^([!#-~][!-~]{0,254}|"([!#-[\]-~]|\\["\\]){1,255}")$`
)

var ofKeyForm = regexp.MustCompile(keyForm)

func errKey() []error {
	return []error{&huma.ErrorDetail{Location: "header." + headerKey, Message: "must be one value of 1 to 255 printable ASCII characters without spaces, quoted as a whole or not at all, or omitted"}}
}

var unquoteKey = strings.NewReplacer(`\"`, `"`, `\\`, `\`)

// OneKey returns the errors of the Idempotency-Key header apart from the length and the characters
// of a bare key, which are validated with the body: several values, of which a proxy may choose
// any, an empty one, as from an unset variable, or a malformed string. Treating the first two as
// no key would repeat a request that the caller believes to be idempotent.
func OneKey(ctx huma.Context) []error {
	keys, wrong := 0, false
	ctx.EachHeader(func(name, value string) {
		if strings.EqualFold(name, headerKey) {
			keys, wrong = keys+1, wrong || value == "" || value[0] == '"' && !ofKeyForm.MatchString(value)
		}
	})
	if wrong || keys > 1 {
		return errKey()
	}
	return nil
}

// ValidKey is OneKey with the length and the characters of a bare key.
func ValidKey(ctx huma.Context) []error {
	if key := ctx.Header(headerKey); key != "" && !ofKeyForm.MatchString(key) {
		return errKey()
	}
	return OneKey(ctx)
}

// Key returns the key of a valid Idempotency-Key header: the content of a quoted string, the
// form of draft-ietf-httpapi-idempotency-key-header, or the bare value, as most clients send it.
// Both forms are the same key.
func Key(header string) string {
	if !strings.HasPrefix(header, `"`) || !ofKeyForm.MatchString(header) {
		return header
	}
	return unquoteKey.Replace(header[1 : len(header)-1])
}
