// Package inbox tests outbox/inbox against a real Apache Cassandra (make
// test-peers): its conditional statements return other columns than those of
// ScyllaDB, and its replicas really contend. The embedded engine is in
// test/sim/inbox.
package inbox
