package ddl

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/system"
)

// The private entries of the schema. Values are JSON; types are CQL text.
const (
	metaPrefix     = "schema/"
	metaState      = metaPrefix + "state"
	keyspacePrefix = metaPrefix + "keyspace/"
	tablePrefix    = metaPrefix + "table/"
	dropPrefix     = metaPrefix + "drop/"
)

func keyspaceKey(name string) string { return keyspacePrefix + name }
func tableKey(keyspace, n string) string {
	return tablePrefix + keyspace + "/" + n
}

func gone(key string) store.Meta { return store.Meta{Key: key} }

// dropMeta records that a table's rows are to be removed, or no longer.
func dropMeta(storeID uint32, due bool) store.Meta {
	m := store.Meta{Key: dropPrefix + strconv.FormatUint(uint64(storeID), 10)}
	if due {
		m.Value = []byte("{}")
	}
	return m
}

// stateRecord is the entry of the catalog itself.
type stateRecord struct {
	SchemaVersion uuid.UUID
	NextStoreID   uint32
	LastWrite     int64
	// Release is the version of the system tables in system_schema.
	Release string
}

func (c *Catalog) stateMeta(version uuid.UUID) store.Meta {
	return store.JSONMeta(metaState, stateRecord{
		SchemaVersion: version, NextStoreID: c.nextStoreID, LastWrite: c.lastWrite, Release: c.o.Version.String(),
	})
}

func keyspaceMeta(ks *catalog.Keyspace) store.Meta { return store.JSONMeta(keyspaceKey(ks.Name), ks) }

func tableMeta(t *catalog.Table) store.Meta { return store.JSONMeta(tableKey(t.Keyspace, t.Name), t) }

func isSystem(keyspace string) bool {
	return keyspace == "system" || strings.HasPrefix(keyspace, "system_")
}

// load builds the schema from the store's entries, finishes interrupted drops, and
// writes the system tables' own rows where they are missing or belong to another
// release.
func (c *Catalog) load() error {
	s := &catalog.Schema{Keyspaces: system.Keyspaces(c.o.Version)}
	metas, err := c.o.Store.Metas(metaPrefix)
	if err != nil {
		return err
	}
	var state stateRecord
	var tables []*catalog.Table
	var drops []uint32
	for _, m := range metas {
		switch {
		case m.Key == metaState:
			err = json.Unmarshal(m.Value, &state)
		case strings.HasPrefix(m.Key, keyspacePrefix):
			name := strings.TrimPrefix(m.Key, keyspacePrefix)
			if s.Keyspaces[name] == nil {
				s.Keyspaces[name] = &catalog.Keyspace{Tables: map[string]*catalog.Table{}}
			}
			err = json.Unmarshal(m.Value, s.Keyspaces[name])
		case strings.HasPrefix(m.Key, tablePrefix):
			t := new(catalog.Table)
			err = json.Unmarshal(m.Value, t)
			tables = append(tables, t)
		case strings.HasPrefix(m.Key, dropPrefix):
			var id uint64
			id, err = strconv.ParseUint(strings.TrimPrefix(m.Key, dropPrefix), 10, 32)
			drops = append(drops, uint32(id))
		}
		if err != nil {
			return fmt.Errorf("entry %s: %w", m.Key, err)
		}
	}
	for _, t := range tables {
		ks := s.Keyspaces[t.Keyspace]
		if ks == nil {
			return fmt.Errorf("table %s.%s: its keyspace is missing", t.Keyspace, t.Name)
		}
		ks.Tables[t.Name] = t
	}
	s.Version = state.SchemaVersion
	c.nextStoreID = max(c.nextStoreID, state.NextStoreID)
	c.lastWrite = state.LastWrite
	c.schema.Store(s)
	for _, id := range drops {
		if err := c.purge(id); err != nil {
			return err
		}
	}
	if state.Release == c.o.Version.String() {
		return nil
	}
	w := c.begin()
	w.systemRows()
	_, err = w.commit()
	return err
}
