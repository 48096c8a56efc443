package relaytest

import (
	"cmp"
	"io"
	"log"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// Connect connects to a database over memory. With prefetched set the driver writes
// immediately. Tests whose reads have several pages need that: a prefetch holds a lock
// while it waits, which stops virtual time.
func Connect(t *testing.T, db *scyllafake.Server, keyspace string, prefetched bool) *gocql.Session {
	t.Helper()
	cluster := gocql.NewCluster("127.0.0.1")
	cluster.Dialer = db
	cluster.Keyspace = keyspace
	cluster.Timeout = 5 * time.Second
	if prefetched {
		cluster.WriteCoalesceWaitTime = 0
	}
	cluster.ReconnectInterval = 5 * time.Second
	cluster.Logger = log.New(io.Discard, "", 0)
	s, err := cluster.CreateSession()
	if err != nil {
		t.Fatalf("CreateSession() error = %v", err)
	}
	return s
}

// Migrate creates the keyspace outbox with all tables.
func Migrate(t *testing.T, db *scyllafake.Server) {
	t.Helper()
	admin := Connect(t, db, "", false)
	defer admin.Close()
	if err := schema.Migrate(t.Context(), admin, schema.Options{}); err != nil {
		t.Fatalf("Migrate() error = %v", err)
	}
}

// EventID returns the id of event i.
func EventID(i int) gocql.UUID {
	return gocql.UUID{byte(i), byte(i >> 8), byte(i >> 16), 15: 1}
}

// CheckTimes fails the test if the broker's timestamps contradict the sequence of an
// aggregate over all topics.
func CheckTimes(t *testing.T, got []Delivered) {
	t.Helper()
	got = slices.Clone(got)
	slices.SortFunc(got, func(a, b Delivered) int {
		return cmp.Or(strings.Compare(a.AggregateID.String(), b.AggregateID.String()), cmp.Compare(a.Sequence, b.Sequence))
	})
	for i := 1; i < len(got); i++ {
		if got[i].AggregateID == got[i-1].AggregateID && got[i].At.Before(got[i-1].At) {
			t.Errorf("aggregate %s: seq %d is at %s, seq %d at %s", got[i].AggregateID,
				got[i-1].Sequence, got[i-1].At, got[i].Sequence, got[i].At)
		}
	}
}

// NoCompression lets tests find an event's id in the bytes of a batch. Each test has its
// own copy: kgo.NewClient writes to the list of codecs of the option.
func NoCompression() kgo.Opt { return kgo.ProducerBatchCompression(kgo.NoCompression()) }

var (
	BenchPayload = make([]byte, 512)
	BenchHeaders = map[string]string{outbox.HeaderTraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
)

// BenchEvent returns event i of a benchmark.
func BenchEvent(i int) outbox.Event {
	return outbox.Event{
		ID: outbox.IDFromUUID(BenchID(1, i)), AggregateID: outbox.IDFromUUID(BenchID(2, i)), Sequence: 1, AggregateType: "bench", Type: "T",
		Payload: BenchPayload, Headers: BenchHeaders, CreatedAt: time.Unix(1, 0),
	}
}

// BenchID returns an id by kind and number.
func BenchID(kind byte, i int) gocql.UUID {
	return gocql.UUID{kind, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i), 0, 0x80, 0, 0x80, 15: 1}
}
