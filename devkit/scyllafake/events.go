package scyllafake

import (
	"net/netip"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/wire"
)

// eventBits are the events for which a connection registered.
const (
	eventSchema uint32 = 1 << iota
	eventTopology
	eventStatus
)

var eventBits = map[string]uint32{
	wire.EventSchema:   eventSchema,
	wire.EventTopology: eventTopology,
	wire.EventStatus:   eventStatus,
}

// register executes REGISTER; it adds types to those registered before.
func (c *conn) register(req request) {
	types, err := wire.ReadRegister(req.header, req.body)
	if err != nil {
		c.fail(req, err)
		return
	}
	for _, t := range types {
		c.events.Or(eventBits[t])
	}
	c.ready(req)
}

// notify queues an event. A client that does not read its events is
// disconnected: waiting for it would block the DDL of others.
func (c *conn) notify(bit uint32, add func(b []byte, version byte) []byte) {
	if c.events.Load()&bit == 0 {
		return
	}
	version := max(c.version, 3)
	if !c.out.send(false, func(queue []byte) []byte { return add(queue, version) }) {
		c.s.log.Warn("slow client disconnected", "client", c.nc.RemoteAddr())
		c.hangUp()
	}
}

// publish sends the events of a schema statement to all connections that registered for
// them. They are queued when it returns, so that the statement's own connection sends
// them before its result.
func (s *Server) publish(events []catalog.Change) {
	s.eachConn(func(c *conn) {
		for _, e := range events {
			c.notify(eventSchema, func(b []byte, version byte) []byte {
				return wire.AppendSchemaEvent(b, version, e)
			})
		}
	})
}

// NodeChange is the kind of a node event.
type NodeChange string

// Node changes.
const (
	NodeNew     NodeChange = "NEW_NODE"
	NodeRemoved NodeChange = "REMOVED_NODE"
	NodeUp      NodeChange = "UP"
	NodeDown    NodeChange = "DOWN"
)

// PublishNode sends an event about a node to the clients that registered for it. The
// port is that of their listener.
func (s *Server) PublishNode(change NodeChange, addr netip.Addr) {
	bit, typ := eventStatus, wire.EventStatus
	if change == NodeNew || change == NodeRemoved {
		bit, typ = eventTopology, wire.EventTopology
	}
	s.eachConn(func(c *conn) {
		c.notify(bit, func(b []byte, version byte) []byte {
			return wire.AppendNodeEvent(b, version, typ, string(change), netip.AddrPortFrom(addr, uint16(s.port)))
		})
	})
}
