package delivery

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"
)

// shelf is a list of deliveries in delivery_lookups, without its bucket.
type shelf struct{ kind, value string }

// The kinds of shelves. A delivery is on one shelf of each kind.
const (
	kindRule   = "rule"
	kindPlugin = "plugin"
	kindState  = "state"
	kindEvent  = "event"
)

func shelves(d *Delivery) []shelf {
	out := []shelf{{kindState, string(d.State)}, {kindRule, d.Rule}}
	if d.Plugin != "" {
		out = append(out, shelf{kindPlugin, d.Plugin})
	}
	if d.EventID != "" {
		out = append(out, shelf{kindEvent, d.EventID})
	}
	return out
}

var epoch = time.Unix(0, 0).UTC()

// bucketOf is the partition of a shelf: an hour, but one for all deliveries of an
// event.
func (f shelf) bucketOf(at time.Time) time.Time {
	if f.kind == kindEvent {
		return epoch
	}
	return at.UTC().Truncate(time.Hour)
}

// bucket is a partition of delivery_lookups.
type bucket struct {
	shelf
	at time.Time
}

// maxBuckets bounds the cache of written buckets.
const maxBuckets = 10_000

// bucketAgain is the interval after which a bucket is rewritten. It must
// outlive its contents, and a delivery may be saved long after its first hour.
const bucketAgain = time.Hour

// unwritten are the buckets that this process has not written down of late.
func (s *Store) unwritten(on []shelf, at, now time.Time) (out []bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range on {
		b := bucket{f, f.bucketOf(at)}
		if age := now.Sub(s.buckets[b]); f.kind != kindEvent && (age < 0 || age >= bucketAgain) {
			out = append(out, b)
		}
	}
	return out
}

func (s *Store) written(some []bucket, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.buckets) > maxBuckets {
		clear(s.buckets)
	}
	for _, b := range some {
		s.buckets[b] = now
	}
}

// Filter selects deliveries.
type Filter struct {
	// Rule, Plugin, State and Event are the ones of the deliveries; empty matches
	// all.
	Rule   string
	Plugin string
	State  State
	Event  string
	// Since and Until bound CreatedAt; the first is included. Zero for no bound.
	Since, Until time.Time
	// After is the place of the last delivery of the list before; zero begins.
	After Place
}

// Place is the position of a delivery in a list.
type Place struct {
	CreatedAt time.Time  `json:"t"`
	ID        gocql.UUID `json:"i"`
}

// Place is the delivery's.
func (d *Delivery) Place() Place { return Place{d.CreatedAt, d.ID} }

// compare orders places as lists do: the newest first.
func (p Place) compare(q Place) int {
	return cmp.Or(q.CreatedAt.Compare(p.CreatedAt), bytes.Compare(p.ID[:], q.ID[:]))
}

func (f *Filter) matches(d *Delivery) bool {
	return (f.Rule == "" || f.Rule == d.Rule) && (f.Plugin == "" || f.Plugin == d.Plugin) && (f.State == "" || f.State == d.State) && (f.Event == "" || f.Event == d.EventID)
}

// shelves returns the shortest shelves that contain all matching deliveries.
func (f *Filter) shelves() (out []shelf) {
	switch {
	case f.Event != "":
		return []shelf{{kindEvent, f.Event}}
	case f.State != "" && (f.State != Delivered || f.Rule == "" && f.Plugin == ""):
		return []shelf{{kindState, string(f.State)}}
	case f.Rule != "":
		return []shelf{{kindRule, f.Rule}}
	case f.Plugin != "":
		return []shelf{{kindPlugin, f.Plugin}}
	}
	for _, st := range States {
		out = append(out, shelf{kindState, string(st)})
	}
	return out
}

// ErrStop, returned by a callback, ends the list.
var ErrStop = errors.New("stop")

// listChunk is the number of concurrent reads.
const listChunk = 32

// List calls f with the matching deliveries, newest first, without their
// records. An error of f ends the list and is returned, unless it is ErrStop.
func (s *Store) List(ctx context.Context, f Filter, each func(*Delivery) error) error {
	var waiting []Place
	flush := func() error {
		places := waiting
		found, err := s.listed(ctx, places)
		waiting = nil
		if err != nil {
			return err
		}
		for i, d := range found {
			// The entry is stale: the delivery has changed or expired, or a failed
			// process wrote it with another time.
			if d == nil || !f.matches(d) || !d.CreatedAt.Equal(places[i].CreatedAt) {
				continue
			}
			if err := each(d); err != nil {
				return err
			}
		}
		return nil
	}
	var last Place
	err := s.walk(ctx, &f, func(p Place) error {
		if p == last {
			return nil // it is on two shelves while it moves
		}
		last = p
		if waiting = append(waiting, p); len(waiting) < listChunk {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if errors.Is(err, ErrStop) {
		return nil
	}
	return err
}

// ReadAll returns the existing deliveries of ids, without their records and
// attempts, in the order of ids.
func (s *Store) ReadAll(ctx context.Context, ids []gocql.UUID) (out []*Delivery, err error) {
	for len(ids) > 0 {
		n := min(len(ids), listChunk)
		some := make([]Place, n)
		for i, id := range ids[:n] {
			some[i].ID = id
		}
		found, err := s.listed(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			if d != nil {
				out = append(out, d)
			}
		}
		ids = ids[n:]
	}
	return out, nil
}

// listed reads deliveries without their records; nil for missing ones.
func (s *Store) listed(ctx context.Context, places []Place) ([]*Delivery, error) {
	out := make([]*Delivery, len(places))
	g, ctx := errgroup.WithContext(ctx)
	for i, p := range places {
		g.Go(func() error {
			d, err := s.scan(ctx, s.stmt.readListed, p.ID, nil)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
			out[i] = d
			return nil
		})
	}
	return out, g.Wait()
}

// walk calls each with the places on the filter's shelves, in order.
func (s *Store) walk(ctx context.Context, f *Filter, each func(Place) error) error {
	until := s.cfg.Now().Add(24 * time.Hour) // clocks differ
	if !f.Until.IsZero() {
		until = f.Until.Add(-time.Millisecond)
	}
	if !f.After.CreatedAt.IsZero() && f.After.CreatedAt.Before(until) {
		until = f.After.CreatedAt
	}
	since := f.Since
	if since.Before(epoch) {
		since = epoch
	}
	on := f.shelves()
	hours, err := s.hours(ctx, on, since, until)
	if err != nil {
		return err
	}
	for _, hour := range hours {
		if err := s.walkHour(ctx, on, hour, since, until, f.After, each); err != nil {
			return err
		}
	}
	return nil
}

// hours returns the buckets of shelves that may have deliveries, newest first.
func (s *Store) hours(ctx context.Context, on []shelf, since, until time.Time) ([]time.Time, error) {
	if on[0].kind == kindEvent {
		return []time.Time{epoch}, nil
	}
	var out []time.Time
	for _, f := range on {
		iter := s.query(ctx, s.stmt.buckets, f.kind, f.value, until, since.Truncate(time.Hour)).Iter()
		for at := (time.Time{}); iter.Scan(&at); {
			out = append(out, at.UTC())
		}
		if err := iter.Close(); err != nil {
			return nil, fmt.Errorf("list deliveries: %w", err)
		}
	}
	slices.SortFunc(out, func(a, b time.Time) int { return b.Compare(a) })
	return slices.CompactFunc(out, time.Time.Equal), nil
}

// walkHour merges the shelves of one bucket.
func (s *Store) walkHour(ctx context.Context, on []shelf, hour, since, until time.Time, after Place, each func(Place) error) (err error) {
	heads := make([]*Place, len(on))
	iters := make([]*gocql.Iter, len(on))
	next := func(i int) {
		p := new(Place)
		for heads[i] = nil; iters[i].Scan(&p.CreatedAt, &p.ID); {
			p.CreatedAt = p.CreatedAt.UTC()
			if after.CreatedAt.IsZero() || p.compare(after) > 0 {
				heads[i] = p
				return
			}
		}
	}
	for i, f := range on {
		iters[i] = s.query(ctx, s.stmt.list, f.kind, f.value, hour, until, since).PageSize(200).Iter()
		next(i)
	}
	for err == nil {
		first := -1
		for i, h := range heads {
			if h != nil && (first < 0 || h.compare(*heads[first]) < 0) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		err = each(*heads[first])
		next(first)
	}
	for _, it := range iters {
		if cerr := it.Close(); cerr != nil && err == nil {
			err = fmt.Errorf("list deliveries: %w", cerr)
		}
	}
	return err
}
