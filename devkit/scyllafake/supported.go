package scyllafake

import (
	"strconv"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
)

// The options of STARTUP and SUPPORTED that the server itself reads.
const (
	optCompression = "COMPRESSION"
	optLWTMark     = "SCYLLA_LWT_ADD_METADATA_MARK"
	optMetadataID  = "SCYLLA_USE_METADATA_ID"
	optRouting     = "TABLETS_ROUTING_V1"
)

// supportedOptions returns the response to OPTIONS on a connection of the given shard. The
// keys are a real node's; a driver detects ScyllaDB by the four about sharding.
func (s *Server) supportedOptions(shard int) map[string][]string {
	m := map[string][]string{
		"CQL_VERSION":               {cqlVersion},
		optCompression:              {},
		optLWTMark:                  {"LWT_OPTIMIZATION_META_BIT_MASK=2147483648"},
		"SCYLLA_RATE_LIMIT_ERROR":   {"ERROR_CODE=61440"},
		"SCYLLA_PARTITIONER":        {partitioner},
		"SCYLLA_SHARDING_ALGORITHM": {"biased-token-round-robin"},
		"SCYLLA_SHARDING_IGNORE_MSB": {
			strconv.Itoa(topology.IgnoreMSB),
		},
		"SCYLLA_NR_SHARDS": {strconv.Itoa(s.topology.Shards)},
		"SCYLLA_SHARD":     {strconv.Itoa(shard)},
	}
	if s.shardAwarePort != 0 {
		m["SCYLLA_SHARD_AWARE_PORT"] = []string{strconv.Itoa(s.shardAwarePort)}
	}
	if s.version.HasTablets() {
		m[optRouting] = []string{""}
	}
	if s.version.HasMetadataID() {
		m[optMetadataID] = []string{""}
	}
	if s.version.AtLeast(2026, 1) {
		m["CLIENT_OPTIONS"] = []string{""} // for system.clients
	}
	return m
}
