package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/gocql/gocql"
)

const (
	receiptKeyName = "receipt-key"
	receiptKeySize = 32
)

// ReceiptKey returns the key with which all instances sign and check receipts, 32 bytes.
// The first call for a keyspace makes it; all later ones, also concurrent ones and ones
// after a lost response, return the same.
func (s *Store) ReceiptKey(ctx context.Context) (key []byte, err error) {
	fresh := make([]byte, receiptKeySize)
	rand.Read(fresh) // it does not fail
	err = s.until(ctx, func() error {
		key, err = s.readReceiptKey(ctx)
		if !errors.Is(err, gocql.ErrNotFound) {
			return err
		}
		if _, err := s.swap(ctx, s.stmt.putKey, receiptKeyName, fresh); err != nil {
			return err
		}
		key, err = s.readReceiptKey(ctx)
		return err
	})
	if err == nil && len(key) != receiptKeySize {
		err = fmt.Errorf("%d bytes, want %d; remove row %q of subscription_settings", len(key), receiptKeySize, receiptKeyName)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of receipts: %w", err)
	}
	return key, nil
}

func (s *Store) readReceiptKey(ctx context.Context) (key []byte, err error) {
	err = s.withTimeout(ctx, func(ctx context.Context) error { return s.serialRead(ctx, s.stmt.key, receiptKeyName).Scan(&key) })
	return key, err
}
