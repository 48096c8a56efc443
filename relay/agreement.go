package relay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
)

// Agreement stores the number of shards into which the instances of a relay divide it,
// in the table relay_sharing. An instance reads it before it starts a shard, so after a
// change no instance uses another number, whatever the broker reports. Its methods are
// safe for concurrent use.
//
// It does not separate instances with different numbers: they are never in the broker's
// group at the same time (package share).
type Agreement struct {
	Session        *gocql.Session
	Keyspace, Name string // Name is the name of the relay
}

func (a *Agreement) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return a.Session.Query(stmt, args...).WithContext(ctx).Consistency(gocql.LocalQuorum).SerialConsistency(gocql.LocalSerial)
}

// Shards returns the number that was agreed on last, or 0 if none was.
func (a *Agreement) Shards(ctx context.Context) (n int, err error) {
	// A serial read completes a write whose response was lost.
	iter := a.query(ctx, "SELECT shards FROM "+a.Keyspace+".relay_sharing WHERE relay = ?", a.Name).Consistency(gocql.LocalSerial).Idempotent(true).Iter()
	iter.Scan(&n)
	if err := iter.Close(); err != nil {
		return 0, fmt.Errorf("read the number of shards of relay %s: %w", a.Name, err)
	}
	return n, nil
}

// Database identifies the keyspace among all databases: by the id of the table relay_sharing,
// which ScyllaDB gives each table that is created.
func (a *Agreement) Database(ctx context.Context) (string, error) {
	var id gocql.UUID
	err := a.query(ctx, "SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = 'relay_sharing'", a.Keyspace).Idempotent(true).Scan(&id)
	if err != nil {
		return "", fmt.Errorf("read the id of table %s.relay_sharing: %w", a.Keyspace, err)
	}
	return id.String(), nil
}

// Change sets the number to the value of to if it is from, where 0 means none, and
// returns the resulting number. After an error the outcome is unknown.
func (a *Agreement) Change(ctx context.Context, from, to int, by string) (now int, err error) {
	table := a.Keyspace + ".relay_sharing"
	was := make(map[string]any)
	var made bool
	switch {
	case from == 0:
		made, err = a.query(ctx, "INSERT INTO "+table+" (relay, shards, set_at, set_by) VALUES (?, ?, ?, ?) IF NOT EXISTS",
			a.Name, to, time.Now(), by).MapScanCAS(was)
	case to == 0:
		made, err = a.query(ctx, "DELETE FROM "+table+" WHERE relay = ? IF shards = ?", a.Name, from).MapScanCAS(was)
	default:
		made, err = a.query(ctx, "UPDATE "+table+" SET shards = ?, set_at = ?, set_by = ? WHERE relay = ? IF shards = ?",
			to, time.Now(), by, a.Name, from).MapScanCAS(was)
	}
	if err != nil {
		return 0, fmt.Errorf("save the number of shards of relay %s, %d: %w", a.Name, to, err)
	}
	if made {
		return to, nil
	}
	now, _ = was["shards"].(int)
	return now, nil
}

// AgreeOn returns the number that was agreed on, and sets it to shards if there is none.
func (a *Agreement) AgreeOn(ctx context.Context, shards int) (agreed int, err error) {
	if agreed, err = a.Shards(ctx); err != nil || agreed > 0 {
		return agreed, err
	}
	return a.Change(ctx, 0, shards, self.Host())
}

// Alive returns the running instances of the relay, whatever they process, by host and
// process. It omits instances that reported that they stopped. To omit killed instances
// as well it waits three seconds if there is any row: a live instance updates its row in
// that time.
func (a *Agreement) Alive(ctx context.Context) ([]string, error) {
	match := func(key heardRow) bool {
		name, _, _ := strings.Cut(key.relay, "/")
		return name == a.Name
	}
	before, err := heard(ctx, a.Session, a.Keyspace, match)
	if err == nil && len(before) > 0 {
		var alive []string
		if alive, err = findUpdated(ctx, a.Session, a.Keyspace, before, match); err == nil {
			return alive, nil
		}
	}
	if err != nil {
		err = fmt.Errorf("read the instances of relay %s: %w", a.Name, err)
	}
	return nil, err
}

// Running returns the running instances of all relays of a keyspace that publish a table, the name
// of which is with its keyspace. It always waits three seconds: a restore may have removed the row
// of an instance that runs.
func Running(ctx context.Context, session *gocql.Session, keyspace, table string) ([]string, error) {
	match := func(key heardRow) bool { return key.table == table }
	before, err := heard(ctx, session, keyspace, match)
	if err != nil {
		return nil, fmt.Errorf("read the instances of the relays of %s: %w", table, err)
	}
	alive, err := findUpdated(ctx, session, keyspace, before, match)
	if err != nil {
		return nil, fmt.Errorf("read the instances of the relays of %s again: %w", table, err)
	}
	return alive, nil
}

// heardRow is the key of a row of relay_instances.
type heardRow struct{ relay, table, instance string }

// findUpdated returns the processes of the matching rows that are updated within three seconds.
func findUpdated(ctx context.Context, session *gocql.Session, keyspace string, before map[heardRow]time.Time, match func(heardRow) bool) (alive []string, err error) {
	if retry.Wait(ctx, DefaultHeartbeat*3/2) != nil {
		return nil, context.Cause(ctx)
	}
	now, err := heard(ctx, session, keyspace, match)
	if err != nil {
		return nil, err
	}
	for row, at := range now {
		if was, ok := before[row]; !ok || !at.Equal(was) {
			alive = append(alive, heartbeat.ProcessName(row.instance))
		}
	}
	slices.Sort(alive)
	return slices.Compact(alive), nil
}

// heard returns the matching instances that are not reported as stopped, with the times of their
// last rows.
func heard(ctx context.Context, session *gocql.Session, keyspace string, match func(heardRow) bool) (map[heardRow]time.Time, error) {
	out := make(map[heardRow]time.Time)
	rows, err := heartbeat.Read(ctx, session, keyspace)
	for i := range rows {
		r := &rows[i]
		if key := (heardRow{r.Relay, r.Table, r.Instance}); match(key) && r.State != heartbeat.Stopped {
			out[key] = r.At
		}
	}
	return out, err
}
