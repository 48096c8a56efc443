package httpapi

import (
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

const headerKey = "Idempotency-Key"

// OneKey is what is wrong with the Idempotency-Key of a request before its text is
// looked at: there are several, of which whoever forwards the request may take
// either, or it is empty, as from a variable that was not set. Taking these for
// none would repeat what the caller believes to be safe to repeat.
func OneKey(ctx huma.Context) []error {
	keys, empty := 0, false
	ctx.EachHeader(func(name, value string) {
		if strings.EqualFold(name, headerKey) {
			keys, empty = keys+1, empty || value == ""
		}
	})
	if empty || keys > 1 {
		return []error{&huma.ErrorDetail{Location: "header." + headerKey, Message: "must be one value of 1 to 255 printable ASCII characters, or left out"}}
	}
	return nil
}
