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

// opCreate is creating an order, as idempotency_keys names it; what changes an
// order is named by Change.operation.
const opCreate = "create order"

// identity is what a change is written with. A retry that comes with the same
// Idempotency-Key gets that of the first attempt, and so writes the same order,
// the same event and the same times.
type identity struct {
	orderID   gocql.UUID
	eventID   gocql.UUID
	createdAt time.Time
	// base is a version of the order from before the change: its event can only
	// stand after that.
	base int64
	// retried: the key was there already, so an earlier attempt may have
	// written the change.
	retried bool
}

const insertKey = "INSERT INTO idempotency_keys (key, operation, request_hash, order_id, event_id, created_at, version)" +
	" VALUES (?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS"

// ownKey is the Idempotency-Key as idempotency_keys has it: behind whose it is. A key
// has no space in it, so no two clients share one.
func (o *WriteOptions) ownKey() string {
	if o.Client == "" {
		return o.IdempotencyKey
	}
	return o.Client + " " + o.IdempotencyKey
}

// claim decides which request owns key and returns the identity of the owner:
// fresh if this request is the first, the stored one if it is a retry of it.
//
// The ids stand in the key's row instead of being computed from the key: after
// the row has expired, a key that is used again must not lead to the old order.
//
// It returns a *KeyReuseError if the key belongs to another request, and an
// *UnavailableError with nothing stored if the database did not decide in time.
func (s *Service) claim(ctx context.Context, key, op string, request any, fresh identity) (identity, error) {
	hash, err := requestHash(op, request)
	if err != nil {
		return identity{}, err
	}
	for b := s.newBudget(ctx); ; {
		row, applied, err := s.store.claim(ctx, keyRow{key: key, operation: op, hash: hash, identity: fresh})
		f := fateOf(err)
		s.metrics.attempt(stepClaim, f)
		switch {
		case f == fateDone && (applied || row.eventID == fresh.eventID):
			return fresh, nil // the row may be our own insert, whose answer was lost
		case f == fateDone && (row.operation != op || !bytes.Equal(row.hash, hash)):
			return identity{}, &KeyReuseError{Operation: row.operation}
		case f == fateDone:
			row.retried = true
			return row.identity, nil
		case f != fateUnknown || !b.Pause():
			// Repeating settles an unknown outcome: a conditional statement
			// completes what an earlier one on its key has left undone. This
			// request has not written an order yet in any case.
			return identity{}, s.unavailable(ctx, gocql.UUID{}, false, err)
		}
	}
}

// keyRow is a row of idempotency_keys.
type keyRow struct {
	key       string
	operation string
	hash      []byte
	identity
}

// claim inserts r if its key is free, otherwise it returns the row that is there.
func (s *store) claim(ctx context.Context, r keyRow) (_ keyRow, _ bool, err error) {
	ctx, done, err := s.guard.Call(ctx)
	if err != nil {
		return keyRow{}, false, err
	}
	defer func() { done(err) }()
	cells := map[string]any{}
	applied, err := s.query(ctx, insertKey, r.key, r.operation, r.hash, r.orderID, r.eventID, r.createdAt.UnixMilli(), r.base).
		SerialConsistency(s.serial).MapScanCAS(cells)
	if err != nil {
		return keyRow{}, false, fmt.Errorf("claim Idempotency-Key: %w", err)
	}
	if applied {
		return r, true, nil
	}
	found := keyRow{key: r.key}
	found.operation, _ = cells["operation"].(string)
	found.hash, _ = cells["request_hash"].([]byte)
	found.orderID, _ = cells["order_id"].(gocql.UUID)
	found.eventID, _ = cells["event_id"].(gocql.UUID)
	found.createdAt, _ = cells["created_at"].(time.Time)
	found.base, _ = cells["version"].(int64)
	return found, false, nil
}

// requestHash identifies a request by what it asks for, whatever white space
// or order of fields it was written with.
func requestHash(op string, request any) ([]byte, error) {
	b, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("hash request: %w", err)
	}
	sum := sha256.Sum256(append([]byte(op+"\n"), b...))
	return sum[:], nil
}

// newIdentity makes the identity of a request that is nobody's retry.
func (s *Service) newIdentity(orderID gocql.UUID) identity {
	return identity{orderID: orderID, eventID: outbox.NewID(), createdAt: millis(s.cfg.Now())}
}

// changeRequest is what the hash of a change covers.
type changeRequest struct {
	OrderID   string  `json:"order_id"`
	IfVersion []int64 `json:"if_version,omitempty"`
	Change    any     `json:"change"`
}

func newChangeRequest(id gocql.UUID, change any, opts WriteOptions) changeRequest {
	return changeRequest{OrderID: hex.EncodeToString(id[:]), IfVersion: opts.IfVersion, Change: change}
}
