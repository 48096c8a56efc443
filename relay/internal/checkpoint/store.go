package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/fence"
)

// Store stores the progress of a relay. Later calls return the saved progress, also after a
// crash.
type Store interface {
	// Position returns the checkpoint of a stream, the zero UUID without one.
	Position(ctx context.Context, generation time.Time, stream []byte) (gocql.UUID, error)
	// Positions returns the checkpoints of a generation by stream.
	Positions(ctx context.Context, generation time.Time) (map[string]gocql.UUID, error)
	// SavePosition replaces the checkpoint of a stream.
	SavePosition(ctx context.Context, generation time.Time, stream []byte, position gocql.UUID) error
	// Start returns the generation being read and the time from which the relay first
	// read; zero times if it never did.
	Start(ctx context.Context) (generation, first time.Time, err error)
	// SaveGeneration replaces the generation being read.
	SaveGeneration(ctx context.Context, generation time.Time) error
	// SaveFirst replaces the time from which the relay first read.
	SaveFirst(ctx context.Context, first time.Time) error
	// Topics returns the saved topics.
	Topics(ctx context.Context) ([]string, error)
	// SaveTopic adds a topic; it is idempotent.
	SaveTopic(ctx context.Context, topic string) error
}

// CQLStore stores checkpoints in the tables relay_checkpoints and relay_topics. It reads
// and writes at LOCAL_QUORUM, so a relay reads the writes of every other relay.
type CQLStore struct {
	session                                    *gocql.Session
	relay, table, host                         string
	topicsOf                                   string // relay whose topics are read and written
	read, all, write, start, generation, first string
	began, ended                               string
	topics, topic                              string
	window                                     time.Duration
	fence                                      fence.Fence // checked before writes; may be nil
}

// NewCQLStore returns the checkpoints of the relay for a table, a name with its keyspace,
// stored in the given keyspace. topicsOf is the relay whose topics are read and written.
// fence is checked before each write of a checkpoint and may be nil.
//
// A stored position later than window before it was written is returned as that time: the
// clock of the host that wrote it was ahead, and later rows may not have been read.
func NewCQLStore(session *gocql.Session, keyspace, relay, table, topicsOf string, f fence.Fence, window time.Duration) *CQLStore {
	name, topics := keyspace+".relay_checkpoints", keyspace+".relay_topics"
	return &CQLStore{
		window: window, session: session, relay: relay, table: table, host: self.Host(), topicsOf: topicsOf, fence: f,
		read: "SELECT position, writetime(position) FROM " + name + " WHERE relay = ? AND table_name = ? AND generation = ? AND stream_id = ?",
		all:  "SELECT stream_id, position, writetime(position) FROM " + name + " WHERE relay = ? AND table_name = ? AND generation = ?",
		write: "INSERT INTO " + name + " (relay, table_name, generation, stream_id, position, updated_at, updated_by)" +
			" VALUES (?, ?, ?, ?, ?, ?, ?)",
		start:      "SELECT current_generation, started_at FROM " + name + " WHERE relay = ? AND table_name = ? LIMIT 1",
		generation: "INSERT INTO " + name + " (relay, table_name, current_generation) VALUES (?, ?, ?)",
		first:      "INSERT INTO " + name + " (relay, table_name, started_at) VALUES (?, ?, ?)",
		began:      "SELECT generation FROM " + name + " WHERE relay = ? AND table_name = ? AND generation <= ?",
		ended:      "DELETE FROM " + name + " WHERE relay = ? AND table_name = ? AND generation < ?",
		topics:     "SELECT topic FROM " + topics + " WHERE relay = ? AND table_name = ?",
		topic:      "INSERT INTO " + topics + " (relay, table_name, topic, first_used) VALUES (?, ?, ?, ?)",
	}
}

func (c *CQLStore) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return c.queryRelay(ctx, c.relay, stmt, args...)
}

// queryRelay is query for the rows of another relay. Writes use the database's timestamps:
// with its own, an instance whose clock is ahead would overwrite what its successor
// saves.
func (c *CQLStore) queryRelay(ctx context.Context, relay, stmt string, args ...any) *gocql.Query {
	return c.session.Query(stmt, append([]any{relay, c.table}, args...)...).
		WithContext(ctx).Consistency(gocql.LocalQuorum).Idempotent(true).DefaultTimestamp(false)
}

// Position implements Store.
func (c *CQLStore) Position(ctx context.Context, generation time.Time, stream []byte) (gocql.UUID, error) {
	var pos gocql.UUID
	var written int64
	err := c.query(ctx, c.read, generation, stream).Scan(&pos, &written)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return gocql.UUID{}, fmt.Errorf("read checkpoint of stream %x: %w", stream, err)
	}
	return c.readBy(pos, written), nil
}

// readBy returns the position up to which all rows were visible when it was written, at a
// time of the database in microseconds.
func (c *CQLStore) readBy(pos gocql.UUID, written int64) gocql.UUID {
	if newest := time.UnixMicro(written).Add(-c.window); written > 0 && pos.Time().After(newest) {
		return gocql.MinTimeUUID(newest)
	}
	return pos
}

// Positions implements Store.
func (c *CQLStore) Positions(ctx context.Context, generation time.Time) (map[string]gocql.UUID, error) {
	iter := c.query(ctx, c.all, generation).Iter()
	out := make(map[string]gocql.UUID)
	var stream []byte
	var pos gocql.UUID
	var written int64
	for iter.Scan(&stream, &pos, &written) {
		out[string(stream)] = c.readBy(pos, written)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the checkpoints of generation %s: %w", generation.UTC(), err)
	}
	return out, nil
}

// SavePosition implements Store.
func (c *CQLStore) SavePosition(ctx context.Context, generation time.Time, stream []byte, position gocql.UUID) error {
	if err := fence.Check(c.fence); err != nil {
		return err
	}
	if err := c.query(ctx, c.write, generation, stream, position, time.Now(), c.host).Exec(); err != nil {
		return fmt.Errorf("save checkpoint of stream %x: %w", stream, err)
	}
	return nil
}

// Start implements Store.
func (c *CQLStore) Start(ctx context.Context) (generation, first time.Time, err error) {
	var gen, start *time.Time
	err = c.query(ctx, c.start).Scan(&gen, &start)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return time.Time{}, time.Time{}, fmt.Errorf("read the start of relay %s: %w", c.relay, err)
	}
	if gen != nil {
		generation = *gen
	}
	if start != nil {
		first = *start
	}
	return generation, first, nil
}

// endedFor is for how long the checkpoints of a generation are kept after its end, for relays
// with another number of shards of which one is behind. Splits and merges of tablets make
// generations several times a day.
const endedFor = 24 * time.Hour

// SaveGeneration implements Store. It removes the checkpoints of generations that ended long
// before this one began: those before the newest one that began endedFor before it.
func (c *CQLStore) SaveGeneration(ctx context.Context, generation time.Time) error {
	if err := fence.Check(c.fence); err != nil {
		return err
	}
	if err := c.query(ctx, c.generation, generation).Exec(); err != nil {
		return fmt.Errorf("save generation %s: %w", generation.UTC(), err)
	}
	var kept, one time.Time
	iter := c.query(ctx, c.began, generation.Add(-endedFor)).Iter()
	for iter.Scan(&one) {
		if one.After(kept) {
			kept = one
		}
	}
	if err := iter.Close(); err != nil {
		return fmt.Errorf("read the generations before %s: %w", generation.UTC(), err)
	}
	if kept.IsZero() {
		return nil
	}
	if err := c.query(ctx, c.ended, kept).Exec(); err != nil {
		return fmt.Errorf("remove the checkpoints of generations before %s: %w", kept.UTC(), err)
	}
	return nil
}

// SaveFirst implements Store.
func (c *CQLStore) SaveFirst(ctx context.Context, first time.Time) error {
	if err := fence.Check(c.fence); err != nil {
		return err
	}
	if err := c.query(ctx, c.first, first).Exec(); err != nil {
		return fmt.Errorf("save the start of the relay: %w", err)
	}
	return nil
}

// Topics implements Store.
func (c *CQLStore) Topics(ctx context.Context) ([]string, error) {
	iter := c.queryRelay(ctx, c.topicsOf, c.topics).Iter()
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

// SaveTopic implements Store.
func (c *CQLStore) SaveTopic(ctx context.Context, topic string) error {
	if err := c.queryRelay(ctx, c.topicsOf, c.topic, topic, time.Now()).Exec(); err != nil {
		return fmt.Errorf("save topic %s: %w", topic, err)
	}
	return nil
}

var _ scyllacdc.ProgressManagerWithStartTime = (*Manager)(nil)
