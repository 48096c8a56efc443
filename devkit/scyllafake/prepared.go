package scyllafake

import (
	"crypto/md5"
	"encoding/hex"
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

func idOf(keyspace, text string) preparedID {
	h := md5.New()
	h.Write([]byte(keyspace))
	h.Write([]byte(text))
	return preparedID(h.Sum(nil))
}

// Limits of the caches. A client whose statement was dropped receives an error and
// prepares it again.
const (
	maxTexts    = 1024
	maxPrepared = 16384
)

// statements are the prepared statements of the server, and a cache of the texts that
// were sent without PREPARE. It is safe for concurrent use.
type statements struct {
	mu       sync.RWMutex
	prepared map[preparedID]*statement
	texts    map[preparedID]*statement
}

func newStatements() *statements {
	return &statements{prepared: map[preparedID]*statement{}, texts: map[preparedID]*statement{}}
}

// get finds a prepared statement; it drops one whose tables have changed.
func (c *statements) get(id []byte, s *catalog.Schema) (*statement, error) {
	if len(id) == md5.Size {
		c.mu.RLock()
		st := c.prepared[preparedID(id)]
		c.mu.RUnlock()
		if st != nil && st.valid(s) {
			return st, nil
		}
	}
	return nil, &cqlerr.Error{
		Code: cqlerr.Unprepared, ID: id,
		Message: "No prepared statement with ID " + hex.EncodeToString(id) + " found.",
	}
}

func (c *statements) put(st *statement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	makeRoom(c.prepared, maxPrepared)
	c.prepared[st.id] = st
}

func (c *statements) text(id preparedID, s *catalog.Schema) *statement {
	c.mu.RLock()
	st := c.texts[id]
	c.mu.RUnlock()
	if st == nil || !st.valid(s) {
		return nil
	}
	return st
}

func (c *statements) putText(st *statement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	makeRoom(c.texts, maxTexts)
	c.texts[st.id] = st
}

// makeRoom halves a map that has reached its limit. It drops any statements: those in
// use return.
func makeRoom(m map[preparedID]*statement, bound int) {
	if len(m) < bound {
		return
	}
	for id := range m {
		delete(m, id)
		if len(m) <= bound/2 {
			return
		}
	}
}

// prune drops the prepared statements that a schema change has outdated, as a real node
// does: after DROP and CREATE of the same table the old id stays unknown until the text
// is prepared again.
func (c *statements) prune(s *catalog.Schema) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, st := range c.prepared {
		if !st.valid(s) {
			delete(c.prepared, id)
		}
	}
	for id, st := range c.texts {
		if !st.valid(s) {
			delete(c.texts, id)
		}
	}
}
