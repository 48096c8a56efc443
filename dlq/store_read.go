package dlq

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/dlq/internal/db"
)

// Read returns the dead letter of an event, or ErrNotFound.
func (s *Store) Read(ctx context.Context, event gocql.UUID) (DeadLetter, error) {
	l, err := s.read(ctx, event, s.stmt.whole, (*DeadLetter).dest, s.db.Consistency)
	if err == nil {
		err = s.edits.fill(ctx, &l)
	}
	if err != nil {
		return DeadLetter{}, err
	}
	return l, nil
}

// read reads a dead letter by one of the statements. At the serial consistency the
// database first completes a pending lightweight transaction.
func (s *Store) read(ctx context.Context, event gocql.UUID, stmt string, dest func(*DeadLetter) []any, cons gocql.Consistency) (DeadLetter, error) {
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	var l DeadLetter
	err := s.db.Select(ctx, stmt, event).Consistency(cons).Scan(dest(&l)...)
	switch {
	case errors.Is(err, gocql.ErrNotFound):
		return DeadLetter{}, fmt.Errorf("event %s: %w", event, ErrNotFound)
	case err != nil:
		return DeadLetter{}, fmt.Errorf("read dead letter %s: %w", event, err)
	}
	return l, nil
}

// readMany returns dead letters without their payloads, by event id. Events without one
// are absent.
func (s *Store) readMany(ctx context.Context, events []gocql.UUID) (map[gocql.UUID]DeadLetter, error) {
	return s.readAll(ctx, s.stmt.entries, (*DeadLetter).entryDest, events)
}

func (s *Store) readAll(ctx context.Context, stmt string, dest func(*DeadLetter) []any, events []gocql.UUID) (map[gocql.UUID]DeadLetter, error) {
	found, err := db.Rows(ctx, s.db, dest, stmt, events)
	if err != nil {
		return nil, fmt.Errorf("read %d dead letters: %w", len(events), err)
	}
	out := make(map[gocql.UUID]DeadLetter, len(found))
	for _, l := range found {
		out[l.EventID] = l
	}
	return out, nil
}

// readWhole returns dead letters with their payloads, by event id. Events without one
// are absent, and so is a dead letter whose edit is missing: it prevents no other.
func (s *Store) readWhole(ctx context.Context, events []gocql.UUID) (map[gocql.UUID]DeadLetter, error) {
	out, err := s.readAll(ctx, s.stmt.wholes, (*DeadLetter).dest, events)
	for id, l := range out {
		switch err := s.edits.fill(ctx, &l); {
		case errors.Is(err, gocql.ErrNotFound):
			delete(out, id)
		case err != nil:
			return nil, err
		default:
			out[id] = l
		}
	}
	return out, err
}

// ReadMany returns the dead letters of events, without payload, headers and error
// texts, by event id. Events without one are absent.
func (s *Store) ReadMany(ctx context.Context, events []gocql.UUID) (map[gocql.UUID]DeadLetter, error) {
	return readParts(ctx, s, events, maxLookup, s.readMany)
}

// readParts reads something of events in parts of so many, which one statement may have, concurrently.
func readParts[V any](ctx context.Context, s *Store, events []gocql.UUID, part int, read func(context.Context, []gocql.UUID) (map[gocql.UUID]V, error)) (map[gocql.UUID]V, error) {
	var mu sync.Mutex // of out
	out := make(map[gocql.UUID]V, len(events))
	g, gctx := errgroup.WithContext(ctx)
	for some := range slices.Chunk(events, part) {
		g.Go(func() error {
			if err := s.reads.Acquire(gctx, 1); err != nil {
				return err
			}
			found, err := read(gctx, some)
			s.reads.Release(1)
			mu.Lock()
			maps.Copy(out, found)
			mu.Unlock()
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return out, nil
}

// ErrorText is the last error of a dead letter.
type ErrorText struct{ Code, Text string }

// ErrorTexts returns the last errors of the dead letters of events. Events without one
// are absent.
func (s *Store) ErrorTexts(ctx context.Context, events []gocql.UUID) (map[gocql.UUID]ErrorText, error) {
	return readParts(ctx, s, events, maxLookup, s.errorTexts)
}

func (s *Store) errorTexts(ctx context.Context, events []gocql.UUID) (map[gocql.UUID]ErrorText, error) {
	type row struct {
		id gocql.UUID
		ErrorText
	}
	found, err := db.Rows(ctx, s.db, func(r *row) []any { return []any{&r.id, &r.Code, &r.Text} }, s.stmt.errors, events)
	if err != nil {
		return nil, fmt.Errorf("read the errors of %d dead letters: %w", len(events), err)
	}
	out := make(map[gocql.UUID]ErrorText, len(found))
	for _, r := range found {
		out[r.id] = r.ErrorText
	}
	return out, nil
}

// Payload is the payload of a dead letter as the event had it.
type Payload struct {
	Bytes       []byte
	ContentType string
}

// payloadsAtOnce is the number of payloads that one statement reads.
const payloadsAtOnce = 8

// errLargePayloads reports that payloads read concurrently are larger than those before them.
var errLargePayloads = errors.New("the payloads are too large to be read concurrently")

// Payloads returns the payloads of the dead letters of events, in their order, until they have about size
// bytes: the first n events are read. Events without a dead letter are absent.
//
// The first payloads show how many more are read concurrently: twice as many as the rest of size has of
// their mean length.
func (s *Store) Payloads(ctx context.Context, events []gocql.UUID, size int) (out map[gocql.UUID]Payload, n int, err error) {
	out = make(map[gocql.UUID]Payload, len(events))
	for read, next := 0, payloadsAtOnce; n < len(events); {
		some := events[n:min(n+next, len(events))]
		var left atomic.Int64
		if left.Store(2 * int64(size)); next == payloadsAtOnce {
			left.Store(math.MaxInt64)
		}
		found, err := readParts(ctx, s, some, payloadsAtOnce, func(ctx context.Context, part []gocql.UUID) (map[gocql.UUID]Payload, error) {
			return s.payloads(ctx, part, &left)
		})
		if errors.Is(err, errLargePayloads) {
			next = payloadsAtOnce
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		for _, event := range some {
			p, ok := found[event]
			if n > 0 && read+len(p.Bytes) > size {
				return out, n, nil
			}
			if ok {
				out[event] = p
			}
			read += len(p.Bytes)
			n++
		}
		next = max(payloadsAtOnce, 2*n*max(size-read, 0)/max(read, 1))
	}
	return out, n, nil
}

// payloads reads payloads while there are bytes left.
func (s *Store) payloads(ctx context.Context, events []gocql.UUID, left *atomic.Int64) (map[gocql.UUID]Payload, error) {
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	out := make(map[gocql.UUID]Payload, len(events))
	iter := s.db.Select(ctx, "SELECT event_id, payload, content_type FROM "+s.stmt.table+" WHERE event_id IN ?", events).Prefetch(0).Iter()
	var id gocql.UUID
	var p Payload
	for iter.Scan(&id, &p.Bytes, &p.ContentType) {
		if left.Add(-int64(len(p.Bytes))) < 0 {
			_ = iter.Close() // the caller receives the first error
			return nil, errLargePayloads
		}
		out[id] = p
		p = Payload{}
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the payloads of %d dead letters: %w", len(events), err)
	}
	return out, nil
}

// History returns the changes of a dead letter, oldest first, or ErrNotFound.
func (s *Store) History(ctx context.Context, event gocql.UUID) ([]Change, error) {
	return s.history(ctx, event, s.db.Consistency)
}

func (s *Store) history(ctx context.Context, event gocql.UUID, cons gocql.Consistency) ([]Change, error) {
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	var lines map[int64]string
	err := s.db.Select(ctx, s.stmt.history, event).Consistency(cons).Scan(&lines)
	switch {
	case errors.Is(err, gocql.ErrNotFound):
		return nil, fmt.Errorf("event %s: %w", event, ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("read the history of dead letter %s: %w", event, err)
	}
	out := make([]Change, 0, len(lines))
	for v, text := range lines {
		var c Change
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			return nil, fmt.Errorf("history of dead letter %s, version %d: %w", event, v, err)
		}
		c.Version = v
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Change) int { return int(a.Version - b.Version) })
	return out, nil
}

// didFor reports whether the job has already changed the dead letter. It reads the
// history only if another job has changed it since.
func (s *Store) didFor(ctx context.Context, l *DeadLetter, job gocql.UUID) (bool, error) {
	none := gocql.UUID{}
	if job == none || l.job == none || l.job == job {
		return job != none && l.job == job, nil
	}
	version, err := s.ChangedBy(ctx, l.EventID, job)
	return version > 0, err
}

// ChangedBy returns the version that the job's change made of a dead letter; 0 if the
// job has not changed it.
func (s *Store) ChangedBy(ctx context.Context, event, job gocql.UUID) (int64, error) {
	lines, err := s.history(ctx, event, s.db.Serial)
	if err != nil {
		return 0, err
	}
	if i := slices.IndexFunc(lines, func(c Change) bool { return c.Job == job }); i >= 0 {
		return lines[i].Version, nil
	}
	return 0, nil
}

// Edits returns the applied edits of a dead letter, oldest first. The last one is
// published.
func (s *Store) Edits(ctx context.Context, event gocql.UUID) ([]Edited, error) {
	history, err := s.History(ctx, event)
	if err != nil {
		return nil, err
	}
	decided := make(map[string]int64)
	for _, c := range history {
		if c.Action.Edits() {
			decided[c.Outcome] = c.Version
		}
	}
	out, err := db.Rows(ctx, s.db, (*Edited).dest, s.edits.stmt.edits, event)
	if err != nil {
		return nil, fmt.Errorf("read the edits of dead letter %s: %w", event, err)
	}
	out = slices.DeleteFunc(out, func(e Edited) bool { return decided[e.line()] == 0 })
	slices.SortStableFunc(out, func(a, b Edited) int { return cmp.Compare(decided[a.line()], decided[b.line()]) })
	return out, nil
}

// FindOriginal returns the event whose dead letter has the edit with the given id, or
// ErrNotFound.
func (s *Store) FindOriginal(ctx context.Context, edited gocql.UUID) (gocql.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	var event gocql.UUID
	err := s.db.Select(ctx, s.edits.stmt.editOf, edited).Scan(&event)
	switch {
	case errors.Is(err, gocql.ErrNotFound):
		return event, fmt.Errorf("event %s: %w", edited, ErrNotFound)
	case err != nil:
		return event, fmt.Errorf("read which event %s is an edit of: %w", edited, err)
	}
	return event, nil
}
