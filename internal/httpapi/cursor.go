package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// ProblemCursor is the problem of a cursor that this list has not returned for these filters.
const ProblemCursor = "is not the next of a page with these parameters: send next as it is, with the same path and parameters; only times and limit may differ"

// cursorForm is the pattern of Page.Cursor, but for the empty one of the first page.
var cursorForm = regexp.MustCompile(`^[!-~]+[.][A-Za-z0-9_-]{8}$`)

// Page is the position of a list that is read by pages, to be embedded in the input of its
// operation. A cursor contains a hash of the filters, so that a page never continues a list with
// other filters, which would omit entries before the position.
//
// Times are not part of the hash: clients derive them from the current time, and they only bound
// a list that is in the order of time.
type Page struct {
	// Cursor is the position, which Next got, after Resolve.
	Cursor string `query:"cursor" pattern:"^([!-~]+[.][A-Za-z0-9_-]{8})?$" patternDescription:"next of the previous page" doc:"next of the previous page, with the same other parameters; only times and limit may differ"`

	filters []string
}

// Resolve refuses a cursor of another list, or of other filters.
func (p *Page) Resolve(ctx huma.Context) []error {
	u := ctx.URL()
	query := u.Query()
	p.filters = []string{u.Path}
	for _, param := range ctx.Operation().Parameters {
		s := param.Schema
		if param.In != "query" || param.Name == "cursor" || param.Name == "limit" || s != nil && s.Format == "date-time" {
			continue
		}
		values := slices.DeleteFunc(query[param.Name], func(v string) bool { return v == "" || s != nil && s.Default != nil && v == fmt.Sprint(s.Default) })
		if len(values) > 0 {
			p.filters = append(p.filters, param.Name, strings.Join(values, ","))
		}
	}
	if p.Cursor == "" || !cursorForm.MatchString(p.Cursor) { // the pattern refuses it
		return nil
	}
	position, ok := Position(p.Cursor, p.filters...)
	if !ok {
		return []error{&huma.ErrorDetail{Location: "query.cursor", Message: ProblemCursor}}
	}
	p.Cursor = position
	return nil
}

// Next returns the cursor of the page behind a position, empty for none.
func (p *Page) Next(position string) string { return Cursor(position, p.filters...) }

// Cursor returns the cursor of a position in a list with filters, empty for none.
func Cursor(position string, filters ...string) string {
	if position == "" {
		return ""
	}
	return position + "." + hashFilters(filters)
}

// Position returns the position of a Cursor; ok is false if its filters were other ones.
func Position(cursor string, filters ...string) (position string, ok bool) {
	dot := strings.LastIndexByte(cursor, '.')
	if dot < 1 || cursor[dot+1:] != hashFilters(filters) {
		return "", false
	}
	return cursor[:dot], true
}

// hashFilters tells lists of filters apart. It is no protection: positions are not secret.
func hashFilters(filters []string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", filters))
	return base64.RawURLEncoding.EncodeToString(sum[:6])
}
