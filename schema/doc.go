// Package schema contains the CQL of scylla-outbox and applies it.
//
// The migrations are numbered files in cql/, in a folder for each [Component],
// templates with parameters of Options. Migrate applies the missing ones of the
// components that a keyspace has. Each statement is idempotent and
// runs under a lock, which instances compete for and which expires if its
// holder fails. It is therefore safe to run at every start of every instance,
// and again after a crash. schema_migrations records the applied migrations
// with a checksum, and the components, which can only be added.
//
// It is a part of the program, and may change in any version.
package schema
