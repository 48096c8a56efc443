package system

import (
	"slices"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

func TestKeyspaces_NumbersAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[uint32]string{}
	for _, ks := range Keyspaces(catalog.Version{Major: 2025, Minor: 4}) {
		for _, table := range ks.Tables {
			if table.StoreID == 0 || table.StoreID >= FirstStoreID {
				t.Errorf("%s.%s has the number %d", ks.Name, table.Name, table.StoreID)
			}
			if other, ok := seen[table.StoreID]; ok {
				t.Errorf("%s.%s and %s share the number %d", ks.Name, table.Name, other, table.StoreID)
			}
			seen[table.StoreID] = ks.Name + "." + table.Name
		}
	}
	if len(seen) < 25 {
		t.Errorf("only %d system tables", len(seen))
	}
}

func TestKeyspaces_LocalAsRecorded(t *testing.T) {
	t.Parallel()
	for _, version := range []catalog.Version{{Major: 5, Minor: 1}, {Major: 2026, Minor: 1}} {
		testLocal(t, version)
	}
}

func testLocal(t *testing.T, version catalog.Version) {
	t.Helper()
	local := Keyspaces(version)["system"].Tables["local"]
	want := []string{
		"key", "bootstrapped", "broadcast_address", "cluster_name", "cql_version", "data_center",
		"gossip_generation", "host_id", "listen_address", "native_protocol_version", "partitioner", "rack",
		"release_version", "rpc_address", "schema_version", "supported_features", "thrift_version", "tokens",
		"truncated_at",
	}
	if version.AtLeast(2026, 1) {
		want = slices.DeleteFunc(want, func(name string) bool { return name == "thrift_version" })
	}
	cols := local.Columns()
	if len(cols) != len(want) {
		t.Fatalf("system.local has %d columns, want %d", len(cols), len(want))
	}
	for i, c := range cols {
		if c.Name != want[i] {
			t.Errorf("column %d is %s, want %s", i, c.Name, want[i])
		}
	}
	if tokens := local.ByName["tokens"].Type; tokens.Kind != cqltype.Set || tokens.Frozen || tokens.Elem.Kind != cqltype.Varchar {
		t.Errorf("tokens is %+v, want set<text>", tokens)
	}
	if at := local.ByName["truncated_at"].Type; at.Kind != cqltype.Map || at.Key.Kind != cqltype.UUID || at.Elem.Kind != cqltype.Blob {
		t.Errorf("truncated_at is %+v, want map<uuid, blob>", at)
	}
}

func TestKeyspaces_GenerationTimestamps(t *testing.T) {
	t.Parallel()
	table := Keyspaces(catalog.Version{Major: 5, Minor: 1})["system_distributed"].Tables["cdc_generation_timestamps"]
	if got := table.ID.String(); got != "fdf455c4-cfec-3e00-9719-d7a45436c89d" {
		t.Errorf("id = %s, want that of a real node", got)
	}
	if c := table.Clustering[0]; c.Name != "time" || !c.Desc || c.Type.Kind != cqltype.Timestamp {
		t.Errorf("clustering column = %+v, want time timestamp DESC", c)
	}
}

func TestKeyspaces_PerVersion(t *testing.T) {
	t.Parallel()
	tests := []struct {
		version                            catalog.Version
		initialTablets, cdcTS, consistency bool
	}{
		{catalog.Version{Major: 5, Minor: 1}, false, false, false},
		{catalog.Version{Major: 6, Minor: 2}, true, false, false},
		{catalog.Version{Major: 2025, Minor: 4}, true, true, false},
		{catalog.Version{Major: 2026, Minor: 1}, true, true, true},
	}
	for _, tt := range tests {
		ks := Keyspaces(tt.version)
		if _, ok := ks["system_schema"].Tables["scylla_keyspaces"].ByName["initial_tablets"]; ok != tt.initialTablets {
			t.Errorf("%v: initial_tablets %v, want %v", tt.version, ok, tt.initialTablets)
		}
		if _, ok := ks["system"].Tables["cdc_timestamps"]; ok != tt.cdcTS {
			t.Errorf("%v: system.cdc_timestamps %v, want %v", tt.version, ok, tt.cdcTS)
		}
		_, consistency := ks["system_schema"].Tables["scylla_keyspaces"].ByName["consistency"]
		if _, v2 := ks["system_schema"].Tables["keyspaces"].ByName["replication_v2"]; consistency != tt.consistency || v2 != tt.consistency {
			t.Errorf("%v: consistency %v, replication_v2 %v, want %v", tt.version, consistency, v2, tt.consistency)
		}
	}
}
