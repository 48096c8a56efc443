package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// defaultMaxBody is huma's own bound of a body, for operations that name none.
const defaultMaxBody = 1 << 20

// WholeBodies is a middleware for what huma does not judge well. A body that says
// that it is longer than the operation takes is refused, by answer, before any of it
// is sent, and one that breaks off is the caller's fault, 400, not the server's. The
// second needs BrokenBodies, too.
func WholeBodies(tooLarge func(ctx huma.Context, detail string)) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		most := ctx.Operation().MaxBodyBytes
		if most == 0 {
			most = defaultMaxBody
		}
		if r, _ := humago.Unwrap(ctx); most > 0 && r.ContentLength > most {
			tooLarge(ctx, fmt.Sprintf("The body has %d bytes, more than the %d that this operation takes.", r.ContentLength, most))
			return
		}
		b := new(body)
		next(&bodyContext{humaContext: huma.WithValue(ctx, bodyKey{}, b), body: b})
	}
}

// BrokenBodies has the problems of an API with WholeBodies say so of a body that broke off.
func BrokenBodies(c *huma.Config) {
	c.Transformers = append(c.Transformers, func(ctx huma.Context, _ string, v any) (any, error) {
		e, ok := v.(*huma.ErrorModel)
		if ok && e.Status == http.StatusInternalServerError && brokenOff(ctx.Context()) {
			*e = huma.ErrorModel{
				Status: http.StatusBadRequest, Title: http.StatusText(http.StatusBadRequest), Detail: "The request body broke off, or is not framed as HTTP wants it.",
			}
		}
		return v, nil
	})
}

type bodyKey struct{}

// body is what became of a request's body.
type body struct{ broken bool }

func brokenOff(ctx context.Context) bool {
	b, ok := ctx.Value(bodyKey{}).(*body)
	return ok && b.broken
}

// humaContext is embedded under a name of its own: the interface has a method Context.
type humaContext = huma.Context

// bodyContext watches how a body is read.
type bodyContext struct {
	humaContext
	body *body
}

// Unwrap returns the context below, as humago asks for it.
func (c *bodyContext) Unwrap() huma.Context { return c.humaContext }

// BodyReader implements huma.Context.
func (c *bodyContext) BodyReader() io.Reader {
	r := c.humaContext.BodyReader()
	if r == nil {
		return nil
	}
	return &bodyReader{Reader: r, body: c.body}
}

// SetStatus implements huma.Context.
func (c *bodyContext) SetStatus(code int) {
	if code == http.StatusInternalServerError && c.body.broken {
		code = http.StatusBadRequest
	}
	c.humaContext.SetStatus(code)
}

type bodyReader struct {
	io.Reader
	body *body
}

// Read notes that the body broke off. Of one that is too slow huma says so itself.
func (r *bodyReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		slow, ok := errors.AsType[net.Error](err)
		r.body.broken = !ok || !slow.Timeout()
	}
	return n, err
}
