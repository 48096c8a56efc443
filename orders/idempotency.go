package orders

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// opCreate is the operation of Create in idempotency_keys; Change.operation
// returns that of a change.
const opCreate = "create order"

// identity contains the ids and times of a change. A retry with the same
// Idempotency-Key receives the identity of the first attempt, and so writes the
// same order, the same event and the same times.
type identity struct {
	orderID   gocql.UUID
	eventID   gocql.UUID
	createdAt time.Time
	// base is a version of the order before the change: its event can only follow
	// it.
	base int64
	// retried: the key was there already, so an earlier attempt may have
	// written the change.
	retried bool
}

const insertKey = "INSERT INTO idempotency_keys (client, key, operation, request_hash, order_id, event_id, created_at, version)" +
	" VALUES (?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS"

// claim decides which request owns the client's key and returns the identity of the owner:
// fresh for the first request, the stored one for a retry.
//
// The key's row contains the ids; they are not computed from the key. Otherwise
// a key that is used again after the row has expired would refer to the old
// order.
//
// It returns a *KeyReuseError if the key belongs to another request, and an
// *UnavailableError with nothing stored if the database did not decide in time.
func (s *Service) claim(ctx context.Context, opts WriteOptions, op string, request any, fresh identity) (identity, error) {
	hash, err := requestHash(op, request)
	if err != nil {
		return identity{}, err
	}
	for b := s.newBudget(ctx); ; {
		row, applied, err := s.store.claim(ctx, keyRow{client: opts.Client, key: opts.IdempotencyKey, operation: op, hash: hash, identity: fresh})
		f := classifyFate(err)
		s.metrics.attempt(stepClaim, f)
		switch {
		case f == fateDone && (applied || row.eventID == fresh.eventID):
			return fresh, nil // the row may be our own insert with an unknown outcome
		case f == fateDone && (row.operation != op || !bytes.Equal(row.hash, hash)):
			return identity{}, &KeyReuseError{Operation: row.operation}
		case f == fateDone:
			row.retried = true
			return row.identity, nil
		case f != fateUnknown || !b.Pause():
			// A retry resolves an unknown outcome: a conditional statement completes an
			// earlier one on the same key. This request has not written an order yet.
			return identity{}, s.unavailable(ctx, gocql.UUID{}, false, err)
		}
	}
}

// keyRow is a row of idempotency_keys.
type keyRow struct {
	client    string
	key       string
	operation string
	hash      []byte
	identity
}

// claim inserts r if its key is free; otherwise it returns the existing row.
func (s *store) claim(ctx context.Context, r keyRow) (_ keyRow, _ bool, err error) {
	ctx, done, err := s.guard.Call(ctx)
	if err != nil {
		return keyRow{}, false, err
	}
	defer func() { done(err) }()
	cells := map[string]any{}
	applied, err := s.query(ctx, insertKey, r.client, r.key, r.operation, r.hash, r.orderID, r.eventID, r.createdAt.UnixMilli(), r.base).
		SerialConsistency(s.serial).MapScanCAS(cells)
	if err != nil {
		return keyRow{}, false, fmt.Errorf("claim Idempotency-Key: %w", err)
	}
	if applied {
		return r, true, nil
	}
	found := keyRow{client: r.client, key: r.key}
	found.operation, _ = cells["operation"].(string)
	found.hash, _ = cells["request_hash"].([]byte)
	found.orderID, _ = cells["order_id"].(gocql.UUID)
	found.eventID, _ = cells["event_id"].(gocql.UUID)
	found.createdAt, _ = cells["created_at"].(time.Time)
	found.base, _ = cells["version"].(int64)
	return found, false, nil
}

// requestHash identifies a request by its content, independent of white space
// and of the order of fields.
func requestHash(op string, request any) ([]byte, error) {
	b, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("hash request: %w", err)
	}
	sum := sha256.Sum256(append([]byte(op+"\n"), b...))
	return sum[:], nil
}

// newIdentity returns the identity of a first request.
func (s *Service) newIdentity(orderID gocql.UUID) identity {
	return identity{orderID: orderID, eventID: outbox.NewID().UUID(), createdAt: millis(s.cfg.Clock.Now())}
}

// changeRequest is the hashed part of a change.
type changeRequest struct {
	OrderID   string  `json:"order_id"`
	IfVersion []int64 `json:"if_version,omitempty"`
	Change    any     `json:"change"`
}

func newChangeRequest(id gocql.UUID, change any, opts WriteOptions) changeRequest {
	return changeRequest{OrderID: hex.EncodeToString(id[:]), IfVersion: opts.IfVersion, Change: change}
}
