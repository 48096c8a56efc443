package schedule

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A due message that cannot be released is reported as overdue until it is
// released.
func TestScheduler_ReportsOverdueMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	m := message(now.Add(-90 * time.Second))
	b.put(t, now.Add(-time.Hour), m)
	b.Node.Faults().MustAdd(faults.Rule{Match: faults.Match{Table: "outbox_messages", Kinds: []engine.OpKind{engine.OpWrite, engine.OpUnloggedBatch}}, Effect: faults.Effect{Failure: faults.WriteTimeout("", 0, 1)}})
	reg := prometheus.NewRegistry()
	stop := world.Run(t, b.scheduler(t, func(c *Config) { c.Registerer = reg }).Run)
	defer stop()
	overdue := func() float64 { return gauge(t, reg, "outbox_schedule_overdue_seconds") }
	world.Eventually(t, "it is overdue", func() bool { return overdue() >= 90 })
	b.Node.Faults().Clear()
	world.Eventually(t, "the message is released", func() bool { return b.count(t, "outbox_messages") == 1 })
	world.Eventually(t, "no message is overdue", func() bool { return overdue() == 0 })
}

// gauge returns the value of a gauge.
func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// While the database is unavailable, a message in memory counts as overdue,
// also after the end of the lease: it is not known to be released.
func TestScheduler_StaysOverdueWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	b.put(t, now.Add(-time.Hour), message(now.Add(-90*time.Second)))
	b.Node.Faults().MustAdd(faults.Rule{Match: faults.Match{Table: "outbox_messages", Kinds: []engine.OpKind{engine.OpWrite, engine.OpUnloggedBatch}}, Effect: faults.Effect{Failure: faults.WriteTimeout("", 0, 1)}})
	reg := prometheus.NewRegistry()
	s := b.scheduler(t, func(c *Config) { c.Registerer, c.Lease = reg, 3*time.Second })
	stop := world.Run(t, s.Run)
	defer stop()
	world.Eventually(t, "it is overdue", func() bool { return gauge(t, reg, "outbox_schedule_overdue_seconds") >= 90 })
	b.Node.Faults().MustAdd(faults.Rule{Effect: faults.Effect{Failure: faults.Unavailable(0, 1)}})
	least := gauge(t, reg, "outbox_schedule_overdue_seconds")
	for gone := false; !gone; time.Sleep(5 * time.Millisecond) {
		gone = !s.working()
		if got := gauge(t, reg, "outbox_schedule_overdue_seconds"); got < least {
			t.Fatalf("%v s overdue while the database is away, and %v before", got, least)
		}
	}
	world.Eventually(t, "memory is empty", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.known) == 0 })
	if got := gauge(t, reg, "outbox_schedule_overdue_seconds"); !(got >= least) {
		t.Errorf("%v s overdue when the lease has ended, and %v before", got, least)
	}
	b.Node.Faults().Clear()
	world.Eventually(t, "the message is released", func() bool { return b.count(t, "outbox_messages") == 1 })
	world.Eventually(t, "no message is overdue", func() bool { return gauge(t, reg, "outbox_schedule_overdue_seconds") == 0 })
}

// Unknown is not reported as zero.
func TestScheduler_DoesNotKnowWhatIsOverdue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	reg := prometheus.NewRegistry()
	s := b.scheduler(t, func(c *Config) { c.Registerer, c.Lease = reg, 3*time.Second })
	if got := gauge(t, reg, "outbox_schedule_overdue_seconds"); !math.IsNaN(got) {
		t.Errorf("%v s overdue before the first scan", got)
	}
	stop := world.Run(t, s.Run)
	defer stop()
	world.Eventually(t, "no message is overdue", func() bool { return gauge(t, reg, "outbox_schedule_overdue_seconds") == 0 })
	b.Node.Faults().MustAdd(faults.Rule{Effect: faults.Effect{Failure: faults.Unavailable(0, 1)}})
	world.Eventually(t, "the value is unknown", func() bool { return math.IsNaN(gauge(t, reg, "outbox_schedule_overdue_seconds")) })
	world.Eventually(t, "the lease is over", func() bool { return !s.working() })
	if got := gauge(t, reg, "outbox_schedule_overdue_seconds"); !math.IsNaN(got) {
		t.Errorf("%v s overdue without a lease and a database", got)
	}
	b.Node.Faults().Clear()
	world.Eventually(t, "no message is overdue", func() bool { return gauge(t, reg, "outbox_schedule_overdue_seconds") == 0 })
}

// After failed scans the value is unknown until all due messages are read:
// messages that became due in the meantime are released immediately and not
// reported as released before.
func TestScheduler_LooksAtEverythingAfterAFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	reg := prometheus.NewRegistry()
	defer world.Run(t, b.scheduler(t, func(c *Config) { c.Registerer, c.Sweep = reg, time.Hour }).Run)()
	overdue := func() float64 { return gauge(t, reg, "outbox_schedule_overdue_seconds") }
	world.Eventually(t, "no message is overdue", func() bool { return overdue() == 0 })
	b.Node.Faults().MustAdd(faults.Rule{Match: faults.Match{Table: "schedule_buckets", Kinds: []engine.OpKind{engine.OpRead}}, Effect: faults.Effect{Failure: faults.Unavailable(0, 1)}})
	world.Eventually(t, "the value is unknown", func() bool { return math.IsNaN(overdue()) })
	now := time.Now()
	b.put(t, now.Add(-time.Hour), message(now.Add(-90*time.Second)))
	b.Node.Faults().Clear()
	world.Eventually(t, "the message is released", func() bool {
		none := overdue() == 0
		out := b.count(t, "outbox_messages") == 1
		if none && !out {
			t.Fatal("no message counts as overdue, and the message is not released")
		}
		return out
	})
}

// A standby reports no overdue messages; the holder of the lease does.
func TestScheduler_StandbyReportsNothingOverdue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	defer world.Run(t, b.scheduler(t).Run)()
	world.Eventually(t, "one works", func() bool { return b.count(t, "schedule_leases") == 1 })
	reg := prometheus.NewRegistry()
	defer world.Run(t, b.scheduler(t, func(c *Config) { c.Registerer = reg }).Run)()
	world.Eventually(t, "it is a standby", func() bool { return gauge(t, reg, "outbox_schedule_overdue_seconds") == 0 })
}
