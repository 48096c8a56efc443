// Package wire reads the requests and writes the responses of the CQL native protocol,
// versions 3 and 4, as ScyllaDB does. It refuses the same requests with the same error
// texts.
//
// It has no state. Requests alias the bytes they were read from; responses are appended
// to the caller's buffer. The tests check it against the independent codec of
// datastax/go-cassandra-native-protocol.
package wire
