package store

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Meta is an entry of the store's private key space (catalog, generations, …);
// a nil Value deletes it.
type Meta struct {
	Key   string
	Value []byte
}

// JSONMeta returns an entry with the JSON of a value that always has one: plain structs of
// numbers, bytes and strings.
func JSONMeta(key string, v any) Meta {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", key, err))
	}
	return Meta{Key: key, Value: b}
}

func setMeta(b *pebble.Batch, m Meta) error {
	key := append([]byte{spaceMeta}, m.Key...)
	if m.Value == nil {
		return b.Delete(key, nil)
	}
	return b.Set(key, m.Value, nil)
}

// Metas returns the private entries whose key begins with prefix, in key order.
func (s *Store) Metas(prefix string) ([]Meta, error) {
	lower := append([]byte{spaceMeta}, prefix...)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: successor(bytes.Clone(lower))})
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	var out []Meta
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			it.Close()
			return nil, fmt.Errorf("read metadata: %w", err)
		}
		out = append(out, Meta{string(it.Key()[1:]), append([]byte{}, v...)})
	}
	if err := it.Close(); err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	return out, nil
}
