package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// script is a hook that gives each operation the next verdict and remembers
// the operations.
type script struct {
	mu       sync.Mutex
	verdicts []engine.Verdict
	ops      []engine.Op
}

func (s *script) Before(_ context.Context, op engine.Op) engine.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, op)
	if len(s.verdicts) == 0 {
		return engine.Verdict{}
	}
	v := s.verdicts[0]
	s.verdicts = s.verdicts[1:]
	return v
}

func (s *script) next(v ...engine.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verdicts, s.ops = v, nil
}

var errTimeout = &cqlerr.Error{Code: cqlerr.WriteTimeout, Message: "timed out", WriteType: "BATCH"}

const countLog = "SELECT COUNT(*) FROM base_scylla_cdc_log"

func TestHook_SeesOperations(t *testing.T) {
	t.Parallel()
	s := &script{}
	n := setupHook(t, s, usualTables...)
	for _, c := range []struct {
		cql  string
		cl   engine.Consistency
		kind engine.OpKind
		muts int
	}{
		{"SELECT * FROM kv", engine.One, engine.OpRead, 0},
		{"SELECT * FROM kv WHERE k = 1", engine.LocalSerial, engine.OpSerialRead, 0},
		{"INSERT INTO kv (k) VALUES (1)", engine.One, engine.OpWrite, 1},
		{"DELETE FROM kv WHERE k IN (1, 2)", engine.One, engine.OpUnloggedBatch, 2},
		{"BEGIN BATCH INSERT INTO kv (k) VALUES (1) INSERT INTO kv (k) VALUES (1) APPLY BATCH", engine.One, engine.OpWrite, 1},
		{"BEGIN BATCH INSERT INTO kv (k) VALUES (1) INSERT INTO base (pk, ck) VALUES (1, 1) APPLY BATCH", engine.One, engine.OpLoggedBatch, 2},
		{"BEGIN UNLOGGED BATCH INSERT INTO kv (k) VALUES (1) INSERT INTO kv (k) VALUES (2) APPLY BATCH", engine.One, engine.OpUnloggedBatch, 2},
		{"INSERT INTO kv (k) VALUES (1) IF NOT EXISTS", engine.One, engine.OpCAS, 0},
		{"BEGIN BATCH INSERT INTO kv (k) VALUES (1) IF NOT EXISTS APPLY BATCH", engine.One, engine.OpCAS, 0},
	} {
		s.next()
		n.params.Consistency = c.cl
		if _, err := n.run(c.cql); err != nil {
			t.Fatalf("%s: %v", c.cql, err)
		}
		if len(s.ops) != 1 {
			t.Errorf("%s: %d operations, want 1", c.cql, len(s.ops))
			continue
		}
		op := s.ops[0]
		if op.Kind != c.kind || len(op.Mutations) != c.muts || op.Keyspace != "ks" || op.Table != "kv" || op.Consistency != c.cl {
			t.Errorf("%s: kind %d, %d mutations, %s.%s at %v", c.cql, op.Kind, len(op.Mutations), op.Keyspace, op.Table, op.Consistency)
		}
	}
}

func TestHook_Fates(t *testing.T) {
	t.Parallel()
	s := &script{}
	n := setupHook(t, s, usualTables...)
	insert := "INSERT INTO base (pk, ck, a) VALUES (1, 1, 1)"
	fate := func(v engine.Verdict, text, want, logged string) {
		t.Helper()
		s.next(v)
		if got := n.answer(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		n.play(step{countLog, logged})
		n.ddl("TRUNCATE base")
		n.ddl("TRUNCATE base_scylla_cdc_log")
	}
	const timedOut = "1100 timed out"
	fate(engine.Verdict{}, insert, "", "1")
	fate(engine.Verdict{Err: errTimeout}, insert, timedOut, "0")
	fate(engine.Verdict{Err: errTimeout, Fate: engine.FateApply}, insert, timedOut, "1")
	fate(engine.Verdict{Disconnect: true}, insert, engine.ErrDisconnect.Error(), "0")
	fate(engine.Verdict{Disconnect: true, Fate: engine.FateApply}, insert, engine.ErrDisconnect.Error(), "1")
	fate(engine.Verdict{Err: errTimeout}, insert+" IF NOT EXISTS", timedOut, "0")
	fate(engine.Verdict{Err: errTimeout, Fate: engine.FateApply}, insert+" IF NOT EXISTS", timedOut, "1")
	fate(engine.Verdict{Err: errTimeout}, "SELECT * FROM base", timedOut, "0")
}

// A batch that is replayed from the batchlog of 5.1: each replay goes through CDC
// again and adds rows of the batch's own time (facts, 9.10).
func TestHook_BatchlogReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		n := setupHook(t, s, usualTables...)
		s.next(engine.Verdict{
			Delay: 2 * time.Second, Err: errTimeout, Fate: engine.FateLater, Later: []time.Duration{18 * time.Second, 47 * time.Second},
		})
		batch := "BEGIN BATCH INSERT INTO base (pk, ck, a) VALUES (1, 1, 1) INSERT INTO kv (k, v) VALUES (1, 1) APPLY BATCH"
		n.params.Timestamp, n.params.HasTimestamp = time.Now().UnixMicro(), true
		began := time.Now()
		n.play(step{batch, "1100 timed out"})
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the error came after %v, want 2s", took)
		}
		n.play(step{"SELECT * FROM base", "none"}, step{countLog, "0"})
		time.Sleep(19 * time.Second)
		synctest.Wait()
		n.play(step{"SELECT ck, a FROM base", "1 1"}, step{"SELECT k, v FROM kv", "1 1"}, step{countLog, "1"})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		n.play(step{countLog, "2"})
		n.play(step{`SELECT COUNT(*) FROM base_scylla_cdc_log WHERE "cdc$operation" = 2 AND pk = 1 AND a = 1 ALLOW FILTERING`, "2"})
		res, err := n.run(`SELECT toTimestamp("cdc$time"), WRITETIME("cdc$operation"), "cdc$time" FROM base_scylla_cdc_log`)
		if err != nil {
			t.Fatal(err)
		}
		rows := decodeRows(t, res)
		if !slices.EqualFunc(rows[0][:2], rows[1][:2], slices.Equal) {
			t.Error("the replays have different times")
		}
		if slices.Equal(rows[0][2], rows[1][2]) {
			t.Error("the replays share one cdc$time")
		}
	})
}

// A replay that Close comes before never happens.
func TestHook_CloseStopsReplays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		n := setupHook(t, s, usualTables...)
		s.next(engine.Verdict{Err: errTimeout, Fate: engine.FateLater, Later: []time.Duration{time.Hour}})
		n.play(step{"INSERT INTO kv (k) VALUES (1)", "1100 timed out"})
		n.engine.Close()
		time.Sleep(2 * time.Hour)
		n.play(step{"SELECT * FROM kv", "none"})
	})
}

// A decided round shows with the next conditional or serial operation, at the
// time of its own ballot (cases D1 and E12 of the recordings).
func TestHook_DecidedRounds(t *testing.T) {
	t.Parallel()
	insert := "INSERT INTO base (pk, ck, a) VALUES (1, 1, 1) IF NOT EXISTS"
	for _, c := range []struct {
		name   string
		cl     engine.Consistency
		finish string
		want   string
	}{
		{"serial read", engine.Serial, "SELECT a FROM base WHERE pk = 1", "1"},
		{"conditional write", engine.One, insert, "false 1 1 null 1 null"},
		{"conditional write on another row", engine.One, "UPDATE base SET a = 1 WHERE pk = 1 AND ck = 2 IF a = 3", "false null"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &script{}
			n := setupHook(t, s, usualTables...)
			s.next(engine.Verdict{Err: errTimeout, Fate: engine.FateDecided})
			before := time.Now().UnixMicro()
			n.play(step{insert, "1100 timed out"}, step{"SELECT * FROM base", "none"}, step{countLog, "0"})
			after := time.Now().UnixMicro()
			n.play(
				step{"UPDATE base SET a = 9 WHERE pk = 2 AND ck = 1 IF a = null", "true null"}, // another partition
				step{"SELECT COUNT(*) FROM base WHERE pk = 1", "0"},
			)
			n.params.Consistency = c.cl
			n.play(step{c.finish, c.want})
			n.params.Consistency = engine.One
			n.play(step{"SELECT a FROM base WHERE pk = 1", "1"}, step{countLog, "2"})
			res, err := n.run("SELECT WRITETIME(a) FROM base WHERE pk = 1")
			if err != nil {
				t.Fatal(err)
			}
			if ts := int64(be(decodeRows(t, res)[0][0])); ts < before || ts > after {
				t.Errorf("written at %d, want between %d and %d", ts, before, after)
			}
		})
	}
}

func be(b []byte) (n uint64) {
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

func TestHook_DelayEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		n := setupHook(t, s, usualTables...)
		s.next(engine.Verdict{Delay: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := n.engine.Execute(ctx, n.mustPlan("INSERT INTO kv (k) VALUES (1)"), n.params)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Execute() error = %v, want context.DeadlineExceeded", err)
		}
	})
}

func TestHook_DeadPage(t *testing.T) {
	t.Parallel()
	s := &script{}
	n := setupHook(t, s, usualTables...)
	for ck := range 3 {
		n.play(step{"INSERT INTO plain (pk, ck) VALUES (1, " + itoa(ck+1) + ")", ""})
	}
	for cql, want := range map[string][]string{
		"SELECT ck FROM plain WHERE pk = 1":                          {"none +", "1 | 2 +", "3"},
		"SELECT ck FROM plain WHERE pk = 1 LIMIT 1":                  {"none +", "1"},
		"SELECT ck FROM plain WHERE pk = 1 ORDER BY ck DESC LIMIT 1": {"none +", "3"},
		"SELECT COUNT(*) FROM plain WHERE pk = 1":                    {"3"},
		"SELECT ck FROM plain WHERE pk = 1 AND ck = 2":               {"2"},
	} {
		s.next(engine.Verdict{DeadPage: true})
		if got := n.pages(cql, 2); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", cql, got, want)
		}
	}
}

// A mutation has each row and element once, and no element that the tombstone of its column
// covers: the CDC log is made of it.
func TestHook_SeesMutationsInNormalForm(t *testing.T) {
	t.Parallel()
	s := &script{}
	n := setupHook(t, s, "CREATE TABLE col (k int, c int, m map<text, int>, PRIMARY KEY (k, c))")
	for text, want := range map[string]string{
		"UPDATE col USING TIMESTAMP 5 SET m = m + {'a': 1} WHERE k = 1 AND c = 2; DELETE m FROM col USING TIMESTAMP 10 WHERE k = 1 AND c = 2;":                                                                         "[0]",
		"UPDATE col USING TIMESTAMP 6 SET m = m + {'a': 2} WHERE k = 1 AND c = 2; UPDATE col USING TIMESTAMP 5 SET m = m + {'b': 1, 'a': 1} WHERE k = 1 AND c = 2; INSERT INTO col (k, c, m) VALUES (1, 1, {'x': 1});": "[1 2]",
	} {
		s.next()
		if _, err := n.run("BEGIN BATCH " + text + " APPLY BATCH"); err != nil {
			t.Fatal(err)
		}
		var elements []int
		for _, r := range s.ops[0].Mutations[0].Rows {
			elements = append(elements, len(r.Columns[0].Elements))
		}
		if got := fmt.Sprint(elements); got != want {
			t.Errorf("%s: rows with %s elements, want %s", text, got, want)
		}
	}
}
