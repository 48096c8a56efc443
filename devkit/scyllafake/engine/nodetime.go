package engine

import (
	"context"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// NodeCosts are the times that a shard of a real node takes for the parts of a request.
type NodeCosts struct {
	// Query is the fixed part of a page of a read, with its first partition; Partition is
	// each further partition that the statement names and that earlier pages did not end;
	// Row is each row that is read, also if a page of several partitions discards it (see ReadCosts).
	Query, Partition, Row time.Duration
	// Write is the fixed part of a write, WrittenRow each of its rows with its row in the
	// CDC log, Batchlog what a logged batch of several partitions takes besides.
	Write, WrittenRow, Batchlog time.Duration
}

// MeasuredCosts are the costs of one shard of ScyllaDB 5.1.19 at saturation, payloads of
// 500 bytes, replication factor 1: a query or page 60 µs; a partition of an IN query that
// finds nothing new 17 to 35 µs; a row of the log 6 to 8 µs; a CDC row written alone 61 µs,
// an unlogged batch of two rows 63 µs, a logged one 95 µs. No time was measured for a
// conditional statement, which counts as a read and a write, for scans of a token range,
// which count as one partition, and for other sizes of payloads.
// docs/performance.md compares the result with a node of 2026.1.
var MeasuredCosts = NodeCosts{
	Query: 60 * time.Microsecond, Partition: 26 * time.Microsecond, Row: 7 * time.Microsecond,
	Write: 59 * time.Microsecond, WrittenRow: 2 * time.Microsecond, Batchlog: 32 * time.Microsecond,
}

// NodeTimes makes requests take the time of a real node. Each shard serves one request at
// a time, in the order in which they came to be answered; a request of several shards ends
// with the last of them. The time that the engine itself takes is a part of it, so on a
// machine that is slower than the costs a request takes longer. A NodeTimes is safe for
// concurrent use.
type NodeTimes struct {
	costs NodeCosts

	mu   sync.Mutex
	free []time.Time // by shard: when it has served all accepted requests
	busy []time.Duration
}

// NewNodeTimes returns the times of a node with so many shards.
func NewNodeTimes(costs NodeCosts, shards int) *NodeTimes {
	return &NodeTimes{costs: costs, free: make([]time.Time, shards), busy: make([]time.Duration, shards)}
}

// Busy returns how long each shard has served requests.
func (n *NodeTimes) Busy() []time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]time.Duration(nil), n.busy...)
}

// serve reserves the shards for their parts of a request that arrived at a time, and
// returns when the last one has served it.
func (n *NodeTimes) serve(arrived time.Time, parts map[int]time.Duration) (end time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for shard, d := range parts {
		from := arrived
		if n.free[shard].After(from) {
			from = n.free[shard]
		}
		n.free[shard] = from.Add(d)
		n.busy[shard] += d
		if n.free[shard].After(end) {
			end = n.free[shard]
		}
	}
	return end
}

// readParts returns the parts of a page that read so many rows of partitions on these
// shards. The rows are divided among them: the engine does not know how many each has.
func (c *NodeCosts) readParts(shards []int, rows int64) map[int]time.Duration {
	parts := map[int]time.Duration{}
	for i, shard := range shards {
		d := c.Partition
		if i == 0 {
			d = c.Query
		}
		parts[shard] += d + time.Duration(rows)*c.Row/time.Duration(len(shards))
	}
	return parts
}

// writeParts returns the parts of a write of mutations on these shards with these numbers
// of rows.
func (c *NodeCosts) writeParts(shards []int, rows []int, logged bool) map[int]time.Duration {
	parts := map[int]time.Duration{}
	for i, shard := range shards {
		parts[shard] += time.Duration(rows[i]) * c.WrittenRow
	}
	parts[shards[0]] += c.Write
	if logged && len(shards) > 1 {
		parts[shards[0]] += c.Batchlog
	}
	return parts
}

// timing is the time of one request; nil takes none.
type timing struct {
	e       *Engine
	arrived time.Time
}

// arrive begins the time of a request.
func (e *Engine) arrive() *timing {
	if e.times == nil {
		return nil
	}
	return &timing{e, time.Now()}
}

// shards returns the shards of partitions of a table.
func (t *timing) shards(table *catalog.Table, keys ...[]byte) []int {
	out := make([]int, max(1, len(keys)))
	for i, key := range keys {
		out[i] = t.e.shardFor(table, key)
	}
	return out
}

// read waits for a page of a selection that read so many rows.
func (t *timing) read(ctx context.Context, s *selection, rows int64) error {
	if t == nil {
		return nil
	}
	return t.wait(ctx, t.e.times.costs.readParts(t.shards(s.q.table, s.src.keys[s.firstKey():]...), rows))
}

// write waits for a write.
func (t *timing) write(ctx context.Context, kind OpKind, muts []*store.Mutation) error {
	if t == nil {
		return nil
	}
	shards, rows := make([]int, len(muts)), make([]int, len(muts))
	for i, m := range muts {
		shards[i], rows[i] = t.e.shardFor(m.Table, m.Key), max(1, len(m.Rows))
	}
	return t.wait(ctx, t.e.times.costs.writeParts(shards, rows, kind == OpLoggedBatch))
}

// conditional waits for a conditional request on a partition that wrote so many rows.
func (t *timing) conditional(ctx context.Context, table *catalog.Table, key []byte, rows int) error {
	if t == nil {
		return nil
	}
	c := t.e.times.costs
	return t.wait(ctx, map[int]time.Duration{t.e.shardFor(table, key): c.Query + c.Write + time.Duration(rows)*c.WrittenRow})
}

// wait waits until the shards have served the request.
func (t *timing) wait(ctx context.Context, parts map[int]time.Duration) error {
	d := time.Until(t.e.times.serve(t.arrived, parts))
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
