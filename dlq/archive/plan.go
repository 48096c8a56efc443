package archive

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// maxPlanned limits the dead letters that Plan reads.
const maxPlanned = 10_000

// Plan returns the effect of a sweep now, as far as lists show it: the dead letters
// that it would move, the ones that would remain because they block others, and the
// expired objects. more reports that there are more dead letters than it has read. It
// changes nothing.
func (s *Sweeper) Plan(ctx context.Context) (r dlq.Swept, more bool, err error) {
	r.Archived = make(map[dlq.Status]int)
	now := s.conf.Store.Now().UTC()
	seen := 0
	passes, err := s.passes(ctx, now)
	if err != nil {
		return r, false, err
	}
	for _, p := range passes {
		if err := s.conf.Store.List(ctx, p.filter(), func(l *dlq.DeadLetter) error {
			if seen++; seen > maxPlanned {
				more = true
				return dlq.ErrStop
			}
			if !p.meant(l) {
				return nil
			}
			held, err := s.holdsOthers(ctx, l)
			if held {
				r.Held++
			} else if err == nil {
				r.Archived[l.Status]++
			}
			return err
		}); err != nil {
			return r, more, err
		}
	}
	if s.conf.Keep >= 0 {
		r.Expired, err = s.listExpired(ctx, now.Add(-s.conf.Keep))
	}
	return r, more, err
}

// rowsGone reports whether a table has no rows of that age left, so that no scan can
// find the event of a dead letter again.
func (s *Sweeper) rowsGone(ctx context.Context, known map[string]time.Duration, table string, age time.Duration) (bool, error) {
	if s.conf.Tables == nil {
		return false, nil
	}
	ttl, ok := known[table]
	if !ok {
		var err error
		if ttl, err = s.conf.Tables.RowTTL(ctx, table); err != nil {
			return false, fmt.Errorf("how long %s keeps its rows: %w", strings.TrimSpace(table), err)
		}
		known[table] = ttl
	}
	return ttl > 0 && age > ttl, nil
}
