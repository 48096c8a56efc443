package schedule

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/faults"
)

// What is due and cannot go out is told as overdue, until it is out.
func TestScheduler_TellsWhatIsOverdue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	m := message(now.Add(-90 * time.Second))
	b.put(t, now.Add(-time.Hour), m)
	b.node.Faults().MustAdd(faults.Rule{Match: faults.Match{Table: "outbox_messages", Kinds: []engine.OpKind{engine.OpWrite, engine.OpUnloggedBatch}}, Effect: faults.Effect{Failure: faults.WriteTimeout("", 0, 1)}})
	reg := prometheus.NewRegistry()
	stop := start(t, b.scheduler(t, func(c *Config) { c.Registerer = reg }))
	defer stop()
	overdue := func() float64 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "schedule_overdue_seconds" {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		t.Fatal("there is no such metric")
		return 0
	}
	eventually(t, "it is overdue", func() bool { return overdue() >= 90 })
	b.node.Faults().Clear()
	eventually(t, "it goes out", func() bool { return b.count(t, "outbox_messages") == 1 })
	eventually(t, "nothing is overdue", func() bool { return overdue() == 0 })
}
