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

// defaultMaxBody is huma's default bound of a body.
const defaultMaxBody = 1 << 20

// WholeBodies is a middleware that refuses a body whose Content-Length exceeds the limit
// of the operation before it is sent, with answer, and responds with 400 instead of 500
// to an incomplete body. The second needs BrokenBodies too.
func WholeBodies(tooLarge func(ctx huma.Context, detail string)) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		most := ctx.Operation().MaxBodyBytes
		if most == 0 {
			most = defaultMaxBody
		}
		if r, _ := humago.Unwrap(ctx); most > 0 && r.ContentLength > most {
			tooLarge(ctx, fmt.Sprintf("The body has %d bytes; the limit is %d.", r.ContentLength, most))
			return
		}
		b := new(body)
		next(&bodyContext{humaContext: huma.WithValue(ctx, bodyKey{}, b), body: b})
	}
}

// BrokenBodies sets the problem of an incomplete body in an API with WholeBodies.
func BrokenBodies(c *huma.Config) {
	c.Transformers = append(c.Transformers, func(ctx huma.Context, _ string, v any) (any, error) {
		e, ok := v.(*huma.ErrorModel)
		if ok && e.Status == http.StatusInternalServerError && brokenOff(ctx.Context()) {
			*e = huma.ErrorModel{
				Status: http.StatusBadRequest, Title: http.StatusText(http.StatusBadRequest), Detail: "The request body is incomplete or not framed as valid HTTP.",
			}
		}
		return v, nil
	})
}

type bodyKey struct{}

// body is the state of a request body.
type body struct{ broken bool }

func brokenOff(ctx context.Context) bool {
	b, ok := ctx.Value(bodyKey{}).(*body)
	return ok && b.broken
}

// humaContext is embedded under a name of its own: the interface has a method Context.
type humaContext = huma.Context

// bodyContext observes the read of a body.
type bodyContext struct {
	humaContext
	body *body
}

// Unwrap returns the wrapped context, for humago.
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

// Read records an incomplete body. huma reports a body that is too slow.
func (r *bodyReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		slow, ok := errors.AsType[net.Error](err)
		r.body.broken = !ok || !slow.Timeout()
	}
	return n, err
}
