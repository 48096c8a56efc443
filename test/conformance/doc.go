// Package conformance compares scyllafake with real databases.
//
// The files in corpus/ contain cases: CQL statements, each case in a keyspace
// of its own, which the connection uses. testdata/cassandra-5.0 contains the
// answers of Apache Cassandra 5.0. Without a JVM, scyllafake must give the
// recorded answers; with the build tag peers a real Cassandra runs the corpus,
// too, and must still give them. With
//
//	go test -tags peers ./test/conformance -run TestPeerCassandra -update
//
// the answers are recorded again.
//
// The comparison includes kind, rows, column names and types, paging, schema
// changes, prepared metadata and error codes, but not error messages. Known
// differences of ScyllaDB are in the corpus with their reason: see
// corpus/README.md. Such a difference must still differ from Cassandra's
// answer, or the test fails.
package conformance
