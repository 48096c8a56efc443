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
	// ErrNotFound: there is no such delivery, or no longer.
	ErrNotFound = errors.New("no such delivery")
	// ErrPending: the delivery is under way, so it cannot be repeated.
	ErrPending = errors.New("the delivery is pending: it is tried again by itself")
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
	// KeepDelivered is how long a delivered event is remembered: it can be repeated,
	// and is not delivered again if it comes again. Default 7 days; at least a minute.
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

// Store is the table of deliveries. It is safe for concurrent use. The session
// stays the caller's to close.
type Store struct {
	cfg  Config
	stmt statements

	mu      sync.Mutex
	buckets map[bucket]time.Time // when they were written last
}

// Open returns a Store. It asks the database nothing.
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
		// Not an INSERT: without a row marker the row goes when its last cell does.
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

// keep is how long the row stays.
func (s *Store) keep(st State) time.Duration {
	if st == Delivered {
		return s.cfg.KeepDelivered
	}
	return s.cfg.KeepFailed
}

// Save writes a delivery as it stands. Its ChangedAt, and CreatedAt the first time,
// become now. After an error it may be written, and saving it again is harmless.
func (s *Store) Save(ctx context.Context, d *Delivery) error { return s.save(ctx, d, false) }

func (s *Store) save(ctx context.Context, d *Delivery, repeat bool) error {
	now := s.cfg.Now().UTC().Truncate(time.Millisecond)
	// A write that failed may have been made, or be made later: what is kept of it here
	// is so from then on, or the delivery would stand on its shelves twice.
	first := d.CreatedAt.IsZero()
	if first {
		d.CreatedAt = now
	}
	// Clocks of two owners differ: what is written later counts.
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

// Repeat asks for another delivery of an event that was delivered or failed: the
// owner of its partition sees that within its poll. It returns the delivery, which is
// pending now, without asking the rule whether it still matches. Errors are
// ErrNotFound, ErrPending, or the database's, after which it may have been asked for.
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

// Asked is a delivery that somebody asked to repeat.
type Asked struct {
	ID        gocql.UUID
	Topic     string
	Partition int32
	writtenAt int64
}

// Delivery is the delivery, of that rule, as Repeated needs it: for one that is gone.
func (a Asked) Delivery(rule string) *Delivery {
	return &Delivery{ID: a.ID, Rule: rule, writtenAt: a.writtenAt}
}

// Repeats are up to limit deliveries of a rule that are to be repeated, those that
// follow one of them; of the zero id, the first.
func (s *Store) Repeats(ctx context.Context, rule string, after gocql.UUID, limit int) ([]Asked, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	var out []Asked
	iter := s.query(ctx, s.stmt.repeats, rule, after, limit).Iter()
	for a := (Asked{}); iter.Scan(&a.ID, &a.Topic, &a.Partition, &a.writtenAt); {
		out = append(out, a)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read what rule %s is to repeat: %w", rule, err)
	}
	return out, nil
}

// Repeated takes a delivery, as it was read or saved, off that list: what somebody
// asked for since stays there.
func (s *Store) Repeated(ctx context.Context, d *Delivery) error {
	// The list has what was asked for with the time at which the delivery was written
	// with it, and later writes of a delivery have later times, whatever the clocks.
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := s.query(ctx, s.stmt.dropRepeat, d.writtenAt, d.Rule, d.ID).Exec(); err != nil {
		return fmt.Errorf("delivery %s is repeated: %w", d.ID, err)
	}
	return nil
}

// Since is from when on a rule takes events: what was said the first time that
// anybody asked.
func (s *Store) Since(ctx context.Context, rule string, first time.Time) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.Timeout)
	defer cancel()
	read := func() (since time.Time, err error) {
		err = s.query(ctx, s.stmt.since, rule).Scan(&since)
		return since.UTC(), err
	}
	since, err := read()
	if errors.Is(err, gocql.ErrNotFound) {
		// After an answer that did not come somebody's time stands there, or none.
		_, err = s.cfg.Session.Query(s.stmt.putSince, rule, first).WithContext(ctx).Consistency(s.cfg.Consistency).
			SerialConsistency(s.cfg.Serial).RetryPolicy(cqlcode.NeverAgain{}).MapScanCAS(map[string]any{})
		if err == nil {
			since, err = read()
		}
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read since when rule %s takes events: %w", rule, err)
	}
	return since, nil
}
