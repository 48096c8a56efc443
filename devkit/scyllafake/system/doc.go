// Package system contains the node's own tables: their definitions in each release of
// ScyllaDB, and the writing of their rows.
//
// The tables are ordinary ones for all readers. Their rows are in the store, written by
// packages ddl and topology in the same store.Apply as the change that they describe.
package system
