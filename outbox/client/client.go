// Package client is a Go client of the APIs of orders, messages and subscriptions.
//
// A Client retries reads and changes. Each change has an Idempotency-Key,
// random unless the caller sets one, so that a retry has the effect and the
// response of the first attempt. The client waits for Retry-After, otherwise
// with exponential backoff, and stops at the context's deadline or after
// MaxAttempts. It returns a refusal as a *Problem, and also a redirect that
// would turn a change into a GET.
package client

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
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Defaults of Client.
const (
	DefaultMaxAttempts = 5
	DefaultTimeout     = 30 * time.Second
	DefaultFirstPause  = 100 * time.Millisecond
	maxPause           = 10 * time.Second
	maxAnswer          = 8 << 20
)

// Client accesses a service for orders and messages, or one for subscriptions. Do not change its fields
// after the first use; it is safe for concurrent use.
type Client struct {
	// URL is the base URL of the service, such as http://127.0.0.1:8080.
	URL string
	// Token is the bearer token; optional.
	Token string
	// HTTP makes the requests. Default http.DefaultClient.
	HTTP *http.Client
	// MaxAttempts bounds how often a request is sent. Default 5; 1 never repeats.
	MaxAttempts int
	// Timeout bounds one attempt including its response, so that a dead connection
	// does not use up the context's time. Default 30 s, which is longer than the
	// service needs; -1 disables it.
	Timeout time.Duration
	// FirstPause is the delay before the second attempt without Retry-After; it
	// doubles with each attempt. Default 100 ms.
	FirstPause time.Duration
}

// Option changes one request.
type Option func(*call)

// WithKey sets the Idempotency-Key of the request instead of a random one.
// After a crash, another process can then retry the request and receives the
// first response. An empty key keeps the random one, since a request without a
// key must not be retried.
func WithKey(key string) Option {
	return func(c *call) {
		if key != "" {
			c.header.Set("Idempotency-Key", key)
		}
	}
}

// IfVersion makes a change only if its object is at this version; otherwise the
// error is a *Problem of the type ProblemStale.
func IfVersion(version int64) Option {
	return func(c *call) { c.header.Set("If-Match", strconv.Quote(strconv.FormatInt(version, 10))) }
}

// WithTrace sends a W3C traceparent, which travels with the event.
func WithTrace(traceparent string) Option {
	return func(c *call) { c.header.Set("traceparent", traceparent) }
}

// Create stores an order.
func (c *Client) Create(ctx context.Context, o NewOrder, opts ...Option) (Order, error) {
	return send[Order](ctx, c, http.MethodPost, "/v1/orders", o, opts)
}

// Get reads an order.
func (c *Client) Get(ctx context.Context, id string) (Order, error) {
	return send[Order](ctx, c, http.MethodGet, orderPath(id, ""), nil, nil)
}

// List returns a page of a customer's orders, newest first. Page.Next is the
// ListQuery.Cursor of the next page; it is empty on the last page.
func (c *Client) List(ctx context.Context, q ListQuery) (Page, error) {
	return send[Page](ctx, c, http.MethodGet, "/v1/orders?"+q.values().Encode(), nil, nil)
}

// Update changes an order at this version.
func (c *Client) Update(ctx context.Context, id string, version int64, u Update, opts ...Option) (Order, error) {
	return send[Order](ctx, c, http.MethodPatch, orderPath(id, ""), u, append([]Option{IfVersion(version)}, opts...))
}

// Confirm confirms an order.
func (c *Client) Confirm(ctx context.Context, id string, opts ...Option) (Order, error) {
	return send[Order](ctx, c, http.MethodPost, orderPath(id, "/confirm"), struct{}{}, opts)
}

// Ship marks an order as shipped.
func (c *Client) Ship(ctx context.Context, id string, s Shipment, opts ...Option) (Order, error) {
	return send[Order](ctx, c, http.MethodPost, orderPath(id, "/ship"), s, opts)
}

// Cancel cancels an order.
func (c *Client) Cancel(ctx context.Context, id string, s Cancellation, opts ...Option) (Order, error) {
	return send[Order](ctx, c, http.MethodPost, orderPath(id, "/cancel"), s, opts)
}

func orderPath(id, action string) string { return "/v1/orders/" + url.PathEscape(id) + action }

// call is a request, all its attempts.
type call struct {
	method, url string
	header      http.Header
	body        []byte
	// unsettled, if not nil, returns an error for a response that a retry may
	// change.
	unsettled func(answer []byte) error
}

func send[T any](ctx context.Context, c *Client, method, path string, body any, opts []Option) (T, error) {
	var out T
	r := call{method: method, url: strings.TrimSuffix(c.URL, "/") + path, header: http.Header{}}
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
		o(&r)
	}
	b, err := c.repeat(ctx, &r)
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
func (c *Client) repeat(ctx context.Context, r *call) ([]byte, error) {
	pause := cmp.Or(c.FirstPause, DefaultFirstPause)
	for attempt := 1; ; attempt++ {
		b, failed := c.once(ctx, r)
		err := failed
		if err == nil && r.unsettled != nil {
			err = r.unsettled(b)
		}
		if err == nil || ctx.Err() != nil || attempt >= cmp.Or(c.MaxAttempts, DefaultMaxAttempts) || !retryable(err) {
			return b, failed
		}
		wait := pause/2 + mrand.N(pause)
		var p *Problem
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
		pause = min(2*pause, maxPause)
	}
}

// retryable reports whether a retry may have another result. A lost response
// does not prevent a retry: all requests have an Idempotency-Key, change
// nothing, or are idempotent (DELETE, deliver-now, release).
func retryable(err error) bool {
	var p *Problem
	if !errors.As(err, &p) {
		return true // no answer
	}
	switch p.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func (c *Client) once(ctx context.Context, r *call) ([]byte, error) {
	if limit := cmp.Or(c.Timeout, DefaultTimeout); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, r.url, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	req.Header = r.header.Clone()
	resp, err := c.http().Do(req)
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
	p := &Problem{}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind != "application/problem+json" || json.Unmarshal(b, p) != nil {
		p = &Problem{Title: http.StatusText(resp.StatusCode)} // a proxy's
		if to := resp.Header.Get("Location"); to != "" {
			p.Detail = "the service redirects and nothing was done; change Client.URL: " + to
		}
	}
	p.Status = resp.StatusCode
	p.RequestID = resp.Header.Get("X-Request-Id")
	p.RetryAfter = retryAfter(resp.Header.Get("Retry-After"))
	return nil, p
}

// http returns the HTTP client. It does not follow redirects that would turn a
// change into a GET (301, 302, 303): the response of the GET would look like
// that of the change. Nor does it follow redirects from https to http, which
// would expose the token.
func (c *Client) http() *http.Client {
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
