package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// MaxSeeks is the maximum number of seeks of a subscription; a seek of a topic, or of all,
// replaces the seeks of its partitions.
const MaxSeeks = 1000

// Seek is a requested change of positions. Each owner applies it once to each of its
// partitions: if its version is larger than that of the partition's position.
type Seek struct {
	subscriptions.Seek
	// Version is larger than the versions of all earlier seeks.
	Version int64
	// At is the time of the request, which "latest" means.
	At time.Time
}

// contains reports whether a seek concerns all partitions of another one.
func (k *Seek) contains(other *Seek) bool {
	return k.Topic == "" || k.Topic == other.Topic && (k.Partition < 0 || k.Partition == other.Partition)
}

// FindSeek returns the seek that a partition must have applied; ok is false without one.
func (r *Resource) FindSeek(topic string, partition int32) (seek Seek, ok bool) {
	of := Seek{Seek: subscriptions.Seek{Topic: topic, Partition: partition}}
	for _, k := range slices.Backward(r.Seeks) {
		if k.contains(&of) {
			return k, true
		}
	}
	return Seek{}, false
}

// AddSeek adds a seek, which replaces the seeks of its partitions. Its version is the time,
// because the positions have the versions of seeks that a restore of the database has undone.
func (r *Resource) AddSeek(seek subscriptions.Seek, at time.Time) {
	k := Seek{seek, at.UnixMilli(), at}
	for _, old := range r.Seeks {
		k.Version = max(k.Version, old.Version+1)
	}
	r.Seeks = append(slices.DeleteFunc(slices.Clone(r.Seeks), func(old Seek) bool { return k.contains(&old) }), k)
}

// Seek stores a seek and returns the subscription with it.
func (s *Store) Seek(ctx context.Context, name string, seek subscriptions.Seek, principal string) (Resource, error) {
	if seek.Topic == "" {
		seek.Partition = -1
	}
	if err := checkSeek(&seek); err != nil {
		return Resource{}, err
	}
	return s.change(ctx, name, principal, func(r *row) error {
		if !r.exists() {
			return subscriptions.ErrNotFound
		}
		r.AddSeek(seek, s.millis())
		if len(r.Seeks) > MaxSeeks {
			return fmt.Errorf("%d seeks of partitions: seek topic %q instead", len(r.Seeks), seek.Topic)
		}
		return nil
	})
}

// NotePurge stores that messages which were written before a time are purged. It changes
// nothing if a purge of them is noted.
func (s *Store) NotePurge(ctx context.Context, name string, before time.Time, principal string) error {
	before = before.UTC()
	_, err := s.change(ctx, name, principal, func(r *row) error {
		switch {
		case !r.exists():
			return subscriptions.ErrNotFound
		case !r.Purge.Before.Before(before):
			return errUnchanged
		}
		r.Purge = Purge{before, s.millis()}
		return nil
	})
	return err
}

func checkSeek(k *subscriptions.Seek) error {
	switch k.To {
	case subscriptions.StartLatest, subscriptions.StartEarliest:
		return nil
	case "offset":
		if k.Topic == "" || k.Partition < 0 || k.Offset < 0 {
			return errors.New("seek to offset: name a topic, a partition and an offset that is not negative")
		}
		return nil
	}
	if _, err := time.Parse(time.RFC3339, k.To); err != nil {
		return fmt.Errorf("seek to %q: use latest, earliest, offset or a time such as 2026-01-02T15:04:05Z", k.To)
	}
	return nil
}
