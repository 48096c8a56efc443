package engine

import (
	"context"
	"log/slog"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// keyBalancer assigns the partitions of a group so that one member has each record key in
// all topics. Producers write a key to the partition hash % n. With the greatest common
// divisor d of the numbers of partitions, hash % d is the same in all topics: the unit of a
// key. All partitions of a unit have one owner, so at most d members have partitions.
//
// A unit that moves waits until its former owner has left all its partitions, as with
// cooperative-sticky, whose metadata it uses.
type keyBalancer struct {
	kgo.GroupBalancer
	log *slog.Logger
}

func newKeyBalancer(log *slog.Logger) *keyBalancer {
	return &keyBalancer{kgo.CooperativeStickyBalancer(), log}
}

// ProtocolName implements kgo.GroupBalancer.
func (*keyBalancer) ProtocolName() string { return "outbox-key" }

// MemberBalancer implements kgo.GroupBalancer.
func (k *keyBalancer) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	b, err := kgo.NewConsumerBalancer(k, members)
	return b, b.MemberTopics(), err
}

// Balance implements kgo.ConsumerBalancerBalance.
func (k *keyBalancer) Balance(b *kgo.ConsumerBalancer, topics map[string]int32) kgo.IntoSyncAssignment {
	members := make([]groupMember, len(b.Members()))
	for i := range members {
		_, meta := b.MemberAt(i)
		members[i] = groupMember{topics: meta.Topics, generation: meta.Generation}
		for _, t := range meta.OwnedPartitions {
			for _, n := range t.Partitions {
				members[i].owned = append(members[i].owned, topicPartition{t.Topic, n})
			}
		}
	}
	units, most := countUnits(topics)
	if units < most {
		level := slog.LevelInfo
		if units < len(members) {
			level = slog.LevelWarn
		}
		k.log.Log(context.Background(), level, "topics have different numbers of partitions; with ordering by key fewer processes share them", "owners", units, "processes", len(members), "most_partitions", most)
	}
	plan := b.NewPlan()
	for place, i := range assign(members, topics, units) {
		m, _ := b.MemberAt(i)
		plan.AddPartition(m, place.topic, place.number)
	}
	return plan
}

// countUnits returns the greatest common divisor of the numbers of partitions, and the greatest
// number.
func countUnits(topics map[string]int32) (units, most int) {
	for _, n := range topics {
		most = max(most, int(n))
		a, b := units, int(n)
		for b != 0 {
			a, b = b, a%b
		}
		units = a
	}
	return units, most
}

// groupMember is a member of a group with the partitions that it claims.
type groupMember struct {
	topics     []string
	owned      []topicPartition
	generation int32
}

// assign returns the index of the owner of each partition that can be assigned now.
func assign(members []groupMember, topics map[string]int32, units int) map[topicPartition]int {
	out := make(map[topicPartition]int)
	if units == 0 || len(members) == 0 {
		return out
	}
	claims := make(map[topicPartition][]int)
	newest := make(map[topicPartition]int32)
	for i, m := range members {
		for _, p := range m.owned {
			if p.number < topics[p.topic] {
				claims[p] = append(claims[p], i)
				newest[p] = max(newest[p], m.generation)
			}
		}
	}
	// A claim of an earlier generation is no proof: the partition may have had an owner since.
	owns := func(i int, p topicPartition) bool {
		return slices.Contains(claims[p], i) && members[i].generation == newest[p]
	}
	owned := make([][]int, units) // partitions of each unit by member
	for u := range owned {
		owned[u] = make([]int, len(members))
	}
	for p, all := range claims {
		for _, i := range all {
			if owns(i, p) {
				owned[int(p.number)%units][i]++
			}
		}
	}
	target := shares(owned, len(members))
	// While members with a former list of topics are left, another one reads the topic.
	reader := func(p topicPartition) int {
		reads := func(m groupMember) bool { return slices.Contains(m.topics, p.topic) }
		if i := target[int(p.number)%units]; reads(members[i]) {
			return i
		}
		return slices.IndexFunc(members, reads)
	}
	moving := make([]bool, units)
	for p, all := range claims {
		to := reader(p)
		moving[int(p.number)%units] = moving[int(p.number)%units] || slices.ContainsFunc(all, func(i int) bool { return i != to })
	}
	for topic, n := range topics {
		for number := range n {
			p := topicPartition{topic, number}
			if i := reader(p); i >= 0 && (!moving[int(number)%units] || owns(i, p)) {
				out[p] = i
			}
		}
	}
	return out
}

// shares returns the member of each unit: an owner keeps its units up to its share.
func shares(owned [][]int, members int) []int {
	target, load := make([]int, len(owned)), make([]int, members)
	share, extra := len(owned)/members, len(owned)%members
	for u := range owned {
		most := slices.Max(owned[u])
		i := slices.Index(owned[u], most)
		switch {
		case most > 0 && load[i] < share:
		case most > 0 && load[i] == share && extra > 0:
			extra--
		default:
			target[u] = -1
			continue
		}
		target[u] = i
		load[i]++
	}
	for u := range target {
		if target[u] < 0 {
			i := slices.Index(load, slices.Min(load))
			target[u] = i
			load[i]++
		}
	}
	return target
}
