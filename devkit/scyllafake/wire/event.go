package wire

import (
	"net/netip"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
)

// The event types.
const (
	EventTopology = "TOPOLOGY_CHANGE"
	EventStatus   = "STATUS_CHANGE"
	EventSchema   = "SCHEMA_CHANGE"
)

func appendChange(dst []byte, c catalog.Change) []byte {
	dst = appendString(dst, c.Kind)
	dst = appendString(dst, c.Target)
	dst = appendString(dst, c.Keyspace)
	if c.Target != catalog.TargetKeyspace {
		dst = appendString(dst, c.Object)
	}
	return dst
}

// AppendSchemaEvent appends an EVENT frame of a schema change.
func AppendSchemaEvent(dst []byte, version byte, c catalog.Change) []byte {
	start := len(dst)
	dst = Begin(dst, version, EventStream, OpEvent)
	dst = appendString(dst, EventSchema)
	dst = appendChange(dst, c)
	End(dst[start:], 0)
	return dst
}

// AppendNodeEvent appends an EVENT frame of type EventTopology (NEW_NODE,
// REMOVED_NODE) or EventStatus (UP, DOWN).
func AppendNodeEvent(dst []byte, version byte, typ, change string, node netip.AddrPort) []byte {
	start := len(dst)
	dst = Begin(dst, version, EventStream, OpEvent)
	dst = appendString(dst, typ)
	dst = appendString(dst, change)
	addr := node.Addr().AsSlice()
	dst = append(dst, byte(len(addr)))
	dst = append(dst, addr...)
	dst = appendInt(dst, int32(node.Port()))
	End(dst[start:], 0)
	return dst
}
