package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// lagStream opens a stream with the given token and lag.
func lagStream(s *Streams, token int64, n byte, now time.Time, behind time.Duration) *Stream {
	id := make([]byte, 16)
	binary.BigEndian.PutUint64(id, uint64(token))
	id[15] = n
	p := NewStream(time.Unix(0, 0), id, gocql.MinTimeUUID(now.Add(-behind)), 100)
	s.open[p] = struct{}{}
	return p
}

// Every stream belongs to one group, by its token, and the lag of a group is the largest
// lag of its streams.
func TestStreams_Lags(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	newOnes := func() *Streams {
		return NewStreams(nil, 1, relaytest.Logger(t), prometheus.NewRegistry())
	}
	s := newOnes()
	if furthest, groups := s.Lags(now, 100); len(furthest) != 0 || groups == nil || len(groups) != 0 {
		t.Errorf("without a stream: %v, %v", furthest, groups)
	}
	lagStream(s, math.MinInt64, 1, now, time.Minute)
	lagStream(s, math.MinInt64+1, 2, now, 3*time.Minute)
	lagStream(s, -1, 3, now, 2*time.Minute)
	lagStream(s, 0, 4, now, time.Second)
	slow := lagStream(s, math.MaxInt64, 5, now, time.Hour)
	slow.Begin(gocql.MinTimeUUID(now), 1)
	slow.pending[0].read = now.Add(-10 * time.Second)
	furthest, groups := s.Lags(now, 100)
	want := []heartbeat.GroupLag{
		{Part: 1, Parts: 16, FromToken: "-9223372036854775808", Streams: 2, BehindSeconds: 180, OldestUnacked: 0}, {Part: 8, Parts: 16, FromToken: "-1152921504606846976", Streams: 1, BehindSeconds: 120, OldestUnacked: 0}, {Part: 9, Parts: 16, FromToken: "0", Streams: 1, BehindSeconds: 1, OldestUnacked: 0}, {Part: 16, Parts: 16, FromToken: "8070450532247928832", Streams: 1, BehindSeconds: 3600, OldestUnacked: 10},
	}
	if len(groups) != len(want) {
		t.Fatalf("groups %+v, want %+v", groups, want)
	}
	for range 20 { // the iteration order of the streams is random
		if _, groups := s.Lags(now, 100); !slices.Equal(groups, want) {
			t.Fatalf("groups %+v, want %+v", groups, want)
		}
	}
	if len(furthest) != 5 || furthest[0].BehindSeconds != 3600 || furthest[4].BehindSeconds != 1 {
		t.Errorf("furthest behind %+v", furthest)
	}
	if text, err := json.Marshal(groups[0]); err != nil || string(text) != `{"part":1,"parts":16,"from_token":"-9223372036854775808","streams":2,"behind_seconds":180,"oldest_unacknowledged_seconds":0}` {
		t.Errorf("as JSON %s, %v", text, err)
	}
	// The number of groups is bounded, and every stream is counted.
	for _, n := range []int{100, 1600, 1700, 20_000} {
		s, total := newOnes(), 0
		for i := range n {
			lagStream(s, int64(uint64(i)*(math.MaxUint64/uint64(n))), byte(i), now, time.Duration(i)*time.Second)
		}
		furthest, groups := s.Lags(now, 100)
		for _, g := range groups {
			total += g.Streams
		}
		if wanted := min(max(16, (n+99)/100), 64); total != n || len(groups) != wanted {
			t.Errorf("%d streams in %d groups, want %d in %d", total, len(groups), n, wanted)
		}
		if len(furthest) != mostBehind || furthest[0].BehindSeconds != float64(n-1) || furthest[mostBehind-1].BehindSeconds != float64(n-mostBehind) {
			t.Errorf("%d streams: largest lags %+v", n, furthest)
		}
	}
}
