package relay

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/hint"
)

func TestShard_NamesItself(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		shard        Shard
		string, name string
	}{
		{Shard{}, "", "outbox"},
		{Shard{0, 1}, "00-of-01", "outbox/00-of-01"},
		{Shard{3, 16}, "03-of-16", "outbox/03-of-16"},
		{Shard{999, 1000}, "999-of-1000", "outbox/999-of-1000"},
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
		shard Shard
		want  string
	}{
		{Shard{}, ""},
		{Shard{15, 16}, ""},
		{Shard{16, 16}, "Shard.Index 16 is not between 0 and 15: Shard.Count is 16"},
		{Shard{-1, 16}, "Shard.Index -1 is not"},
		{Shard{1, 0}, "Shard.Index 1 is not between 0 and 0"},
		{Shard{0, -1}, "Shard.Count -1 is not between 1 and 1024"},
		{Shard{0, MaxShards + 1}, "Shard.Count 1025 is not"},
	} {
		err := Config{Shard: tt.shard}.withDefaults().validate() // much else is missing
		if got := err.Error(); (tt.want == "") == strings.Contains(got, "Shard.") || !strings.Contains(got, tt.want) {
			t.Errorf("validate() with %+v: %v, want %q", tt.shard, err, tt.want)
		}
	}
}

// A shard has its part of what bounds the whole relay, and at least what it needs.
func TestConfig_LeavesAShardItsShare(t *testing.T) {
	t.Parallel()
	whole := Config{}.withDefaults()
	same := whole
	same.Shard = Shard{0, 1}
	same.onlyShare()
	if same.MaxInFlightRecords != whole.MaxInFlightRecords || same.ReplayRate != whole.ReplayRate {
		t.Error("one shard of one has less than the whole relay")
	}
	c := whole
	c.Shard, c.SpillLimit = Shard{2, 4}, -1
	c.onlyShare()
	if c.MaxInFlightRecords != 2500 || c.MaxInFlightBytes != 16<<20 || c.MaxAggregates != 125_000 || c.MaxRememberedEvents != 250_000 ||
		c.ReplayConcurrency != 32 || c.ReplayRate != 500 || c.BackfillRowsPerSecond != 1250 || c.TailMaxQueriesPerSecond != 250 || c.SpillLimit != -1 {
		t.Errorf("a quarter is %+v", c)
	}
	c = whole
	c.Shard = Shard{0, 1000}
	c.onlyShare()
	if c.MaxInFlightRecords != 100 || c.MaxInFlightBytes != int64(c.MaxRecordBytes) || c.ReplayConcurrency != 4 || c.TailMaxQueriesPerSecond != 50 {
		t.Errorf("a thousandth is %+v", c)
	}
}

// Each token is of one shard, whatever their number.
func TestPortion_EachTokenHasOneShard(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, count := range []int{1, 2, 3, 16, 1000, MaxShards} {
		tokens := []int64{math.MinInt64 + 1, -1, 0, 1, math.MaxInt64}
		for range 200 {
			tokens = append(tokens, int64(rnd.Uint64()|1))
		}
		for n := range count {
			a := ring.part(n, count)
			tokens = append(tokens, a.after+1, a.upTo)
		}
		found := make([]int, len(tokens))
		for n := range count {
			p := portionOf(Shard{n, count}, outbox.DefaultTable)
			for i, token := range tokens {
				if p.token(token) {
					found[i]++
				}
			}
		}
		for i, n := range found {
			if n != 1 {
				t.Errorf("token %d is of %d shards of %d", tokens[i], n, count)
			}
		}
	}
}

// Whatever says which aggregate it is about says the same of its shard.
func TestPortion_AgreesOnAnAggregate(t *testing.T) {
	t.Parallel()
	for n := range 100 {
		e := event(n, 1, "x")
		var in []int
		for i := range 5 {
			p := portionOf(Shard{i, 5}, outbox.DefaultTable)
			text := e.AggregateString()
			got := p.plain(e.AggregateID)
			if p.key(e.AggregateID[:]) != got || p.subject([]byte(text)) != got || p.text(text) != got || p.token(hint.Token(e.AggregateID)) != got {
				t.Errorf("shard %d does not agree with itself on aggregate %s", i, text)
			}
			if got {
				in = append(in, i)
			}
		}
		if len(in) != 1 {
			t.Errorf("aggregate %s is of the shards %v", e.AggregateID, in)
		}
	}
	var whole *portion
	if !whole.all() || whole.none() || !whole.token(0) || !whole.text("x") {
		t.Error("no portion is not all")
	}
}

// The shard may come back to its process.
func TestShardMetrics_LeaveWithTheirRelay(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	for range 2 {
		m := newShardMetrics(reg, Shard{3, 16})
		newMetrics(m)
		other := newShardMetrics(reg, Shard{4, 16})
		newMetrics(other)
		for _, m := range []*shardMetrics{m, other} {
			if err := m.register(); err != nil {
				t.Fatal(err)
			}
			// The first run makes it, when it takes hints.
			if _, err := hint.NewReceiver(make([]byte, hint.MinKey), m, func([]int64) {}); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := testutil.GatherAndCount(reg, "outbox_relay_hint_datagrams_total"); err != nil || n == 0 {
			t.Errorf("%d metrics of hints, %v; want those of both shards", n, err)
		}
		twin := newShardMetrics(reg, Shard{3, 16})
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
					labelled = labelled || l.GetName() == "shard" && (l.GetValue() == "03-of-16" || l.GetValue() == "04-of-16")
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

// Read-back keeps nothing of what other shards published, and does not wait for
// them to be quiet.
func TestShards_ReadBackTheirOwn(t *testing.T) {
	t.Parallel()
	found := 0
	for i := range 3 {
		p := portionOf(Shard{i, 3}, outbox.DefaultTable)
		s := newBatchScanner("test")
		s.owns = []*portion{&p}
		for n := range 30 {
			e := event(n, 1, "x")
			_, err := s.scan(batchOf(0, e), 0, func(got topicEvent) {
				found++
				if got.aggregate != e.AggregateID || !p.plain(e.AggregateID) {
					t.Errorf("shard %d found aggregate %s", i, got.aggregate)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if found != 30 {
		t.Errorf("%d events were found by all shards, want 30", found)
	}
}

// noGenerations cannot tell which streams there are.
type noGenerations struct {
	generationSource
	asked int
}

func (n *noGenerations) generation(context.Context, time.Time) (*generation, error) {
	n.asked++
	return nil, errors.New("the database is away")
}

// Where it cannot be told which streams have nothing of a shard, none is passed over;
// and the whole table is not asked about.
func TestSkippedStreams_SkipNothingUnknown(t *testing.T) {
	t.Parallel()
	source := &noGenerations{}
	p := portionOf(Shard{1, 3}, outbox.DefaultTable)
	s := &skippedStreams{own: &p, generations: source, log: testLogger(t)}
	gen := testStart
	for try := range skipTries - 1 {
		if err := s.choose(t.Context(), gen); err == nil {
			t.Fatalf("choose() gives up after %d tries", try+1)
		}
	}
	if err := s.choose(t.Context(), gen); err != nil || s.has([]byte("stream")) {
		t.Errorf("choose() = %v, has() = %t, want a reader of all streams", err, s.has([]byte("stream")))
	}
	s.kept = &generation{} // of a generation before
	for s.choose(t.Context(), gen) != nil {
	}
	if s.has([]byte("stream")) {
		t.Error("streams are passed over because of another generation's")
	}
	source.asked = 0
	whole := &skippedStreams{own: &portion{arc: ring}, generations: source}
	if err := whole.choose(t.Context(), gen); err != nil || source.asked > 0 || whole.has([]byte("stream")) {
		t.Errorf("the whole table: %v, asked %d times", err, source.asked)
	}
}

// Passing over what is others' costs no allocation, in the tail and in read-back.
func TestPortion_AllocatesNothing(t *testing.T) {
	p := portionOf(Shard{1, 3}, outbox.DefaultTable)
	e := event(1, 1, "x")
	key, text, word := e.AggregateID[:], []byte(e.AggregateString()), []byte("order-4711-of-somebody-with-a-long-name")
	if n := testing.AllocsPerRun(100, func() { p.key(key); p.key(word); p.subject(text); p.plain(e.AggregateID) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkPortion(b *testing.B) {
	own := portionOf(Shard{1, 3}, outbox.DefaultTable)
	key := make([]byte, 16)
	for name, p := range map[string]*portion{"whole": nil, "shard": &own} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p.key(key)
			}
		})
	}
}
