package scyllafake_test

import (
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// A request takes the time of its parts on a real node: its pages, further partitions, rows
// that are read and not returned, writes and their rows. A shard serves one at a time.
func TestServer_TakesTheTimesOfANode(t *testing.T) {
	readerBubble(t, scyllafake.Config{Tokens: 4, NodeCosts: &engine.MeasuredCosts}, func(t *testing.T, srv *scyllafake.Server, s *gocql.Session) {
		mustDo := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		mustDo(s.Query("CREATE TABLE ks.plain (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}").Exec())
		insert := func(b *gocql.Batch, pk, rows int) {
			for ck := range rows {
				b.Query("INSERT INTO ks.plain (pk, ck, v) VALUES (?, ?, 0)", pk, ck)
			}
		}
		batch := func(kind gocql.BatchType, partitions, rows int) func() error {
			return func() error {
				b := s.Batch(kind)
				for pk := range partitions {
					insert(b, pk, rows)
				}
				return b.Exec()
			}
		}
		read := func(page int, cql string, args ...any) func() error {
			return func() error {
				// The driver's own paging would hold a lock while virtual time does not advance.
				for state := []byte(nil); ; {
					iter := s.Query(cql, args...).PageSize(page).PageState(state).Iter()
					state = iter.PageState()
					if err := iter.Close(); err != nil || len(state) == 0 {
						return err
					}
				}
			}
		}
		const in = "SELECT v FROM ks.plain WHERE pk IN ?"
		mustDo(batch(gocql.LoggedBatch, 2, 10)()) // prepares
		mustDo(read(100, in, []int{0})())         // prepares
		mustDo(s.Query("INSERT INTO ks.plain (pk, ck, v) VALUES (0, 0, 0)").Exec())
		for _, tt := range []struct {
			name string
			do   func() error
			want int // µs
		}{
			{"a row", func() error { return s.Query("INSERT INTO ks.plain (pk, ck, v) VALUES (0, 0, 0)").Exec() }, 61},
			{"an unlogged batch of two rows", batch(gocql.UnloggedBatch, 2, 1), 63},
			{"a logged batch of two rows", batch(gocql.LoggedBatch, 2, 1), 95},
			{"a logged batch of one partition", batch(gocql.LoggedBatch, 1, 2), 63},
			{"a partition", read(100, in, []int{0}), 60 + 10*7},
			{"partitions without rows", read(100, in, []int{7, 8, 9}), 60 + 2*26},
			{"two partitions", read(100, in, []int{0, 1}), 60 + 26 + 20*7},
			// As for the rows of ReadCosts, and the partitions that are not ended.
			{"two partitions in pages", read(4, in, []int{0, 1}), 6*60 + 3*26 + (8+8+6+4+4)*7},
		} {
			before, began := srv.Busy()[0], time.Now()
			mustDo(tt.do())
			took, busy := time.Since(began), srv.Busy()[0]-before
			if want := time.Duration(tt.want) * time.Microsecond; busy != want || took < want {
				t.Errorf("%s: the shard is busy for %s, the request takes %s, want %s", tt.name, busy, took, want)
			}
		}

		began := time.Now()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { mustDo(read(100, in, []int{0})()) })
		}
		all.Wait()
		if took := time.Since(began); took < 50*130*time.Microsecond || took > 100*130*time.Microsecond {
			t.Errorf("50 requests of 130 µs to one shard take %s", took)
		}
	})
}

// Shards serve their partitions concurrently.
func TestServer_DividesTheTimesAmongShards(t *testing.T) {
	readerBubble(t, scyllafake.Config{Tokens: 4, Shards: 4, NodeCosts: &engine.MeasuredCosts}, func(t *testing.T, srv *scyllafake.Server, s *gocql.Session) {
		if err := s.Query("CREATE TABLE ks.plain (pk int PRIMARY KEY, v int)").Exec(); err != nil {
			t.Fatal(err)
		}
		keys := make([]int, 64)
		for i := range keys {
			keys[i] = i
		}
		read := func() {
			t.Helper()
			if err := s.Query("SELECT v FROM ks.plain WHERE pk IN ?", keys).Exec(); err != nil {
				t.Fatal(err)
			}
		}
		read() // the driver reads the schema, too
		before := srv.Busy()
		read()
		var sum time.Duration
		for shard, busy := range srv.Busy() {
			if busy -= before[shard]; busy == 0 {
				t.Errorf("shard %d was not busy", shard)
			} else {
				sum += busy
			}
		}
		if want := (60 + 63*26) * time.Microsecond; sum != want {
			t.Errorf("the shards were busy for %s, want %s", sum, want)
		}
	})
}
