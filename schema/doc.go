// Package schema holds the CQL that scylla-outbox needs and applies it.
//
// The migrations are numbered files in cql/, templates whose parameters come
// from Options. Migrate applies those that a keyspace lacks, each statement
// idempotent, under a lock that any number of instances may compete for and
// that expires if its holder dies; so it is safe to run at every start of every
// instance, and again after a crash half-way. What was applied is recorded with
// a checksum in schema_migrations.
package schema
