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

// States of a scan in the column state.
const (
	ScanRunning   = "running"
	ScanDone      = "done"
	ScanReplaced  = "replaced" // by a later scan that covers it
	ScanNotNeeded = "not_needed"
)

// Scan is a scan of the outbox table, a row of relay_backfills. Times have millisecond
// precision.
type Scan struct {
	Started time.Time // identifies the scan
	Reason  string
	State   string
	Forced  time.Time // BackfillFrom; zero if not requested
	// From and Until bound the write times of the rows that the scan covers.
	From, Until time.Time
	// Mark is the time since which a relay may have published rows of the scan.
	Mark      time.Time
	Ranges    int
	Done      []int
	Read      int64
	Published int64
	// Updated is the time of the last save.
	Updated time.Time
}

// Scans stores scans in the table relay_backfills, at LOCAL_QUORUM and with the
// database's timestamps: one instance may begin a scan and another one finish it.
type Scans struct {
	session            *gocql.Session
	relay, table, host string
	name               string
	fence              fence.Fence // checked before writes; may be nil
}

// NewScans returns the scans of the relay for a table, a name with its keyspace, stored
// in the given keyspace. fence is checked before each write and may be nil.
func NewScans(session *gocql.Session, keyspace, relay, table string, f fence.Fence) *Scans {
	return &Scans{fence: f, session: session, relay: relay, table: table, host: self.Host(), name: keyspace + ".relay_backfills"}
}

// Load returns all scans, newest first. A running one that a later one covers is returned as
// replaced.
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
	replace(out)
	return out, nil
}

// replace marks the running scans that a later one covers as replaced. Begin has not: the start of
// the earlier one was answered with an error, or its relay had lost its shard, and its row became
// visible after the later one had begun.
func replace(all []Scan) {
	for i := range all {
		s := &all[i]
		if s.State == ScanRunning && slices.ContainsFunc(all[:i], func(by Scan) bool {
			return by.State != ScanNotNeeded && !by.From.After(s.From) && !by.Until.Before(s.Until)
		}) {
			s.State = ScanReplaced
		}
	}
}

// Begin saves r and, atomically with it, marks replaced as replaced unless it is nil.
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
		return fmt.Errorf("save the start of a backfill: %w", err)
	}
	return nil
}

// Advance saves the finished ranges, the counters and the state of r.
func (c *Scans) Advance(ctx context.Context, r *Scan, ranges []int) error {
	if err := fence.Check(c.fence); err != nil {
		return err
	}
	err := c.session.Query("UPDATE "+c.name+" SET done = done + ?, rows_read = ?, rows_published = ?, state = ?, updated_at = ?, updated_by = ?"+
		" WHERE relay = ? AND table_name = ? AND started_at = ?",
		ranges, r.Read, r.Published, r.State, time.Now(), c.host, c.relay, c.table, r.Started).
		WithContext(ctx).Consistency(gocql.LocalQuorum).Idempotent(true).DefaultTimestamp(false).Exec()
	if err != nil {
		return fmt.Errorf("save the progress of the backfill: %w", err)
	}
	return nil
}

// Unfinished returns the newest running scan, the one to resume, or nil.
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

// Cover extends r to the rows that o covers.
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

// Earliest is the earlier of two times, of which zero is none.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
