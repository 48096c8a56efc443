package scyllafake

import (
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
)

// routingKey is the key of the custom payload that tells a client where a tablet is.
const routingKey = "tablets-routing-v1"

// routing returns the payload for the result of an EXECUTE: nil if the client did not ask
// for it, or the connection's node and shard have the tablet of the result's partition.
func (s *Server) routing(c *conn, res *engine.Result) []byte {
	nodes := max(len(s.nodes), 1)
	if !c.routing.Load() || res.Table == nil || nodes*s.topology.Shards == 1 {
		return nil
	}
	count, factor := s.catalog.Tablets(res.Table)
	if count == 0 {
		return nil
	}
	n, first, last := topology.FindTablet(count, res.Table.Token(res.Key))
	here := 0
	if c.node != nil {
		here = c.node.index
	}
	// The replicas of tablet n are on the nodes from n on, modulo their number. A real
	// cluster's load balancer may place a tablet anywhere.
	shard := n / nodes % s.topology.Shards
	var replicas [][]byte
	for i := range min(factor, nodes) {
		at := (n + i) % nodes
		if at == here && shard == c.shard {
			return nil
		}
		host := s.topology.HostID
		if len(s.nodes) > 0 {
			host = s.nodes[at].hostID
		}
		replicas = append(replicas, cqltype.BuildTuple(host[:], cqltype.EncodeInt32(int32(shard))))
	}
	return cqltype.BuildTuple(cqltype.EncodeInt64(first), cqltype.EncodeInt64(last), cqltype.BuildCollection(replicas...))
}
