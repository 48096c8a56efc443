package react

import (
	"context"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

// report returns the last report of a rule.
func (m *memory) report(rule string) delivery.Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.reports {
		if r.Rule == rule {
			return r
		}
	}
	return delivery.Report{}
}

// The report contains each rule, its waiting events, its last failure, and
// whether it was stopped. A database that accepts no reports does not affect
// deliveries.
func TestReactor_ReportsProgress(t *testing.T) {
	inBubble(t, func(b *bundle) {
		hold := make(chan struct{})
		plugins := map[string]Plugin{"p": Func(func(_ context.Context, e Event) error {
			if e.Headers["name"] == "bad" {
				return Permanent(errTest)
			}
			if e.Headers["name"] == "slow" {
				<-hold
			}
			return nil
		})}
		r := b.start(plugins, []Rule{
			{Name: "r", Topics: []string{"a"}, When: "data.n >= 0", To: "p", Timeout: time.Minute},
			{Name: "told", Topics: []string{"b"}, To: "hook"},
		}, func(c *Config) {
			c.Instance = "me"
			c.Targets = map[string]notify.Target{"hook": notify.TargetFunc(func(context.Context, notify.Message) error { return nil })}
		})
		b.produce("a", "bad", "x", "Made", `{"n":1}`)
		b.produce("a", "slow", "y", "Made", `{"n":2}`)
		b.sleep(10 * time.Second)
		got := b.store.report("r")
		if got.Instance != "me" || got.Plugin != "p" || got.Kind != "plugin" || got.When != "data.n >= 0" || got.TimeoutSeconds != 60 || got.Topics[0] != "a" {
			t.Errorf("report = %+v", got)
		}
		if got.State != delivery.Running || got.Partitions != testPartitions || got.Waiting != 1 || got.UnderWay != 1 || got.OldestSeconds < 5 || got.OldestSeconds > 10 {
			t.Errorf("progress = %+v", got.Progress)
		}
		if got.Records != 2 || got.Delivered != 0 || got.Failed != 1 || got.Errors != 1 || got.LastError != "no luck" || got.LastErrorAt == nil {
			t.Errorf("it counts %+v", got.Progress)
		}
		if told := b.store.report("told"); told.Kind != "target" || told.State != delivery.Running {
			t.Errorf("report of the other rule = %+v", told)
		}
		b.store.fail(errTest)
		close(hold)
		b.sleep(5 * time.Second)
		b.store.fail(nil)
		b.sleep(30 * time.Second)
		if got = b.store.report("r"); got.Delivered != 1 || got.Waiting != 0 || got.OldestSeconds != 0 {
			t.Errorf("progress after the outage = %+v", got.Progress)
		}
		r.stop()
		if got = b.store.report("r"); got.State != delivery.Stopped {
			t.Errorf("state after the stop = %s", got.State)
		}
		// Each attempt is stored with its time and its error.
		for _, d := range b.store.rows {
			want := delivery.Try{TookMS: d.Tries[0].TookMS, At: d.Tries[0].At}
			if d.State == delivery.Failed {
				want.Error = "no luck"
			}
			if len(d.Tries) != 1 || d.Tries[0] != want || d.Plugin != "p" || (d.State == delivery.Delivered) != (d.Tries[0].TookMS >= 9000) {
				t.Errorf("a delivery is stored as %+v", d)
			}
		}
	})
}
