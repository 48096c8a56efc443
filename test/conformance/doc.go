// Package conformance compares scyllafake with real databases.
//
// The files in corpus/ hold cases: CQL statements, each case in a keyspace of
// its own, in use on the connection. testdata/cassandra-5.0 holds what Apache
// Cassandra 5.0 answered to each statement. Without a JVM, scyllafake is held
// to those recorded answers; with the build tag peers a real Cassandra runs
// the corpus too, and must still answer as recorded. With
//
//	go test -tags peers ./test/conformance -run TestPeerCassandra -update
//
// the answers are recorded anew.
//
// Answers are compared in kind, rows, column names and types, paging, schema
// changes, prepared metadata and error codes; not in the words of error
// messages. Where ScyllaDB is known to answer otherwise, the corpus says why
// and what: see corpus/README.md. Such a difference must still differ from
// Cassandra's answer, or the test fails.
package conformance
