package ddl

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
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

type keyspaceRecord struct {
	Name           string
	Replication    map[string]string
	DurableWrites  bool
	Tablets        bool
	InitialTablets int
}

func keyspaceMeta(ks *catalog.Keyspace) store.Meta {
	return store.JSONMeta(keyspaceKey(ks.Name), keyspaceRecord{
		ks.Name, ks.Replication, ks.DurableWrites, ks.Tablets, ks.InitialTablets,
	})
}

type columnRecord struct {
	Name, Type string
	Kind       catalog.ColumnKind
	Desc       bool `json:",omitempty"`
	ID         int32
}

type droppedRecord struct {
	Name, Type string
	Kind       catalog.ColumnKind
	Time       int64
}

type tableRecord struct {
	Keyspace, Name string
	ID             uuid.UUID
	StoreID        uint32
	Kind           catalog.TableKind
	Columns        []columnRecord
	NextColumnID   int32
	Options        catalog.Options
	CDC            *catalog.CDC    `json:",omitempty"`
	Dropped        []droppedRecord `json:",omitempty"`
}

func tableMeta(t *catalog.Table) store.Meta {
	r := tableRecord{
		Keyspace: t.Keyspace, Name: t.Name, ID: t.ID, StoreID: t.StoreID, Kind: t.Kind,
		NextColumnID: t.NextColumnID, Options: t.Options, CDC: t.CDC,
	}
	for _, c := range t.Columns() {
		r.Columns = append(r.Columns, columnRecord{c.Name, c.Type.String(), c.Kind, c.Desc, c.ID})
	}
	for _, d := range t.Dropped {
		r.Dropped = append(r.Dropped, droppedRecord{d.Name, d.Type.String(), d.Kind, d.DroppedTime})
	}
	return store.JSONMeta(tableKey(t.Keyspace, t.Name), r)
}

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
	var tables []tableRecord
	var drops []uint32
	for _, m := range metas {
		switch {
		case m.Key == metaState:
			err = json.Unmarshal(m.Value, &state)
		case strings.HasPrefix(m.Key, keyspacePrefix):
			var r keyspaceRecord
			if err = json.Unmarshal(m.Value, &r); err == nil {
				addKeyspace(s, r)
			}
		case strings.HasPrefix(m.Key, tablePrefix):
			var r tableRecord
			err = json.Unmarshal(m.Value, &r)
			tables = append(tables, r)
		case strings.HasPrefix(m.Key, dropPrefix):
			var id uint64
			id, err = strconv.ParseUint(strings.TrimPrefix(m.Key, dropPrefix), 10, 32)
			drops = append(drops, uint32(id))
		}
		if err != nil {
			return fmt.Errorf("entry %s: %w", m.Key, err)
		}
	}
	for _, r := range tables {
		if err := addTable(s, r); err != nil {
			return fmt.Errorf("table %s.%s: %w", r.Keyspace, r.Name, err)
		}
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

func addKeyspace(s *catalog.Schema, r keyspaceRecord) {
	ks := s.Keyspaces[r.Name]
	if ks == nil {
		ks = &catalog.Keyspace{
			Name: r.Name, Tables: map[string]*catalog.Table{},
		}
		s.Keyspaces[r.Name] = ks
	}
	ks.Replication, ks.DurableWrites = r.Replication, r.DurableWrites
	ks.Tablets, ks.InitialTablets = r.Tablets, r.InitialTablets
}

func addTable(s *catalog.Schema, r tableRecord) error {
	ks := s.Keyspaces[r.Keyspace]
	if ks == nil {
		return fmt.Errorf("keyspace %s is missing", r.Keyspace)
	}
	t := catalog.NewTable(r.Keyspace, r.Name)
	t.ID, t.StoreID, t.Kind = r.ID, r.StoreID, r.Kind
	t.Options, t.CDC = r.Options, r.CDC
	for _, c := range r.Columns {
		typ, err := cqltype.Parse(c.Type)
		if err != nil {
			return err
		}
		t.NextColumnID = c.ID // Add assigns it
		t.Add(catalog.Column{Name: c.Name, Type: typ, Kind: c.Kind, Desc: c.Desc})
	}
	t.NextColumnID = r.NextColumnID
	for _, d := range r.Dropped {
		typ, err := cqltype.Parse(d.Type)
		if err != nil {
			return err
		}
		t.Dropped = append(t.Dropped, catalog.DroppedColumn{Name: d.Name, Type: typ, Kind: d.Kind, DroppedTime: d.Time})
	}
	ks.Tables[r.Name] = t
	return nil
}
