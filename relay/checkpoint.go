package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/internal/again"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// checkpointStore keeps how far a relay has come. What was saved is read back
// by every later call, also after a crash.
type checkpointStore interface {
	// Position is the stream's checkpoint; the zero UUID means none.
	Position(ctx context.Context, generation time.Time, stream []byte) (gocql.UUID, error)
	// Positions are the checkpoints of a generation's streams, by stream.
	Positions(ctx context.Context, generation time.Time) (map[string]gocql.UUID, error)
	// SavePosition replaces the stream's checkpoint.
	SavePosition(ctx context.Context, generation time.Time, stream []byte, position gocql.UUID) error
	// Start says which generation the relay reads and from when it first read;
	// zero times mean that it never did.
	Start(ctx context.Context) (generation, first time.Time, err error)
	// SaveGeneration replaces the generation that the relay reads.
	SaveGeneration(ctx context.Context, generation time.Time) error
	// SaveFirst replaces the time from which the relay first read.
	SaveFirst(ctx context.Context, first time.Time) error
	// Topics are the topics that were saved.
	Topics(ctx context.Context) ([]string, error)
	// SaveTopic adds a topic, once however often it is saved.
	SaveTopic(ctx context.Context, topic string) error
}

// cqlCheckpoints keeps checkpoints in the tables relay_checkpoints and
// relay_topics. It reads and writes at LOCAL_QUORUM, so a relay sees what any
// other saved.
type cqlCheckpoints struct {
	session                                    *gocql.Session
	relay, table, host                         string
	topicsOf                                   string // whose topics; relay's own unless set
	read, all, write, start, generation, first string
	topics, topic                              string
	fence                                      func() error // of what is written; nil is none
}

// newCQLCheckpoints keeps the checkpoints of the relay's table, a name with its
// keyspace, in the given keyspace.
func newCQLCheckpoints(session *gocql.Session, keyspace, relay, table string) *cqlCheckpoints {
	name, topics := keyspace+".relay_checkpoints", keyspace+".relay_topics"
	return &cqlCheckpoints{
		session: session, relay: relay, table: table, host: self.Host(), topicsOf: relay,
		read: "SELECT position FROM " + name + " WHERE relay = ? AND table_name = ? AND generation = ? AND stream_id = ?",
		all:  "SELECT stream_id, position FROM " + name + " WHERE relay = ? AND table_name = ? AND generation = ?",
		write: "INSERT INTO " + name + " (relay, table_name, generation, stream_id, position, updated_at, updated_by)" +
			" VALUES (?, ?, ?, ?, ?, ?, ?)",
		start:      "SELECT current_generation, started_at FROM " + name + " WHERE relay = ? AND table_name = ? LIMIT 1",
		generation: "INSERT INTO " + name + " (relay, table_name, current_generation) VALUES (?, ?, ?)",
		first:      "INSERT INTO " + name + " (relay, table_name, started_at) VALUES (?, ?, ?)",
		topics:     "SELECT topic FROM " + topics + " WHERE relay = ? AND table_name = ?",
		topic:      "INSERT INTO " + topics + " (relay, table_name, topic, first_used) VALUES (?, ?, ?, ?)",
	}
}

func (c *cqlCheckpoints) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return c.queryOf(ctx, c.relay, stmt, args...)
}

// queryOf is query for another relay's rows. Writes have the database's time: with its
// own, an instance whose clock is ahead would cover what its successor saves.
func (c *cqlCheckpoints) queryOf(ctx context.Context, relay, stmt string, args ...any) *gocql.Query {
	return c.session.Query(stmt, append([]any{relay, c.table}, args...)...).
		WithContext(ctx).Consistency(gocql.LocalQuorum).Idempotent(true).DefaultTimestamp(false)
}

func (c *cqlCheckpoints) Position(ctx context.Context, generation time.Time, stream []byte) (gocql.UUID, error) {
	var pos gocql.UUID
	err := c.query(ctx, c.read, generation, stream).Scan(&pos)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return gocql.UUID{}, fmt.Errorf("read checkpoint of stream %x: %w", stream, err)
	}
	return pos, nil
}

func (c *cqlCheckpoints) Positions(ctx context.Context, generation time.Time) (map[string]gocql.UUID, error) {
	iter := c.query(ctx, c.all, generation).Iter()
	out := make(map[string]gocql.UUID)
	var stream []byte
	var pos gocql.UUID
	for iter.Scan(&stream, &pos) {
		out[string(stream)] = pos
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the checkpoints of generation %s: %w", generation.UTC(), err)
	}
	return out, nil
}

func (c *cqlCheckpoints) SavePosition(ctx context.Context, generation time.Time, stream []byte, position gocql.UUID) error {
	if err := fenced(c.fence); err != nil {
		return err
	}
	if err := c.query(ctx, c.write, generation, stream, position, time.Now(), c.host).Exec(); err != nil {
		return fmt.Errorf("save checkpoint of stream %x: %w", stream, err)
	}
	return nil
}

func (c *cqlCheckpoints) Start(ctx context.Context) (generation, first time.Time, err error) {
	var gen, start *time.Time
	err = c.query(ctx, c.start).Scan(&gen, &start)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return time.Time{}, time.Time{}, fmt.Errorf("read where relay %s began: %w", c.relay, err)
	}
	if gen != nil {
		generation = *gen
	}
	if start != nil {
		first = *start
	}
	return generation, first, nil
}

func (c *cqlCheckpoints) SaveGeneration(ctx context.Context, generation time.Time) error {
	if err := fenced(c.fence); err != nil {
		return err
	}
	if err := c.query(ctx, c.generation, generation).Exec(); err != nil {
		return fmt.Errorf("save generation %s: %w", generation.UTC(), err)
	}
	return nil
}

func (c *cqlCheckpoints) SaveFirst(ctx context.Context, first time.Time) error {
	if err := fenced(c.fence); err != nil {
		return err
	}
	if err := c.query(ctx, c.first, first).Exec(); err != nil {
		return fmt.Errorf("save where the relay began: %w", err)
	}
	return nil
}

func (c *cqlCheckpoints) Topics(ctx context.Context) ([]string, error) {
	iter := c.queryOf(ctx, c.topicsOf, c.topics).Iter()
	var out []string
	var topic string
	for iter.Scan(&topic) {
		out = append(out, topic)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the topics of relay %s: %w", c.topicsOf, err)
	}
	return out, nil
}

func (c *cqlCheckpoints) SaveTopic(ctx context.Context, topic string) error {
	if err := c.queryOf(ctx, c.topicsOf, c.topic, topic, time.Now()).Exec(); err != nil {
		return fmt.Errorf("save topic %s: %w", topic, err)
	}
	return nil
}

// progressManager tells the reader where to go on. It saves no stream's
// progress for the reader: the checkpointer does, when events are acknowledged.
//
// What the running reader asks of it is tried until it works or the reader is to
// end: an error would end the reader, which then never returns if more
// generations are waiting.
type progressManager struct {
	store   checkpointStore
	streams *streams
	log     *slog.Logger
	skipped *skippedStreams
}

// The waits between two tries of progressManager.
const progressRetryMin, progressRetryMax = 100 * time.Millisecond, 10 * time.Second

// until tries do until it works, ctx ends, or the error is Fatal.
func (m *progressManager) until(ctx context.Context, do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil || ctx.Err() != nil || failure.Classify(err) == failure.Fatal {
			return err
		}
		if attempt == 1 {
			m.log.Warn("the reader waits for a checkpoint", "err", err)
		}
		if err := retry.Wait(ctx, retry.Backoff(progressRetryMin, progressRetryMax, attempt)); err != nil {
			return err
		}
	}
}

var _ scyllacdc.ProgressManagerWithStartTime = (*progressManager)(nil)

// GetCurrentGeneration returns the generation that was saved last.
func (m *progressManager) GetCurrentGeneration(ctx context.Context) (time.Time, error) {
	generation, _, err := m.store.Start(ctx)
	return generation, err
}

// StartGeneration waits until everything read so far is acknowledged and then
// saves that the relay reads gen. Without the wait a crash would begin with gen
// and never look at the streams before it again.
func (m *progressManager) StartGeneration(ctx context.Context, gen time.Time) error {
	return m.until(ctx, func() error {
		if err := m.streams.finishBefore(ctx, gen); err != nil {
			return fmt.Errorf("finish the generation before %s: %w", gen.UTC(), err)
		}
		if err := m.skipped.choose(ctx, gen); err != nil {
			return err
		}
		return m.store.SaveGeneration(ctx, gen)
	})
}

// GetProgress returns the stream's checkpoint, or what a backfill has put behind it.
// Of a stream with nothing of this shard it is so far ahead that the reader never
// asks for it; nobody saves that.
func (m *progressManager) GetProgress(ctx context.Context, gen time.Time, _ string, stream scyllacdc.StreamID) (scyllacdc.Progress, error) {
	if m.skipped.has(stream) {
		return scyllacdc.Progress{LastProcessedRecordTime: farAhead}, nil
	}
	var pos gocql.UUID
	err := m.until(ctx, func() (err error) {
		pos, err = m.store.Position(ctx, gen, stream)
		return err
	})
	if err == nil {
		pos = m.streams.raise(gen, pos)
		m.streams.starts(gen, stream, pos)
	}
	return scyllacdc.Progress{LastProcessedRecordTime: pos}, err
}

// SaveProgress is not used: nothing calls the library's ProgressReporter.
func (m *progressManager) SaveProgress(context.Context, time.Time, string, scyllacdc.StreamID, scyllacdc.Progress) error {
	return nil
}

// GetApplicationReadStartTime returns where the first run of this relay began.
func (m *progressManager) GetApplicationReadStartTime(ctx context.Context) (time.Time, error) {
	_, first, err := m.store.Start(ctx)
	return first, err
}

// SaveApplicationReadStartTime saves where the first run begins.
func (m *progressManager) SaveApplicationReadStartTime(ctx context.Context, start time.Time) error {
	return m.store.SaveFirst(ctx, start)
}
