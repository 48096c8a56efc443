package scyllafake_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// cell is a node and a session that live in one bubble of virtual time, with
// the tables of the recorded case "batchlog": orders, and outbox with CDC.
type cell struct {
	*testing.T
	srv   *scyllafake.Server
	s     *gocql.Session
	start time.Time
}

// inBubble runs f with a cell in virtual time. Such tests must not be parallel:
// the driver keeps requests in a sync.Pool, and one that was used in a bubble
// cannot be used outside it, so the pool is emptied before and after.
func inBubble(t *testing.T, f func(*cell)) {
	t.Helper()
	inConfiguredBubble(t, scyllafake.Config{Version: "5.1"}, f)
}

// inEachRelease runs f in a bubble for each release and kind of keyspace. again reports
// whether a replayed batch gets other log rows each time.
func inEachRelease(t *testing.T, f func(c *cell, again bool)) {
	t.Helper()
	for _, conf := range []scyllafake.Config{{Version: "5.1"}, {Vnodes: true}, {}} {
		t.Run(fmt.Sprintf("%s vnodes %t", conf.Version, conf.Vnodes), func(t *testing.T) {
			inConfiguredBubble(t, conf, func(c *cell) { f(c, conf.Version == "5.1") })
		})
	}
}

func inConfiguredBubble(t *testing.T, conf scyllafake.Config, f func(*cell)) {
	t.Helper()
	emptyPools()
	defer emptyPools()
	synctest.Test(t, func(t *testing.T) {
		conf.Tokens, conf.RingDelay, conf.Seed = 4, 2*time.Second, 1
		srv, err := scyllafake.Start(conf)
		if err != nil {
			t.Fatal(err)
		}
		defer srv.Close()
		c := gocql.NewCluster("127.0.0.1")
		c.Dialer = srv
		c.Consistency = gocql.One
		c.Timeout = time.Minute
		s, err := c.CreateSession()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		exec(t, s, createKS,
			"CREATE TABLE ks.orders (k int PRIMARY KEY, v int)",
			"CREATE TABLE ks.outbox (k int, seq int, v int, PRIMARY KEY (k, seq)) WITH cdc = {'enabled': true}",
			"CREATE TABLE ks.ev (k int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
		f(&cell{t, srv, s, time.Now()})
	})
}

// emptyPools drops the contents of sync.Pools; it takes two collections.
func emptyPools() {
	runtime.GC()
	runtime.GC()
}

// batch is an order and its event, with a timestamp of the client's.
func (c *cell) batch(k int, at time.Time) error {
	b := c.s.Batch(gocql.LoggedBatch).WithTimestamp(at.UnixMicro())
	b.Query("INSERT INTO ks.orders (k, v) VALUES (?, ?)", k, k)
	b.Query("INSERT INTO ks.outbox (k, seq, v) VALUES (?, 1, ?)", k, k)
	return c.s.ExecuteBatch(b)
}

// logRow is a row of outbox's log.
type logRow struct {
	stream    string
	time      gocql.UUID
	writetime int64
	k, v      int
	end       bool
}

func (c *cell) log() (out []logRow) {
	c.Helper()
	it := c.s.Query(`SELECT "cdc$stream_id", "cdc$time", WRITETIME(v), k, v, "cdc$end_of_batch" FROM ks.outbox_scylla_cdc_log`).Iter()
	var r logRow
	var stream []byte
	for it.Scan(&stream, &r.time, &r.writetime, &r.k, &r.v, &r.end) {
		r.stream = string(stream)
		out = append(out, r)
	}
	if err := it.Close(); err != nil {
		c.Fatal(err)
	}
	return out
}

// count returns the result of a SELECT COUNT(*) of a table.
func (c *cell) count(table string) (n int) {
	c.Helper()
	if err := c.s.Query("SELECT COUNT(*) FROM " + table).Scan(&n); err != nil {
		c.Fatal(err)
	}
	return n
}

// at waits until so long after the cell was made.
func (c *cell) at(d time.Duration) {
	c.Helper()
	wait := d - time.Since(c.start)
	if wait < 0 {
		c.Fatalf("%v is over already", d)
	}
	time.Sleep(wait)
	synctest.Wait()
}

// wantWriteTimeout checks an error and how long it took to come.
func (c *cell) wantWriteTimeout(err error, writeType string, received, blockFor int, since time.Time, after time.Duration) {
	c.Helper()
	var e *gocql.RequestErrWriteTimeout
	if !errors.As(err, &e) || e.WriteType != writeType || e.Received != received || e.BlockFor != blockFor {
		c.Errorf("error = %+v, want a write timeout %s, %d of %d", err, writeType, received, blockFor)
	}
	if took := time.Since(since); took.Round(20*time.Millisecond) != after {
		c.Errorf("the error came after %v, want %v", took, after)
	}
}

// wantRows checks that the batch (k) shows and has so many equal log rows, each
// with a time of its own that is the batch's.
func (c *cell) wantRows(k, n int, at time.Time) {
	c.Helper()
	var written int64
	err := c.s.Query("SELECT WRITETIME(v) FROM ks.orders WHERE k = ?", k).Scan(&written)
	switch {
	case n == 0 && !errors.Is(err, gocql.ErrNotFound):
		c.Errorf("the order shows: %v", err)
	case n > 0 && (err != nil || written != at.UnixMicro()):
		c.Errorf("the order has time %d, error %v; want %d", written, err, at.UnixMicro())
	}
	rows := c.log()
	if len(rows) != n {
		c.Fatalf("%d log rows, want %d", len(rows), n)
	}
	times := map[gocql.UUID]bool{}
	for _, r := range rows {
		times[r.time] = true
		if r.k != k || r.v != k || !r.end || r.stream != rows[0].stream || r.writetime != at.UnixMicro() ||
			r.time.Time().UnixMicro() != at.UnixMicro() {
			c.Errorf("log row %+v, want k %d at %v in stream %x", r, k, at, rows[0].stream)
		}
	}
	if len(times) != n {
		c.Error("log rows of different executions share a cdc$time")
	}
}

// batchlog.jsonl, case kill: two holders replay 64 s later.
func TestScenario_BatchlogReplay(t *testing.T) {
	inEachRelease(t, func(c *cell, again bool) {
		c.srv.Faults().MustAdd(faults.BatchlogReplay(62*time.Second, 62*time.Second))
		at := time.Now()
		c.wantWriteTimeout(c.batch(1, at), faults.Batch, 0, 1, at, 2*time.Second)
		c.at(63900 * time.Millisecond)
		c.wantRows(1, 0, at)
		c.at(64100 * time.Millisecond)
		c.wantRows(1, logRows(2, again), at)
		if err := c.batch(2, time.Now()); err != nil {
			t.Errorf("the next batch: %v", err)
		}
	})
}

// logRows returns how many log rows a batch has that was applied n times.
func logRows(n int, again bool) int {
	if again {
		return n
	}
	return min(n, 1)
}

// Case one: the frozen replica executes the write when it continues, and both holders
// replay it.
func TestScenario_BatchlogReplayAfterArrival(t *testing.T) {
	inEachRelease(t, func(c *cell, again bool) {
		c.srv.Faults().MustAdd(faults.BatchlogReplay(0, 18500*time.Millisecond, 47500*time.Millisecond))
		at := time.Now()
		c.wantWriteTimeout(c.batch(1, at), faults.Batch, 0, 1, at, 2*time.Second)
		c.at(3 * time.Second)
		c.wantRows(1, 1, at)
		c.at(21 * time.Second)
		c.wantRows(1, logRows(2, again), at)
		c.at(50 * time.Second)
		c.wantRows(1, logRows(3, again), at)
	})
}

// Case retry: the client repeats the batch with its timestamp.
func TestScenario_BatchlogReplayAndRetry(t *testing.T) {
	inEachRelease(t, func(c *cell, again bool) {
		c.srv.Faults().MustAdd(faults.BatchlogReplay(0, 20*time.Second, 50*time.Second))
		at := time.Now()
		if err := c.batch(1, at); err == nil {
			t.Fatal("the batch did not time out")
		}
		c.at(3 * time.Second)
		if err := c.batch(1, at); err != nil {
			t.Fatal(err)
		}
		c.wantRows(1, 2, at) // the client's own repetition is another write in every release
		c.at(time.Minute)
		c.wantRows(1, 1+logRows(3, again), at)
	})
}

// Case crash: the coordinator dies, and the batch is there all the same.
func TestScenario_CoordinatorCrash(t *testing.T) {
	inEachRelease(t, func(c *cell, again bool) {
		c.srv.Faults().MustAdd(faults.CoordinatorCrash(time.Second, 37*time.Second, 38*time.Second))
		at := time.Now()
		if err := c.batch(1, at); err == nil || cqlcode.Of(err) != cqlcode.None {
			t.Fatalf("error = %v, want a lost connection", err)
		}
		time.Sleep(30 * time.Second) // the driver connects again
		c.wantRows(1, 1, at)
		c.at(time.Minute)
		c.wantRows(1, logRows(3, again), at)
	})
}

// failures.jsonl: BATCH_LOG does not mean that the batch was not applied.
func TestScenario_BatchLogTimeout(t *testing.T) {
	inEachRelease(t, func(c *cell, again bool) {
		c.srv.Faults().MustAdd(faults.BatchLogTimeout(50*time.Second, 50*time.Second))
		c.srv.Faults().MustAdd(faults.BatchLogTimeout())
		first := time.Now()
		c.wantWriteTimeout(c.batch(1, first), faults.BatchLog, 0, 1, first, 2*time.Second)
		second := time.Now()
		c.wantWriteTimeout(c.batch(2, second), faults.BatchLog, 0, 1, second, 2*time.Second)
		c.at(2 * time.Minute)
		c.wantRows(1, logRows(2, again), first)
	})
}

// batchlog-generation.jsonl: after a generation change the replay of 5.1 fails for ever.
// That of 2026.1 writes the row of the closed stream, however late; with tablets (T9), too.
func TestScenario_BatchlogReplayAcrossGeneration(t *testing.T) {
	inEachRelease(t, func(c *cell, again bool) {
		c.srv.Faults().MustAdd(faults.BatchlogReplayAcrossGeneration(10*time.Second, time.Minute))
		at := time.Now()
		c.wantWriteTimeout(c.batch(1, at), faults.Batch, 0, 1, at, 2*time.Second)
		if c.srv.Schema().Keyspaces["ks"].Tablets {
			if _, err := c.srv.Faults().Node().Resize(faults.Resize{Keyspace: "ks", Table: "outbox", In: 10 * time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		c.at(3 * time.Minute)
		if again {
			c.wantRows(1, 0, at)
		} else {
			c.wantRows(1, 1, at)
			late := c.log()[0].stream
			if err := c.batch(1, time.Now()); err != nil {
				t.Fatal(err)
			}
			for _, r := range c.log() {
				if r.writetime != at.UnixMicro() && r.stream == late {
					t.Error("the late row is in the stream of the current generation")
				}
			}
		}
		// A table without CDC takes the same timestamp still.
		if err := c.s.Query("INSERT INTO ks.orders (k, v) VALUES (7, 7)").WithTimestamp(at.UnixMicro()).Exec(); err != nil {
			t.Error(err)
		}
	})
}

// D1 and E12: a conditional write that timed out may be decided, and becomes visible
// with the next conditional or SERIAL operation.
func TestScenario_CASTimeout(t *testing.T) {
	inBubble(t, func(c *cell) {
		// Not prepared: the driver would repeat a prepared conditional statement by
		// itself, and the second attempt succeeds.
		insert := func(k int) error {
			_, err := c.s.Query(fmt.Sprintf("INSERT INTO ks.ev (k, v) VALUES (%d, 1) IF NOT EXISTS", k)).MapScanCAS(map[string]any{})
			return err
		}
		c.srv.Faults().MustAdd(faults.CASTimeout(true))
		at := time.Now()
		c.wantWriteTimeout(insert(1), faults.CAS, 1, 2, at, 0)
		time.Sleep(time.Minute)
		if n, log := c.count("ks.ev"), c.count("ks.ev_scylla_cdc_log"); n != 0 || log != 0 {
			t.Errorf("%d rows and %d log rows before a SERIAL operation, want none", n, log)
		}
		var v int
		var written int64
		if err := c.s.Query("SELECT v, WRITETIME(v) FROM ks.ev WHERE k = 1").Consistency(gocql.Serial).Scan(&v, &written); err != nil || v != 1 {
			t.Errorf("v = %d, error %v; want 1", v, err)
		}
		if got := time.UnixMicro(written); got.Sub(at).Abs() > time.Second {
			t.Errorf("the row has time %v, want that of the first attempt, %v", got, at)
		}
		if n, log := c.count("ks.ev"), c.count("ks.ev_scylla_cdc_log"); n != 1 || log != 1 {
			t.Errorf("%d rows and %d log rows after it, want one each", n, log)
		}

		c.srv.Faults().MustAdd(faults.CASTimeout(false))
		at = time.Now()
		c.wantWriteTimeout(insert(2), faults.CAS, 1, 2, at, 2*time.Second)
		if err := c.s.Query("SELECT v FROM ks.ev WHERE k = 2").Consistency(gocql.Serial).Scan(&v); !errors.Is(err, gocql.ErrNotFound) {
			t.Errorf("v = %d, error %v; want nothing", v, err)
		}
	})
}

const earlierGeneration = "cdc: attempted to get a stream from an earlier generation"

// cas-generation.jsonl: an unfinished round blocks its partition after a
// generation change, until CDC is turned off and on again.
func TestScenario_CASAcrossGeneration(t *testing.T) {
	inBubble(t, func(c *cell) {
		c.srv.Faults().MustAdd(faults.CASAcrossGeneration(9 * time.Second))
		insert := `INSERT INTO ks.ev (k, v) VALUES (2, 1) IF NOT EXISTS`
		at := time.Now()
		_, err := c.s.Query(insert).MapScanCAS(map[string]any{})
		c.wantWriteTimeout(err, faults.CAS, 1, 2, at, 0)
		time.Sleep(11 * time.Second)

		serial := func() error {
			return c.s.Query("SELECT * FROM ks.ev WHERE k = 2").Consistency(gocql.Serial).Exec()
		}
		blocked := func(what string, err error) {
			t.Helper()
			if cqlcode.Of(err) != gocql.ErrCodeInvalid || !strings.HasPrefix(err.Error(), earlierGeneration) {
				t.Errorf("%s: %v, want 2200 %s", what, err, earlierGeneration)
			}
		}
		cas := func(text string) error {
			_, err := c.s.Query(text).MapScanCAS(map[string]any{})
			return err
		}
		blocked("SERIAL read", serial())
		blocked("conditional insert", cas(insert))
		blocked("conditional update", cas("UPDATE ks.ev SET v = 3 WHERE k = 2 IF EXISTS"))
		if err := cas("INSERT INTO ks.ev (k, v) VALUES (3, 2) IF NOT EXISTS"); err != nil {
			t.Errorf("another partition: %v", err)
		}
		exec(t, c.s, "INSERT INTO ks.ev (k, v) VALUES (2, 4)")
		var v int
		if err := c.s.Query("SELECT v FROM ks.ev WHERE k = 2").Scan(&v); err != nil || v != 4 {
			t.Errorf("plain read: v = %d, error %v; want 4", v, err)
		}
		blocked("SERIAL read after a plain write", serial())

		log := c.count("ks.ev_scylla_cdc_log")
		exec(t, c.s, "ALTER TABLE ks.ev WITH cdc = {'enabled': false}")
		if err := serial(); err != nil {
			t.Errorf("SERIAL read without CDC: %v", err)
		}
		exec(t, c.s, "ALTER TABLE ks.ev WITH cdc = {'enabled': true}")
		if err := serial(); err != nil {
			t.Errorf("SERIAL read with CDC again: %v", err)
		}
		if got := c.count("ks.ev_scylla_cdc_log"); got != log {
			t.Errorf("%d log rows, want %d: the old round is finished without one", got, log)
		}
		if err := cas("UPDATE ks.ev SET v = 6 WHERE k = 2 IF EXISTS"); err != nil {
			t.Error(err)
		}
	})
}

// F3 and cas-generation: the generation that a second node brings.
func TestScenario_GenerationSwitch(t *testing.T) {
	inBubble(t, func(c *cell) {
		f := c.srv.Faults()
		write := func(k int, at time.Time) error {
			return c.s.Query("INSERT INTO ks.ev (k, v) VALUES (?, 1)", k).WithTimestamp(at.UnixMicro()).Exec()
		}
		refused := func(err error, prefix string) {
			t.Helper()
			if cqlcode.Of(err) == cqlcode.None || !strings.HasPrefix(err.Error(), prefix) {
				t.Errorf("error = %v, want %q", err, prefix)
			}
		}
		streamOf := func(k int) string {
			t.Helper()
			var id []byte
			if err := c.s.Query(`SELECT "cdc$stream_id" FROM ks.ev_scylla_cdc_log WHERE k = ? ALLOW FILTERING`, k).Scan(&id); err != nil {
				t.Fatal(err)
			}
			return string(id)
		}
		streams := func(g time.Time) map[string]bool {
			t.Helper()
			set := map[string]bool{}
			var ids [][]byte
			it := c.s.Query("SELECT streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?", g).Iter()
			for it.Scan(&ids) {
				for _, id := range ids {
					set[string(id)] = true
				}
			}
			if err := it.Close(); err != nil {
				t.Fatal(err)
			}
			return set
		}

		start, err := f.Node().NewGeneration(faults.Generation{ExtraTokens: 4})
		if err != nil {
			t.Fatal(err)
		}
		if in := time.Until(start).Round(10 * time.Millisecond); in != 9*time.Second {
			t.Errorf("the generation starts in %v, want 9 s: twice the ring delay and 5 s", in)
		}
		gens := c.srv.Topology().Generations()
		old, next := streams(gens[0].Start()), streams(gens[1].Start())
		if len(old) != 4 || len(next) != 8 {
			t.Errorf("%d and %d streams, want 4 and 8", len(old), len(next))
		}
		refused(write(102, start.Add(-time.Microsecond)), `cdc: attempted to get a stream "from the future"`)
		if err := write(101, time.Now()); err != nil || !old[streamOf(101)] {
			t.Errorf("a write now: %v", err)
		}
		time.Sleep(time.Until(start) - 2*time.Second)
		for k, at := range map[int]time.Time{111: time.Now(), 112: start.Add(-time.Microsecond)} {
			if err := write(k, at); err != nil || !old[streamOf(k)] {
				t.Errorf("write %d before the switch: %v, or not to an old stream", k, err)
			}
		}
		for k, at := range map[int]time.Time{113: start, 114: start.Add(time.Second)} {
			if err := write(k, at); err != nil || !next[streamOf(k)] {
				t.Errorf("write %d for after the switch: %v, or not to a new stream", k, err)
			}
		}
		time.Sleep(time.Until(start) + 50*time.Millisecond)
		refused(write(122, start.Add(-time.Microsecond)), earlierGeneration)
		refused(write(123, start.Add(-3*time.Second)), earlierGeneration)
		for k, at := range map[int]time.Time{121: time.Now(), 124: start} {
			if err := write(k, at); err != nil || !next[streamOf(k)] {
				t.Errorf("write %d after the switch: %v, or not to a new stream", k, err)
			}
		}
	})
}

// A node whose clock is behind refuses the writes of its clients; one that is ahead
// makes them write into an earlier generation.
func TestFaults_ClockSkew(t *testing.T) {
	inBubble(t, func(c *cell) {
		f := c.srv.Faults()
		f.Clock().SetSkew(-10 * time.Second)
		err := c.s.Query("INSERT INTO ks.ev (k, v) VALUES (1, 1)").Exec()
		if err == nil || !strings.Contains(err.Error(), "from the future") {
			t.Errorf("error = %v, want a timestamp from the future", err)
		}
		f.Clock().SetSkew(0)
		exec(t, c.s, "INSERT INTO ks.ev (k, v) VALUES (1, 1)")
	})
}

// Plain rules: refusals, delays, failed reads, lost connections, frozen node.
func TestFaults_Rules(t *testing.T) {
	inBubble(t, func(c *cell) {
		f := c.srv.Faults()
		onOrders := func(kind engine.OpKind) faults.Match {
			return faults.Match{Keyspace: "ks", Table: "orders", Kinds: []engine.OpKind{kind}}
		}
		insert := func() error { return c.s.Query("INSERT INTO ks.orders (k, v) VALUES (1, 1)").Exec() }
		read := func() error { return c.s.Query("SELECT v FROM ks.orders WHERE k = 1").Exec() }

		f.MustAdd(faults.Rule{Match: onOrders(engine.OpWrite), Count: 1, Effect: faults.Effect{Failure: faults.Refuse(cqlerr.Overloaded, "busy")}})
		if err := insert(); cqlcode.Of(err) != gocql.ErrCodeOverloaded || !strings.HasPrefix(err.Error(), "busy") {
			t.Errorf("error = %v, want 1001 busy", err)
		}
		if n := c.count("ks.orders"); n != 0 {
			t.Errorf("%d rows after a refusal", n)
		}
		f.MustAdd(faults.Rule{Match: onOrders(engine.OpWrite), Count: 1, Effect: faults.Effect{
			Failure: faults.WriteTimeout("", 1, 2), Fate: engine.FateApply,
		}})
		c.wantWriteTimeout(insert(), faults.Simple, 1, 2, time.Now(), 0)
		if n := c.count("ks.orders"); n != 1 {
			t.Errorf("%d rows, want one: the write was applied", n)
		}
		f.MustAdd(faults.Rule{Match: onOrders(engine.OpRead), Count: 1, Effect: faults.Effect{Delay: 7 * time.Second}})
		at := time.Now()
		if err := read(); err != nil || time.Since(at).Round(20*time.Millisecond) != 7*time.Second {
			t.Errorf("read: %v after %v, want 7 s", err, time.Since(at))
		}
		f.Freeze()
		time.AfterFunc(20*time.Second, f.Thaw)
		at = time.Now()
		if err := read(); err != nil || time.Since(at).Round(20*time.Millisecond) != 20*time.Second {
			t.Errorf("read of a frozen node: %v after %v, want 20 s", err, time.Since(at))
		}
		f.MustAdd(faults.Rule{Match: onOrders(engine.OpRead), Count: 1, Effect: faults.Effect{Disconnect: true}})
		if err := read(); err == nil || cqlcode.Of(err) != cqlcode.None {
			t.Errorf("error = %v, want a lost connection", err)
		}
		time.Sleep(time.Minute)
		if err := read(); err != nil {
			t.Errorf("after the driver connected again: %v", err)
		}
		f.MustAdd(faults.Rule{Match: faults.Match{Kinds: []engine.OpKind{engine.OpCAS}}, Count: 1, Effect: faults.Effect{Disconnect: true}})
		if _, err := c.s.Query("INSERT INTO ks.orders (k, v) VALUES (9, 1) IF NOT EXISTS").MapScanCAS(map[string]any{}); err == nil {
			t.Error("a conditional write is answered on a lost connection")
		}
		time.Sleep(time.Minute)
		if n := c.count("ks.orders"); n != 1 {
			t.Errorf("%d rows, want one: nothing comes of the conditional write", n)
		}
	})
}
