package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/capture"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// errEnough ends the read of Written at its limit.
var errEnough = errors.New("enough events")

// logReads bounds the concurrent queries of a Log.
const logReads = 16

// Log reads the events in the CDC log of an outbox table: of the shard of its configuration, or of the whole
// table without one. It keeps the columns of the table and the streams of the log, so that a read takes one round
// trip to the database, and reads both again after an error, and the streams when there are others. It only reads,
// and is safe for concurrent use.
type Log struct {
	cfg     Config
	opening chan struct{} // full while the table is read

	mu    sync.Mutex
	known *openLog // nil: not read yet
}

// NewLog returns a Log. It requires Session, Keyspace, Name and the table of cfg.
func NewLog(cfg Config) *Log { return &Log{cfg: cfg.withDefaults(), opening: make(chan struct{}, 1)} }

// ReadTable reads what a Log keeps, and prepares the statements of a read, so that a read in the meantime, and the
// first one after it, take fewer round trips. It is for a session whose requests all go to one node. Without it the
// first read does the same, one request after the other; an error is left to that.
func (l *Log) ReadTable(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { cdclog.PrepareGenerations(ctx, l.cfg.Session) })
	all.Go(func() {
		if known, err := l.open(ctx, nil); err == nil {
			known.reader.Prepare(ctx)
		}
	})
	all.Wait()
}

// WrittenEvent is an event in the CDC log, without its content.
type WrittenEvent struct {
	outbox.Event
	// First and At are its first and its last write since the time: an event is written again to
	// settle it, or because its batch was repeated.
	First, At time.Time
}

// Unread returns the number of events that were written since a time, at most limit. While no relay reads the
// log, they wait.
func (l *Log) Unread(ctx context.Context, since time.Time, limit int) (n int, err error) {
	err = l.Written(ctx, since, limit, func(WrittenEvent) { n++ })
	return n, err
}

// Written calls each for the events that were written since a time, at most limit, in no order.
func (l *Log) Written(ctx context.Context, since time.Time, limit int, each func(WrittenEvent)) error {
	known := l.keptTable()
	var found []WrittenEvent
	var err error
	stale := known == nil
	if known != nil {
		var starts []time.Time
		g, gctx := errgroup.WithContext(ctx)
		g.Go(func() (err error) { starts, err = known.readStarts(gctx); return err })
		g.Go(func() (err error) { found, err = known.read(gctx, since, limit); return err })
		err = g.Wait()
		stale = err == nil && !slices.EqualFunc(starts, known.starts, time.Time.Equal)
	}
	if stale {
		if known, err = l.open(ctx, known); err == nil {
			found, err = known.read(ctx, since, limit)
		}
	}
	if err != nil {
		l.keepTable(nil)
	}
	for _, e := range found {
		each(e)
	}
	return err
}

// open reads the table and keeps it, one caller at a time: another one has read it if it is not the stale one.
func (l *Log) open(ctx context.Context, stale *openLog) (*openLog, error) {
	select {
	case l.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.opening }()
	if known := l.keptTable(); known != nil && known != stale {
		return known, nil
	}
	known, err := openLogOf(ctx, &l.cfg)
	if err == nil {
		l.keepTable(known)
	}
	return known, err
}

func (l *Log) keptTable() *openLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

func (l *Log) keepTable(known *openLog) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = known
}

// openLog is the table of a Log and the generations of its streams.
type openLog struct {
	table       outbox.Table
	own         cdclog.Portion
	generations cdclog.Generations
	reader      *cdclog.Reader
	starts      []time.Time // in order

	mu      sync.Mutex
	streams map[time.Time][][]byte // by the start of their generation
}

// openLogOf reads the table and the start times of the generations.
func openLogOf(ctx context.Context, cfg *Config) (*openLog, error) {
	o := &openLog{streams: make(map[time.Time][][]byte)}
	o.generations = cdclog.NewGenerations(cfg.Session, cfg.TableKeyspace, cfg.Table, &o.own)
	var failed error
	var starts sync.WaitGroup
	starts.Go(func() { o.starts, failed = o.readStarts(ctx) })
	table, _, err := readTable(ctx, cfg)
	starts.Wait()
	if err = cmp.Or(err, failed); err != nil {
		return nil, err
	}
	o.table, o.own = table, cdclog.NewPortion(cfg.Shard, table)
	o.reader = cdclog.NewReader(cfg.Session, rows.Outline(table), &o.own)
	return o, nil
}

func (o *openLog) readStarts(ctx context.Context) ([]time.Time, error) {
	starts, err := o.generations.Times(ctx)
	slices.SortFunc(starts, time.Time.Compare)
	return starts, err
}

// read returns the events that were written since a time, at most limit.
func (o *openLog) read(ctx context.Context, since time.Time, limit int) (found []WrittenEvent, err error) {
	if o.own.None() {
		return nil, nil // another shard processes the whole table
	}
	streams, err := o.streamsSince(ctx, since)
	if err != nil {
		return nil, err
	}
	type identity struct {
		id, aggregate outbox.ID
		sequence      int64
	}
	var mu sync.Mutex
	known := make(map[identity]int)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(logReads)
	width := max(1, min((len(streams)+logReads-1)/logReads, capture.GroupStreams)) // the pages of a query follow one another
	for some := range slices.Chunk(streams, width) {
		g.Go(func() error {
			_, err := o.reader.Read(gctx, cdclog.NewStreamList(some...), max(since.UnixMicro(), 0), 0, true,
				func([]byte, cdclog.RowKey) bool { return false }, func(row *cdclog.Row) error {
					if !row.Insert {
						return nil
					}
					e := WrittenEvent{Event: row.Event, First: row.Time.Time(), At: row.Time.Time()}
					of := identity{e.ID, e.AggregateID, e.Sequence}
					mu.Lock()
					defer mu.Unlock()
					if i, ok := known[of]; ok {
						w := &found[i]
						if e.At.Before(w.First) {
							w.First = e.At
						}
						if e.At.After(w.At) {
							w.At = e.At
						}
						return nil
					}
					if len(found) == limit {
						return errEnough
					}
					known[of] = len(found)
					found = append(found, e)
					return nil
				})
			return err
		})
	}
	if err := g.Wait(); err != nil && !errors.Is(err, errEnough) {
		return nil, fmt.Errorf("read the events of %s in the CDC log: %w", o.table, err)
	}
	return found, nil
}

// streamsSince returns the streams that may contain rows written since a time, and concurrently reads the
// unknown ones.
func (o *openLog) streamsSince(ctx context.Context, since time.Time) (all [][]byte, err error) {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(logReads)
	now := time.Now()
	for i, start := range o.starts {
		if start.After(now) || i+1 < len(o.starts) && o.starts[i+1].Before(since) {
			continue
		}
		g.Go(func() error {
			o.mu.Lock()
			streams, ok := o.streams[start]
			o.mu.Unlock()
			if !ok {
				g, err := o.generations.Generation(gctx, start)
				if err != nil {
					return err
				}
				streams = g.Streams
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			o.streams[start] = streams
			all = append(all, streams...)
			return nil
		})
	}
	err = g.Wait()
	return all, err
}
