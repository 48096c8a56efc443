// Package scyllafake is a ScyllaDB-compatible CQL server inside a Go process, the
// counterpart of kfake for Kafka. Unmodified drivers and CDC readers connect to it over
// TCP or over an in-memory listener.
//
// It is one node for first runs and for tests; do not use it as a production database.
// docs/design/scyllafake.md describes its guarantees and its limits.
package scyllafake
