package relay

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/scylla-outbox/scylla-outbox/outbox/hint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/hints"
)

func TestShard_NamesItself(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		shard        Shard
		string, name string
	}{
		{Shard{}, "", "outbox"},
		{Shard{Index: 0, Count: 1}, "00-of-01", "outbox/00-of-01"},
		{Shard{Index: 3, Count: 16}, "03-of-16", "outbox/03-of-16"},
		{Shard{Index: 999, Count: 1000}, "999-of-1000", "outbox/999-of-1000"},
	} {
		if got := tt.shard.String(); got != tt.string {
			t.Errorf("%+v is %q, want %q", tt.shard, got, tt.string)
		}
		if got := tt.shard.Name("outbox"); got != tt.name {
			t.Errorf("%+v has the name %q, want %q", tt.shard, got, tt.name)
		}
	}
}

func TestConfig_RefusesShardsThatThereAreNot(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		shard cdclog.Shard
		want  string
	}{
		{Shard{}, ""},
		{Shard{Index: 15, Count: 16}, ""},
		{Shard{Index: 16, Count: 16}, "Shard.Index 16 is not between 0 and 15: Shard.Count is 16"},
		{Shard{Index: -1, Count: 16}, "Shard.Index -1 is not"},
		{Shard{Index: 1, Count: 0}, "Shard.Index 1 is not between 0 and 0"},
		{Shard{Index: 0, Count: -1}, "Shard.Count -1 is not between 1 and 1024"},
		{Shard{Index: 0, Count: cdclog.MaxShards + 1}, "Shard.Count 1025 is not"},
	} {
		err := Config{Shard: tt.shard}.withDefaults().validate() // much else is missing
		if got := err.Error(); (tt.want == "") == strings.Contains(got, "Shard.") || !strings.Contains(got, tt.want) {
			t.Errorf("validate() with %+v: %v, want %q", tt.shard, err, tt.want)
		}
	}
}

// A shard has its part of the limits of the whole relay, and at least the minimum that it needs.
func TestConfig_LeavesAShardItsShare(t *testing.T) {
	t.Parallel()
	whole := Config{}.withDefaults()
	same := whole
	same.Shard = Shard{Index: 0, Count: 1}
	same.onlyShare()
	if same.MaxInFlightRecords != whole.MaxInFlightRecords || same.ReplayRate != whole.ReplayRate {
		t.Error("one shard of one has less than the whole relay")
	}
	c := whole
	c.Shard, c.SpillLimit = Shard{Index: 2, Count: 4}, -1
	c.onlyShare()
	if c.MaxInFlightRecords != 2500 || c.MaxInFlightBytes != 16<<20 || c.MaxAggregates != 125_000 || c.DedupMemory != 32<<20 ||
		c.ReplayConcurrency != 32 || c.ReplayRate != 500 || c.BackfillRowsPerSecond != 1250 || c.TailMaxQueriesPerSecond != 250 || c.SpillLimit != -1 {
		t.Errorf("a quarter is %+v", c)
	}
	c = whole
	c.Shard = Shard{Index: 0, Count: 1000}
	c.onlyShare()
	if c.MaxInFlightRecords != 100 || c.MaxInFlightBytes != int64(c.MaxRecordBytes) || c.ReplayConcurrency != 4 || c.TailMaxQueriesPerSecond != 50 {
		t.Errorf("a thousandth is %+v", c)
	}
	c = whole
	c.Shard, c.Process = Shard{Index: 2, Count: 4}, new(Process)
	c.onlyShare()
	if c.MaxAggregates != whole.MaxAggregates || c.DedupMemory != whole.DedupMemory || c.TailMaxQueriesPerSecond != whole.TailMaxQueriesPerSecond || c.SpillLimit != whole.SpillLimit/4 {
		t.Errorf("a quarter whose process divides its limits is %+v", c)
	}
}

// The tail readers of a process share its queries, down to what each needs.
func TestProcess_LimitsTheQueriesOfItsTailReaders(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		queries float64
		want    map[int]float64 // by shards
	}{
		{1000, map[int]float64{1: 1000, 2: 1000, 20: 1000, 21: 1050, 40: 2000}},
		{30, map[int]float64{1: 30, 2: 30, 40: 30}},
	} {
		process, places := new(Process), make([]*placement, 40)
		for i := range places {
			c := Config{Process: process}
			c.TailMaxQueriesPerSecond = x.queries
			c = c.withDefaults()
			places[i] = c.place()
			if got := c.capture().TailLimiter; got != process.tail {
				t.Fatalf("shard %d has a limiter of its own", i)
			}
		}
		check := func(n int) {
			t.Helper()
			if want, ok := x.want[n]; ok && float64(process.tail.Limit()) != want {
				t.Errorf("%v queries/s, %d shards: %v, want %v", x.queries, n, process.tail.Limit(), want)
			}
		}
		for i, p := range places {
			p.join()
			check(i + 1)
		}
		for i, p := range places {
			p.leave()
			check(len(places) - i - 1)
		}
	}
	one, other := Config{Settings: Settings{Name: "one"}}.withDefaults(), Config{Settings: Settings{Name: "other"}}.withDefaults()
	if one.capture().TailLimiter == other.capture().TailLimiter {
		t.Error("relays without a process share queries")
	}
}

// The shard may come back to its process.
func TestShardMetrics_LeaveWithTheirRelay(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	for range 2 {
		m := newShardMetrics(reg, Shard{Index: 3, Count: 16})
		newMetrics(m)
		other := newShardMetrics(reg, Shard{Index: 4, Count: 16})
		newMetrics(other)
		for _, m := range []*shardMetrics{m, other} {
			if err := m.register(); err != nil {
				t.Fatal(err)
			}
			// The first run makes it, when it takes hints.
			if _, err := hints.NewReceiver(make([]byte, hint.MinKey), m, func([]int64) {}); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := testutil.GatherAndCount(reg, "outbox_relay_hint_datagrams_total"); err != nil || n == 0 {
			t.Errorf("%d metrics of hints, %v; want those of both shards", n, err)
		}
		twin := newShardMetrics(reg, Shard{Index: 3, Count: 16})
		newMetrics(twin)
		if err := twin.register(); err == nil || !strings.Contains(err.Error(), "another relay of this process") {
			t.Errorf("register() of a shard that is carried = %v", err)
		}
		all, err := reg.Gather()
		if err != nil || len(all) == 0 {
			t.Fatalf("Gather() = %d metrics, %v", len(all), err)
		}
		for _, f := range all {
			for _, one := range f.GetMetric() {
				labelled := false
				for _, l := range one.GetLabel() {
					labelled = labelled || l.GetName() == "shard" && (l.GetValue() == "3" || l.GetValue() == "4")
				}
				if !labelled {
					t.Errorf("%s does not say its shard", f.GetName())
				}
			}
		}
		m.unregister()
		other.unregister()
	}
	if all, _ := reg.Gather(); len(all) != 0 {
		t.Errorf("%d metrics are left", len(all))
	}
}
