// Package orders is the order service: the worked example of a service that
// stores its changes and their events together.
//
// A Service creates, reads and changes orders in ScyllaDB; a Server exposes it
// over HTTP. Each change writes one event to the outbox table; the relay
// publishes it. docs/design/orders.md describes database timeouts and processes
// that fail between two steps.
//
// It is a part of the program, and may change in any version.
package orders
