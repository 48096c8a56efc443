package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Problem is the common part of an API's problem documents, to be embedded in
// one with members of its own.
type Problem struct {
	huma.ErrorModel

	header http.Header
}

// New returns a problem of a type of the catalogue, which fixes its status and
// its title, or of TypeHungUp.
func New(typ, detail string) Problem {
	k := kind(typ)
	return Problem{ErrorModel: huma.ErrorModel{Type: typ, Title: k.Title, Status: k.Status, Detail: detail}, header: http.Header{}}
}

// Title returns the title of a type of problems, which is its name as words: "Stale version".
func Title(typ string) string {
	name := typ[strings.LastIndexByte(typ, ':')+1:]
	return strings.ToUpper(name[:1]) + strings.ReplaceAll(name[1:], "-", " ")
}

// Invalid returns the problem of one invalid field, in huma's form. message does not repeat
// the value.
func Invalid(location, message string) Problem {
	p := New(TypeInvalid, "The request has invalid fields; see errors.")
	p.Errors = []*huma.ErrorDetail{{Location: location, Message: message}}
	return p
}

// Header returns the response headers of the problem, which may be changed.
func (p *Problem) Header() http.Header { return p.header }

// GetHeaders implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header { return p.header }

// Details returns the errors by field, which may be changed.
func (p *Problem) Details() []*huma.ErrorDetail { return p.Errors }

// RetryAfter sets the header Retry-After, rounded up to whole seconds.
func (p *Problem) RetryAfter(d time.Duration) {
	p.header.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(d.Seconds())))))
}

// StatusHungUp is the status of a request whose client closed the connection before the
// response. It is only in metrics and logs, where it is distinct from a defect and from
// an unreachable database.
const StatusHungUp = 499

// HungUp reports whether err, of a request with the context ctx, only means that the
// client has closed the connection.
func HungUp(ctx context.Context, err error) bool {
	return errors.Is(err, context.Canceled) && errors.Is(ctx.Err(), context.Canceled)
}

// problem is a document that embeds Problem.
type problem interface {
	GetStatus() int
	GetHeaders() http.Header
}

// ProblemContentType is the media type of a problem document.
const ProblemContentType = "application/problem+json"

// Write responds with a problem.
func Write(w http.ResponseWriter, p problem) {
	for k, v := range p.GetHeaders() {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Type", ProblemContentType)
	w.WriteHeader(p.GetStatus())
	_ = json.NewEncoder(w).Encode(p) // a caller that closed the request misses nothing
}

// Answer is Write for a middleware of huma.
func Answer(ctx huma.Context, p problem) {
	for k, vs := range p.GetHeaders() {
		ctx.SetHeader(k, vs[0])
	}
	ctx.SetHeader("Content-Type", ProblemContentType)
	ctx.SetStatus(p.GetStatus())
	_ = json.NewEncoder(ctx.BodyWriter()).Encode(p) // a caller that closed the request misses nothing
}

// Describe describes the responses that are problems of type P; huma would
// describe them as its own. hint names the type where it has no name. CompleteDocument unites
// the types of an API.
func Describe[P any](h huma.API, hint string, codes ...int) map[string]*huma.Response {
	schema := h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[P](), true, hint)
	out := make(map[string]*huma.Response, len(codes))
	for _, code := range codes {
		r := &huma.Response{Description: http.StatusText(code), Content: map[string]*huma.MediaType{ProblemContentType: {Schema: schema}}}
		if code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests {
			r.Headers = map[string]*huma.Param{"Retry-After": {Schema: &huma.Schema{Type: huma.TypeInteger}, Description: "Seconds to wait"}}
		}
		out[strconv.Itoa(code)] = r
	}
	return out
}
