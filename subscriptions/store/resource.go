package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// Resource is a subscription as it is stored.
type Resource struct {
	subscriptions.Subscription
	// Seeks are the requested changes of positions, oldest first. A later one replaces
	// those whose partitions it contains.
	Seeks []Seek
	// Purge is the last purge; the zero value without one.
	Purge Purge
}

// Purge is a purge that was requested. It may have removed no message.
type Purge struct {
	// Before is its limit, At the time of the request.
	Before, At time.Time
}

// Deleted is a deleted incarnation of a subscription whose positions and messages are not
// removed yet.
type Deleted struct {
	Incarnation string
	At          time.Time
}

// row is a row of the table subscriptions.
type row struct {
	Resource
	changeID gocql.UUID
	deleted  map[string]time.Time
}

// exists reports whether the row is a subscription; otherwise it is missing, or contains
// deleted incarnations only.
func (r *row) exists() bool { return len(r.Topics) > 0 }

// Get returns a subscription, or an error that wraps subscriptions.ErrNotFound.
func (s *Store) Get(ctx context.Context, name string) (Resource, error) {
	r, err := s.read(ctx, name)
	if err == nil && !r.exists() {
		err = subscriptions.ErrNotFound
	}
	if err != nil {
		return Resource{}, fmt.Errorf("subscription %q: %w", name, err)
	}
	return r.Resource, nil
}

// List returns all subscriptions, by name.
func (s *Store) List(ctx context.Context) ([]Resource, error) {
	rows, err := s.rows(ctx)
	var out []Resource
	for i := range rows {
		if rows[i].exists() {
			out = append(out, rows[i].Resource)
		}
	}
	return out, err
}

func (s *Store) rows(ctx context.Context) (out []row, err error) {
	err = s.until(ctx, func() error {
		out = nil
		return s.withTimeout(ctx, func(ctx context.Context) error {
			iter := s.query(ctx, s.stmt.list).Iter()
			for {
				var r row
				more, err := r.scan(iter.Scan)
				if err != nil || !more {
					return errors.Join(err, iter.Close())
				}
				out = append(out, r)
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list subscriptions: %w", err)
	}
	return out, nil
}

// read returns the row of a name with all changes that are decided; the zero row if there
// is none.
func (s *Store) read(ctx context.Context, name string) (r row, err error) {
	err = s.until(ctx, func() error {
		return s.withTimeout(ctx, func(ctx context.Context) error {
			r = row{}
			var missing error
			_, err := r.scan(func(into ...any) bool {
				missing = s.serialRead(ctx, s.stmt.get, name).Scan(into...)
				return missing == nil
			})
			return errors.Join(missing, err)
		})
	})
	if errors.Is(err, gocql.ErrNotFound) {
		return row{}, nil
	}
	return r, err
}

func (r *row) scan(scan func(...any) bool) (bool, error) {
	var visibility, extension, backoff, maxBackoff int64
	var push, deadLetter, seeks, purge string
	if !scan(&r.Name, &r.Version, &r.changeID, &r.Topics, &r.Types, &r.Filter, &r.Transform, &r.Start, (*string)(&r.Ordering), &visibility, &extension, &r.MaxReceive, &backoff,
		&maxBackoff, &r.BackoffMultiplier, &push, &deadLetter, &r.Paused, &seeks, &purge, &r.CreatedAt, &r.ChangedAt, &r.ChangedBy, &r.deleted) {
		return false, nil
	}
	r.VisibilityTimeout, r.MaxExtension, r.Backoff, r.MaxBackoff = millis(visibility), millis(extension), millis(backoff), millis(maxBackoff)
	r.CreatedAt, r.ChangedAt = utc(r.CreatedAt), utc(r.ChangedAt)
	for _, column := range []struct {
		name, text string
		into       any
	}{{"push", push, &r.Push}, {"dead_letter", deadLetter, &r.DeadLetter}, {"seeks", seeks, &r.Seeks}, {"last_purge", purge, &r.Purge}} {
		if column.text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(column.text), column.into); err != nil {
			return false, fmt.Errorf("subscription %q: %s: %w", r.Name, column.name, err)
		}
	}
	return true, nil
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// spec are the arguments of the columns that a change writes.
func (r *row) spec() ([]any, error) {
	if !r.exists() {
		return []any{r.Version, r.changeID, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, r.ChangedAt, r.ChangedBy}, nil
	}
	push, err := marshalColumn(r.Push, r.Push != nil)
	if err != nil {
		return nil, err
	}
	deadLetter, err := marshalColumn(r.DeadLetter, r.DeadLetter != subscriptions.DeadLetter{})
	if err != nil {
		return nil, err
	}
	seeks, err := marshalColumn(r.Seeks, len(r.Seeks) > 0)
	if err != nil {
		return nil, err
	}
	purge, err := marshalColumn(r.Purge, !r.Purge.At.IsZero())
	if err != nil {
		return nil, err
	}
	return []any{
		r.Version, r.changeID, r.Topics, r.Types, r.Filter, r.Transform, r.Start, string(r.Ordering), r.VisibilityTimeout.Milliseconds(), r.MaxExtension.Milliseconds(), r.MaxReceive,
		r.Backoff.Milliseconds(), r.MaxBackoff.Milliseconds(), r.BackoffMultiplier, push, deadLetter, r.Paused, seeks, purge, r.CreatedAt, r.ChangedAt, r.ChangedBy,
	}, nil
}

// marshalColumn returns the argument of a column with JSON; there is false for null.
func marshalColumn(v any, there bool) (any, error) {
	if !there {
		return nil, nil
	}
	text, err := json.Marshal(v)
	return string(text), err
}

// Put creates or replaces a subscription, which the caller has validated, and returns it
// as stored, with durations in milliseconds. A version other than 0 must be the stored one, and
// with Absent there must be none; otherwise the error wraps subscriptions.ErrVersion. Seeks and the purge are kept. After ErrUnknown it
// may be stored.
func (s *Store) Put(ctx context.Context, sub subscriptions.Subscription, principal string) (Resource, error) {
	if len(sub.Topics) == 0 {
		return Resource{}, fmt.Errorf("subscription %q: no topics", sub.Name)
	}
	created := false
	stored, err := s.change(ctx, sub.Name, principal, func(r *row) error {
		created = !r.exists()
		if sub.Version == subscriptions.Absent && !created || sub.Version > 0 && (created || sub.Version != r.Version) {
			return subscriptions.ErrVersion
		}
		since := r.CreatedAt
		if created {
			since = s.millis()
		}
		version, paused := r.Version, sub.Paused
		if sub.KeepPaused {
			paused = r.Paused
		}
		r.Subscription = sub
		r.Version, r.CreatedAt, r.Paused, r.KeepPaused = version, since, paused, false
		r.renew()
		return nil
	})
	stored.Created = err == nil && created
	return stored, err
}

// renew moves the creation behind the creations of the deleted incarnations of the name.
func (r *row) renew() {
	for {
		if _, ok := r.deleted[r.Incarnation()]; !ok {
			return
		}
		r.CreatedAt = r.CreatedAt.Add(time.Millisecond)
	}
}

// Pause stops the deliveries of a subscription. After nil, no Pause or Resume that returned
// earlier takes effect any more, whatever its result was.
func (s *Store) Pause(ctx context.Context, name, principal string) (Resource, error) {
	return s.setPaused(ctx, name, principal, true)
}

// Resume continues the deliveries of a subscription, with the guarantee of Pause.
func (s *Store) Resume(ctx context.Context, name, principal string) (Resource, error) {
	return s.setPaused(ctx, name, principal, false)
}

func (s *Store) setPaused(ctx context.Context, name, principal string, paused bool) (Resource, error) {
	return s.change(ctx, name, principal, func(r *row) error {
		if !r.exists() {
			return subscriptions.ErrNotFound
		}
		r.Paused = paused // also without a change: the new version refuses earlier requests that begin late
		return nil
	})
}

// errUnchanged ends a change that has nothing to do.
var errUnchanged = errors.New("nothing to change")

// Delete removes a subscription: Get and List do not return it from then on. Deleted returns
// it until Clean has removed what belongs to it. A version other than 0 must be the stored
// one.
func (s *Store) Delete(ctx context.Context, name string, version int64, principal string) error {
	_, err := s.change(ctx, name, principal, func(r *row) error {
		switch {
		case !r.exists():
			return subscriptions.ErrNotFound
		case version != 0 && version != r.Version:
			return subscriptions.ErrVersion
		}
		r.Resource = Resource{Subscription: subscriptions.Subscription{Name: r.Name, Version: r.Version, CreatedAt: r.CreatedAt}}
		return nil
	})
	return err
}

// change applies f to the row of a name by a lightweight transaction, and again if another
// change was first. It returns the resource as stored.
func (s *Store) change(ctx context.Context, name, principal string, f func(*row) error) (Resource, error) {
	r, err := s.tryChange(ctx, name, principal, f)
	if err != nil && !errors.Is(err, errUnchanged) {
		return Resource{}, fmt.Errorf("subscription %q: %w", name, err)
	}
	return r.Resource, nil
}

func (s *Store) tryChange(ctx context.Context, name, principal string, f func(*row) error) (row, error) {
	var tried int64 // the version of an attempt whose outcome is unknown
	var unknown error
	id := gocql.MustRandomUUID()
	for budget := s.retry(ctx); ; {
		old, err := s.read(ctx, name)
		switch {
		case err != nil:
			return row{}, errors.Join(err, unknown)
		case old.changeID == id:
			return old, nil
		case tried != 0 && old.Version >= tried:
			// Another change is stored. It may have replaced this one.
			return row{}, unknown
		}
		r := old
		if err := f(&r); err != nil {
			return old, err
		}
		r.Name = name
		r.Version, r.changeID = old.Version+1, id
		r.ChangedAt, r.ChangedBy = s.millis(), strings.ToValidUTF8(principal, "\uFFFD")
		applied, err := s.swapRow(ctx, &old, &r)
		switch {
		case applied && err == nil:
			return r, nil
		case permanent(err):
			return row{}, err
		case cqlcode.ClassifyFate(err) == cqlcode.Unknown:
			tried, unknown = r.Version, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		if !budget.Pause() {
			return row{}, errors.Join(err, unknown, context.Cause(ctx))
		}
	}
}

func (s *Store) swapRow(ctx context.Context, old, r *row) (bool, error) {
	args, err := r.spec()
	if err != nil {
		return false, err
	}
	switch {
	case old.Version == 0:
		return s.swap(ctx, s.stmt.firstPut, append(args, r.Name)...)
	case old.exists() && !r.exists():
		return s.swap(ctx, s.stmt.remember, append(args, old.Incarnation(), r.ChangedAt, r.Name, old.Version)...)
	}
	return s.swap(ctx, s.stmt.put, append(args, r.Name, old.Version)...)
}
