package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
)

// Put implements payload.Store: the bucket also stores payloads that are too large for an
// event, below payload.Prefix.
func (a *Archive) Put(ctx context.Context, key string, content []byte) error {
	if _, err := payload.Parse(key); err != nil {
		return err
	}
	return a.store(ctx, key, content, "application/octet-stream")
}

// Get implements payload.Store.
func (a *Archive) Get(ctx context.Context, key string) (content []byte, err error) {
	ref, err := payload.Parse(key)
	if err != nil {
		return nil, err
	}
	r, err := a.bucket.Open(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: its lifetime has ended, or this is not the bucket of the writer", payload.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return io.ReadAll(io.LimitReader(r, ref.Bytes+1))
}

// oldPayloads are the keys of payloads whose day, and whose last write, ended before a time.
func (a *Archive) oldPayloads(ctx context.Context, before time.Time) (old []string, err error) {
	for o, err := range a.bucket.List(ctx, payload.Prefix) {
		if err != nil {
			return nil, fmt.Errorf("list payloads: %w", err)
		}
		ref, err := payload.Parse(o.Key)
		if err != nil {
			continue // another program's, or one that is being written
		}
		if !ref.Day.AddDate(0, 0, 1).Before(before) {
			return old, nil // keys are in the order of days
		}
		if o.ModTime.Before(before) {
			old = append(old, o.Key)
		}
	}
	return old, nil
}

// renew begins the lifetime of the payloads of a dead letter again: its copy in the
// archive, or in the database, is kept from now on. A payload that is missing remains so.
func (a *Archive) renew(ctx context.Context, l *dlq.DeadLetter) error {
	keys := make(map[string]bool)
	references(l, keys)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		content, err := a.Get(ctx, key)
		if errors.Is(err, payload.ErrNotFound) {
			continue
		}
		if err == nil {
			err = a.Put(ctx, key, content)
		}
		if err != nil {
			return fmt.Errorf("renew payload %s: %w", key, err)
		}
	}
	return nil
}

// references adds the references of a dead letter and its edit to keys.
func references(l *dlq.DeadLetter, keys map[string]bool) {
	for _, headers := range []map[string]string{l.Headers, l.Content().Headers} {
		if key := headers[payload.Header]; key != "" {
			if _, err := payload.Parse(key); err == nil {
				keys[key] = true
			}
		}
	}
}

// expirePayloads removes payloads at the end of their lifetime: Keep, or longer if the
// rows of PayloadTable live longer, from their day, their last write or the archiving of
// their dead letter. Payloads of dead letters in the database remain.
func (s *Sweeper) expirePayloads(ctx context.Context, now time.Time, r *dlq.Swept) error {
	if s.conf.Archive == nil || s.conf.PayloadTable == "" || s.conf.Tables == nil {
		return nil
	}
	ttl, err := s.conf.Tables.RowTTL(ctx, s.conf.PayloadTable)
	if err != nil {
		return fmt.Errorf("how long %s keeps its rows: %w", s.conf.PayloadTable, err)
	}
	if ttl <= 0 {
		return nil
	}
	// A day more: a payload is renewed before the object with its dead letter is written.
	before := now.Add(-max(s.conf.Keep, ttl) - 24*time.Hour)
	old, err := s.conf.Archive.oldPayloads(ctx, before)
	if err != nil {
		return ofArchive(err)
	}
	if len(old) == 0 {
		return nil
	}
	used := make(map[string]bool)
	whole := slices.DeleteFunc(slices.Clone(dlq.Statuses), func(st dlq.Status) bool { return st == dlq.Archived })
	if err := s.walk(ctx, dlq.Filter{Status: whole}, func(l *dlq.DeadLetter) error {
		full, err := s.conf.Store.Read(ctx, l.EventID) // lists have no headers
		if errors.Is(err, dlq.ErrNotFound) {
			return nil
		}
		references(&full, used)
		return err
	}); err != nil {
		return err
	}
	// A dead letter that left the database before the walk reached it has renewed its payload.
	if old, err = s.conf.Archive.oldPayloads(ctx, before); err != nil {
		return ofArchive(err)
	}
	for _, key := range old {
		if used[key] {
			continue
		}
		if err := s.conf.Archive.bucket.Delete(ctx, key); err != nil {
			return ofArchive(fmt.Errorf("remove payload %s: %w", key, err))
		}
		r.Payloads++
		s.metrics.expired.Inc()
	}
	return nil
}
