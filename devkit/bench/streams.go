package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
)

// Streams are the CDC streams of a table.
type Streams struct {
	// Current are the streams that receive writes now, Written all that may have rows: with
	// tablets each split and each merge replaces the streams, and the rows stay where they
	// are.
	Current, Written [][]byte
}

// generation is the streams from a time on.
type generation struct {
	start   time.Time
	streams [][]byte
}

// ReadStreams reads the streams of a table that was made at a time: with tablets the
// table's own, with vnodes the cluster's.
func ReadStreams(ctx context.Context, session *gocql.Session, keyspace, table string, made time.Time) (Streams, error) {
	// Versions without tablets have no such table, and a table with vnodes has no row in it.
	starts, err := readTimes(ctx, session, "SELECT timestamp FROM system.cdc_timestamps WHERE keyspace_name = ? AND table_name = ?", keyspace, table)
	read := func(start time.Time) *gocql.Query {
		return session.Query("SELECT stream_id FROM system.cdc_streams WHERE keyspace_name = ? AND table_name = ? AND timestamp = ? AND stream_state = 0", keyspace, table, start)
	}
	if err != nil || len(starts) == 0 {
		if starts, err = readTimes(ctx, session, "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"); err != nil {
			return Streams{}, fmt.Errorf("read the CDC generations: %w", err)
		}
		read = nil
	}
	var all []generation
	for _, start := range startsSince(starts, made) {
		g := generation{start: start}
		if read != nil {
			iter := read(start).WithContext(ctx).Consistency(gocql.One).Iter()
			for id := []byte(nil); iter.Scan(&id); id = nil {
				g.streams = append(g.streams, id)
			}
			err = iter.Close()
		} else {
			iter := session.Query("SELECT streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?", start).WithContext(ctx).Consistency(gocql.One).Iter()
			for set := [][]byte(nil); iter.Scan(&set); set = nil {
				g.streams = append(g.streams, set...)
			}
			err = iter.Close()
		}
		if err != nil {
			return Streams{}, fmt.Errorf("read the CDC streams of %s.%s: %w", keyspace, table, err)
		}
		all = append(all, g)
	}
	return newStreams(all, time.Now())
}

// readTimes returns the times of the rows of a statement.
func readTimes(ctx context.Context, session *gocql.Session, stmt string, args ...any) (out []time.Time, err error) {
	iter := session.Query(stmt, args...).WithContext(ctx).Consistency(gocql.One).Iter()
	for t := (time.Time{}); iter.Scan(&t); {
		out = append(out, t)
	}
	return out, iter.Close()
}

// startsSince returns the starts of the generations that were in force at a time or began
// later, in order.
func startsSince(starts []time.Time, at time.Time) []time.Time {
	slices.SortFunc(starts, time.Time.Compare)
	first := 0
	for i, start := range starts {
		if !start.After(at) {
			first = i
		}
	}
	return starts[first:]
}

// newStreams returns the streams of generations, which are in order, at a time.
func newStreams(all []generation, now time.Time) (s Streams, err error) {
	for i, g := range all {
		if i == 0 || !g.start.After(now) {
			s.Current = g.streams
		}
		s.Written = append(s.Written, g.streams...)
	}
	if len(s.Current) == 0 {
		return s, errors.New("the table has no CDC streams")
	}
	return s, nil
}
