package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	jsonv2 "github.com/go-json-experiment/json"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// routeEndpoints are the operations of other packages. Their changes are audited.
type routeEndpoints struct {
	*operations
	audit *audit
	// reasonOptional permits changes without a reason.
	reasonOptional bool
}

// register adds the operations of other packages. Each needs the role that access.Needs
// gives it, by default viewer for GET and operator otherwise. Operations other than GET
// are audited.
func (ep *routeEndpoints) register(routes []func(huma.API)) {
	g := huma.NewGroup(ep.api)
	g.UseSimpleModifier(ep.describeRoute)
	g.UseMiddleware(ep.auditChange)
	for _, register := range routes {
		register(g)
	}
}

// describeRoute completes the description of an operation. huma calls it more than once
// for an operation.
func (ep *routeEndpoints) describeRoute(op *huma.Operation) {
	if _, ok := op.Extensions["x-role"]; !ok {
		role := access.Operator
		if op.Method == http.MethodGet {
			role = access.Viewer
		}
		*op = access.Needs(role, *op)
	}
	if op.Responses == nil {
		op.Responses = make(map[string]*huma.Response)
	}
	for _, code := range []int{401, 403, 429, 503} {
		if name := strconv.Itoa(code); op.Responses[name] == nil {
			op.Responses[name] = ep.refusal(code)
		}
	}
	op.Tags = []string{strings.Split(op.Path, "/")[2]}
	if op.Method != http.MethodGet {
		httpapi.DescribeReason(op, op.Metadata[httpapi.AuditBody] != true) // those can have dry runs
	}
}

// auditChange records a change, calls the operation, and records its response. If the change
// cannot be recorded, the operation is not called.
func (ep *routeEndpoints) auditChange(ctx huma.Context, next func(huma.Context)) {
	if ctx.Method() == http.MethodGet || ctx.Method() == http.MethodHead {
		next(ctx)
		return
	}
	seen := &watched{humaContext: ctx}
	e := entry{Action: ctx.Operation().OperationID, Target: cmp.Or(ctx.Param("id"), ctx.Param("name")), ReasonOptional: ep.reasonOptional}
	whole := ctx.Operation().Metadata[httpapi.AuditBody] == true
	if whole {
		dry, err := seen.read()
		switch {
		case err != nil:
			answerProblem(ctx, unread(ctx.Context(), err))
			return
		case dry:
			next(seen)
			return
		}
		e.Detail = string(seen.asked)
	}
	if lease := ctx.Param("lease"); lease != "" {
		detail, err := json.Marshal(map[string]string{"lease": lease})
		if err != nil {
			detail = nil // a text always has a form in JSON
		}
		e.Detail = string(detail)
	}
	begun := false
	err := ep.audit.changeWithResult(ctx.Context(), e, func(context.Context, dlq.Actor) (target, said string, err error) {
		begun = true
		next(seen)
		if whole { // of a failed change, the part made before the failure
			said = seen.result()
		}
		return "", said, seen.outcome()
	})
	if begun {
		return // it has been answered
	}
	p, ok := errors.AsType[*problem](err)
	if !ok {
		p = newProblem(ctx.Context(), httpapi.TypeInternal, "Internal error; see the log.")
	}
	answerProblem(ctx, p)
}

// answerProblem responds to an operation of another package with the standard members of
// problems, since its description has none of this API's own. The id of the request is in
// a header.
func answerProblem(ctx huma.Context, p *problem) {
	httpapi.Answer(ctx, &p.Problem)
}

// humaContext is embedded under a name of its own: the interface has a method Context.
type humaContext = huma.Context

// watched keeps the request body once it is read, and the beginning of the response.
type watched struct {
	humaContext
	body  bytes.Buffer
	asked []byte
}

// maxAsked bounds a request body that is recorded in the audit trail, and bodyTimeout the
// time to read it.
const (
	maxAsked    = 8 << 10
	bodyTimeout = 5 * time.Second
)

var errTooLarge = errors.New("too large")

// read reads the request body and keeps it for the operation. dry reports that it
// requests a dry run.
func (w *watched) read() (dry bool, err error) {
	_ = w.SetReadDeadline(time.Now().Add(bodyTimeout)) // as huma does; not every context has deadlines
	b, err := io.ReadAll(io.LimitReader(w.humaContext.BodyReader(), maxAsked+1))
	if err == nil && len(b) > maxAsked {
		err = errTooLarge
	}
	w.asked = b
	var said struct {
		DryRun bool `json:"dry_run"`
	}
	return jsonv2.Unmarshal(b, &said) == nil && said.DryRun, err // names as they are written, and none twice
}

// unread returns the problem of a body that could not be read.
func unread(ctx context.Context, err error) *problem {
	slow, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, errTooLarge):
		return newProblem(ctx, httpapi.TypeTooLarge, fmt.Sprintf("The body exceeds the limit of %d bytes.", maxAsked))
	case ok && slow.Timeout():
		return newProblem(ctx, httpapi.TypeTooSlow, "The request body arrived too slowly.")
	}
	return newProblem(ctx, httpapi.TypeMalformed, "The request body is incomplete or not framed as valid HTTP.")
}

// SetReadDeadline implements huma.Context. If the body is already read, a deadline would
// stay active while the request is served, and cancel its context and the ones of later
// requests on the same connection (internal/httpapi, readInTime).
func (w *watched) SetReadDeadline(t time.Time) error {
	if w.asked != nil {
		return nil
	}
	return w.humaContext.SetReadDeadline(t)
}

// BodyReader implements huma.Context.
func (w *watched) BodyReader() io.Reader {
	if w.asked != nil {
		return bytes.NewReader(w.asked)
	}
	return w.humaContext.BodyReader()
}

// result returns the member result of the response.
func (w *watched) result() string {
	var said struct {
		Result json.RawMessage `json:"result"`
	}
	if json.Unmarshal(w.body.Bytes(), &said) != nil {
		return ""
	}
	return string(said.Result)
}

// maxWatched exceeds the size of any problem.
const maxWatched = 64 << 10

// Unwrap returns the wrapped context, for humago.
func (w *watched) Unwrap() huma.Context { return w.humaContext }

// BodyWriter implements huma.Context.
func (w *watched) BodyWriter() io.Writer { return io.MultiWriter(w.humaContext.BodyWriter(), w) }

// Write keeps the first maxWatched bytes and reports all as written.
func (w *watched) Write(b []byte) (int, error) {
	w.body.Write(b[:min(len(b), max(0, maxWatched-w.body.Len()))])
	return len(b), nil
}

// outcome returns nil for a change that was made, a *problem for one that was refused,
// and another error for an unknown outcome.
func (w *watched) outcome() error {
	status := w.Status()
	if status < 400 {
		return nil
	}
	var said struct {
		Type           string
		Detail         string
		OutcomeUnknown bool `json:"outcome_unknown"`
	}
	if json.Unmarshal(w.body.Bytes(), &said) != nil || said.Detail == "" {
		said.Detail = http.StatusText(status)
	}
	// A change whose caller closed the request may have been made.
	if status == http.StatusInternalServerError || status == httpapi.StatusHungUp || said.OutcomeUnknown {
		return errors.New(said.Detail)
	}
	return &problem{Problem: httpapi.Problem{ErrorModel: huma.ErrorModel{Status: status, Type: said.Type, Detail: said.Detail}}}
}

// schemaNames returns the naming of types in the description. If two types have the same
// name, the later one is prefixed with its package.
func schemaNames() func(reflect.Type, string) string {
	taken := make(map[string]reflect.Type)
	return func(t reflect.Type, hint string) string {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		name := huma.DefaultSchemaNamer(t, hint)
		if t.Kind() != reflect.Struct {
			return name
		}
		if owner, ok := taken[name]; ok && owner != t {
			from := "other" // one without a name has no package
			if t.PkgPath() != "" {
				from = path.Base(t.PkgPath())
			}
			name = strings.ToUpper(from[:1]) + from[1:] + name
		}
		taken[name] = t
		return name
	}
}
