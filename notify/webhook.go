package notify

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// The headers of a signed webhook, as in standardwebhooks.com.
const (
	HeaderID        = standardwebhooks.HeaderWebhookID
	HeaderTimestamp = standardwebhooks.HeaderWebhookTimestamp
	HeaderSignature = standardwebhooks.HeaderWebhookSignature
)

const (
	// secretPrefix is the prefix of a secret in text form.
	secretPrefix = "whsec_"
	// minKey and maxKey bound a key, in bytes, as the specification does.
	minKey, maxKey = 24, 64
)

// Keys are the secrets of a webhook. During a rotation there are two: the
// sender signs with both, the receiver accepts either.
type Keys []*standardwebhooks.Webhook

// ParseKeys parses secrets of the form "whsec_" and base64 of 24 to 64 random
// bytes, such as from "whsec_$(openssl rand -base64 32)". Errors do not contain
// them.
func ParseKeys(secrets ...string) (Keys, error) {
	var keys Keys
	for i, s := range secrets {
		text, ok := strings.CutPrefix(s, secretPrefix)
		key, err := decodeKey(text)
		if !ok || err != nil || len(key) < minKey || len(key) > maxKey {
			return nil, fmt.Errorf("webhook secret %d of %d: write whsec_ and base64 of %d to %d random bytes", i+1, len(secrets), minKey, maxKey)
		}
		w, err := standardwebhooks.NewWebhookRaw(key)
		if err != nil {
			return nil, fmt.Errorf("webhook secret %d of %d cannot be used", i+1, len(secrets))
		}
		keys = append(keys, w)
	}
	if len(keys) == 0 {
		return nil, errors.New("a webhook needs a secret, so that receivers can verify the sender")
	}
	return keys, nil
}

// Sign sets the headers of a request with the body. The signature of each key is
// base64 of HMAC-SHA256 over "id.timestamp.body".
func (k Keys) Sign(h http.Header, id string, at time.Time, body []byte) error {
	var signatures []string
	for _, w := range k {
		s, err := w.Sign(id, at, body)
		if err != nil {
			return fmt.Errorf("sign webhook %s: %w", id, err)
		}
		signatures = append(signatures, s)
	}
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(HeaderSignature, strings.Join(signatures, " "))
	return nil
}

// ErrNotSigned is the error of Verify for any invalid signature.
var ErrNotSigned = errors.New("the webhook is not signed with a known secret, or is older than 5 minutes")

// Verify returns nil if the request was signed with one of the secrets within
// the last five minutes, otherwise ErrNotSigned. body is the unchanged body of
// the request. A receiver should also drop known ids, because a message is sent
// again if its response is late.
func Verify(h http.Header, body []byte, keys Keys) error {
	for _, w := range keys {
		if w.Verify(body, h) == nil {
			return nil
		}
	}
	return ErrNotSigned
}

// webhook is a Target: it posts messages as JSON, signed.
type webhook struct {
	url    string
	keys   Keys
	client *http.Client
	redact redactor
}

// maxIdle is the number of unused connections to a host that a webhook keeps: the highest
// concurrency of a subscription with push delivery.
const maxIdle = 1000

// maxAnswer bounds the part of a response that is read for the reuse of the
// connection.
const maxAnswer = 64 << 10

// NewWebhook returns a Target that posts each Message as JSON to an http or
// https URL, signed with every key. Any status 2xx accepts the message; 408,
// 429 and 5xx are retried, after Retry-After if present; any other status is
// final. Redirects are not followed.
func NewWebhook(rawURL string, keys Keys) (Target, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("a webhook needs a URL such as https://host/path")
	}
	if len(keys) == 0 {
		return nil, errors.New("a webhook needs a secret, so that receivers can verify the sender")
	}
	transport := http.DefaultTransport
	if t, ok := transport.(*http.Transport); ok {
		t = t.Clone()
		// The default keeps 2 connections to a host: with more concurrent calls most of
		// them would dial.
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, maxIdle
		transport = t
	}
	return &webhook{
		url: rawURL, keys: keys, redact: newRedactor(rawURL),
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Send posts m.
func (w *webhook) Send(ctx context.Context, m Message) error {
	body, err := m.body()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return Permanent(w.redact.err(err))
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "scylla-outbox")
	if err := w.keys.Sign(req.Header, m.ID, time.Now(), body); err != nil { // a new time for each attempt
		return Permanent(err)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return Unavailable(w.redact.err(err))
	}
	defer func() { _ = resp.Body.Close() }()                     // it was read
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)            // only for the connection's sake
	return statusError(resp.StatusCode, resp.Header, time.Now()) // nil for 2xx
}

// statusError is the error of an HTTP status.
func statusError(status int, h http.Header, now time.Time) error {
	if status >= 200 && status < 300 {
		return nil
	}
	err := fmt.Errorf("the receiver answered %d %s", status, http.StatusText(status))
	if status != http.StatusRequestTimeout && status != http.StatusTooManyRequests && status < 500 {
		return Permanent(err)
	}
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		err = Unavailable(err)
	}
	if d := retryAfter(h.Get("Retry-After"), now); d > 0 {
		return After(err, d)
	}
	return err
}

// retryAfter reads seconds or a date; 0 is neither.
func retryAfter(s string, now time.Time) time.Duration {
	if n, err := strconv.Atoi(s); err == nil {
		return time.Duration(min(n, 24*3600)) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return t.Sub(now)
	}
	return 0
}

// decodeKey reads standard base64, padded.
func decodeKey(s string) ([]byte, error) { return base64.StdEncoding.DecodeString(s) }
