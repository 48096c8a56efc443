package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"
)

// checkpointStore keeps how far a relay has come. A position that was saved is
// read back by every later load, also after a crash.
type checkpointStore interface {
	// Position is the stream's checkpoint; the zero UUID means none.
	Position(ctx context.Context, generation time.Time, stream []byte) (gocql.UUID, error)
	// SavePosition replaces the stream's checkpoint.
	SavePosition(ctx context.Context, generation time.Time, stream []byte, position gocql.UUID) error
}

// Rows of relay_checkpoints that are not a stream's have generation zero and
// one of these in place of the stream; their position is a time.
var (
	currentGeneration = []byte("generation")
	firstStart        = []byte("start")
)

// noGeneration is what stands for no generation: the zero of the timestamp type.
var noGeneration = time.UnixMilli(0).UTC()

// cqlCheckpoints keeps checkpoints in the table relay_checkpoints.
type cqlCheckpoints struct {
	session      *gocql.Session
	relay, table string
	read, write  string
}

func newCQLCheckpoints(session *gocql.Session, keyspace, relay, table string) *cqlCheckpoints {
	return &cqlCheckpoints{
		session: session, relay: relay, table: keyspace + "." + table,
		read: "SELECT position FROM " + keyspace + ".relay_checkpoints" +
			" WHERE relay = ? AND table_name = ? AND generation = ? AND stream_id = ?",
		write: "INSERT INTO " + keyspace + ".relay_checkpoints" +
			" (relay, table_name, generation, stream_id, position, updated_at) VALUES (?, ?, ?, ?, ?, ?)",
	}
}

// Position reads at LOCAL_QUORUM, so it sees what any relay saved.
func (c *cqlCheckpoints) Position(ctx context.Context, generation time.Time, stream []byte) (gocql.UUID, error) {
	var pos gocql.UUID
	err := c.session.Query(c.read, c.relay, c.table, generation, stream).
		WithContext(ctx).Consistency(gocql.LocalQuorum).Scan(&pos)
	if errors.Is(err, gocql.ErrNotFound) {
		return gocql.UUID{}, nil
	}
	if err != nil {
		return gocql.UUID{}, fmt.Errorf("read checkpoint of stream %x: %w", stream, err)
	}
	return pos, nil
}

// SavePosition writes at LOCAL_QUORUM.
func (c *cqlCheckpoints) SavePosition(ctx context.Context, generation time.Time, stream []byte, position gocql.UUID) error {
	err := c.session.Query(c.write, c.relay, c.table, generation, stream, position, time.Now()).
		WithContext(ctx).Consistency(gocql.LocalQuorum).Idempotent(true).Exec()
	if err != nil {
		return fmt.Errorf("save checkpoint of stream %x: %w", stream, err)
	}
	return nil
}

// progressManager tells the reader where to go on. It saves no stream's
// progress for the reader: the checkpointer does, when events are acknowledged.
type progressManager struct {
	store   checkpointStore
	streams *streams
}

var _ scyllacdc.ProgressManagerWithStartTime = (*progressManager)(nil)

// GetCurrentGeneration returns the generation that was saved last.
func (m *progressManager) GetCurrentGeneration(ctx context.Context) (time.Time, error) {
	return m.time(ctx, currentGeneration)
}

// StartGeneration waits until everything read so far is acknowledged and then
// saves that the relay reads gen. Without the wait a crash would begin with gen
// and never look at the streams before it again.
func (m *progressManager) StartGeneration(ctx context.Context, gen time.Time) error {
	if err := m.streams.finishBefore(ctx, gen); err != nil {
		return fmt.Errorf("finish the generation before %s: %w", gen.UTC(), err)
	}
	return m.store.SavePosition(ctx, noGeneration, currentGeneration, gocql.MinTimeUUID(gen))
}

// GetProgress returns the stream's checkpoint.
func (m *progressManager) GetProgress(ctx context.Context, gen time.Time, _ string, stream scyllacdc.StreamID) (scyllacdc.Progress, error) {
	pos, err := m.store.Position(ctx, gen, stream)
	if err == nil {
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
	return m.time(ctx, firstStart)
}

// SaveApplicationReadStartTime saves where the first run begins.
func (m *progressManager) SaveApplicationReadStartTime(ctx context.Context, start time.Time) error {
	return m.store.SavePosition(ctx, noGeneration, firstStart, gocql.MinTimeUUID(start))
}

func (m *progressManager) time(ctx context.Context, row []byte) (time.Time, error) {
	pos, err := m.store.Position(ctx, noGeneration, row)
	if err != nil || pos == (gocql.UUID{}) {
		return time.Time{}, err
	}
	return pos.Time(), nil
}
