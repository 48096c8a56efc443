package topology

import (
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/system"
)

// generationRows returns the rows that describe a generation, the newest of this node,
// to clients.
func (t *Topology) generationRows(g *Generation) []*store.Mutation {
	at := t.writeTime()
	start := system.At(g.Start())
	out := []*store.Mutation{
		t.insert("system_distributed", "cdc_generation_timestamps", at, system.Values{"key": "timestamps", "time": start}),
		t.insert("system", "cdc_local", at, system.Values{"key": "cdc_local", "streams_timestamp": start, "uuid": g.ID}),
	}
	if !t.grouped {
		out = append(out, t.insert("system", "cdc_local", at, system.Values{"key": "rewritten"}))
	}
	var described, everywhere []*store.Mutation
	for _, e := range g.Vnodes {
		ids := make([][]byte, len(e.Streams))
		for i := range e.Streams {
			ids[i] = e.Streams[i][:]
		}
		// The set is in the order of shards, not of bytes: readers index it.
		streams := cqltype.BuildCollection(ids...)
		described = append(described, t.insert("system_distributed", "cdc_streams_descriptions_v2", at, system.Values{
			"time": start, "range_end": e.End, "streams": streams,
		}))
		everywhere = append(everywhere, t.insert("system_distributed_everywhere", "cdc_generation_descriptions_v2", at, system.Values{
			"id": g.ID, "range_end": e.End, "streams": streams,
			"ignore_msb": int8(IgnoreMSB), "num_ranges": int32(len(g.Vnodes)),
		}))
	}
	if t.grouped { // the nodes read a table of their own
		return append(out, joinMutations(described))
	}
	return append(out, joinMutations(described), joinMutations(everywhere))
}

// The states of a stream in system.cdc_streams.
const (
	streamCurrent int8 = 0
	streamClosed  int8 = 1
	streamOpened  int8 = 2
)

// tabletRows returns the rows that describe a table's stream sets to clients, and the
// deletion of the previous ones; nil sets leave none.
func (t *Topology) tabletRows(keyspace, name string, table *tabletTable) []*store.Mutation {
	at := t.writeTime()
	key := system.Values{"keyspace_name": keyspace, "table_name": name}
	with := func(more system.Values) system.Values {
		for k, v := range key {
			more[k] = v
		}
		return more
	}
	gone := store.Deletion{Set: true, Timestamp: at - 1}
	if table == nil {
		sets := system.Delete(t.table("system", "cdc_timestamps"), at, key)
		streams := system.Delete(t.table("system", "cdc_streams"), at, key)
		return []*store.Mutation{sets, streams}
	}
	var sets, streams []*store.Mutation
	var before []StreamID
	for i, s := range table.Sets {
		start := system.At(time.UnixMicro(s.Micros))
		sets = append(sets, t.insert("system", "cdc_timestamps", at, with(system.Values{"timestamp": start})))
		add := func(state int8, ids []StreamID) {
			for _, id := range ids {
				streams = append(streams, t.insert("system", "cdc_streams", at, with(system.Values{
					"timestamp": start, "stream_state": state, "stream_id": id[:],
				})))
			}
		}
		add(streamCurrent, s.Streams)
		if i > 0 {
			add(streamClosed, without(before, s.Streams))
		}
		add(streamOpened, without(s.Streams, before))
		before = s.Streams
	}
	a, b := joinMutations(sets), joinMutations(streams)
	a.Deleted, b.Deleted = gone, gone
	return []*store.Mutation{a, b}
}

func without(ids, other []StreamID) []StreamID {
	seen := make(map[StreamID]bool, len(other))
	for _, id := range other {
		seen[id] = true
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id StreamID) bool { return seen[id] })
}

// joinMutations joins mutations of one partition.
func joinMutations(muts []*store.Mutation) *store.Mutation {
	m := muts[0]
	for _, o := range muts[1:] {
		m.Rows = append(m.Rows, o.Rows...)
	}
	return m
}

func (t *Topology) insert(keyspace, table string, at int64, vals system.Values) *store.Mutation {
	return system.Insert(t.table(keyspace, table), at, vals)
}

func (t *Topology) table(keyspace, name string) *catalog.Table {
	return t.system[keyspace].Tables[name]
}

// writeTime returns a timestamp (µs) above all before.
func (t *Topology) writeTime() int64 {
	t.lastWrite = max(t.lastWrite+1, t.clock.Now().UnixMicro())
	return t.lastWrite
}
