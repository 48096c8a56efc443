// Package wire reads the requests and writes the responses of the CQL native
// protocol, versions 3 and 4, as ScyllaDB does: what it refuses, it refuses
// with ScyllaDB's words.
//
// It holds no state. Requests alias the bytes they were read from; responses
// are appended to the caller's buffer. The tests drive it with the independent
// codec of datastax/go-cassandra-native-protocol.
package wire
