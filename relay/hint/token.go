package hint

import (
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Token returns the token of an aggregate's partition of an outbox table: that of
// Cassandra's Murmur3Partitioner for a key of one uuid column.
func Token(aggregate gocql.UUID) int64 { return outbox.Token(aggregate) }
