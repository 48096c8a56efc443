package scyllafake_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
)

// A batch that times out and is applied later, as a client sees it.
func TestServer_Faults(t *testing.T) {
	t.Parallel()
	srv := startTCP(t)
	s := session(t, cluster(t, srv))
	exec(t, s, createKS, createLogged)
	timesOut := func(p int, later ...time.Duration) {
		t.Helper()
		srv.Faults().MustAdd(faults.Rule{
			Name: "later", Count: 1, Match: faults.Match{Table: "t", Kinds: []engine.OpKind{engine.OpLoggedBatch}},
			Effect: faults.Effect{Failure: faults.WriteTimeout("BATCH", 0, 1), Fate: engine.FateLater, Later: later},
		})
		b := s.Batch(gocql.LoggedBatch)
		b.Query("INSERT INTO ks.t (p, c, v) VALUES (?, 1, 1)", p)
		b.Query("INSERT INTO ks.t (p, c, v) VALUES (?, 1, 2)", p+1)
		var timeout *gocql.RequestErrWriteTimeout
		if err := s.ExecuteBatch(b); !errors.As(err, &timeout) || timeout.WriteType != "BATCH" {
			t.Fatalf("ExecuteBatch() error = %v, want a write timeout BATCH", err)
		}
	}
	timesOut(1, time.Hour)
	count := func(table string) (n int) {
		t.Helper()
		if err := s.Query("SELECT COUNT(*) FROM ks." + table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count("t"); n != 0 {
		t.Errorf("%d rows in one read, want none", n)
	}
	timesOut(3, 50*time.Millisecond, 100*time.Millisecond)
	for end := time.Now().Add(5 * time.Minute); count("t_scylla_cdc_log") < 4; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d log rows, want two for each of two replays", count("t_scylla_cdc_log"))
		}
	}
	if n := count("t"); n != 2 {
		t.Errorf("%d rows after the replays, want 2", n)
	}
}

func TestServer_Disconnect(t *testing.T) {
	t.Parallel()
	srv := startTCP(t)
	cfg := cluster(t, srv)
	s := session(t, cfg)
	exec(t, s, createKS, createLogged)
	srv.Faults().MustAdd(faults.Rule{
		Count: 1, Match: faults.Match{Table: "t", Kinds: []engine.OpKind{engine.OpWrite}}, Effect: faults.Effect{Disconnect: true, Fate: engine.FateApply},
	})
	if err := s.Query("INSERT INTO ks.t (p, c, v) VALUES (1, 1, 1)").Exec(); err == nil {
		t.Error("the write succeeded")
	}
	// The driver comes back by itself, and the write was done.
	var v int
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := s.Query("SELECT v FROM ks.t WHERE p = 1").Scan(&v)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if v != 1 {
		t.Errorf("v = %d, want 1", v)
	}
}

func TestStart_Refusals(t *testing.T) {
	t.Parallel()
	busy := startTCP(t)
	for name, cfg := range map[string]scyllafake.Config{
		"version":     {Version: "five"},
		"shards":      {Shards: -1},
		"tokens":      {Tokens: -1},
		"port in use": {Addr: busy.Addr()},
		"shard port":  {ShardAwarePort: -1},
		"directory":   {Dir: "/dev/null/x"},
	} {
		if s, err := scyllafake.Start(cfg); err == nil {
			t.Errorf("%s: Start succeeded", name)
			s.Close()
		}
	}
}

// A closed server responds to no request, and a second Close does nothing.
func TestServer_Close(t *testing.T) {
	t.Parallel()
	srv, err := scyllafake.Start(scyllafake.Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := cluster(t, srv).CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	exec(t, s, createKS, createLogged)
	rule := srv.Faults().MustAdd(faults.Rule{Match: faults.Match{Table: "t", Kinds: []engine.OpKind{engine.OpWrite}}, Effect: faults.Effect{Freeze: true}})
	go s.Query("INSERT INTO ks.t (p, c, v) VALUES (1, 1, 1)").Exec() //nolint:errcheck // it cannot be answered
	for end := time.Now().Add(5 * time.Minute); srv.Faults().Hits(rule) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the write does not come")
		}
	}
	for range 2 {
		if err := srv.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := srv.Dial(context.Background()); err == nil {
		t.Error("a closed server takes connections")
	}
}
