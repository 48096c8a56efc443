package admin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// operations is the part that all endpoints share: the API that they register their
// operations with, the bound on expensive reads, and the form of their errors.
type operations struct {
	api   huma.API
	log   *slog.Logger
	heavy *access.Places // of expensive reads
}

// changeListener receives the changes that this server makes.
type changeListener interface {
	// recordChanged receives dead letters that were changed.
	recordChanged(ids ...gocql.UUID)
}

// heavily runs an expensive read of the caller once few others run.
func (o *operations) heavily(ctx context.Context, f func() error) error {
	return o.heavilyFor(ctx, access.Holder(ctx, ""), f)
}

// heavilyFor runs an expensive read of a holder of places once few others run.
func (o *operations) heavilyFor(ctx context.Context, holder string, f func() error) error {
	give, err := o.heavy.Wait(ctx, holder)
	if errors.Is(err, context.DeadlineExceeded) {
		p := newProblem(ctx, httpapi.TypeTooManyReads, "Other expensive reads ran until the time of this one ended; retry later.")
		p.Header().Set("Retry-After", retryAfter)
		return p
	}
	if err != nil {
		return err
	}
	defer give()
	return f()
}

// describe adds the error responses and the required role to an operation.
func (o *operations) describe(role access.Role, op huma.Operation, codes ...int) huma.Operation {
	if op.Responses == nil {
		op.Responses = make(map[string]*huma.Response)
	}
	if op.Method != http.MethodGet {
		codes = append(codes, 400, 413, 415)
	}
	for _, code := range append([]int{401, 403, 422, 429, 503}, codes...) {
		op.Responses[strconv.Itoa(code)] = o.refusal(code)
	}
	op.Tags = []string{strings.Split(op.Path, "/")[2]}
	return access.Needs(role, op)
}

// describeChange is describe for an operation that is audited. reason reports that it has no dry
// run, which needs no reason.
func (o *operations) describeChange(role access.Role, reason bool, op huma.Operation, codes ...int) huma.Operation {
	httpapi.DescribeReason(&op, reason)
	return o.describe(role, op, codes...)
}

// refusal describes a response that is a problem. All operations share one per status.
func (o *operations) refusal(code int) *huma.Response {
	parts := o.api.OpenAPI().Components
	if parts.Responses == nil {
		parts.Responses = make(map[string]*huma.Response)
	}
	name := "Problem" + strconv.Itoa(code)
	if parts.Responses[name] == nil {
		r := httpapi.Describe[problem](o.api, "", code)[strconv.Itoa(code)]
		for _, media := range r.Content {
			media.Example = exampleProblem(code)
		}
		parts.Responses[name] = r
	}
	return &huma.Response{Ref: "#/components/responses/" + name}
}
