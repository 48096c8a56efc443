// Package api has the parts that the clients of the HTTP APIs share: how they reach a service,
// the options of requests, and the errors. The clients are in the packages messages and
// subscriptions.
package api

import (
	"net/http"
	"time"
)

// Defaults of Client.
const (
	DefaultMaxAttempts = 5
	DefaultTimeout     = 30 * time.Second
	DefaultFirstPause  = 100 * time.Millisecond
)

// Client has the fields of messages.Client and subscriptions.Client, which are made of it. Do not
// change its fields after the first use; it is safe for concurrent use.
//
// A client retries reads and changes. Each change that is not repeatable by itself has an
// Idempotency-Key, random unless the caller sets one, so that a retry has the effect and the
// response of the first attempt. The client waits for Retry-After, otherwise with exponential
// backoff, and stops at the context's deadline or after MaxAttempts. It returns a refusal as a
// *Problem, and also a redirect that would turn a change into a GET.
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

// Option changes the headers of one request.
type Option func(http.Header)

// WithKey sets the Idempotency-Key of the request instead of a random one.
// After a crash, another process can then retry the request and receives the
// first response. An empty key keeps the random one, since a request without a
// key must not be retried.
func WithKey(key string) Option {
	return func(h http.Header) {
		if key != "" {
			h.Set("Idempotency-Key", key)
		}
	}
}

// WithTrace sends a W3C traceparent, which travels with the event.
func WithTrace(traceparent string) Option {
	return func(h http.Header) { h.Set("traceparent", traceparent) }
}
