package catalog

import (
	"math"
	"math/bits"
	"strconv"
)

// Defaults of ScyllaDB for the number of tablets.
const (
	// tabletsPerShard is how many tablets of a table without options a shard has.
	tabletsPerShard = 10
	// tabletsPerShardGoal is how many tablets of all tables together a shard has: more
	// are wanted, and every table gets fewer.
	tabletsPerShardGoal = 100
	// tabletGB is the size of a tablet in GiB.
	tabletGB = 5
)

// Sizing is the part of a cluster that determines the number of tablets of tables.
type Sizing struct {
	DataCenter string
	Shards     int // of all nodes
}

// TabletCounts returns for every table of keyspaces with tablets the number of tablets
// that ScyllaDB gives it: what its options, its keyspace and the cluster ask for, scaled
// down for all tables if their sum is above the goal, and rounded up to a power of two.
// Logs and NAME$paxos have the tablets of their base, and are not counted.
func (s *Schema) TabletCounts(z Sizing) map[*Table]int {
	wanted := map[*Table]float64{}
	perShard := 0.0
	for _, ks := range s.Keyspaces {
		if !ks.Tablets {
			continue
		}
		factor := ks.Factor(z.DataCenter)
		for _, t := range ks.Tables {
			if t.Kind == Paxos || ks.Base(t) != nil {
				continue
			}
			n := wantedTablets(ks, t, float64(z.Shards), float64(factor))
			wanted[t] = n
			perShard += n * float64(factor) / float64(z.Shards)
		}
	}
	scale := 1.0
	if perShard > tabletsPerShardGoal {
		scale = tabletsPerShardGoal / perShard
	}
	out := make(map[*Table]int, len(wanted))
	for t, n := range wanted {
		out[t] = 1 << bits.Len(uint(math.Ceil(n*scale))-1)
	}
	return out
}

func wantedTablets(ks *Keyspace, t *Table, shards, factor float64) float64 {
	hint := func(name string) float64 {
		n, _ := strconv.ParseFloat(t.Options.Tablets[name], 64)
		if log := ks.Log(t); log != nil {
			of, _ := strconv.ParseFloat(log.Options.Tablets[name], 64)
			n = max(n, of)
		}
		return n
	}
	fewest, perShard := hint("min_tablet_count"), hint("min_per_shard_tablet_count")
	if perShard == 0 && fewest == 0 && ks.InitialTablets == 0 {
		perShard = tabletsPerShard
	}
	return max(1, float64(ks.InitialTablets), fewest, math.Floor(hint("expected_data_size_in_gb")/tabletGB), math.Ceil(perShard*shards/factor))
}

// Factor returns the replication factor in a data centre, 1 where it is not given.
func (k *Keyspace) Factor(dc string) int {
	n, _ := strconv.Atoi(k.Replication[dc])
	return max(n, 1)
}

// Base returns the table whose log t is, nil if t is not a log or its base does not exist.
func (k *Keyspace) Base(t *Table) *Table {
	if t.Kind != CDCLog {
		return nil
	}
	for _, b := range k.Tables {
		if LogName(b.Name) == t.Name {
			return b
		}
	}
	return nil
}

// Log returns the log of t, attached or left over from before CDC was turned off, nil if
// there is none.
func (k *Keyspace) Log(t *Table) *Table {
	if log := k.Tables[LogName(t.Name)]; log != nil && log.Kind == CDCLog {
		return log
	}
	return nil
}
