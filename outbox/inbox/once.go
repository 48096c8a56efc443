package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"
)

// Defaults of OnceConfig.
const (
	DefaultLease = time.Minute
	DefaultKeep  = 7 * 24 * time.Hour
)

const (
	// margin is the difference between the TTL of a lease and the time in which its
	// effect may run: the database rounds TTLs to seconds, and the clocks of its
	// nodes differ by up to a second.
	margin = 2 * time.Second
	// settle is the time for storing a result, or releasing a lease, after the
	// caller's context or the lease has ended.
	settle = 10 * time.Second
)

// OnceConfig configures a Once. Only Table is required.
type OnceConfig struct {
	// Keyspace and Table are the table that OnceTable describes. An empty
	// Keyspace means that of the session. Uses whose ids can be equal need a table
	// each.
	Keyspace, Table string
	// Lease is how long an effect may run, in whole seconds, at least four: its
	// context ends two seconds before the lease. After the death of a consumer its effect
	// runs again when the lease has expired. Default DefaultLease.
	Lease time.Duration
	// Keep is how long results are stored, in whole seconds. It must exceed the
	// time after which an event can still be delivered. Default DefaultKeep.
	Keep time.Duration
	// Wait is how long Do waits for an effect of the same id that runs elsewhere.
	// Default 0: Do returns a *BusyError immediately.
	Wait time.Duration
	// LocalSerial limits the agreement to the data center of the session
	// (LOCAL_SERIAL). All processes that use the table must then be in it.
	LocalSerial bool
}

// BusyError reports that the effect of an id runs elsewhere, or that its consumer
// died and the lease has not expired.
type BusyError struct {
	ID string
	// Left is the time until the lease expires, rounded up to seconds.
	Left time.Duration
}

// Error implements error.
func (e *BusyError) Error() string {
	return fmt.Sprintf("inbox: the effect of %q runs elsewhere; deliver it again later: its lease expires within %s", e.ID, e.Left)
}

// errLeaseEnded is the cause of the end of an effect's context.
var errLeaseEnded = errors.New("inbox: the lease of the effect ends: increase OnceConfig.Lease, or make the effect faster")

// Once runs the effects of events and stores their results. It has no state in
// memory and is safe for concurrent use, also by several processes.
type Once struct {
	session *gocql.Session
	table   *table
	cfg     OnceConfig

	insert, read, finish, release string // statements
}

// OnceTable returns the CREATE TABLE statement of a table for Once. An id is a
// partition of one row. Leases and results expire by their TTL, so the database
// decides when, and clocks of consumers do not matter.
func OnceTable(keyspace, name string) string {
	t := &table{keyspace: keyspace, name: name}
	return `CREATE TABLE IF NOT EXISTS ` + t.String() + ` (
    id text PRIMARY KEY,
    owner uuid,   -- the call that runs, or ran, the effect
    done boolean, -- null while the effect runs
    result blob
)`
}

// NewOnce returns a Once over the table of cfg. It reads the schema, and returns
// an error with the fix if the table does not have the columns of OnceTable.
func NewOnce(ctx context.Context, session *gocql.Session, cfg OnceConfig) (*Once, error) {
	cfg.Lease = cmp.Or(cfg.Lease, DefaultLease)
	cfg.Keep = cmp.Or(cfg.Keep, DefaultKeep)
	switch {
	case cfg.Lease < 2*margin || cfg.Lease > maxTTL || cfg.Lease%time.Second != 0:
		return nil, fmt.Errorf("inbox: OnceConfig.Lease %s: use whole seconds from %s to %s", cfg.Lease, 2*margin, maxTTL)
	case cfg.Keep < time.Second || cfg.Keep > maxTTL || cfg.Keep%time.Second != 0:
		return nil, fmt.Errorf("inbox: OnceConfig.Keep %s: use whole seconds, at most %s", cfg.Keep, maxTTL)
	case cfg.Wait < 0:
		return nil, fmt.Errorf("inbox: OnceConfig.Wait %s: use 0 or more", cfg.Wait)
	}
	t, err := describe(ctx, session, "OnceConfig", cfg.Keyspace, cfg.Table)
	if err != nil {
		return nil, err
	}
	for name, want := range map[string]column{"id": {"text", kindKey, 0}, "owner": {"uuid", kindRegular, -1}, "done": {"boolean", kindRegular, -1}, "result": {"blob", kindRegular, -1}} {
		if t.columns[name] != want || len(t.of(kindKey)) != 1 || len(t.of(kindClustering)) > 0 {
			return nil, fmt.Errorf("inbox: OnceConfig.Table: %s does not exist or has other columns; create a table with\n%s", t, OnceTable(t.keyspace, t.name))
		}
	}
	at, lease, keep := t.cql(), cfg.Lease/time.Second, cfg.Keep/time.Second
	return &Once{
		session: session, table: t, cfg: cfg,
		insert:  fmt.Sprintf("INSERT INTO %s (id, owner) VALUES (?, ?) IF NOT EXISTS USING TTL %d", at, lease),
		read:    fmt.Sprintf("SELECT owner, done, result, TTL(owner) FROM %s WHERE id = ?", at),
		finish:  fmt.Sprintf("UPDATE %s USING TTL %d SET owner = ?, done = true, result = ? WHERE id = ? IF owner = ?", at, keep),
		release: fmt.Sprintf("DELETE FROM %s WHERE id = ? IF owner = ?", at),
	}, nil
}

// Do runs effect and stores its result, unless a result is stored for id. It
// returns the result and whether this call ran the effect.
//
// effect runs at least once, not exactly once: it runs again if the process dies
// before the result is stored. Pass id to it as its idempotency key. Its context
// ends two seconds before the lease; an effect that ignores this can overlap with
// another one of the same id.
//
// If effect returns an error, Do releases the lease and returns the error, so
// that the next delivery runs it again. A panic leaves the lease to expire. If
// the effect runs elsewhere, Do returns a *BusyError, after OnceConfig.Wait.
//
// Do retries to store the result until the lease ends; once ctx has ended, for
// ten seconds. If the result cannot be stored, Do returns it, true and an error;
// the next delivery runs the effect again.
//
// Ids of events are unique for one source: where several sources share a table,
// use the source and the id. A result is one cell: keep it below a megabyte.
func (o *Once) Do(ctx context.Context, id string, effect func(ctx context.Context) ([]byte, error)) (result []byte, first bool, err error) {
	switch {
	case o == nil || o.session == nil:
		return nil, false, errors.New("inbox: the Once is its zero value: use NewOnce")
	case id == "":
		return nil, false, errors.New("inbox: the id is empty: pass the id of the event")
	case effect == nil:
		return nil, false, errors.New("inbox: the effect is nil: pass the function to run")
	}
	owner, err := gocql.RandomUUID()
	if err != nil {
		return nil, false, fmt.Errorf("inbox: draw an owner: %w", err)
	}
	c := &claim{Once: o, id: id, owner: owner}
	held, err := c.acquire(ctx)
	if err != nil {
		return nil, false, err
	}
	if held.done {
		return held.result, false, nil
	}
	run, cancel := context.WithDeadlineCause(ctx, held.until, errLeaseEnded)
	defer cancel()
	result, err = effect(run)
	after, end := context.WithDeadline(context.WithoutCancel(ctx), later(held.until, time.Now().Add(settle)))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(settle, end) })()
	if err != nil {
		c.free(after)
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && context.Cause(run) == errLeaseEnded {
			err = fmt.Errorf("%w: %w", errLeaseEnded, err)
		}
		return nil, true, err
	}
	return result, true, c.store(after, result)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
