package scyllafake

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// A node whose disk is full reports that, closes its connections instead of leaving
// its clients without an answer, and can be closed.
func TestServer_FullDisk(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.ENOSPC
		}
		return nil
	}))
	failed := make(chan error, 1)
	node, err := Start(Config{Tokens: 4, Dir: "data", fs: disk, Failed: func(err error) { failed <- err }})
	if err != nil {
		t.Fatal(err)
	}
	cluster := gocql.NewCluster("127.0.0.1")
	cluster.Dialer, cluster.Timeout, cluster.ConnectTimeout = node, time.Minute, time.Minute
	s, err := cluster.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, text := range []string{
		"CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"CREATE TABLE k.t (p int PRIMARY KEY, v int)", "INSERT INTO k.t (p, v) VALUES (1, 1)",
	} {
		if err := s.Query(text).Exec(); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	full.Store(true)
	answers := make(chan error, 8)
	for p := range cap(answers) {
		go func() { answers <- s.Query("INSERT INTO k.t (p, v) VALUES (?, ?)", p, p).Exec() }()
	}
	timeout := time.After(time.Minute)
	for range cap(answers) {
		select {
		case err := <-answers:
			if err == nil {
				t.Error("a write was acknowledged on a full disk")
			}
		case <-timeout:
			t.Fatal("a write has no answer")
		}
	}
	closed := make(chan error)
	go func() {
		if err := <-failed; !errors.Is(err, store.ErrFailed) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("Failed received %v", err)
		}
		closed <- node.Close()
	}()
	select {
	case err := <-closed:
		if err != nil {
			t.Errorf("Close() = %v", err)
		}
	case <-timeout:
		t.Fatal("Close() waits for ever")
	}
}
