package store

import "github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"

// Get reads one row and its partition's static row at one instant, for a conditional
// statement or a preimage; each is nil if it is not live. A nil clustering in a table
// that has a clustering key selects the static row only. The caller owns the result.
func (s *Store) Get(t *catalog.Table, key []byte, token int64, clustering [][]byte) (row, static *Row, err error) {
	one := Bound{Prefix: clustering, Inclusive: true}
	ranges := []Range{{one, one}}
	if len(clustering) < len(t.Clustering) {
		ranges = []Range{}
	}
	it, err := s.Scan(Scan{Table: t, Key: key, Token: token, Ranges: ranges})
	if err != nil {
		return nil, nil, err
	}
	if it.NextPartition() {
		static = it.Static().Clone()
		if it.NextRow() {
			row = it.Row().Clone()
		}
	}
	if err := it.Close(); err != nil {
		return nil, nil, err
	}
	return row, static, nil
}
