package relay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/self"
)

// States of a backfill, as the table spells them.
const (
	backfillRunning  = "running"
	backfillDone     = "done"
	backfillReplaced = "replaced" // by a later one, which covers it
	backfillNone     = "not_needed"
)

// backfillRow is a scan of the outbox table as relay_backfills has it. Times are
// to the millisecond.
type backfillRow struct {
	started time.Time // names it
	reason  string
	state   string
	forced  time.Time // what BackfillFrom said, zero if it was not asked for
	// from and until bound the write times of the rows that it answers for.
	from, until time.Time
	// mark is the time since which a relay may have published rows of it.
	mark   time.Time
	ranges int
	done   []int
	read   int64
	out    int64
	// updated is when it was last saved.
	updated time.Time
}

// cqlBackfills keeps scans in the table relay_backfills, at LOCAL_QUORUM and with the
// database's time: the instance that ends a scan need not be the one that began it.
type cqlBackfills struct {
	session            *gocql.Session
	relay, table, host string
	name               string
	fence              func() error // of what is written; nil is none
}

// newCQLBackfills keeps the scans of the relay's table, a name with its keyspace,
// in the given keyspace.
func newCQLBackfills(session *gocql.Session, keyspace, relay, table string) *cqlBackfills {
	return &cqlBackfills{session: session, relay: relay, table: table, host: self.Host(), name: keyspace + ".relay_backfills"}
}

// load returns all scans, the newest first.
func (c *cqlBackfills) load(ctx context.Context) ([]backfillRow, error) {
	iter := c.session.Query("SELECT started_at, reason, state, forced_from, rows_from, rows_until, mark, ranges, done, rows_read, rows_published, updated_at FROM "+
		c.name+" WHERE relay = ? AND table_name = ?", c.relay, c.table).
		WithContext(ctx).Consistency(gocql.LocalQuorum).Idempotent(true).Iter()
	var out []backfillRow
	for r := (backfillRow{}); iter.Scan(&r.started, &r.reason, &r.state, &r.forced, &r.from, &r.until, &r.mark, &r.ranges, &r.done, &r.read, &r.out, &r.updated); r = (backfillRow{}) {
		out = append(out, r)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the backfills of relay %s: %w", c.relay, err)
	}
	slices.SortFunc(out, func(a, b backfillRow) int { return b.started.Compare(a.started) })
	return out, nil
}

// begin saves a scan, and that it replaces another one, if it does: both or neither.
func (c *cqlBackfills) begin(ctx context.Context, r *backfillRow, replaced *backfillRow) error {
	if err := fenced(c.fence); err != nil {
		return err
	}
	b := c.session.Batch(gocql.LoggedBatch).WithContext(ctx).DefaultTimestamp(false)
	b.SetConsistency(gocql.LocalQuorum)
	now := time.Now()
	b.Query("INSERT INTO "+c.name+" (relay, table_name, started_at, reason, state, forced_from, rows_from, rows_until, mark, ranges, rows_read, rows_published, updated_at, updated_by)"+
		" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		c.relay, c.table, r.started, r.reason, r.state, orNull(r.forced), orNull(r.from), r.until, r.mark, r.ranges, r.read, r.out, now, c.host)
	if replaced != nil {
		b.Query("UPDATE "+c.name+" SET state = ?, updated_at = ? WHERE relay = ? AND table_name = ? AND started_at = ?",
			backfillReplaced, now, c.relay, c.table, replaced.started)
	}
	if err := b.Exec(); err != nil {
		return fmt.Errorf("save that a backfill begins: %w", err)
	}
	return nil
}

// advance saves that ranges are done, what was counted so far, and the state.
func (c *cqlBackfills) advance(ctx context.Context, r *backfillRow, ranges []int) error {
	if err := fenced(c.fence); err != nil {
		return err
	}
	err := c.session.Query("UPDATE "+c.name+" SET done = done + ?, rows_read = ?, rows_published = ?, state = ?, updated_at = ?, updated_by = ?"+
		" WHERE relay = ? AND table_name = ? AND started_at = ?",
		ranges, r.read, r.out, r.state, time.Now(), c.host, c.relay, c.table, r.started).
		WithContext(ctx).Consistency(gocql.LocalQuorum).Idempotent(true).DefaultTimestamp(false).Exec()
	if err != nil {
		return fmt.Errorf("save how far the backfill is: %w", err)
	}
	return nil
}

// unfinished is the scan that is to go on, nil without one: the newest that runs.
// An older one that runs too was replaced by it, and its relay, which had lost its
// shard meanwhile, wrote once more how far it was.
func unfinished(all []backfillRow) *backfillRow {
	for i := range all {
		if all[i].state == backfillRunning {
			return &all[i]
		}
	}
	return nil
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
