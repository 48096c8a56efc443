// Package adminclient is a client of the admin API (package admin): of a server, or of a
// handler in the same process.
//
// A Client sends each request once, and again only if the server has refused it because of
// its limit of requests (429). It returns a response with an error status as an
// *Error and a request without a response as an *UnreachableError; neither contains the
// token. Unknown members of a response are ignored, so that client and server may have
// different versions.
package adminclient

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/messages"
)

// timeout bounds one request. The server counts all dead letters within half of it.
const timeout = time.Minute

// attempts is the number of attempts to send a request that the server's limit refuses, and
// maxPause bounds the wait before each repetition.
const (
	attempts = 5
	maxPause = 10 * time.Second
)

// maxResponse bounds the body of a response; a payload of 1 MB is in it twice.
const maxResponse = 64 << 20

// Client sends requests to an admin API. It is safe for concurrent use.
type Client struct {
	base  *url.URL
	token string
	http  *http.Client
	// checked waits for the check of Local, and returns its error; nil for none.
	checked func() error
}

// New returns a client of the server at a URL, with the configuration of TLS, which may be
// nil. It follows no redirects, which could lead the token elsewhere.
func New(base *url.URL, token string, conf *tls.Config) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = conf
	return &Client{base: base, token: token, http: &http.Client{Transport: transport, Timeout: timeout, CheckRedirect: noRedirect}}
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Local returns a client of a handler in this process. It sends no token. checked, which may be nil, waits for a check of
// the handler's requirements: its error is that of every request. Requests that read are sent meanwhile, others after.
func Local(h http.Handler, checked func() error) *Client {
	return &Client{base: &url.URL{Scheme: "http", Host: "localhost"}, http: &http.Client{Transport: inProcess{h}, CheckRedirect: noRedirect}, checked: checked}
}

// UnreachableError is a request without a response.
type UnreachableError struct {
	// URL is the base URL of the server.
	URL string
	// Err is the cause.
	Err error
}

// Error names the server.
func (e *UnreachableError) Error() string { return "admin API at " + e.URL + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Error is a response with an error status: a problem document, or the status alone.
type Error struct {
	// Status is the HTTP status, and Path the path of the request.
	Status int    `json:"-"`
	Path   string `json:"-"`
	// Type identifies the kind of the problem.
	Type string `json:"type"`
	// Detail describes the problem, and Hint its fix; Hint may be empty.
	Detail string `json:"detail"`
	Hint   string `json:"hint"`
	// Fields are the invalid fields of the request.
	Fields []Field `json:"errors"`
	// OutcomeUnknown reports that the change may have been made.
	OutcomeUnknown bool `json:"outcome_unknown"`
	// Result is what a change of many messages made before it failed.
	Result messages.Changed `json:"result"`
	// RequestID is the id of the request in the log and the audit trail of the server.
	RequestID string `json:"request_id"`
	// RetryAfter is the wait before a repetition; zero for none.
	RetryAfter time.Duration `json:"-"`
}

// Field is an invalid field of a request.
type Field struct {
	Location string `json:"location"`
	Message  string `json:"message"`
}

// Error returns the detail as an error text, with the invalid fields.
func (e *Error) Error() string {
	text := strings.TrimSuffix(e.Detail, ".")
	first, size := utf8.DecodeRuneInString(text)
	if next, _ := utf8.DecodeRuneInString(text[size:]); !unicode.IsUpper(next) { // it is no acronym
		text = string(unicode.ToLower(first)) + text[size:]
	}
	for i, f := range e.Fields {
		separator := "; "
		if i == 0 {
			separator = ": "
		}
		text += separator + f.Location + " " + f.Message
	}
	if e.Status >= http.StatusInternalServerError && e.RequestID != "" {
		text += " (request id " + e.RequestID + ")"
	}
	return text
}

// Temporary reports whether a later request may succeed: the server or its database
// cannot be reached, or there were too many requests.
func Temporary(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status == http.StatusTooManyRequests || e.Status == http.StatusBadGateway || e.Status == http.StatusServiceUnavailable || e.Status == http.StatusGatewayTimeout
	}
	_, ok := errors.AsType[*UnreachableError](err)
	return ok
}

// request is a request without the parts that all requests share.
type request struct {
	method, path string
	query        url.Values
	version      int64  // for If-Match; 0 for none
	reason       string // of a change
	body         any    // nil for none
}

// get sends a request without a body.
func (c *Client) get(ctx context.Context, path string, query url.Values, out any) error {
	return c.send(ctx, request{method: http.MethodGet, path: path, query: query}, out)
}

// post sends a request with a body.
func (c *Client) post(ctx context.Context, path string, body, out any) error {
	return c.send(ctx, request{method: http.MethodPost, path: path, body: body}, out)
}

// send sends a request and decodes the response into out. It repeats a request that the
// server's limit has refused.
func (c *Client) send(ctx context.Context, r request, out any) (err error) {
	if c.checked != nil {
		if r.method != http.MethodGet {
			if err := c.checked(); err != nil {
				return err
			}
		}
		defer func() { err = cmp.Or(c.checked(), err) }()
	}
	for n := 1; ; n++ {
		err := c.once(ctx, r, out)
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Status != http.StatusTooManyRequests || n == attempts {
			return err
		}
		if err := retry.Wait(ctx, min(max(e.RetryAfter, time.Second/10), maxPause)); err != nil {
			return err
		}
	}
}

// once sends a request and decodes the response into out.
func (c *Client) once(ctx context.Context, r request, out any) error {
	var body io.Reader
	if r.body != nil {
		b, err := json.Marshal(r.body)
		if err != nil {
			return fmt.Errorf("encode the request %s %s: %w", r.method, r.path, err)
		}
		body = bytes.NewReader(b)
	}
	at := c.base.JoinPath(r.path)
	at.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, at.String(), body)
	if err != nil {
		return fmt.Errorf("request %s %s: %w", r.method, r.path, err)
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.version != 0 {
		req.Header.Set("If-Match", strconv.Quote(strconv.FormatInt(r.version, 10)))
	}
	if r.reason != "" {
		req.Header.Set(httpapi.ReasonHeader, url.PathEscape(r.reason))
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(ctx, err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read completely or not needed
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return c.unreachable(ctx, err)
	case resp.StatusCode >= http.StatusMultipleChoices:
		return newError(resp, r.path, b)
	case len(b) > maxResponse:
		return fmt.Errorf("response of %s %s: more than %d bytes", r.method, r.path, maxResponse)
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("response of %s %s: %w; is %s the URL of an admin API?", r.method, r.path, err, c.base)
	}
	return nil
}

// unreachable returns the error of a request without a response, or that of ctx if it has
// ended.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without the URL again
	}
	return &UnreachableError{URL: c.base.String(), Err: err}
}

// newError returns the error of a response.
func newError(resp *http.Response, path string, body []byte) *Error {
	e := new(Error)
	if json.Unmarshal(body, e) != nil || e.Detail == "" {
		*e = Error{Detail: fmt.Sprintf("response with status %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))}
	}
	e.Status, e.Path = resp.StatusCode, path
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}
