package engine

import (
	"encoding/json"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// pageState is the position where a page ended and the rest of the limits.
type pageState struct {
	StoreID uint32
	Pos     store.Position
	// Begin means that the page ended before its first row; there is no Pos then.
	Begin bool
	// Remaining is the rest of LIMIT.
	Remaining uint64
	// Fetched is the number of rows already returned of the partition at Pos.
	Fetched uint64
}

var errPagingState = cqlerr.New(cqlerr.Protocol, "Invalid value for the paging state")

// encode returns the opaque bytes that the client sends back.
func (s *pageState) encode() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // it has numbers and bytes only
	}
	return b
}

// decodePageState decodes a state of any statement. same reports that it is of table t;
// a state of another table has no valid position.
func decodePageState(b []byte, t *catalog.Table) (s pageState, same bool, err error) {
	if json.Unmarshal(b, &s) != nil {
		return s, false, errPagingState
	}
	if s.StoreID != t.StoreID {
		return s, false, nil
	}
	if !s.Begin && !s.fits(t) {
		return s, false, errPagingState
	}
	return s, true, nil
}

// fits reports whether the position can be one of table t: a client could forge any.
func (s *pageState) fits(t *catalog.Table) bool {
	parts, err := t.DecodeKey(s.Pos.Key, nil)
	if err != nil || s.Pos.Token != t.Token(s.Pos.Key) {
		return false
	}
	for i, c := range t.PartitionKey {
		if c.Type.Validate(parts[i]) != nil {
			return false
		}
	}
	if n := len(s.Pos.Clustering); n != 0 && n != len(t.Clustering) || n == 0 && !s.Pos.Whole {
		return false
	}
	for i, v := range s.Pos.Clustering {
		if t.Clustering[i].Type.Validate(v) != nil {
			return false
		}
	}
	return true
}
