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

// storedNode is the entry of the node, as JSON.
type storedNode struct {
	HostID uuid.UUID
	Tokens []int64 // sorted
}

func (t *Topology) nodeMeta() store.Meta {
	return store.JSONMeta(metaNode, storedNode{HostID: t.HostID, Tokens: t.Tokens})
}

func generationMeta(g *Generation) store.Meta {
	// Micros is positive and the key is of fixed length, so keys are in order of time.
	return store.JSONMeta(fmt.Sprintf("%s%020d", metaGenerations, g.Micros), g)
}

// tabletMeta returns the entry of a table's stream sets; nil deletes it.
func tabletMeta(storeID uint32, table *tabletTable) store.Meta {
	key := metaTablets + strconv.FormatUint(uint64(storeID), 10)
	if table == nil {
		return store.Meta{Key: key}
	}
	return store.JSONMeta(key, table)
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
	g := new(Generation)
	if err := json.Unmarshal(b, g); err != nil {
		return err
	}
	if len(g.Vnodes) == 0 {
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
	table := new(tabletTable)
	if err := json.Unmarshal(b, table); err != nil {
		return err
	}
	if len(table.Sets) == 0 {
		return fmt.Errorf("a table without stream sets")
	}
	s.tables[uint32(storeID)] = table
	return nil
}
