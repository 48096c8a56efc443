package dlq

import (
	"errors"
	"io"
	"log"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/semaphore"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/virtual"
)

// In virtual time a claim expires to the second, and nothing of the store
// blocks a bubble.
func TestStore_InVirtualTime(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		node, err := scyllafake.Start(scyllatest.Config())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = node.Close() }()
		session := func(keyspace string) *gocql.Session {
			c := scyllatest.Cluster(node, keyspace)
			c.Logger = log.New(io.Discard, "", 0)
			s, err := c.CreateSession()
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		admin := session("")
		if err := schema.Migrate(t.Context(), admin, schema.Options{}); err != nil {
			t.Fatal(err)
		}
		admin.Close()
		ses := session(schema.DefaultKeyspace)
		defer ses.Close()
		s, err := Open(ses, schema.DefaultKeyspace)
		if err != nil {
			t.Fatal(err)
		}
		ls := manyDead(300)
		if _, err := parallel(len(ls), func(i int) error { _, err := s.Write(t.Context(), ls[i]); return err }); err != nil {
			t.Fatal(err)
		}
		n := 0
		if err := s.Chains(t.Context(), testTable, func(ChainEntry) error { n++; return nil }); err != nil || n != len(ls) {
			t.Fatalf("Chains() = %v after %d", err, n)
		}
		id := ls[0].EventID
		if _, err := s.Claim(t.Context(), id, me, time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute - time.Second)
		if _, err := s.Claim(t.Context(), id, "relay-2", time.Minute); !errors.Is(err, ErrRefused) {
			t.Errorf("Claim() a second before the claim expires = %v", err)
		}
		time.Sleep(2 * time.Second)
		if _, err := s.Claim(t.Context(), id, "relay-2", time.Minute); err != nil {
			t.Errorf("Claim() after the claim expired = %v", err)
		}
		n = 0
		if err := s.List(t.Context(), Filter{EventType: "OrderCreated", Status: []Status{Pending}}, func(*DeadLetter) error { n++; return nil }); err != nil || n != len(ls)-1 {
			t.Errorf("List() = %v after %d", err, n)
		}
		if err := s.Discard(t.Context(), ls[1].EventID, eve); err != nil {
			t.Error(err)
		}
		if rs, err := s.Requests(t.Context(), testTable, nil); err != nil || len(rs) != 1 {
			t.Errorf("Requests() = %+v, %v", rs, err)
		}
		if _, err := s.Stats(t.Context()); err != nil {
			t.Error(err)
		}
		for i := range 3 {
			l := testDeadLetter("busy", int64(i+1))
			l.Table = "outbox.busy"
			if _, err := s.Write(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		reads := node.Faults().MustAdd(faults.Rule{Match: faults.Match{Table: "dead_letter_queue", Kinds: []engine.OpKind{engine.OpRead}}, Effect: faults.Effect{Delay: 1}})
		bound := &chainBound{later: semaphore.NewWeighted(1)}
		bound.left.Store(1000)
		_ = bound.later.Acquire(t.Context(), 1)
		read := make(chan error)
		go func() {
			_, err := chainReader{s, "outbox.busy", 1, bound}.bucket(t.Context(), chainBucket("busy"))
			read <- err
		}()
		time.Sleep(time.Second)
		if got := node.Faults().Hits(reads); got != 1 {
			t.Errorf("of a bucket %d pages are read while others read theirs, want the first", got)
		}
		bound.later.Release(1)
		if err := <-read; err != nil || node.Faults().Hits(reads) < 3 {
			t.Errorf("then %d pages are read, %v", node.Faults().Hits(reads), err)
		}
	})
}
