package access

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/scylla-outbox/scylla-outbox/internal/clocks"
)

const (
	// keysPause is the minimum time between two requests for the issuer's keys. The
	// verifier makes one for each token that no known key has signed.
	keysPause = 10 * time.Second
	// maxKeys bounds the answer.
	maxKeys = 1 << 20
)

// errFresh reports that a token is signed by none of the keys that were read within
// keysPause.
var errFresh = errors.New("none of the issuer's current keys has signed it")

// keyFetch bounds how often the keys at url are requested. A failure is repeated until
// the next request is allowed.
type keyFetch struct {
	url   string
	next  http.RoundTripper
	clock clocks.Clock

	mu sync.Mutex
	at time.Time // of the last response
	is error     // its error
}

// RoundTrip implements http.RoundTripper. The verifier makes one request at a time.
func (k *keyFetch) RoundTrip(r *http.Request) (*http.Response, error) {
	k.mu.Lock()
	at, is := k.at, k.is
	k.mu.Unlock()
	if r.URL.String() == k.url && !at.IsZero() && k.clock.Now().Sub(at) < keysPause {
		if is != nil {
			return nil, is
		}
		return nil, errFresh
	}
	resp, err := k.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err // a redirect, or a failure after which the issuer is left alone anyway
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxKeys))
	if err = errors.Join(err, resp.Body.Close()); err == nil && !json.Valid(body) {
		err = errors.New("the keys are not valid JSON")
	}
	if err != nil {
		err = fmt.Errorf("%w: its keys: %w", errIssuer, err)
	}
	k.mu.Lock()
	k.at, k.is = k.clock.Now(), err
	k.mu.Unlock()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// keys reports through the context of verify that the keys could not be fetched, because
// the verifier converts every error to text.
type keys struct{ oidc.KeySet }

type awayKey struct{}

// VerifySignature implements oidc.KeySet.
func (k keys) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	payload, err := k.KeySet.VerifySignature(ctx, jwt)
	if away, ok := ctx.Value(awayKey{}).(*error); ok && (errors.Is(err, errIssuer) || err != nil && ctx.Err() != nil) {
		*away = err
	}
	return payload, err
}
