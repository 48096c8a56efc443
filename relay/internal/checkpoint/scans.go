package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/fence"
)

// States of a backfill, as the table spells them.
const (
	ScanRunning   = "running"
	ScanDone      = "done"
	ScanReplaced  = "replaced" // by a later one, which covers it
	ScanNotNeeded = "not_needed"
)

// Scan is a scan of the outbox table as relay_backfills has it. Times are
// to the millisecond.
type Scan struct {
	Started time.Time // names it
	Reason  string
	State   string
	Forced  time.Time // what BackfillFrom said, zero if it was not asked for
	// From and until bound the write times of the rows that it answers for.
	From, Until time.Time
	// Mark is the time since which a relay may have published rows of it.
	Mark      time.Time
	Ranges    int
	Done      []int
	Read      int64
	Published int64
	// Updated is when it was last saved.
	Updated time.Time
}

// Scans keeps scans in the table relay_backfills, at LOCAL_QUORUM and with the
// database's time: the instance that ends a scan need not be the one that began it.
type Scans struct {
	session            *gocql.Session
	relay, table, host string
	name               string
	fence              func() error // of what is written; nil is none
}

// NewScans keeps the scans of the relay's table, a name with its keyspace,
// in the given keyspace. Behind the fence nothing is written; nil is none.
func NewScans(session *gocql.Session, keyspace, relay, table string, fence func() error) *Scans {
	return &Scans{fence: fence, session: session, relay: relay, table: table, host: self.Host(), name: keyspace + ".relay_backfills"}
}

// Load returns all scans, the newest first.
func (c *Scans) Load(ctx context.Context) ([]Scan, error) {
	iter := c.session.Query("SELECT started_at, reason, state, forced_from, rows_from, rows_until, mark, ranges, done, rows_read, rows_published, updated_at FROM "+
		c.name+" WHERE relay = ? AND table_name = ?", c.relay, c.table).
		WithContext(ctx).Consistency(gocql.LocalQuorum).Idempotent(true).Iter()
	var out []Scan
	for r := (Scan{}); iter.Scan(&r.Started, &r.Reason, &r.State, &r.Forced, &r.From, &r.Until, &r.Mark, &r.Ranges, &r.Done, &r.Read, &r.Published, &r.Updated); r = (Scan{}) {
		out = append(out, r)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the backfills of relay %s: %w", c.relay, err)
	}
	slices.SortFunc(out, func(a, b Scan) int { return b.Started.Compare(a.Started) })
	return out, nil
}

// Begin saves a scan, and that it replaces another one, if it does: both or neither.
func (c *Scans) Begin(ctx context.Context, r *Scan, replaced *Scan) error {
	if err := fence.Check(c.fence); err != nil {
		return err
	}
	b := c.session.Batch(gocql.LoggedBatch).WithContext(ctx).DefaultTimestamp(false)
	b.SetConsistency(gocql.LocalQuorum)
	now := time.Now()
	b.Query("INSERT INTO "+c.name+" (relay, table_name, started_at, reason, state, forced_from, rows_from, rows_until, mark, ranges, rows_read, rows_published, updated_at, updated_by)"+
		" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		c.relay, c.table, r.Started, r.Reason, r.State, orNull(r.Forced), orNull(r.From), r.Until, r.Mark, r.Ranges, r.Read, r.Published, now, c.host)
	if replaced != nil {
		b.Query("UPDATE "+c.name+" SET state = ?, updated_at = ? WHERE relay = ? AND table_name = ? AND started_at = ?",
			ScanReplaced, now, c.relay, c.table, replaced.Started)
	}
	if err := b.Exec(); err != nil {
		return fmt.Errorf("save that a backfill begins: %w", err)
	}
	return nil
}

// Advance saves that ranges are done, what was counted so far, and the state.
func (c *Scans) Advance(ctx context.Context, r *Scan, ranges []int) error {
	if err := fence.Check(c.fence); err != nil {
		return err
	}
	err := c.session.Query("UPDATE "+c.name+" SET done = done + ?, rows_read = ?, rows_published = ?, state = ?, updated_at = ?, updated_by = ?"+
		" WHERE relay = ? AND table_name = ? AND started_at = ?",
		ranges, r.Read, r.Published, r.State, time.Now(), c.host, c.relay, c.table, r.Started).
		WithContext(ctx).Consistency(gocql.LocalQuorum).Idempotent(true).DefaultTimestamp(false).Exec()
	if err != nil {
		return fmt.Errorf("save how far the backfill is: %w", err)
	}
	return nil
}

// Unfinished is the scan that is to go on, nil without one: the newest that runs.
// An older one that runs too was replaced by it, and its relay, which had lost its
// shard meanwhile, wrote once more how far it was.
func Unfinished(all []Scan) *Scan {
	for i := range all {
		if all[i].State == ScanRunning {
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

// Cover makes r answer for what o does too.
func (r *Scan) Cover(o *Scan) {
	r.From, r.Mark = earlier(r.From, o.From), earlier(r.Mark, o.Mark)
	r.Until = Later(r.Until, o.Until)
	if r.Forced.IsZero() {
		r.Forced = o.Forced
	}
	r.Read, r.Published = r.Read+o.Read, r.Published+o.Published
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
