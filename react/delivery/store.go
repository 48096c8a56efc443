package delivery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// Errors of a Store.
var (
	// ErrNotFound is returned for a delivery that does not exist or has expired.
	ErrNotFound = errors.New("no such delivery")
	// ErrPending is returned for a pending delivery, which cannot be repeated.
	ErrPending = errors.New("the delivery is pending and will be retried")
)

// Defaults of Config.
const (
	DefaultKeepDelivered = 7 * 24 * time.Hour
	DefaultKeepFailed    = 30 * 24 * time.Hour
	DefaultTimeout       = 5 * time.Second
)

// Config of a Store.
type Config struct {
	// Session reads and writes the tables of the keyspace. Required, both.
	Session  *gocql.Session
	Keyspace string
	// KeepDelivered is the retention of delivered events: they can be repeated,
	// and are not delivered again if the record is repeated. Default 7 days; at
	// least a minute.
	KeepDelivered time.Duration
	// KeepFailed is the same for one that failed. Default 30 days; at least
	// KeepDelivered.
	KeepFailed time.Duration
	// Consistency of reads and writes. Default LOCAL_QUORUM.
	Consistency gocql.Consistency
	// Serial is the consistency of the one lightweight transaction. Default SERIAL.
	Serial gocql.Consistency
	// Timeout bounds one statement. Default 5 s.
	Timeout time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	c.KeepDelivered = cmp.Or(c.KeepDelivered, DefaultKeepDelivered)
	c.KeepFailed = cmp.Or(c.KeepFailed, DefaultKeepFailed)
	c.Consistency = cmp.Or(c.Consistency, gocql.LocalQuorum)
	c.Serial = cmp.Or(c.Serial, gocql.Serial)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// maxKeep is the longest TTL that CQL has.
const maxKeep = 20 * 365 * 24 * time.Hour

func (c *Config) validate() error {
	var errs []error
	if c.Session == nil || c.Keyspace == "" {
		errs = append(errs, errors.New("session and keyspace: neither may be missing"))
	}
	if c.KeepDelivered < time.Minute || c.KeepFailed < c.KeepDelivered || c.KeepFailed > maxKeep {
		errs = append(errs, fmt.Errorf("keep delivered %s, keep failed %s: the first must be at least a minute, the second at least as long and less than 20 years",
			c.KeepDelivered, c.KeepFailed))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout %s: must not be negative", c.Timeout))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("deliveries: %w", err)
	}
	return nil
}

// Store is the table of deliveries. It is safe for concurrent use. The caller
// closes the session.
type Store struct {
	cfg  Config
	stmt statements

	mu      sync.Mutex
	buckets map[bucket]time.Time // when they were written last
}

// Open returns a Store. It does not access the database.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Store{cfg: cfg, stmt: newStatements(cfg.Keyspace), buckets: make(map[bucket]time.Time)}, nil
}

const listColumns = "id, rule, plugin, state, attempts, error, created_at, changed_at, next_attempt, repeats, repeated_by, reason," +
	" topic, topic_partition, record_offset, record_at, event_id, event_type, aggregate_id, written_at"

type statements struct {
	save, read, readListed, put, drop, putBucket, buckets, list, putRepeat, dropRepeat, repeats, since, putSince, putReport, reports string
}

func newStatements(keyspace string) statements {
	k := keyspace + "."
	return statements{
		// Not an INSERT: without a row marker the row disappears with its last cell.
		save: "UPDATE " + k + "deliveries USING TTL ? SET rule = ?, plugin = ?, state = ?, attempts = ?, error = ?, created_at = ?, changed_at = ?, next_attempt = ?," +
			" repeats = ?, repeated_by = ?, reason = ?, topic = ?, topic_partition = ?, record_offset = ?, record_at = ?, event_id = ?, event_type = ?," +
			" aggregate_id = ?, record_key = ?, record_value = ?, record_headers = ?, tries = ?, written_at = ? WHERE id = ?",
		read:       "SELECT " + listColumns + ", record_key, record_value, record_headers, tries FROM " + k + "deliveries WHERE id = ?",
		readListed: "SELECT " + listColumns + " FROM " + k + "deliveries WHERE id = ?",
		put:        "INSERT INTO " + k + "delivery_lookups (kind, value, bucket, created_at, id) VALUES (?, ?, ?, ?, ?) USING TTL ?",
		drop:       "DELETE FROM " + k + "delivery_lookups WHERE kind = ? AND value = ? AND bucket = ? AND created_at = ? AND id = ?",
		putBucket:  "INSERT INTO " + k + "delivery_buckets (kind, value, bucket) VALUES (?, ?, ?) USING TTL ?",
		buckets:    "SELECT bucket FROM " + k + "delivery_buckets WHERE kind = ? AND value = ? AND bucket <= ? AND bucket >= ?",
		list:       "SELECT created_at, id FROM " + k + "delivery_lookups WHERE kind = ? AND value = ? AND bucket = ? AND created_at <= ? AND created_at >= ?",
		putRepeat:  "INSERT INTO " + k + "delivery_repeats (rule, id, topic, topic_partition) VALUES (?, ?, ?, ?) USING TTL ?",
		dropRepeat: "DELETE FROM " + k + "delivery_repeats USING TIMESTAMP ? WHERE rule = ? AND id = ?",
		repeats:    "SELECT id, topic, topic_partition, writetime(topic) FROM " + k + "delivery_repeats WHERE rule = ? AND id > ? LIMIT ?",
		since:      "SELECT since FROM " + k + "delivery_rules WHERE rule = ?",
		putSince:   "INSERT INTO " + k + "delivery_rules (rule, since) VALUES (?, ?) IF NOT EXISTS",
		putReport:  "INSERT INTO " + k + "react_instances (scope, rule, instance, at, status) VALUES ('keyspace', ?, ?, ?, ?) USING TTL ?",
		reports:    "SELECT rule, instance, at, status FROM " + k + "react_instances WHERE scope = 'keyspace'",
	}
}

func (s *Store) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return s.cfg.Session.Query(stmt, args...).WithContext(ctx).Consistency(s.cfg.Consistency).Idempotent(true).RetryPolicy(cqlcode.OtherNode{}).DefaultTimestamp(false)
}

// Read returns a delivery with its record, or ErrNotFound.
func (s *Store) Read(ctx context.Context, id gocql.UUID) (*Delivery, error) {
	var tries string
	d, err := s.scan(ctx, s.stmt.read, id, func(d *Delivery) []any { return []any{&d.Key, &d.Value, &d.Headers, &tries} })
	if err == nil && tries != "" {
		if err := json.Unmarshal([]byte(tries), &d.Tries); err != nil {
			return nil, fmt.Errorf("read the attempts of delivery %s: %w", id, err)
		}
	}
	return d, err
}

func (s *Store) scan(ctx context.Context, stmt string, id gocql.UUID, more func(*Delivery) []any) (*Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	d := new(Delivery)
	into := []any{
		&d.ID, &d.Rule, &d.Plugin, (*string)(&d.State), &d.Attempts, &d.Error, &d.CreatedAt, &d.ChangedAt, &d.NextAttempt, &d.Repeats, &d.RepeatedBy, &d.Reason,
		&d.Topic, &d.Partition, &d.Offset, &d.RecordAt, &d.EventID, &d.EventType, &d.AggregateID, &d.writtenAt,
	}
	if more != nil {
		into = append(into, more(d)...)
	}
	err := s.query(ctx, stmt, id).Scan(into...)
	if errors.Is(err, gocql.ErrNotFound) || err == nil && d.State == "" {
		return nil, fmt.Errorf("delivery %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read delivery %s: %w", id, err)
	}
	for _, t := range []*time.Time{&d.CreatedAt, &d.ChangedAt, &d.NextAttempt, &d.RecordAt} {
		if !t.IsZero() {
			*t = t.UTC()
		}
	}
	return d, nil
}

// keep returns the TTL of a row.
func (s *Store) keep(st State) time.Duration {
	if st == Delivered {
		return s.cfg.KeepDelivered
	}
	return s.cfg.KeepFailed
}

// Save writes the current state of a delivery. It sets ChangedAt, and CreatedAt
// the first time, to now. After an error it may be written; saving it again is
// harmless.
func (s *Store) Save(ctx context.Context, d *Delivery) error { return s.save(ctx, d, false) }

func (s *Store) save(ctx context.Context, d *Delivery, repeat bool) error {
	now := s.cfg.Now().UTC().Truncate(time.Millisecond)
	// A failed write may have been applied or may be later: the fields set here
	// stay set, or the delivery would be on its shelves twice.
	first := d.CreatedAt.IsZero()
	if first {
		d.CreatedAt = now
	}
	// Clocks of two owners differ: the later write must win.
	d.writtenAt = max(now.UnixMicro(), d.writtenAt+1)
	created, at := d.CreatedAt, d.writtenAt
	ttl := int(s.keep(d.State) / time.Second)
	tries, err := d.tries()
	if err != nil {
		return fmt.Errorf("save delivery %s: %w", d.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	b := s.cfg.Session.Batch(gocql.LoggedBatch).WithContext(ctx).RetryPolicy(cqlcode.OtherNode{}).WithTimestamp(at)
	b.SetConsistency(s.cfg.Consistency)
	on := shelves(d)
	news := s.unwritten(on, created, now)
	for _, k := range news {
		b.Query(s.stmt.putBucket, k.kind, k.value, k.at, int((s.cfg.KeepFailed+2*bucketAgain)/time.Second))
	}
	for _, f := range on {
		b.Query(s.stmt.put, f.kind, f.value, f.bucketOf(created), created, d.ID, ttl)
	}
	for _, st := range States {
		if f := (shelf{kindState, string(st)}); st != d.State && !first {
			b.Query(s.stmt.drop, f.kind, f.value, f.bucketOf(created), created, d.ID)
		}
	}
	b.Query(s.stmt.save, ttl, d.Rule, d.Plugin, string(d.State), d.Attempts, d.Error, created, now, unset(d.NextAttempt), d.Repeats, d.RepeatedBy, d.Reason,
		d.Topic, d.Partition, d.Offset, d.RecordAt, d.EventID, d.EventType, d.AggregateID, d.Key, d.Value, d.Headers, tries, at, d.ID)
	if repeat {
		b.Query(s.stmt.putRepeat, d.Rule, d.ID, d.Topic, d.Partition, ttl)
	}
	for i := range b.Entries {
		b.Entries[i].Idempotent = true
	}
	if err := b.Exec(); err != nil {
		return fmt.Errorf("save delivery %s: %w", d.ID, err)
	}
	d.ChangedAt = now
	s.written(news, now)
	return nil
}

// unset is the time, or null.
func unset(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

// Repeat requests another delivery of an event that was delivered or failed:
// the owner of its partition reads the request within its poll. It returns the
// delivery, which is pending now, without checking whether the rule still
// matches. Errors are ErrNotFound, ErrPending, or one of the database, after
// which the request may be stored.
func (s *Store) Repeat(ctx context.Context, id gocql.UUID, by, reason string) (*Delivery, error) {
	d, err := s.Read(ctx, id)
	if err != nil {
		return nil, err
	}
	if d.State == Pending {
		return d, fmt.Errorf("delivery %s: %w", id, ErrPending)
	}
	d.State, d.Attempts, d.NextAttempt = Pending, 0, time.Time{}
	d.Repeats, d.RepeatedBy, d.Reason = d.Repeats+1, by, reason
	return d, s.save(ctx, d, true)
}

// Asked is a requested repeat of a delivery.
type Asked struct {
	ID        gocql.UUID
	Topic     string
	Partition int32
	writtenAt int64
}

// Delivery returns the delivery as the argument of Repeated, for one that has
// expired.
func (a Asked) Delivery(rule string) *Delivery {
	return &Delivery{ID: a.ID, Rule: rule, writtenAt: a.writtenAt}
}

// Repeats returns up to limit requested repeats of a rule that follow the given
// id; of the zero id, the first.
func (s *Store) Repeats(ctx context.Context, rule string, after gocql.UUID, limit int) ([]Asked, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	var out []Asked
	iter := s.query(ctx, s.stmt.repeats, rule, after, limit).Iter()
	for a := (Asked{}); iter.Scan(&a.ID, &a.Topic, &a.Partition, &a.writtenAt); {
		out = append(out, a)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the requested repeats of rule %s: %w", rule, err)
	}
	return out, nil
}

// Repeated removes a delivery, as read or saved before, from the list of
// requests; a newer request stays there.
func (s *Store) Repeated(ctx context.Context, d *Delivery) error {
	// The list entry has the write time of the delivery with the request; later
	// writes of a delivery have later times, independent of clocks.
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := s.query(ctx, s.stmt.dropRepeat, d.writtenAt, d.Rule, d.ID).Exec(); err != nil {
		return fmt.Errorf("delivery %s is repeated: %w", d.ID, err)
	}
	return nil
}

// Since returns the time from which a rule receives events: that of the first
// call.
func (s *Store) Since(ctx context.Context, rule string, first time.Time) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.Timeout)
	defer cancel()
	read := func() (since time.Time, err error) {
		err = s.query(ctx, s.stmt.since, rule).Scan(&since)
		return since.UTC(), err
	}
	since, err := read()
	if errors.Is(err, gocql.ErrNotFound) {
		// After a lost response the stored time is that of any caller, or none.
		_, err = s.cfg.Session.Query(s.stmt.putSince, rule, first).WithContext(ctx).Consistency(s.cfg.Consistency).
			SerialConsistency(s.cfg.Serial).RetryPolicy(cqlcode.NeverAgain{}).MapScanCAS(map[string]any{})
		if err == nil {
			since, err = read()
		}
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read the start time of rule %s: %w", rule, err)
	}
	return since, nil
}
