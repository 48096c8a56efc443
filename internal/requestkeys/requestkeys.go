// Package requestkeys decides which of the requests with one Idempotency-Key is the first.
//
// A key belongs to a client of an API, and to the content of the request. The row of the first
// request contains the id and the time of what it makes, so that a repetition makes the same
// thing, also after a crash in between. The insert is conditional: repeating it settles an
// unknown outcome. Rows expire; a key that comes again afterwards is a new one.
//
// The package makes one attempt; callers repeat it within their budgets.
package requestkeys

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"
)

// Table is the name of the table.
const Table = "request_keys"

// ErrReuse is returned for a key that belongs to a request with another content.
var ErrReuse = errors.New("the Idempotency-Key belongs to another request")

// Request is a request with a key.
type Request struct {
	api, client, key string
	hash             []byte
}

// New returns the request of a client to an API. Its content is hashed as JSON.
func New(api, client, key string, content any) (Request, error) {
	b, err := json.Marshal(content)
	if err != nil {
		return Request{}, fmt.Errorf("hash request: %w", err)
	}
	hash := sha256.Sum256(b)
	return Request{api, client, key, hash[:]}, nil
}

// Result is what a request makes: its id and its time, in milliseconds.
type Result struct {
	ID        gocql.UUID
	CreatedAt time.Time
}

// Claim returns fresh for the first request with the key, and else the result of the first one;
// same reports whether that had the same content. query makes a statement, with the serial
// consistency of its conditions, and table is Table, after its keyspace unless the session has it.
func Claim(query func(stmt string, args ...any) *gocql.Query, table string, r Request, fresh Result) (first Result, same bool, err error) {
	cells := make(map[string]any)
	applied, err := query("INSERT INTO "+table+" (api, client, key, request_hash, result_id, created_at) VALUES (?, ?, ?, ?, ?, ?) IF NOT EXISTS",
		r.api, r.client, r.key, r.hash, fresh.ID, fresh.CreatedAt.UnixMilli()).MapScanCAS(cells)
	if err != nil {
		return Result{}, false, fmt.Errorf("claim Idempotency-Key: %w", err)
	}
	if applied {
		return fresh, true, nil
	}
	hash, _ := cells["request_hash"].([]byte)
	first.ID, _ = cells["result_id"].(gocql.UUID)
	first.CreatedAt, _ = cells["created_at"].(time.Time)
	first.CreatedAt = first.CreatedAt.UTC()
	return first, bytes.Equal(hash, r.hash), nil
}
