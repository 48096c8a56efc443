package engine

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestUnitsOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		counts      []int32
		units, most int
	}{{nil, 0, 0}, {[]int32{6}, 6, 6}, {[]int32{6, 6, 6}, 6, 6}, {[]int32{12, 8}, 4, 12}, {[]int32{3, 4}, 1, 4}, {[]int32{4, 0}, 4, 4}} {
		topics := map[string]int32{}
		for i, n := range tt.counts {
			topics[string(rune('a'+i))] = n
		}
		if units, most := countUnits(topics); units != tt.units || most != tt.most {
			t.Errorf("%v: %d units, at most %d partitions, want %d and %d", tt.counts, units, most, tt.units, tt.most)
		}
	}
}

// After members and topics have changed in any way, a few rounds assign all partitions, in
// equal shares, each key to one member. In no round a partition has two owners, or a key
// has an owner beside one that still has to leave it.
func TestAssign_OneOwnerOfEachKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		topics := map[string]int32{}
		draw := func() {
			for _, name := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "topics")] {
				topics[name] = max(topics[name], rapid.SampledFrom([]int32{1, 2, 3, 4, 6, 8, 12}).Draw(t, "partitions"))
			}
		}
		draw()
		var members []groupMember
		generation := int32(0)
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			switch rapid.IntRange(0, 2).Draw(t, "change") {
			case 0:
				draw()
			case 1:
				if len(members) > 1 {
					i := rapid.IntRange(0, len(members)-1).Draw(t, "leaves")
					members = slices.Delete(slices.Clone(members), i, i+1)
				}
			}
			if len(members) == 0 || rapid.Bool().Draw(t, "joins") {
				members = append(members, groupMember{generation: -1})
			}
			units, _ := countUnits(topics)
			total := 0
			for _, n := range topics {
				total += int(n)
			}
			for round := 0; ; round++ {
				generation++
				for i := range members {
					members[i].topics = slices.Collect(maps.Keys(topics))
				}
				plan := assign(members, topics, units)
				owners := make(map[int]map[int]bool)
				for p, i := range plan {
					for j, m := range members {
						if j != i && slices.Contains(m.owned, p) {
							t.Fatalf("%v is assigned to %d while %d has it", p, i, j)
						}
					}
					u := int(p.number) % units
					if owners[u] == nil {
						owners[u] = make(map[int]bool)
					}
					owners[u][i] = true
					if gained := !slices.Contains(members[i].owned, p); gained {
						for j, m := range members {
							if j != i && slices.ContainsFunc(m.owned, func(o topicPartition) bool { return int(o.number)%units == u }) {
								t.Fatalf("%d gains %v while %d has partitions of its keys", i, p, j)
							}
						}
					}
				}
				changed := false
				for i := range members {
					var now []topicPartition
					for p, o := range plan {
						if o == i {
							now = append(now, p)
						}
					}
					changed = changed || len(now) != len(members[i].owned) || slices.ContainsFunc(now, func(p topicPartition) bool { return !slices.Contains(members[i].owned, p) })
					members[i].owned, members[i].generation = now, generation
				}
				if !changed || round > 5 {
					if len(plan) != total {
						t.Fatalf("%d of %d partitions have an owner", len(plan), total)
					}
					load := make([]int, len(members))
					for u, all := range owners {
						if len(all) != 1 {
							t.Fatalf("the keys of unit %d have %d owners", u, len(all))
						}
						for i := range all {
							load[i]++
						}
					}
					if slices.Max(load)-slices.Min(load) > 1 {
						t.Fatalf("the units are shared as %v", load)
					}
					break
				}
			}
		}
	})
}
