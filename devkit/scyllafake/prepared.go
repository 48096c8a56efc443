package scyllafake

import (
	"crypto/md5"
	"encoding/hex"
	"maps"
	"sync"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/wire"
)

// statement is a parsed text, planned if it is a data statement. It is immutable.
type statement struct {
	id       preparedID
	keyspace string // the connection's at the time of parsing
	parsed   cql.Statement
	plan     *engine.Plan // nil for schema statements and USE
	columns  wire.Columns // plan.Result as result metadata
	// metadataID is the id of the result metadata.
	metadataID []byte
	schema     *catalog.Schema
}

// valid reports whether none of the plan's tables has changed.
func (st *statement) valid(s *catalog.Schema) bool {
	if st.plan == nil || st.schema == s {
		return true
	}
	for _, t := range st.plan.Tables {
		if now, _ := s.Table(t.Keyspace, t.Name); now != t {
			return false
		}
	}
	return true
}

// metadataIDOf returns the id of result metadata: a digest of the columns' names and
// types. As on a real node it does not depend on the table.
func metadataIDOf(columns []engine.ColumnSpec) []byte {
	h := md5.New()
	for _, c := range columns {
		h.Write([]byte(c.Name + " " + c.Type.String() + ","))
	}
	return h.Sum(nil)
}

// resultColumns returns the metadata of res, a result of st.
func (st *statement) resultColumns(res *engine.Result) wire.Columns {
	if len(res.Columns) > 0 && len(st.plan.Result) == len(res.Columns) && &st.plan.Result[0] == &res.Columns[0] {
		return st.columns
	}
	return wire.NewColumns(res.Columns, st.columns.Global)
}

// preparedID is the MD5 of the connection's keyspace and the text.
type preparedID [md5.Size]byte

func newPreparedID(keyspace, text string) preparedID {
	h := md5.New()
	h.Write([]byte(keyspace))
	h.Write([]byte(text))
	return preparedID(h.Sum(nil))
}

// maxPrepared limits the prepared statements. A client whose statement was dropped receives an
// error and prepares it again.
const maxPrepared = 16384

// statements are the prepared statements of the server by their id. It is safe for concurrent
// use.
type statements struct {
	mu   sync.RWMutex
	byID map[preparedID]*statement
}

// find returns a statement, nil if it is not prepared or one of its tables has changed.
func (c *statements) find(id preparedID, s *catalog.Schema) *statement {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if st := c.byID[id]; st != nil && st.valid(s) {
		return st
	}
	return nil
}

// get is find for the id of a request.
func (c *statements) get(id []byte, s *catalog.Schema) (*statement, error) {
	if len(id) == md5.Size {
		if st := c.find(preparedID(id), s); st != nil {
			return st, nil
		}
	}
	return nil, &cqlerr.Error{
		Code: cqlerr.Unprepared, ID: id,
		Message: "No prepared statement with ID " + hex.EncodeToString(id) + " found.",
	}
}

// put adds a statement. At the limit it drops half of them, any: those in use return.
func (c *statements) put(st *statement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byID) >= maxPrepared {
		for id := range c.byID {
			if delete(c.byID, id); len(c.byID) <= maxPrepared/2 {
				break
			}
		}
	}
	c.byID[st.id] = st
}

// prune drops the statements that a schema change has outdated, as a real node does: after
// DROP and CREATE of the same table the old id stays unknown until the text is prepared
// again.
func (c *statements) prune(s *catalog.Schema) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.byID, func(_ preparedID, st *statement) bool { return !st.valid(s) })
}
