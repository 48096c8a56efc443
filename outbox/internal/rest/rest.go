// Package rest makes the requests of the clients of the HTTP APIs.
package rest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/api"
)

const (
	// MaxPause bounds the pause before an attempt.
	MaxPause  = 10 * time.Second
	maxAnswer = 8 << 20
)

// call is a request, all its attempts.
type call struct {
	method, url string
	header      http.Header
	body        []byte
	unsettled   func(answer []byte) error
}

// Send makes a request with a JSON body, nil for none, and returns its response. It repeats the
// request as api.Client describes.
func Send[T any](ctx context.Context, c *api.Client, method, path string, body any, opts ...api.Option) (T, error) {
	return SendUntil[T](ctx, c, method, path, body, nil, opts...)
}

// SendUntil is Send that repeats the request also after a response for which unsettled returns an
// error that is Retryable. The last response is the result.
func SendUntil[T any](ctx context.Context, c *api.Client, method, path string, body any, unsettled func(answer []byte) error, opts ...api.Option) (T, error) {
	var out T
	if c == nil {
		return out, fmt.Errorf("outbox API: %s %s: the client is nil: make one with the URL of the service", method, path)
	}
	r := call{method: method, url: strings.TrimSuffix(c.URL, "/") + path, header: http.Header{}, unsettled: unsettled}
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return out, fmt.Errorf("outbox API: encode the request: %w", err)
		}
		r.body = b
		r.header.Set("Content-Type", "application/json")
		r.header.Set("Idempotency-Key", rand.Text())
	}
	if c.Token != "" {
		r.header.Set("Authorization", "Bearer "+c.Token)
	}
	for _, o := range opts {
		if o != nil {
			o(r.header)
		}
	}
	b, err := repeat(ctx, c, &r)
	if err != nil {
		return out, fmt.Errorf("outbox API: %s %s: %w", method, path, err)
	}
	if len(b) == 0 {
		return out, nil // 204
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return out, fmt.Errorf("outbox API: %s %s: decode the answer: %w", method, path, err)
	}
	return out, nil
}

// repeat sends r until there is an answer that another attempt cannot change.
// The last answer or error is returned when attempts or time run out.
func repeat(ctx context.Context, c *api.Client, r *call) ([]byte, error) {
	pause := cmp.Or(c.FirstPause, api.DefaultFirstPause)
	for attempt := 1; ; attempt++ {
		b, failed := once(ctx, c, r)
		err := failed
		if err == nil && r.unsettled != nil {
			err = r.unsettled(b)
		}
		if err == nil || ctx.Err() != nil || attempt >= cmp.Or(c.MaxAttempts, api.DefaultMaxAttempts) || !Retryable(err) {
			return b, failed
		}
		wait := pause/2 + mrand.N(pause)
		var p *api.Problem
		if errors.As(err, &p) {
			wait = max(wait, p.RetryAfter)
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return b, failed // it would be too late
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return b, failed
		}
		pause = min(2*pause, MaxPause)
	}
}

// Retryable reports whether a retry may have another result. A lost response
// does not prevent a retry: all requests have an Idempotency-Key, change
// nothing, or are idempotent (DELETE, deliver-now, release).
func Retryable(err error) bool {
	var p *api.Problem
	if !errors.As(err, &p) {
		return true // no answer
	}
	switch p.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func once(ctx context.Context, c *api.Client, r *call) ([]byte, error) {
	if limit := cmp.Or(c.Timeout, api.DefaultTimeout); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, r.url, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	req.Header = r.header.Clone()
	resp, err := client(c).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 {
		return b, nil
	}
	p := &api.Problem{}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind != "application/problem+json" || json.Unmarshal(b, p) != nil {
		p = &api.Problem{Title: http.StatusText(resp.StatusCode)} // a proxy's
		if to := resp.Header.Get("Location"); to != "" {
			p.Detail = "the service redirects and nothing was done; change Client.URL: " + to
		}
	}
	p.Status = resp.StatusCode
	p.RequestID = resp.Header.Get("X-Request-Id")
	p.RetryAfter = retryAfter(resp.Header.Get("Retry-After"))
	return nil, p
}

// client returns the HTTP client. It does not follow redirects that would turn a
// change into a GET (301, 302, 303): the response of the GET would look like
// that of the change. Nor does it follow redirects from https to http, which
// would expose the token.
func client(c *api.Client) *http.Client {
	h := *cmp.Or(c.HTTP, http.DefaultClient)
	also := h.CheckRedirect
	h.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		switch {
		case req.Method != via[0].Method:
			return http.ErrUseLastResponse
		case req.URL.Scheme != "https" && via[len(via)-1].URL.Scheme == "https":
			return http.ErrUseLastResponse
		case also != nil:
			return also(req, via)
		case len(via) >= 10:
			return errors.New("there were 10 redirects")
		}
		return nil
	}
	return &h
}

// retryAfter reads both forms of the header (RFC 9110, 10.2.3).
func retryAfter(v string) time.Duration {
	if s, err := strconv.Atoi(v); err == nil {
		return time.Duration(max(0, s)) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(t))
	}
	return 0
}
