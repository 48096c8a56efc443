package topology

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// MaxTablets limits the number of tablets of a table.
const MaxTablets = 1 << 16

// tabletTable contains the stream sets of one table, oldest first. It is immutable.
type tabletTable struct {
	Keyspace, Name string
	Sets           []*streamSet
	// Manual means that an administrator chose the number of tablets.
	Manual bool `json:",omitempty"`
}

// streamSet contains the streams of a table from a time on: one for each tablet, in the
// order of their tokens, which are the tablets' last ones.
type streamSet struct {
	Micros  int64 // of the start, of whole milliseconds
	Streams []StreamID
}

func newStreamSet(start int64, tablets int) *streamSet {
	s := &streamSet{Micros: start, Streams: make([]StreamID, tablets)}
	shift := 64 - bits.TrailingZeros(uint(tablets))
	for i := range s.Streams {
		last := uint64(i+1)<<shift - 1 // for the last tablet the shift gives 0: the largest number
		s.Streams[i] = newStreamID(bias(last), 0)
	}
	return s
}

// stream returns the first stream whose token is not below the base token.
func (s *streamSet) stream(token int64) *StreamID {
	i, _ := slices.BinarySearchFunc(s.Streams, token, func(id StreamID, t int64) int { return cmp.Compare(id.Token(), t) })
	return &s.Streams[min(i, len(s.Streams)-1)]
}

// CreateStreams prepares the first stream set of a table with CDC in a keyspace with
// tablets: in use from 5 s before now, one stream for each of so many tablets, which is
// rounded up to a power of two (at least 1). Call it when the table's log is created.
func (t *Topology) CreateStreams(base *catalog.Table, tablets int) (*Change, error) {
	if tablets > MaxTablets {
		return nil, fmt.Errorf("%d tablets for %s.%s: at most %d are possible", tablets, base.Keyspace, base.Name, MaxTablets)
	}
	n := 1
	for n < tablets {
		n *= 2
	}
	start := wholeMillis(t.clock.Now().Add(-Leeway).UnixMicro())
	return t.changeTable(base, &tabletTable{
		Keyspace: base.Keyspace, Name: base.Name, Sets: []*streamSet{newStreamSet(start, n)},
	}), nil
}

// DropStreams prepares the end of a table's streams. Call it when the log is dropped. A
// table without streams is no error.
func (t *Topology) DropStreams(base *catalog.Table) *Change {
	return t.changeTable(base, nil)
}

// Split doubles a table's tablets: it writes a new stream set that comes into use at
// the given time, or, for the zero time, when a real node's would (see NextStart). It
// returns that time.
func (t *Topology) Split(base *catalog.Table, at time.Time) (time.Time, error) {
	return t.resize(base, at, true, func(n int) (int, error) {
		if n*2 > MaxTablets {
			return 0, fmt.Errorf("%s.%s has %d tablets already", base.Keyspace, base.Name, n)
		}
		return n * 2, nil
	})
}

// Merge halves a table's tablets; see Split.
func (t *Topology) Merge(base *catalog.Table, at time.Time) (time.Time, error) {
	return t.resize(base, at, true, func(n int) (int, error) {
		if n < 2 {
			return 0, fmt.Errorf("%s.%s has one tablet: there is nothing to merge", base.Keyspace, base.Name)
		}
		return n / 2, nil
	})
}

// Balance brings a table closer to so many tablets: it doubles or halves them, unless
// Split or Merge was called for the table, and reports whether it did. It removes the
// stream sets that are closed for longer than the table's cdc ttl, and returns when the
// next one is due, the zero time if none is. A table without streams has nothing to do.
func (t *Topology) Balance(base *catalog.Table, tablets int) (resized bool, due time.Time, err error) {
	old := t.state.Load().tables[base.StoreID]
	if old == nil {
		return false, time.Time{}, nil
	}
	if now := len(old.Sets[len(old.Sets)-1].Streams); now != tablets && !old.Manual {
		resized = true
		_, err = t.resize(base, time.Time{}, false, func(n int) (int, error) {
			if tablets > n {
				return n * 2, nil
			}
			return n / 2, nil
		})
		if err != nil {
			return false, time.Time{}, err
		}
	}
	due, err = t.expire(base)
	return resized, due, err
}

// expire removes the closed stream sets that are older than the table's ttl, and returns
// when the next one is due.
func (t *Topology) expire(base *catalog.Table) (due time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.state.Load().tables[base.StoreID]
	if old == nil || base.CDC == nil || base.CDC.TTLSeconds <= 0 {
		return time.Time{}, nil
	}
	ttl := time.Duration(base.CDC.TTLSeconds) * time.Second
	table := *old
	// A set is closed when the next one begins.
	for len(table.Sets) > 1 {
		due = time.UnixMicro(table.Sets[1].Micros).Add(ttl)
		if due.After(t.clock.Now()) {
			break
		}
		table.Sets, due = table.Sets[1:], time.Time{}
	}
	if len(table.Sets) == len(old.Sets) {
		return due, nil
	}
	return due, t.storeTable(base, &table)
}

// storeTable puts the streams of a table in force. The caller holds mu.
func (t *Topology) storeTable(base *catalog.Table, table *tabletTable) error {
	c := t.changeTableLocked(base, table)
	if err := t.store.Apply(c.Mutations, c.Metas...); err != nil {
		return fmt.Errorf("store the streams of %s.%s: %w", base.Keyspace, base.Name, err)
	}
	c.publishLocked()
	return nil
}

func (t *Topology) resize(base *catalog.Table, at time.Time, manual bool, to func(int) (int, error)) (time.Time, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.state.Load().tables[base.StoreID]
	if old == nil {
		return time.Time{}, fmt.Errorf("%s.%s has no tablet streams: it needs CDC and a keyspace with tablets", base.Keyspace, base.Name)
	}
	newest := old.Sets[len(old.Sets)-1]
	n, err := to(len(newest.Streams))
	if err != nil {
		return time.Time{}, err
	}
	if at.IsZero() {
		at = t.NextStart()
	}
	start := max(wholeMillis(at.UnixMicro()), newest.Micros+1000)
	return time.UnixMicro(start), t.storeTable(base, &tabletTable{
		Keyspace: old.Keyspace, Name: old.Name, Manual: manual, Sets: append(slices.Clone(old.Sets), newStreamSet(start, n)),
	})
}

// FindTablet returns which of a table's tablets, in the order of tokens, has a token, and
// its range: from above first up to last.
func FindTablet(tablets int, token int64) (n int, first, last int64) {
	shift := 64 - bits.TrailingZeros(uint(tablets))
	u := unbias(token) >> shift // 0 with one tablet
	first = math.MinInt64
	if u > 0 {
		first = bias(u<<shift - 1)
	}
	return int(u), first, bias((u+1)<<shift - 1)
}

// Tablets returns the number of tablets of a table in its newest stream set, 0 if it
// has no tablet streams.
func (t *Topology) Tablets(storeID uint32) int {
	table := t.state.Load().tables[storeID]
	if table == nil {
		return 0
	}
	return len(table.Sets[len(table.Sets)-1].Streams)
}

// Change is a change that is not in force yet: the caller stores Mutations and Metas in
// one store.Apply with related changes, and then calls Publish.
type Change struct {
	Mutations []*store.Mutation
	Metas     []store.Meta

	topology *Topology
	storeID  uint32
	table    *tabletTable
}

// Publish puts the change in force.
func (c *Change) Publish() {
	c.topology.mu.Lock()
	defer c.topology.mu.Unlock()
	c.publishLocked()
}

func (c *Change) publishLocked() {
	c.topology.update(func(s *state) {
		if c.table == nil {
			delete(s.tables, c.storeID)
		} else {
			s.tables[c.storeID] = c.table
		}
	})
}

func (t *Topology) changeTable(base *catalog.Table, table *tabletTable) *Change {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changeTableLocked(base, table)
}

func (t *Topology) changeTableLocked(base *catalog.Table, table *tabletTable) *Change {
	return &Change{
		Mutations: t.tabletRows(base.Keyspace, base.Name, table),
		Metas:     []store.Meta{tabletMeta(base.StoreID, table)},
		topology:  t, storeID: base.StoreID, table: table,
	}
}
