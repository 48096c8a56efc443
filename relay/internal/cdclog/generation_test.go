package cdclog

import (
	"encoding/binary"
	"testing"
	"time"
)

func TestGeneration_StreamsForAToken(t *testing.T) {
	t.Parallel()
	id := func(token int64) []byte {
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(token)), 1)
	}
	// Two vnodes, ending at -10 and 50, of two shards each.
	ends := []int64{50, 50, -10, -10}
	g := NewGeneration(time.Time{}, [][]byte{id(-9), id(20), id(60), id(-100)}, func(i int) int64 { return ends[i] })
	for _, tt := range []struct {
		token int64
		want  []int64
	}{{-1000, []int64{-100, 60}}, {-10, []int64{-100, 60}}, {-9, []int64{-9, 20}}, {50, []int64{-9, 20}}, {51, []int64{-100, 60}}} {
		var got []int64
		for _, i := range g.StreamsFor(tt.token) {
			got = append(got, StreamToken(g.Streams[i]))
		}
		if len(got) != 2 || got[0] != tt.want[0] || got[1] != tt.want[1] {
			t.Errorf("StreamsFor(%d) = %v, want %v", tt.token, got, tt.want)
		}
	}
}
