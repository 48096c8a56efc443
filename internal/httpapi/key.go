package httpapi

import (
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

const headerKey = "Idempotency-Key"

// OneKey returns the errors of the Idempotency-Key header apart from its text: several
// values, of which a proxy may choose any, or an empty one, as from an unset variable.
// Treating these as no key would repeat a request that the caller believes to be
// idempotent.
func OneKey(ctx huma.Context) []error {
	keys, empty := 0, false
	ctx.EachHeader(func(name, value string) {
		if strings.EqualFold(name, headerKey) {
			keys, empty = keys+1, empty || value == ""
		}
	})
	if empty || keys > 1 {
		return []error{&huma.ErrorDetail{Location: "header." + headerKey, Message: "must be one value of 1 to 255 printable ASCII characters, or omitted"}}
	}
	return nil
}
