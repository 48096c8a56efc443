package topics

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// retryAfter is the Retry-After of responses that a retry may change.
const retryAfter = 2 * time.Second

func newProblem(typ, detail string) *httpapi.Problem {
	p := httpapi.New(typ, detail)
	return &p
}

// notFound is the problem of a topic that is not readable or does not exist. It does not
// distinguish them: the names of other topics are not for every viewer.
func notFound(topic string) *httpapi.Problem {
	return newProblem(httpapi.TypeTopicNotFound, fmt.Sprintf("Topic %q does not exist, or watch.topics does not allow it.", topic))
}

func invalid(location, message string) *httpapi.Problem {
	p := httpapi.Invalid(location, message)
	return &p
}

func unavailable(detail string) *httpapi.Problem {
	p := newProblem(httpapi.TypeBroker, detail)
	p.RetryAfter(retryAfter)
	return p
}

func busy() *httpapi.Problem {
	p := newProblem(httpapi.TypeTooManyReads, "Too many topics are being read, or this caller has half of the reads. Retry later.")
	p.RetryAfter(retryAfter)
	return p
}

// toProblem converts an error of a read to a problem.
func (b *Browser) toProblem(ctx context.Context, err error) error {
	if p, ok := errors.AsType[*httpapi.Problem](err); ok {
		return p
	}
	if httpapi.HungUp(ctx, err) {
		return newProblem(httpapi.TypeHungUp, "The client has closed the request.")
	}
	b.cfg.Logger.WarnContext(ctx, "failed to read topics", "err", err)
	return unavailable("The broker cannot be reached, is too slow, or refuses the read; see the log, and retry later.")
}
