package topology

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// Keys in the store's private key space.
const (
	metaPrefix      = "topology/"
	metaNode        = metaPrefix + "node"
	metaGenerations = metaPrefix + "generation/"
	metaTablets     = metaPrefix + "tablets/"
)

// The stored forms, as JSON: they are few and rarely written.
type (
	storedNode struct {
		HostID uuid.UUID
		Tokens []int64 // sorted
	}
	storedGeneration struct {
		ID     uuid.UUID
		Start  int64
		Vnodes []storedVnode
	}
	storedVnode struct {
		End     int64
		Streams [][]byte
	}
	storedTable struct {
		Keyspace, Name string
		Sets           []storedSet
		Manual         bool `json:",omitempty"`
	}
	storedSet struct {
		Start   int64
		Streams [][]byte
	}
)

func (t *Topology) nodeMeta() store.Meta {
	return store.JSONMeta(metaNode, storedNode{HostID: t.HostID, Tokens: t.Tokens})
}

func generationMeta(g *Generation) store.Meta {
	s := storedGeneration{ID: g.ID, Start: g.start}
	for _, e := range g.entries {
		s.Vnodes = append(s.Vnodes, storedVnode{End: e.end, Streams: idBytes(e.streams)})
	}
	// Start is positive and the key is of fixed length, so keys are in order of time.
	return store.JSONMeta(fmt.Sprintf("%s%020d", metaGenerations, g.start), s)
}

// tabletMeta returns the entry of a table's stream sets; nil deletes it.
func tabletMeta(storeID uint32, table *tabletTable) store.Meta {
	key := metaTablets + strconv.FormatUint(uint64(storeID), 10)
	if table == nil {
		return store.Meta{Key: key}
	}
	s := storedTable{Keyspace: table.keyspace, Name: table.name, Manual: table.manual}
	for _, set := range table.sets {
		s.Sets = append(s.Sets, storedSet{Start: set.start, Streams: idBytes(set.streams)})
	}
	return store.JSONMeta(key, s)
}

func idBytes(ids []StreamID) [][]byte {
	out := make([][]byte, len(ids))
	for i := range ids {
		out[i] = ids[i][:]
	}
	return out
}

// load reads the stored state; known is false when there is no node yet.
func (t *Topology) load() (known bool, err error) {
	metas, err := t.store.Metas(metaPrefix)
	if err != nil {
		return false, fmt.Errorf("read the topology: %w", err)
	}
	s := &state{tables: map[uint32]*tabletTable{}}
	for _, m := range metas {
		switch {
		case m.Key == metaNode:
			known = true
			err = t.loadNode(m.Value)
		case strings.HasPrefix(m.Key, metaGenerations):
			err = s.loadGeneration(m.Value)
		case strings.HasPrefix(m.Key, metaTablets):
			err = s.loadTable(m.Key[len(metaTablets):], m.Value)
		default:
			err = fmt.Errorf("unknown entry")
		}
		if err != nil {
			return false, fmt.Errorf("read %s: %w", m.Key, err)
		}
	}
	t.state.Store(s)
	return known, nil
}

func (t *Topology) loadNode(b []byte) error {
	var n storedNode
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	if len(n.Tokens) == 0 || !slices.IsSorted(n.Tokens) {
		return fmt.Errorf("tokens are missing or not in order")
	}
	t.HostID, t.Tokens = n.HostID, n.Tokens
	return nil
}

func (s *state) loadGeneration(b []byte) error {
	var sg storedGeneration
	if err := json.Unmarshal(b, &sg); err != nil {
		return err
	}
	g := &Generation{ID: sg.ID, start: sg.Start}
	for _, v := range sg.Vnodes {
		ids, err := streamIDs(v.Streams)
		if err != nil {
			return err
		}
		g.entries = append(g.entries, vnode{v.End, ids})
	}
	if len(g.entries) == 0 {
		return fmt.Errorf("a generation without streams")
	}
	s.generations = append(s.generations, g)
	return nil
}

func (s *state) loadTable(id string, b []byte) error {
	storeID, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return err
	}
	var st storedTable
	if err := json.Unmarshal(b, &st); err != nil {
		return err
	}
	table := &tabletTable{keyspace: st.Keyspace, name: st.Name, manual: st.Manual}
	for _, set := range st.Sets {
		ids, err := streamIDs(set.Streams)
		if err != nil {
			return err
		}
		table.sets = append(table.sets, &streamSet{start: set.Start, streams: ids})
	}
	if len(table.sets) == 0 {
		return fmt.Errorf("a table without stream sets")
	}
	s.tables[uint32(storeID)] = table
	return nil
}

func streamIDs(bs [][]byte) ([]StreamID, error) {
	if len(bs) == 0 {
		return nil, fmt.Errorf("no streams")
	}
	out := make([]StreamID, len(bs))
	for i, b := range bs {
		if len(b) != len(out[i]) {
			return nil, fmt.Errorf("a stream id of %d bytes", len(b))
		}
		copy(out[i][:], b)
	}
	return out, nil
}
