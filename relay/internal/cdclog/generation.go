package cdclog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
)

// Generation is a set of streams and the time from which it is written to.
type Generation struct {
	Start time.Time
	// Streams are ordered by token.
	Streams [][]byte
	// Ranges contain the streams of each token's events: the streams of the first range
	// that does not end before the token, or of the first range if there is none.
	Ranges []StreamRange
}

// StreamRange is a vnode with one stream for each shard of its owner, or a
// tablet with one stream.
type StreamRange struct {
	End     int64
	Streams []int // indexes in Generation.Streams
}

// Generations reads the generations of a table's CDC log.
type Generations interface {
	// Times returns the start times of all generations, in no order, including future
	// ones.
	Times(ctx context.Context) ([]time.Time, error)
	// Generation returns the generation that starts at the given time.
	Generation(ctx context.Context, start time.Time) (*Generation, error)
}

// StreamsFor returns the streams that may contain the events of a token.
func (g *Generation) StreamsFor(token int64) []int {
	if len(g.Ranges) == 0 {
		return nil
	}
	i, _ := slices.BinarySearchFunc(g.Ranges, token, func(r StreamRange, t int64) int { return cmp.Compare(r.End, t) })
	return g.Ranges[i%len(g.Ranges)].Streams
}

// NewGeneration returns a generation with the streams ordered by token; end returns the
// end of the range of stream i.
func NewGeneration(start time.Time, streams [][]byte, end func(i int) int64) *Generation {
	order := make([]int, len(streams))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return CompareStreams(streams[a], streams[b]) })
	g := &Generation{Start: start}
	byEnd := make(map[int64][]int)
	for i, old := range order {
		g.Streams = append(g.Streams, streams[old])
		byEnd[end(old)] = append(byEnd[end(old)], i)
	}
	for e, s := range byEnd {
		g.Ranges = append(g.Ranges, StreamRange{e, s})
	}
	slices.SortFunc(g.Ranges, func(a, b StreamRange) int { return cmp.Compare(a.End, b.End) })
	return g
}

// StreamToken returns the token of a stream: the first half of its id.
func StreamToken(id []byte) int64 {
	if len(id) < 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(id))
}

// CompareStreams compares streams by token, then by id.
func CompareStreams(a, b []byte) int {
	return cmp.Or(cmp.Compare(StreamToken(a), StreamToken(b)), bytes.Compare(a, b))
}

// Index returns the index of a stream, -1 if the generation does not contain it.
func (g *Generation) Index(stream []byte) int {
	i, ok := slices.BinarySearchFunc(g.Streams, stream, CompareStreams)
	if !ok {
		return -1
	}
	return i
}

// The statements of cqlGenerations, with tablets and without.
const (
	selectTabletTimes   = "SELECT timestamp FROM system.cdc_timestamps WHERE keyspace_name = ? AND table_name = ?"
	selectTabletStreams = "SELECT stream_id FROM system.cdc_streams WHERE keyspace_name = ? AND table_name = ? AND timestamp = ? AND stream_state = ?"
	selectTimes         = "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
	selectStreams       = "SELECT range_end, streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?"
	countPeers          = "SELECT COUNT(*) FROM system.peers"
)

// PrepareGenerations prepares the statements that read generations, of which a database may lack some: see
// [sessions.Prepare].
func PrepareGenerations(ctx context.Context, s *gocql.Session) {
	sessions.Prepare(ctx, s, selectTabletTimes, selectTabletStreams, selectTimes, selectStreams, countPeers)
}

// cqlGenerations reads the same tables as scylla-cdc-go.
type cqlGenerations struct {
	session         *gocql.Session
	keyspace, table string
	// tablets is true if the keyspace has tablets; valid once detected is true.
	tablets, detected bool
}

func (c *cqlGenerations) Times(ctx context.Context) ([]time.Time, error) {
	if err := c.detect(ctx); err != nil {
		return nil, err
	}
	var q *gocql.Query
	if c.tablets {
		q = c.session.Query(selectTabletTimes, c.keyspace, c.table)
	} else {
		q = c.session.Query(selectTimes)
	}
	cons, err := c.consistency(ctx)
	if err != nil {
		return nil, err
	}
	var out []time.Time
	err = cqlcode.RetryTransient(ctx, cqlcode.TableDrop, func() error {
		out = nil
		iter := q.WithContext(ctx).Consistency(cons).Idempotent(true).Iter()
		for t := (time.Time{}); iter.Scan(&t); {
			out = append(out, t)
		}
		return iter.Close()
	})
	if err != nil {
		return nil, fmt.Errorf("read the start times of CDC generations: %w", err)
	}
	return out, nil
}

func (c *cqlGenerations) Generation(ctx context.Context, start time.Time) (*Generation, error) {
	if err := c.detect(ctx); err != nil {
		return nil, err
	}
	cons, err := c.consistency(ctx)
	if err != nil {
		return nil, err
	}
	var streams [][]byte
	var ends []int64
	err = cqlcode.RetryTransient(ctx, cqlcode.TableDrop, func() error {
		streams, ends = nil, nil
		if c.tablets {
			iter := c.session.Query(selectTabletStreams,
				c.keyspace, c.table, start, int8(0)).WithContext(ctx).Consistency(cons).Idempotent(true).Iter()
			for id := []byte(nil); iter.Scan(&id); id = nil {
				streams, ends = append(streams, id), append(ends, StreamToken(id)) // the last token of its tablet
			}
			return iter.Close()
		}
		iter := c.session.Query(selectStreams, start).
			WithContext(ctx).Consistency(cons).Idempotent(true).Iter()
		var end int64
		for set := [][]byte(nil); iter.Scan(&end, &set); set = nil {
			for _, id := range set {
				streams, ends = append(streams, id), append(ends, end)
			}
		}
		return iter.Close()
	})
	if err != nil {
		return nil, fmt.Errorf("read the CDC generation of %s: %w", start.UTC(), err)
	}
	if len(streams) == 0 {
		return nil, fmt.Errorf("the CDC generation of %s has no streams yet", start.UTC())
	}
	return NewGeneration(start, streams, func(i int) int64 { return ends[i] }), nil
}

// detect determines whether the keyspace has tablets: only those have a row with the
// column initial_tablets, null or not.
func (c *cqlGenerations) detect(ctx context.Context) error {
	if c.detected {
		return nil
	}
	iter := c.session.Query("SELECT * FROM system_schema.scylla_keyspaces WHERE keyspace_name = ?", c.keyspace).WithContext(ctx).Idempotent(true).Iter()
	row := make(map[string]any)
	found := iter.MapScan(row)
	if err := iter.Close(); err != nil {
		return fmt.Errorf("detect tablets: %w", err)
	}
	_, column := row["initial_tablets"]
	c.tablets, c.detected = found && column, true
	return nil
}

// consistency returns QUORUM, or ONE for a single node, which cannot form a quorum of the
// three replicas of system_distributed, and with tablets, because each node answers alone.
func (c *cqlGenerations) consistency(ctx context.Context) (gocql.Consistency, error) {
	if c.tablets {
		return gocql.One, nil
	}
	var peers int64
	if err := c.session.Query(countPeers).WithContext(ctx).Idempotent(true).Scan(&peers); err != nil {
		return 0, fmt.Errorf("count the nodes: %w", err)
	}
	if peers == 0 {
		return gocql.One, nil
	}
	return gocql.Quorum, nil
}
