package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// A split or a merge replaces all streams: the current streams are counted, and the streams of
// every generation of the table are read.
func TestStreams_OfSeveralGenerations(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	starts := []time.Time{at(30), at(10), at(20), at(40)}
	for made, want := range map[int]int{5: 4, 10: 4, 25: 3, 99: 1} {
		if got := startsSince(append([]time.Time(nil), starts...), at(made)); len(got) != want || !got[len(got)-1].Equal(at(40)) {
			t.Errorf("of a table made at %d: generations from %v, want the last %d", made, got, want)
		}
	}
	var all []generation
	for i, n := range []int{4, 2, 1} {
		g := generation{start: at(10 * (i + 1))}
		for s := range n {
			g.streams = append(g.streams, fmt.Append(nil, i, s))
		}
		all = append(all, g)
	}
	for now, current := range map[int]int{5: 4, 10: 4, 29: 2, 30: 1} {
		got, err := newStreams(all, at(now))
		if err != nil || len(got.Current) != current || len(got.Written) != 7 {
			t.Errorf("at %d: %d current and %d written, %v, want %d and 7", now, len(got.Current), len(got.Written), err, current)
		}
	}
	if _, err := newStreams(nil, at(1)); err == nil {
		t.Error("no error without streams")
	}
}

// The rows of a table with tablets are in the streams of all its generations, of which the
// last ones are counted.
func TestRawRead_FindsTheRowsOfMergedTablets(t *testing.T) {
	t.Parallel()
	made := time.Now()
	node, session := scyllatest.StartOn(t, scyllafake.Config{Version: "2026.1"})
	table, err := outbox.NewTable(schema.DefaultKeyspace, "outbox_messages")
	if err != nil {
		t.Fatal(err)
	}
	read := func() (Streams, Rate) {
		t.Helper()
		streams, err := ReadStreams(t.Context(), session, schema.DefaultKeyspace, "outbox_messages", made)
		if err != nil {
			t.Fatal(err)
		}
		rate, err := RawRead(t.Context(), session, schema.DefaultKeyspace, "outbox_messages", streams.Written)
		if err != nil {
			t.Fatal(err)
		}
		return streams, rate
	}
	streams, _ := read()
	for n := int64(1); ; n++ {
		if err := WriteBacklog(t.Context(), session, table, NewEvents("T", 10, 100), 100, func(int64) {}); err != nil {
			t.Fatal(err)
		}
		got, rate := read()
		if len(got.Current) != len(streams.Current) || rate.Count != 100*n || rate.PerSecond <= 0 {
			t.Errorf("%d current streams, %d rows at %.0f/s, want %d streams with %d rows", len(got.Current), rate.Count, rate.PerSecond, len(streams.Current), 100*n)
		}
		if len(streams.Current) == 1 {
			return
		}
		base := node.Schema().Keyspaces[schema.DefaultKeyspace].Tables["outbox_messages"]
		if _, err := node.Topology().Merge(base, time.Now()); err != nil {
			t.Fatal(err)
		}
		streams.Current = streams.Current[len(streams.Current)/2:]
	}
}
