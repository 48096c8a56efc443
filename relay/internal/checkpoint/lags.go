package checkpoint

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

const (
	// mostBehind is the number of streams whose lag a heartbeat contains.
	mostBehind = 8
	// minLagGroups and maxLagGroups bound the number of groups in a heartbeat; between
	// them a group has as many streams as one query of the tail reader.
	minLagGroups, maxLagGroups = 16, 64
)

// Lags returns the streams with the largest lag, largest first, and the lag of all
// streams by group in ring order. Groups without streams are omitted.
func (s *Streams) Lags(now time.Time, perGroup int) (furthest []heartbeat.StreamLag, groups []heartbeat.GroupLag) {
	all := s.All()
	parts := min(max((len(all)+perGroup-1)/perGroup, minLagGroups), maxLagGroups)
	width := uint64(math.MaxUint64)/uint64(parts) + 1
	every := make([]heartbeat.GroupLag, parts)
	type behind struct {
		p   *Stream
		age time.Duration
	}
	ages := make([]behind, 0, mostBehind+1)
	for _, p := range all {
		age := now.Sub(p.Reached())
		// Tokens begin at the smallest int64.
		part := int((uint64(cdclog.StreamToken(p.ID)) - 1<<63) / width)
		g := &every[part]
		g.Streams++
		g.BehindSeconds = max(g.BehindSeconds, age.Seconds())
		if t, ok := p.oldest(); ok {
			g.OldestUnacked = max(g.OldestUnacked, now.Sub(t).Seconds())
		}
		if len(ages) < mostBehind || age > ages[len(ages)-1].age {
			ages = append(ages, behind{p, age})
			slices.SortStableFunc(ages, func(a, b behind) int { return cmp.Compare(b.age, a.age) })
			ages = ages[:min(len(ages), mostBehind)]
		}
	}
	furthest, groups = []heartbeat.StreamLag{}, []heartbeat.GroupLag{}
	for _, b := range ages {
		furthest = append(furthest, heartbeat.StreamLag{Name: b.p.ID.String(), BehindSeconds: b.age.Seconds()})
	}
	for i := range every {
		if g := &every[i]; g.Streams > 0 {
			g.Part, g.Parts, g.FromToken = i+1, parts, strconv.FormatInt(int64(uint64(i)*width+1<<63), 10)
			groups = append(groups, *g)
		}
	}
	return furthest, groups
}
