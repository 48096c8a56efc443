package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// Keeper purges dead letters into an archive, restores them, and sweeps: it is the
// jobs.Archive of runners. It is safe for concurrent use.
type Keeper struct {
	store   *dlq.Store
	archive *Archive
	sweeper *Sweeper
}

// NewKeeper returns a Keeper for the store and the archive of a sweeper.
func NewKeeper(s *Sweeper) *Keeper {
	return &Keeper{store: s.conf.Store, archive: s.conf.Archive, sweeper: s}
}

// ofArchive marks an error of the archive itself.
func ofArchive(err error) error { return fmt.Errorf("%w: %w", dlq.ErrArchive, err) }

// left reports whether an error concerns one dead letter, which is not changed.
func left(err error) bool { return errors.Is(err, dlq.ErrRefused) || errors.Is(err, dlq.ErrNotFound) }

// Purge writes dead letters to the archive, in objects as large as a sweep's, and then
// purges each one that has not changed since it was read. If it ends early, the next
// call writes the copies again of the ones that are not purged.
func (k *Keeper) Purge(ctx context.Context, events []gocql.UUID, force bool, by dlq.Actor) ([]error, error) {
	out := make([]error, len(events))
	m := moving{Keeper: k, how: dlq.Purge{Force: force}, by: by, out: out}
	for i, id := range events {
		switch err := m.add(ctx, i, id); {
		case left(err):
			out[i] = err
		case err != nil:
			return out, err
		}
	}
	return out, m.flush(ctx)
}

// moving collects dead letters for an object.
type moving struct {
	*Keeper
	how     dlq.Purge
	by      dlq.Actor
	out     []error
	records []Record
	bytes   int
	at      []int // in out, of the records
}

func (m *moving) add(ctx context.Context, i int, id gocql.UUID) error {
	c, err := m.store.Copy(ctx, id)
	if err != nil {
		return err
	}
	return m.take(ctx, i, &c)
}

func (m *moving) take(ctx context.Context, i int, c *dlq.Copy) error {
	if !c.DeadLetter.PurgedAt.IsZero() {
		// It was purged before, by any process; after a crash this removes the rest.
		// The archive has no copy of one that was restored since.
		by := m.by
		by.Version = c.DeadLetter.Version
		return m.store.Purge(ctx, c.DeadLetter.EventID, m.how, by)
	}
	if err := m.store.CheckPurge(&c.DeadLetter, m.how); err != nil {
		return err
	}
	if err := m.archive.renew(ctx, &c.DeadLetter); err != nil {
		return ofArchive(err)
	}
	m.records, m.at = append(m.records, newRecord(c)), append(m.at, i)
	m.bytes += len(c.DeadLetter.Payload) + 1024
	if len(m.records) >= objectDeadLetters || m.bytes >= objectBytes {
		return m.flush(ctx)
	}
	return nil
}

// flush writes the object, and then purges its dead letters.
func (m *moving) flush(ctx context.Context) error {
	if len(m.records) == 0 {
		return nil
	}
	man, err := m.archive.Write(ctx, m.records, m.by.Name)
	if err != nil {
		return ofArchive(err)
	}
	m.how.Archive = man.Object
	for n := range m.records {
		r := &m.records[n]
		id, err := gocql.ParseUUID(r.EventID)
		if err != nil {
			return err
		}
		by := m.by
		by.Version = r.Version
		switch err := m.store.Purge(ctx, id, m.how, by); {
		case left(err):
			m.out[m.at[n]] = err
		case err != nil:
			return err
		}
	}
	m.records, m.at, m.bytes = nil, nil, 0
	return nil
}

// Restore restores dead letters. It reads each of their objects once, and verifies it
// as a whole before it restores one of them.
func (k *Keeper) Restore(ctx context.Context, events []gocql.UUID, by dlq.Actor) ([]error, error) {
	out := make([]error, len(events))
	outlines, err := k.store.ReadMany(ctx, events)
	if err != nil {
		return out, err
	}
	in := make(map[string]map[string]int) // by object, of which events which
	for i, id := range events {
		l, ok := outlines[id]
		switch {
		case !ok:
			out[i] = fmt.Errorf("event %s: %w", id, dlq.ErrNotFound)
		case l.PurgedAt.IsZero(): // whole, or restored already
			if err := k.store.Restore(ctx, id, nil, by); left(err) {
				out[i] = err
			} else if err != nil {
				return out, err
			}
		case l.Archive == "":
			out[i] = fmt.Errorf("event %s was purged and is in no archive: %w", id, dlq.ErrNoCopy)
		default:
			if in[l.Archive] == nil {
				in[l.Archive] = make(map[string]int)
			}
			in[l.Archive][id.String()] = i
		}
	}
	for object, wanted := range in {
		if err := k.restoreFrom(ctx, object, wanted, events, out, by); err != nil {
			return out, err
		}
	}
	return out, nil
}

// restoreFrom restores the wanted dead letters of an object.
func (k *Keeper) restoreFrom(ctx context.Context, object string, wanted map[string]int, events []gocql.UUID, out []error, by dlq.Actor) error {
	found := make(map[int]Record, len(wanted))
	err := k.archive.Records(ctx, object, func(r Record) error {
		if i, ok := wanted[r.EventID]; ok {
			found[i] = r
		}
		return nil
	})
	missing := fmt.Errorf("it is not in %s", object)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrDamaged):
		clear(found) // all of it, or nothing
		missing = err
	case err != nil:
		return ofArchive(err)
	}
	for id, i := range wanted {
		r, ok := found[i]
		if !ok {
			out[i] = fmt.Errorf("event %s: %w: %w", id, dlq.ErrNoCopy, missing)
			continue
		}
		c, err := r.Copy()
		if err != nil {
			out[i] = fmt.Errorf("event %s: %w: %w", id, dlq.ErrNoCopy, err)
			continue
		}
		if err := k.archive.renew(ctx, &c.DeadLetter); err != nil {
			return ofArchive(err)
		}
		if err := k.store.Restore(ctx, events[i], &c, by); left(err) {
			out[i] = err
		} else if err != nil {
			return err
		}
	}
	return nil
}

// Sweep is Sweeper.Once.
func (k *Keeper) Sweep(ctx context.Context) (dlq.Swept, error) {
	r, err := k.sweeper.Once(ctx)
	if err != nil {
		return dlq.Swept{}, err
	}
	return r.swept(), nil
}

func (r *Report) swept() dlq.Swept {
	return dlq.Swept{
		Archived: r.Archived, Held: r.Held, Changed: r.Changed, Objects: len(r.Objects), Expired: len(r.Expired), Forgotten: r.Forgotten,
	}
}

// Plan is Sweeper.Plan.
func (k *Keeper) Plan(ctx context.Context) (dlq.Swept, bool, error) {
	r, more, err := k.sweeper.Plan(ctx)
	return r.swept(), more, err
}

// Archive is the archive.
func (k *Keeper) Archive() *Archive { return k.archive }

// Expires returns the time at which an object is removed; zero for never.
func (k *Keeper) Expires(m *Manifest) time.Time {
	if k.sweeper.conf.Keep < 0 {
		return time.Time{}
	}
	return m.CreatedAt.Add(k.sweeper.conf.Keep)
}
