package system

import (
	"crypto/md5"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// FirstStoreID is the smallest table number in storage that no system table has.
const FirstStoreID = 1000

// definitions are the system tables of ScyllaDB 5.1 as in system_schema.columns, as far
// as their contents exist here. Each line is: number in storage, name | partition key |
// clustering key | static | regular columns. Numbers and the order of columns are part
// of the data directory's format: add at the end only.
const definitions = `
1 system.local | key text | | | bootstrapped text, broadcast_address inet, cluster_name text, cql_version text, data_center text, gossip_generation int, host_id uuid, listen_address inet, native_protocol_version text, partitioner text, rack text, release_version text, rpc_address inet, schema_version uuid, supported_features text, thrift_version text, tokens set<text>, truncated_at map<uuid, blob>
2 system.peers | peer inet | | | data_center text, host_id uuid, preferred_ip inet, rack text, release_version text, rpc_address inet, schema_version uuid, supported_features text, tokens set<text>
3 system.cdc_local | key text | | | streams_timestamp timestamp, uuid uuid
4 system.versions | key text | | | build_id text, build_mode text, version text
5 system.truncated | table_uuid uuid | shard int | truncated_at timestamp | position int, segment_id bigint
6 system.hints | target_id uuid | hint_id timeuuid, message_version int | | mutation blob
7 system.built_views | keyspace_name text | view_name text | |
8 system.batchlog | id uuid | | | data blob, version int, written_at timestamp
101 system_schema.keyspaces | keyspace_name text | | | durable_writes boolean, replication frozen<map<text, text>>
102 system_schema.tables | keyspace_name text | table_name text | | bloom_filter_fp_chance double, caching frozen<map<text, text>>, comment text, compaction frozen<map<text, text>>, compression frozen<map<text, text>>, crc_check_chance double, dclocal_read_repair_chance double, default_time_to_live int, extensions frozen<map<text, blob>>, flags frozen<set<text>>, gc_grace_seconds int, id uuid, max_index_interval int, memtable_flush_period_in_ms int, min_index_interval int, read_repair_chance double, speculative_retry text
103 system_schema.columns | keyspace_name text | table_name text, column_name text | | clustering_order text, column_name_bytes blob, kind text, position int, type text
104 system_schema.dropped_columns | keyspace_name text | table_name text, column_name text | | dropped_time timestamp, type text
105 system_schema.types | keyspace_name text | type_name text | | field_names frozen<list<text>>, field_types frozen<list<text>>
106 system_schema.indexes | keyspace_name text | table_name text, index_name text | | kind text, options frozen<map<text, text>>
107 system_schema.views | keyspace_name text | view_name text | | base_table_id uuid, base_table_name text, bloom_filter_fp_chance double, caching frozen<map<text, text>>, comment text, compaction frozen<map<text, text>>, compression frozen<map<text, text>>, crc_check_chance double, dclocal_read_repair_chance double, default_time_to_live int, extensions frozen<map<text, blob>>, gc_grace_seconds int, id uuid, include_all_columns boolean, max_index_interval int, memtable_flush_period_in_ms int, min_index_interval int, read_repair_chance double, speculative_retry text, where_clause text
108 system_schema.view_virtual_columns | keyspace_name text | table_name text, column_name text | | clustering_order text, column_name_bytes blob, kind text, position int, type text
109 system_schema.computed_columns | keyspace_name text | table_name text, column_name text | | computation blob
110 system_schema.triggers | keyspace_name text | table_name text, trigger_name text | | options frozen<map<text, text>>
111 system_schema.functions | keyspace_name text | function_name text, argument_types frozen<list<text>> | | argument_names frozen<list<text>>, body text, called_on_null_input boolean, language text, return_type text
112 system_schema.aggregates | keyspace_name text | aggregate_name text, argument_types frozen<list<text>> | | final_func text, initcond text, return_type text, state_func text, state_type text
113 system_schema.scylla_aggregates | keyspace_name text | aggregate_name text, argument_types frozen<list<text>> | | reduce_func text, state_type text
114 system_schema.scylla_tables | keyspace_name text | table_name text | | cdc frozen<map<text, text>>, partitioner text, version uuid
115 system_schema.scylla_keyspaces | keyspace_name text | | | storage_options frozen<map<text, text>>, storage_type text
201 system_distributed.cdc_generation_timestamps | key text | time timestamp DESC | | expired timestamp
202 system_distributed.cdc_streams_descriptions_v2 | time timestamp | range_end bigint | | streams frozen<set<blob>>
203 system_distributed.service_levels | service_level text | | | timeout duration, workload_type text
204 system_distributed.view_build_status | keyspace_name text, view_name text | host_id uuid | | status text
205 system_distributed_everywhere.cdc_generation_descriptions_v2 | id uuid | range_end bigint | num_ranges int | ignore_msb tinyint, streams frozen<set<blob>>
`

// since contains tables and columns of later releases.
var since = []struct {
	has  func(catalog.Version) bool
	defs string
}{
	{catalog.Version.HasTablets, `
115 system_schema.scylla_keyspaces | | | | initial_tablets int
`},
	{catalog.Version.HasCDCOnTablets, `
114 system_schema.scylla_tables | | | | committed_by_group0 boolean, in_memory boolean, tablets frozen<map<text, text>>
9 system.cdc_timestamps | keyspace_name text, table_name text | timestamp timestamp DESC | |
10 system.cdc_streams | keyspace_name text, table_name text | timestamp timestamp, stream_state tinyint, stream_id blob | |
`},
	{func(v catalog.Version) bool { return v.AtLeast(2026, 1) }, `
101 system_schema.keyspaces | | | | replication_v2 frozen<map<text, text>>
115 system_schema.scylla_keyspaces | | | | consistency text
`},
}

// replication of the system keyspaces, as a node lists it.
var replication = map[string]map[string]string{
	"system":                        {"class": "org.apache.cassandra.locator.LocalStrategy"},
	"system_schema":                 {"class": "org.apache.cassandra.locator.LocalStrategy"},
	"system_auth":                   {"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": "1"},
	"system_traces":                 {"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": "2"},
	"system_distributed":            {"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": "3"},
	"system_distributed_everywhere": {"class": "org.apache.cassandra.locator.EverywhereStrategy"},
}

// IsProtected reports whether a keyspace refuses all DDL.
func IsProtected(keyspace string) bool { return keyspace == "system" || keyspace == "system_schema" }

// Keyspaces returns the system keyspaces of a release with their tables.
// Every call makes new ones.
func Keyspaces(v catalog.Version) map[string]*catalog.Keyspace {
	out := make(map[string]*catalog.Keyspace, len(replication))
	for name, r := range replication {
		out[name] = &catalog.Keyspace{
			Name:          name,
			Replication:   r,
			DurableWrites: true,
			Tables:        map[string]*catalog.Table{},
		}
	}
	define(out, definitions)
	for _, s := range since {
		if s.has(v) {
			define(out, s.defs)
		}
	}
	if v.HasCDCOnTablets() {
		out["system"].Tables["local"].Remove("thrift_version")
	}
	return out
}

// define adds tables to their keyspaces, or columns to existing tables.
func define(keyspaces map[string]*catalog.Keyspace, defs string) {
	for line := range strings.Lines(defs) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		parts := strings.Split(line, "|")
		number, name, _ := strings.Cut(strings.TrimSpace(parts[0]), " ")
		ks, name, _ := strings.Cut(name, ".")
		t := keyspaces[ks].Tables[name]
		if t == nil {
			t = catalog.NewTable(ks, name)
			t.Kind = catalog.System
			t.ID = tableID(ks, name)
			id, err := strconv.ParseUint(number, 10, 32)
			if err != nil {
				panic(fmt.Sprintf("system table %s.%s: %v", ks, name, err))
			}
			t.StoreID = uint32(id)
			keyspaces[ks].Tables[name] = t
		}
		for i, kind := range []catalog.ColumnKind{catalog.PartitionKey, catalog.Clustering, catalog.Static, catalog.Regular} {
			for _, def := range splitColumns(parts[1+i]) {
				def, desc := strings.CutSuffix(def, " DESC")
				name, typ, _ := strings.Cut(def, " ")
				ct, err := cqltype.Parse(typ)
				if err != nil {
					panic(fmt.Sprintf("system table %s.%s: column %s: %v", ks, t.Name, name, err))
				}
				t.Add(catalog.Column{Name: name, Type: ct, Kind: kind, Desc: desc})
			}
		}
	}
}

// tableID returns the id that ScyllaDB derives from a system table's name
// (schema_builder.cc generate_legacy_id).
func tableID(keyspace, name string) uuid.UUID {
	id := uuid.UUID(md5.Sum([]byte(keyspace + name)))
	id[6] = id[6]&0x0f | 0x30
	id[8] = id[8]&0x3f | 0x80
	return id
}

// splitColumns splits a column list at its top-level commas.
func splitColumns(list string) []string {
	var out []string
	depth, start := 0, 0
	for i, r := range list {
		switch {
		case r == '<':
			depth++
		case r == '>':
			depth--
		case r == ',' && depth == 0:
			out = append(out, strings.TrimSpace(list[start:i]))
			start = i + 1
		}
	}
	if last := strings.TrimSpace(list[start:]); last != "" {
		out = append(out, last)
	}
	return out
}
