package relay

import (
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// readCounts counts reads by table.
type readCounts struct {
	mu      sync.Mutex
	byTable map[string]int
}

// countReads counts the reads of the database from now on.
func (w *world) countReads() *readCounts {
	r := &readCounts{byTable: make(map[string]int)}
	count := func(op engine.Op) (v engine.Verdict, ok bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.byTable[op.Keyspace+"."+op.Table]++
		return v, false
	}
	w.db.Faults().MustAdd(faults.Rule{Match: faults.Match{Kinds: []engine.OpKind{engine.OpRead}}, Effect: faults.Effect{Decide: count}})
	return r
}

// take returns the numbers since the last call.
func (r *readCounts) take() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := maps.Clone(r.byTable)
	clear(r.byTable)
	return out
}

// A relay without new events reads what changes rarely as often as idle streams, and the
// columns of its table only after another part of the table's schema has changed.
func TestRelay_IdleReads(t *testing.T) {
	t.Parallel()
	for _, v := range scyllatest.Versions {
		for _, idle := range []time.Duration{time.Second, time.Minute} {
			t.Run(v.Name+"/"+idle.String(), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, v.Config, func(c *Config) {
						c.ConfidenceWindow, c.IdleDelay, c.TailMaxInterval = Defaults().ConfidenceWindow, idle, idle
						c.GenerationDelay, c.ReplayPoll = idle, idle
					})
					defer w.close()
					r, stop := w.run()
					time.Sleep(5 * time.Minute)
					counted := w.countReads()
					const hour = 3600
					time.Sleep(hour * time.Second)
					watched := hour / max(5, int(idle.Seconds()))
					checkedTable := hour / min(30, max(5, int(idle.Seconds())))
					const minutely = 60 // of the check of quiet streams
					limits := map[string]int{
						"system_schema.tables": checkedTable + minutely, "system_schema.columns": 0,
						"system.local": watched, "outbox.relay_repairs": watched,
					}
					got := counted.take()
					perReader := hour / int(idle.Seconds())
					generations := "system.cdc_timestamps"
					if v.Config.Vnodes || v.Config.Version != "" {
						generations = "system_distributed.cdc_generation_timestamps"
					} else {
						limits["system.peers"] = perReader // only the library's
					}
					limits[generations] = 2*perReader + minutely
					for table, limit := range limits {
						if n := got[table]; n > limit+limit/20+1 { // the library's queries are not evenly spread
							t.Errorf("%d reads of %s in an hour without events, want at most %d", n, table, limit)
						}
						if n := got[table]; n < limit/2 {
							t.Errorf("%d reads of %s in an hour, want about %d", n, table, limit)
						}
					}

					w.exec("ALTER TABLE outbox.outbox_messages ADD note text")
					time.Sleep(2 * time.Minute)
					if n := counted.take()["system_schema.columns"]; n == 0 {
						t.Error("the columns were not read after the table was altered")
					}
					if p := r.Status().Problems; len(p) != 0 {
						t.Errorf("problems = %q, want none", p)
					}
					if err := stop(); err != nil {
						t.Errorf("Run() error = %v", err)
					}
				})
			})
		}
	}
}

// The columns are read again until all nodes know the schema of the table.
func TestSeenColumns_Outdated(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_000_000, 0)
	before, after := cdclog.TableInfo{Altered: start}, cdclog.TableInfo{Altered: start.Add(time.Minute)}
	var s seenColumns
	for _, step := range []struct {
		at    time.Duration
		facts cdclog.TableInfo
		want  bool
	}{
		{0, before, true}, // never read
		{5 * time.Second, before, true},
		{10 * time.Second, before, true},
		{15 * time.Second, before, false},
		{time.Hour, before, false},
		{time.Hour + 30*time.Second, after, true},
		{time.Hour + 60*time.Second, after, true}, // the node asked 30 s ago may not have known it
		{time.Hour + 90*time.Second, after, false},
		{time.Hour + 95*time.Second, before, true}, // of a node that is behind
		{time.Hour + 96*time.Second, after, true},
		{time.Hour + 110*time.Second, after, true},
		{time.Hour + 115*time.Second, after, false},
	} {
		now := start.Add(step.at)
		got := s.outdated(step.facts, now)
		if got != step.want {
			t.Errorf("after %s: outdated() = %t, want %t", step.at, got, step.want)
		}
		if got {
			s.read = now
		}
	}
}

// Intervals follow that of idle streams where no promise depends on them.
func TestConfig_WatchIntervals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ idle, window, clock, table time.Duration }{
		{Defaults().IdleDelay, Defaults().ConfidenceWindow, 5 * time.Second, 5 * time.Second},
		{200 * time.Millisecond, Defaults().ConfidenceWindow, 5 * time.Second, 5 * time.Second},
		{200 * time.Millisecond, 3 * time.Second, 5 * time.Second, 750 * time.Millisecond},
		{time.Minute, Defaults().ConfidenceWindow, time.Minute, 30 * time.Second},
		{time.Minute, time.Hour, time.Minute, time.Minute},
	} {
		var conf Config
		conf.IdleDelay, conf.ConfidenceWindow = c.idle, c.window
		if clock, table := conf.watchInterval(), conf.tableInterval(); clock != c.clock || table != c.table {
			t.Errorf("idle delay %s, window %s: the clock is measured each %s and the table checked each %s, want %s and %s",
				c.idle, c.window, clock, table, c.clock, c.table)
		}
	}
}
