// Package system holds the node's own tables: how they are defined in each
// release of ScyllaDB, and the writing of their rows.
//
// The tables are ordinary ones for everybody who reads them. Their rows lie in
// the store, put there by packages ddl and topology in the same store.Apply as
// the change they tell of.
package system
