// Package scyllafake is a ScyllaDB-compatible CQL server inside a Go process:
// what kfake is to Kafka. Unmodified drivers and CDC readers talk to it over
// TCP or over an in-memory listener.
//
// It is one node for first runs and for tests, never a production database.
// docs/design/scyllafake.md describes what it promises and what it leaves out.
package scyllafake
