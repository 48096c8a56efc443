package outbox

import (
	"strconv"

	"github.com/gocql/gocql"
	"github.com/google/uuid"
)

// NewID returns a new UUIDv7: unique, and ordered by time to the millisecond.
func NewID() gocql.UUID {
	// NewV7 fails only if the system's random source does, which crypto/rand
	// turns into a crash of the process.
	return gocql.UUID(uuid.Must(uuid.NewV7()))
}

// NameID derives an id from a namespace and names, deterministically: a
// name-based UUIDv5 (SHA-1). It gives a retried request the ids of its first
// attempt. Names are delimited, so ("ab", "c") and ("a", "bc") differ.
//
// Anyone with the namespace and the names can compute the id; it is not a
// secret.
func NameID(namespace gocql.UUID, names ...string) gocql.UUID {
	n := 0
	for _, s := range names {
		n += len(s) + 1
	}
	data := make([]byte, 0, n)
	for _, s := range names {
		data = append(data, s...)
		data = append(data, 0)
	}
	return gocql.UUID(uuid.NewSHA1(uuid.UUID(namespace), data))
}

// RowID returns the id of the dead letter of a row without an event id:
// deterministic for a write. table includes its keyspace, written is the write
// time in microseconds, and n is the row's number among those with the same
// write.
func RowID(table, aggregate string, seq, written int64, n int) gocql.UUID {
	return NameID(TextNamespace, table, aggregate, strconv.FormatInt(seq, 10), strconv.FormatInt(written, 10), strconv.Itoa(n))
}
