package scyllatest_test

import (
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
)

// Statements, prepared ones and batches have the timestamps of their session's clock;
// statements without a timestamp have the database's.
func TestClock(t *testing.T) {
	t.Parallel()
	node, _ := scyllatest.Start(t)
	clock := new(scyllatest.Clock)
	s := clock.Connect(t, node)
	const insert = "INSERT INTO relay_sharing (relay, shards) VALUES (?, ?)"
	for name, write := range map[string]func(key string, own bool) error{
		"statement": func(key string, own bool) error {
			return s.Query("INSERT INTO relay_sharing (relay, shards) VALUES ('" + key + "', 1)").DefaultTimestamp(own).Exec()
		},
		"prepared": func(key string, own bool) error { return s.Query(insert, key, 1).DefaultTimestamp(own).Exec() },
		"batch": func(key string, own bool) error {
			b := s.Batch(gocql.LoggedBatch).DefaultTimestamp(own)
			b.Query(insert, key, 1)
			b.Query("UPDATE relay_sharing SET set_by = ? WHERE relay = ?", nil, key)
			return b.Exec()
		},
	} {
		for _, ahead := range []time.Duration{0, 2 * time.Minute, -time.Hour} {
			clock.Set(ahead)
			if got := time.Until(clock.Now()); (got - ahead).Abs() > 30*time.Second {
				t.Errorf("Now() is %s ahead, want %s", got, ahead)
			}
			for own, want := range map[bool]time.Duration{true: ahead, false: 0} {
				key := name + ahead.String()
				if own {
					key += " own"
				}
				if err := write(key, own); err != nil {
					t.Fatal(err)
				}
				var micros int64
				if err := s.Query("SELECT writetime(shards) FROM relay_sharing WHERE relay = ?", key).Scan(&micros); err != nil {
					t.Fatal(err)
				}
				if got := time.Until(time.UnixMicro(micros)); (got - want).Abs() > 30*time.Second {
					t.Errorf("%s: it is written %s ahead, want %s", key, got, want)
				}
			}
		}
	}
}
