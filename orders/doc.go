// Package orders is the order service: the worked example of a service whose
// changes and events are stored together.
//
// A Service creates, reads and cancels orders in ScyllaDB; a Server offers it
// over HTTP. Each change writes one event to the outbox table, from where the
// relay carries it to its topic. See docs/design/orders.md for what
// happens when the database times out or a process dies half-way.
package orders
