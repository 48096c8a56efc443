package scyllafake

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/system"
)

// A node's description of itself.
const (
	cqlVersion     = "3.3.1"
	partitioner    = "org.apache.cassandra.dht.Murmur3Partitioner"
	releaseVersion = "3.0.8" // of the Cassandra release that ScyllaDB reports
)

// features are the cluster features of 5.1 that affect a client; a real node lists
// about fifty.
var features = []string{
	"CDC", "CDC_GENERATIONS_V2", "COMPUTED_COLUMNS", "INDEXES", "LWT", "NONFROZEN_UDTS",
	"PER_TABLE_PARTITIONERS", "SCHEMA_TABLES_V3", "UNBOUNDED_RANGE_TOMBSTONES",
}

// writeLocal writes the node's row of system.local and system.versions.
func (s *Server) writeLocal(now time.Time, addr netip.Addr) error {
	keyspace := s.catalog.Schema().Keyspaces["system"]
	at := now.UnixMicro()
	local := system.Insert(keyspace.Tables["local"], at, s.localRow(now, addr))
	versions := system.Insert(keyspace.Tables["versions"], at, system.Values{
		"key": "local", "version": s.version.String() + ".0-scyllafake", "build_mode": "release", "build_id": "",
	})
	if err := s.store.Apply([]*store.Mutation{local, versions}); err != nil {
		return fmt.Errorf("write system.local: %w", err)
	}
	return nil
}

// localRow returns the row of system.local of a node with all tokens.
func (s *Server) localRow(now time.Time, addr netip.Addr) system.Values {
	tokens := make([]string, len(s.topology.Tokens))
	for i, t := range s.topology.Tokens {
		tokens[i] = strconv.FormatInt(t, 10)
	}
	row := system.Values{
		"key":                     "local",
		"bootstrapped":            "COMPLETED",
		"broadcast_address":       addr,
		"cluster_name":            "",
		"cql_version":             cqlVersion,
		"data_center":             s.topology.DataCenter,
		"gossip_generation":       int32(now.Unix()),
		"host_id":                 s.topology.HostID,
		"listen_address":          addr,
		"native_protocol_version": "4",
		"partitioner":             partitioner,
		"rack":                    s.topology.Rack,
		"release_version":         releaseVersion,
		"rpc_address":             addr,
		"schema_version":          s.catalog.Schema().Version,
		"supported_features":      strings.Join(features, ","),
		"tokens":                  tokens,
	}
	if !s.version.HasCDCOnTablets() {
		row["thrift_version"] = "20.1.0"
	}
	return row
}
