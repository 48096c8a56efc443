// Package client is a Go client of the API of orders and messages.
//
// A Client repeats what may be repeated: reads, and changes, each of which it
// gives an Idempotency-Key of its own unless the caller names one, so that a
// repetition has the effect and the answer of the first. It waits as long as the
// service asks it to (Retry-After), otherwise longer each time, and gives up at
// the context's deadline or after MaxAttempts. What the service refuses is a
// *Problem, and so is a redirect that would make a change a mere reading.
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

// Client asks a service for orders and messages. Its fields must not be changed once it is in use;
// it is safe for concurrent use.
type Client struct {
	// URL is where the service is, such as http://127.0.0.1:8080.
	URL string
	// Token is the bearer token; empty sends none.
	Token string
	// HTTP makes the requests. Default http.DefaultClient.
	HTTP *http.Client
	// MaxAttempts bounds how often a request is sent. Default 5; 1 never repeats.
	MaxAttempts int
	// Timeout bounds one attempt, its answer included, so that a connection that has
	// gone silent does not use up the context's time. Default 30 s, which is longer
	// than the service takes for anything; -1 leaves it to the context.
	Timeout time.Duration
	// FirstPause is about how long to wait before the second attempt where the
	// service does not say; each next wait is twice as long. Default 100 ms.
	FirstPause time.Duration
}

// Option changes one request.
type Option func(*call)

// WithKey makes the request have this Idempotency-Key instead of a random one.
// With a key of its own a caller who died can ask again, in another process, and
// get the answer to the first request. An empty key leaves the random one, since a
// request without any must not be sent twice.
func WithKey(key string) Option {
	return func(c *call) {
		if key != "" {
			c.header.Set("Idempotency-Key", key)
		}
	}
}

// IfVersion makes a change only if the order is at this version; otherwise the
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

// List reads a page of a customer's orders, the newest first. Page.Next, in
// ListQuery.Cursor, leads to the next; it is empty after the last.
func (c *Client) List(ctx context.Context, q ListQuery) (Page, error) {
	return send[Page](ctx, c, http.MethodGet, "/v1/orders?"+q.values().Encode(), nil, nil)
}

// Update changes an order that the caller has seen at this version.
func (c *Client) Update(ctx context.Context, id string, version int64, u Update, opts ...Option) (Order, error) {
	return send[Order](ctx, c, http.MethodPatch, orderPath(id, ""), u, append([]Option{IfVersion(version)}, opts...))
}

// Confirm confirms an order.
func (c *Client) Confirm(ctx context.Context, id string, opts ...Option) (Order, error) {
	return send[Order](ctx, c, http.MethodPost, orderPath(id, "/confirm"), struct{}{}, opts)
}

// Ship says that an order has left.
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
	// unsettled, unless nil, is what of an answer another attempt may change.
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
		if err == nil || ctx.Err() != nil || attempt >= cmp.Or(c.MaxAttempts, DefaultMaxAttempts) || !again(err) {
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

// again tells whether the same request may have another answer. All requests
// have an Idempotency-Key, change nothing, or change nothing more the second time
// (DELETE, a release), so an answer that was lost is no reason to stop.
func again(err error) bool {
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
			p.Detail = "nothing was done; the service is elsewhere, so change Client.URL: " + to
		}
	}
	p.Status = resp.StatusCode
	p.RequestID = resp.Header.Get("X-Request-Id")
	p.RetryAfter = retryAfter(resp.Header.Get("Retry-After"))
	return nil, p
}

// http is what makes the requests. It follows no redirect that would turn a change
// into a GET, as 301, 302 and 303 do: the answer to that is a good one, and the
// change would seem made. Nor one from https to http, where the token would travel in
// the clear.
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
