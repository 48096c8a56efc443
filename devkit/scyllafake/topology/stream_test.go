package topology

import (
	"bufio"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

var errTest = errors.New("the disk is full")

// recording is a generation of a real node and where its changes went.
type recording struct {
	vnodes []vnode
	tokens []int64
	want   []StreamID
}

func readRecording(t *testing.T, path string) recording {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r recording
	for sc := bufio.NewScanner(f); sc.Scan(); {
		fields := strings.Fields(sc.Text())
		if fields[0] == "#" {
			continue
		}
		n, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		var ids []StreamID
		for _, s := range fields[2:] {
			b, err := hex.DecodeString(s)
			if err != nil || len(b) != 16 {
				t.Fatalf("stream id %q", s)
			}
			ids = append(ids, StreamID(b))
		}
		if fields[0] == "vnode" {
			r.vnodes = append(r.vnodes, vnode{n, ids})
		} else {
			r.tokens, r.want = append(r.tokens, n), append(r.want, ids[0])
		}
	}
	return r
}

func recordings(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/streams-*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	return files
}

func TestGeneration_StreamsAsRecorded(t *testing.T) {
	t.Parallel()
	for _, path := range recordings(t) {
		r := readRecording(t, path)
		g := &Generation{Vnodes: r.vnodes}
		for i, token := range r.tokens {
			if got := *g.stream(token); got != r.want[i] {
				t.Errorf("%s: stream of token %d = %x, want %x", path, token, got, r.want[i])
			}
		}
	}
}

// A generation of our own for the recorded tokens must have the recorded ids,
// but for the random bits.
func TestNewGeneration_IDsAsRecorded(t *testing.T) {
	t.Parallel()
	for _, path := range recordings(t) {
		r := readRecording(t, path)
		var tokens []int64
		for _, v := range r.vnodes {
			tokens = append(tokens, v.End)
		}
		g := newGeneration(0, tokens, len(r.vnodes[0].Streams))
		seen := map[StreamID]bool{}
		for i, e := range g.Vnodes {
			for shard, id := range e.Streams {
				want := r.vnodes[i].Streams[shard]
				if id.Token() != want.Token() || id.Index() != want.Index() || id[15]&0xf != want[15]&0xf {
					t.Errorf("%s: vnode %d shard %d: %x, want %x", path, i, shard, id, want)
				}
				if seen[id] {
					t.Errorf("%s: id %x twice", path, id)
				}
				seen[id] = true
			}
		}
	}
}

func TestFirstToken_IsTheShards(t *testing.T) {
	t.Parallel()
	rnd := seeds.Rand(t)
	for range 2000 {
		shards := 1 + rnd.IntN(64)
		shard := rnd.IntN(shards)
		start, end := int64(rnd.Uint64()), int64(rnd.Uint64())
		if rnd.IntN(2) == 0 { // a narrow range, which may have none
			end = start + int64(rnd.Uint64N(1<<52))
		}
		got := firstToken(shards, shard, start, end)
		if !inRange(start, end, got) {
			t.Fatalf("firstToken(%d, %d, %d, %d) = %d, outside the range", shards, shard, start, end, got)
		}
		if got != end && ShardFor(shards, got) != shard {
			t.Fatalf("firstToken(%d, %d, %d, %d) = %d, of shard %d", shards, shard, start, end, got, ShardFor(shards, got))
		}
		// Nothing of the shard lies before it: neither just before nor anywhere.
		if start < end && got > start+1 {
			for range 20 {
				p := start + 1 + int64(rnd.Uint64N(uint64(got-start-1)))
				if ShardFor(shards, p) == shard {
					t.Fatalf("firstToken(%d, %d, %d, %d) = %d, but %d is the shard's", shards, shard, start, end, got, p)
				}
			}
			if ShardFor(shards, got-1) == shard {
				t.Fatalf("firstToken(%d, %d, %d, %d) = %d is not the first", shards, shard, start, end, got)
			}
		}
	}
}

func inRange(start, end, token int64) bool {
	if start < end {
		return start < token && token <= end
	}
	return token > start || token <= end
}

func TestVnodeStream_Limits(t *testing.T) {
	t.Parallel()
	const (
		past   = "cdc: attempted to get a stream from an earlier generation"
		past6  = `cdc: attempted to get a stream "from the past"`
		future = `cdc: attempted to get a stream "from the future"`
	)
	old, recent := catalog.Version{Major: 5, Minor: 1}, catalog.Version{Major: 2025, Minor: 4}
	tests := []struct {
		name    string
		version catalog.Version
		after   time.Duration // the clock, after the switch to the second generation
		at      time.Duration // the timestamp, after the switch
		gen     int
		err     string
	}{
		{"now", old, time.Minute, time.Minute, 1, ""},
		{"just in the future", old, time.Minute, time.Minute + Leeway, 1, ""},
		{"too far in the future", old, time.Minute, time.Minute + Leeway + time.Microsecond, 0, future},
		{"the start itself", old, time.Minute, 0, 1, ""},
		{"a microsecond before the start", old, time.Minute, -time.Microsecond, 0, past},
		{"the same, just after the switch", old, time.Microsecond, -time.Microsecond, 0, past},
		{"before the switch, for after it", old, -2 * time.Second, 0, 1, ""},
		{"before the switch, for before it", old, -2 * time.Second, -time.Microsecond, 0, ""},
		{"long ago, while the first is in use", old, -2 * time.Second, -time.Minute + time.Second, 0, ""},
		{"before the first generation", old, -2 * time.Second, -time.Hour, 0, past},
		{"6+: 1 s into the previous generation", recent, time.Second, -time.Second, 0, ""},
		{"6+: 5 s ago", recent, time.Second, time.Second - Leeway, 0, past6},
		{"6+: long ago, in the current one", recent, time.Hour, time.Minute, 1, ""},
		{"6+: future", recent, time.Second, time.Minute, 0, future},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			top := open(t, newMemory(), c, func(o *Options) { o.Version = tt.version })
			g, err := top.NewGeneration(c.at.Add(time.Minute), 0)
			if err != nil {
				t.Fatal(err)
			}
			now := g.Start().Add(tt.after)
			id, err := top.VnodeStream(42, g.Micros+tt.at.Microseconds(), now)
			if tt.err != "" {
				var ce *cqlerr.Error
				if !errors.As(err, &ce) || ce.Code != cqlerr.Invalid || !strings.HasPrefix(ce.Message, tt.err) {
					t.Fatalf("VnodeStream() error = %v, want 2200 %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := top.Generations()[tt.gen].stream(42); id != want {
				t.Errorf("VnodeStream() is not of generation %d", tt.gen)
			}
		})
	}
}

func TestVnodeStream_MessagesAsRecorded(t *testing.T) {
	t.Parallel()
	c := &clock{time.Date(2026, 11, 21, 4, 55, 53, 889e6, time.UTC)}
	top := open(t, newMemory(), c, nil)
	now := time.Date(2026, 11, 21, 4, 56, 51, 588e6, time.UTC)
	for ts, want := range map[int64]string{
		-1:               "cdc: attempted to get a stream from an earlier generation than the currently used one. With CDC you cannot send writes with timestamps too far into the past, because that would break consistency properties (write timestamp: 1970/01/01 00:00:00, current generation started at: 2026/11/21 04:55:53)",
		1795236953888999: "cdc: attempted to get a stream from an earlier generation than the currently used one. With CDC you cannot send writes with timestamps too far into the past, because that would break consistency properties (write timestamp: 2026/11/21 04:55:53, current generation started at: 2026/11/21 04:55:53)",
		1795237018588156: "cdc: attempted to get a stream \"from the future\" (2026/11/21 04:56:58; current server time: 2026/11/21 04:56:51). With CDC you cannot send writes with timestamps arbitrarily into the future, because we don't know what streams will be used at that time.\nWe *do* allow sending writes into the near future, but our ability to do that is limited. If you really must use your own timestamps, then make sure your clocks are well-synchronized  with the database's clocks.",
	} {
		_, err := top.VnodeStream(1, ts, now)
		var ce *cqlerr.Error
		if !errors.As(err, &ce) || ce.Message != want {
			t.Errorf("VnodeStream(%d) error = %v, want %s", ts, err, want)
		}
	}
	_, err := top.VnodeStream(1, c.at.UnixMicro()-1, c.at.Add(-time.Second))
	var ce *cqlerr.Error
	const none = "cdc::metadata::get_stream: could not find any CDC stream (current time: 2026/11/21 04:55:52). Are we in the middle of a cluster upgrade?"
	if !errors.As(err, &ce) || ce.Code != cqlerr.Server || ce.Message != none {
		t.Errorf("VnodeStream() before the first generation error = %v, want 0000 %s", err, none)
	}
}

func TestTabletStream(t *testing.T) {
	t.Parallel()
	logID := uuid.MustParse("f4e84762-ebb4-11f1-b3e4-53aaf5d138cc")
	st, c := newMemory(), newClock()
	recent := func(o *Options) { o.Version, o.RingDelay = catalog.Version{Major: 2025, Minor: 4}, 2*time.Second }
	top := open(t, st, c, recent)
	base := &catalog.Table{Keyspace: "ks", Name: "t", StoreID: 7, CDC: &catalog.CDC{Enabled: true, TTLSeconds: 60}}
	change, err := top.CreateStreams(base, 3)
	if err != nil {
		t.Fatal(err)
	}
	if top.Tablets(7) != 0 {
		t.Error("streams are in force before Publish")
	}
	if err := st.Apply(change.Mutations, change.Metas...); err != nil {
		t.Fatal(err)
	}
	change.Publish()
	if got := top.Tablets(7); got != 4 {
		t.Fatalf("%d tablets, want 4", got)
	}
	first := top.state.Load().tables[7].Sets[0]
	var last []int64
	for _, id := range first.Streams {
		last = append(last, id.Token())
	}
	if want := []int64{math.MinInt64/2 - 1, -1, math.MaxInt64 / 2, math.MaxInt64}; !slices.Equal(last, want) {
		t.Errorf("stream tokens %d, want the tablets' last ones %d", last, want)
	}
	for token, want := range map[int64]int{math.MinInt64: 0, -1: 1, 0: 2, math.MaxInt64 / 2: 2, math.MaxInt64/2 + 1: 3, math.MaxInt64: 3} {
		id, err := top.TabletStream(7, logID, token, c.at.UnixMicro(), c.at)
		if err != nil || *id != first.Streams[want] {
			t.Errorf("TabletStream(%d) = %x, %v, want stream %d", token, id, err, want)
		}
	}

	at, err := top.Split(base, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if want := c.at.Truncate(time.Millisecond).Add(9 * time.Second); !at.Equal(want) {
		t.Errorf("the split is at %v, want %v", at, want)
	}
	for ts, set := range map[time.Time]int{at.Add(-time.Microsecond): 0, at: 1} {
		id, err := top.TabletStream(7, logID, 5, ts.UnixMicro(), at)
		if err != nil || *id != *top.state.Load().tables[7].Sets[set].stream(5) {
			t.Errorf("TabletStream() at %v = %x, %v, want one of set %d", ts, id, err, set)
		}
	}
	// Both sets' current streams, the first set's as opened, and the split's
	// closed and opened ones.
	if got := st.rows["system.cdc_streams"]; got != 4+4+8+4+8 {
		t.Errorf("%d rows of cdc_streams, want 28", got)
	}
	if got := st.rows["system.cdc_timestamps"]; got != 2 {
		t.Errorf("%d rows of cdc_timestamps, want 2", got)
	}
	const none = "cdc::metadata::get_stream: could not find any CDC streams for table f4e84762-ebb4-11f1-b3e4-53aaf5d138cc for timestamp 1."
	if _, err := top.TabletStream(7, logID, 5, 1, c.at); !isCode(err, cqlerr.Server) || !strings.Contains(err.Error(), none) {
		t.Errorf("before the first set: %v, want 0000 %s", err, none)
	}
	if _, err := top.TabletStream(7, logID, 5, c.at.Add(6*time.Second).UnixMicro(), c.at); !isCode(err, cqlerr.Invalid) {
		t.Errorf("6 s ahead: %v, want 2200", err)
	}

	again := open(t, st, c, recent)
	if got := again.Tablets(7); got != 8 {
		t.Errorf("%d tablets after a restart, want 8", got)
	}
	c.at = at.Add(2 * time.Minute)
	if _, err := again.Merge(base, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if resized, due, err := again.Balance(base, 16); resized || due.IsZero() || err != nil {
		t.Errorf("Balance() of a table that was resized by hand = %t, %v, %v", resized, due, err)
	}
	if got := again.Tablets(7); got != 4 {
		t.Errorf("%d tablets after a merge, want 4", got)
	}
	if got := len(again.state.Load().tables[7].Sets); got != 2 {
		t.Errorf("%d sets, want 2: the first was closed longer than the ttl ago", got)
	}
	drop := again.DropStreams(base)
	if err := st.Apply(drop.Mutations, drop.Metas...); err != nil {
		t.Fatal(err)
	}
	drop.Publish()
	if _, err := again.Split(base, time.Time{}); err == nil {
		t.Error("Split() of a table without streams succeeded")
	}
	if st.rows["system.cdc_streams"] != 0 || again.Tablets(7) != 0 {
		t.Error("streams are left after DropStreams")
	}
}

func TestMerge_OneTablet(t *testing.T) {
	t.Parallel()
	st, c := newMemory(), newClock()
	top := open(t, st, c, func(o *Options) { o.Version = catalog.Version{Major: 2025, Minor: 4} })
	base := &catalog.Table{Keyspace: "ks", Name: "t", StoreID: 7}
	change, err := top.CreateStreams(base, 0)
	if err != nil {
		t.Fatal(err)
	}
	change.Publish()
	if got := top.state.Load().tables[7].Sets[0].Streams[0].Token(); got != math.MaxInt64 {
		t.Errorf("the token of the one stream is %d, want the largest", got)
	}
	if _, err := top.Merge(base, time.Time{}); err == nil {
		t.Error("Merge() of one tablet succeeded")
	}
	if _, err := top.CreateStreams(base, MaxTablets+1); err == nil {
		t.Error("CreateStreams() of too many tablets succeeded")
	}
}

func isCode(err error, code cqlerr.Code) bool {
	var ce *cqlerr.Error
	return errors.As(err, &ce) && ce.Code == code
}

func BenchmarkVnodeStream(b *testing.B) {
	top, err := Open(newMemory(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	ts := now.UnixMicro()
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		if _, err := top.VnodeStream(i*0x9E3779B97F4A7C1, ts, now); err != nil {
			b.Fatal(err)
		}
	}
}
