package forward

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/wire"
)

const (
	// pathPrefix is the path of the operations between instances.
	pathPrefix = "/internal/subscriptions/"

	headerInstance  = "Outbox-Instance"
	headerTime      = "Outbox-Time"
	headerDigest    = "Outbox-Digest" // SHA-256 of the body in hex
	headerSignature = "Outbox-Signature"

	// maxSkew bounds the difference between the clocks of two instances, and so the time
	// within which a copied request is accepted.
	maxSkew = time.Minute
	// maxRequest bounds the body of a request, maxResponse that of a response.
	maxRequest  = 8 << 20
	maxResponse = 1 << 30
)

// The operations between instances.
const (
	opReceive  = "receive"
	opSettle   = "settle"
	opStatus   = "status"
	opProgress = "progress"
	opLeases   = "leases"
	opEndLease = "end-lease"
	opPurge    = "purge"
)

// errMisdirected means that the address belongs to another instance now.
var errMisdirected = errors.New("the address belongs to another instance")

// errTransport marks errors of requests without a response.
var errTransport = errors.New("the instance does not answer")

// signer signs the requests between instances.
type signer struct{ key []byte }

// newSigner derives the key from that of receipts, so that no signature of one kind is one
// of the other.
func newSigner(key []byte) signer {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("requests between instances")) // never fails
	return signer{h.Sum(nil)}
}

func (s signer) sign(path, instance, at, digest string) string {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(strings.Join([]string{path, instance, at, digest}, "\n"))) // never fails
	return hex.EncodeToString(h.Sum(nil))
}

// bodyDigest returns the digest of a body.
func bodyDigest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// Handler serves the requests of other instances, on the local engine. It reads the body of a
// request only if its signature, time and instance are right.
func (s *Service) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, op, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, pathPrefix), "/")
		if !ok || r.Method != http.MethodPost || !strings.HasPrefix(r.URL.Path, pathPrefix) {
			http.Error(w, "no such operation", http.StatusNotFound)
			return
		}
		instance, at, digest := r.Header.Get(headerInstance), r.Header.Get(headerTime), r.Header.Get(headerDigest)
		ms, err := strconv.ParseInt(at, 10, 64)
		signature := s.signer.sign(r.URL.Path, instance, at, digest)
		if err != nil || time.Since(time.UnixMilli(ms)).Abs() > maxSkew || !hmac.Equal([]byte(signature), []byte(r.Header.Get(headerSignature))) {
			s.cfg.Logger.WarnContext(r.Context(), "refused: request of an instance with a wrong signature or clock", "remote", r.RemoteAddr)
			http.Error(w, "the signature is wrong, or the clocks differ", http.StatusUnauthorized)
			return
		}
		if instance != s.cfg.Instance {
			http.Error(w, "this is another instance", http.StatusMisdirectedRequest)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		if bodyDigest(body) != digest {
			http.Error(w, "the body is not the one that was signed", http.StatusUnauthorized)
			return
		}
		out, err := s.serve(r.Context(), name, op, body)
		if err != nil {
			http.Error(w, err.Error(), errorStatus(err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out) // the leases of lost messages expire
	})
}

func errorStatus(err error) int {
	switch {
	case errors.Is(err, subscriptions.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, errOperation):
		return http.StatusBadRequest
	case errors.Is(err, subscriptions.ErrLeaseEnded):
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable
}

var errOperation = errors.New("no such operation")

// serve applies an operation to the local engine.
func (s *Service) serve(ctx context.Context, name, op string, body []byte) ([]byte, error) {
	switch op {
	case opReceive:
		return on(body, func(r subscriptions.Receive) ([]byte, error) {
			messages, err := s.cfg.Local.Receive(ctx, name, r)
			if ctx.Err() != nil && len(messages) > 0 {
				s.releaseLocal(name, messages)
				return nil, ctx.Err()
			}
			return wire.AppendMessages(nil, messages), err
		})
	case opSettle:
		return on(body, func(actions []subscriptions.Settle) ([]byte, error) {
			results, err := s.cfg.Local.Settle(ctx, name, actions)
			return wire.AppendResults(nil, results), err
		})
	case opStatus:
		st, err := s.cfg.Local.Status(ctx, name)
		if err != nil {
			return nil, err
		}
		st.Consumers = s.consumers(name)
		return json.Marshal(st)
	case opProgress:
		return on(body, func(at subscriptions.Place) ([]byte, error) {
			p, err := s.cfg.Local.Progress(ctx, name, at)
			if err != nil {
				return nil, err
			}
			return json.Marshal(p)
		})
	case opLeases:
		return on(body, func(r listLeases) ([]byte, error) {
			p, err := s.cfg.Local.Leases(ctx, name, r.Cursor, r.Limit)
			if err != nil {
				return nil, err
			}
			return json.Marshal(p)
		})
	case opEndLease:
		return on(body, func(r endLease) ([]byte, error) {
			err := s.cfg.Local.EndLease(ctx, name, r.LeaseID, r.Action, r.Principal)
			return []byte("{}"), err
		})
	case opPurge:
		return on(body, func(p purge) ([]byte, error) {
			n, err := s.cfg.Local.Purge(ctx, name, p.Purge, p.Principal)
			return strconv.AppendInt(nil, n, 10), err
		})
	}
	return nil, errOperation
}

// listLeases is the body of opLeases, endLease that of opEndLease.
type (
	listLeases struct {
		Cursor string
		Limit  int
	}
	endLease struct {
		subscriptions.LeaseID
		Action    subscriptions.Action
		Principal string
	}
)

// purge is the body of opPurge.
type purge struct {
	subscriptions.Purge
	Principal string
}

func on[T any](body []byte, do func(T) ([]byte, error)) ([]byte, error) {
	var in T
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, errors.Join(errOperation, err)
	}
	return do(in)
}

// call sends an operation to a peer. Errors wrap errTransport if there was no response, and
// errMisdirected, subscriptions.ErrNotFound or ErrUnavailable.
func (s *Service) call(ctx context.Context, p subscriptions.InstanceStatus, name, op string, in any) ([]byte, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	path, at, digest := pathPrefix+name+"/"+op, strconv.FormatInt(time.Now().UnixMilli(), 10), bodyDigest(body)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(p.Address, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("instance %s at %q: %w: %w", p.Instance, p.Address, errTransport, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(headerInstance, p.Instance)
	req.Header.Set(headerTime, at)
	req.Header.Set(headerDigest, digest)
	req.Header.Set(headerSignature, s.signer.sign(path, p.Instance, at, digest))
	resp, err := s.cfg.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("instance %s: %w: %w", p.Instance, errTransport, err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	out, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return nil, fmt.Errorf("instance %s: %w: %w", p.Instance, errTransport, err)
	}
	text := strings.TrimSpace(string(out[:min(len(out), 200)]))
	switch resp.StatusCode {
	case http.StatusOK:
		return out, nil
	case http.StatusMisdirectedRequest:
		return nil, fmt.Errorf("instance %s at %s: %w", p.Instance, p.Address, errMisdirected)
	case http.StatusNotFound:
		return nil, fmt.Errorf("instance %s: %w", p.Instance, subscriptions.ErrNotFound)
	case http.StatusConflict:
		return nil, fmt.Errorf("instance %s: %w", p.Instance, subscriptions.ErrLeaseEnded)
	}
	return nil, fmt.Errorf("instance %s answers %d %s: %w", p.Instance, resp.StatusCode, text, subscriptions.ErrUnavailable)
}

// receiveFrom receives messages of a peer.
func (s *Service) receiveFrom(ctx context.Context, p subscriptions.InstanceStatus, name string, r subscriptions.Receive) ([]subscriptions.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Wait+s.cfg.Timeout)
	defer cancel()
	body, err := s.call(ctx, p, name, opReceive, r)
	if err != nil {
		return nil, err
	}
	return wire.Messages(body)
}

// settleAt applies actions at a peer.
func (s *Service) settleAt(ctx context.Context, p subscriptions.InstanceStatus, name string, actions []subscriptions.Settle) ([]subscriptions.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	body, err := s.call(ctx, p, name, opSettle, actions)
	if err != nil {
		return nil, err
	}
	var out []subscriptions.Result
	if err := json.Unmarshal(body, &out); err != nil || len(out) != len(actions) {
		return nil, fmt.Errorf("instance %s: %d results for %d actions: %w", p.Instance, len(out), len(actions), errors.Join(err, subscriptions.ErrUnavailable))
	}
	return out, nil
}
