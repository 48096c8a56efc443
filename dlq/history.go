package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
)

// Change is one line of a letter's history. It is stored by the change itself.
type Change struct {
	// Version is the letter's after the change.
	Version int64 `json:"version"`
	// ID tells this change from another that was tried at the same time.
	ID     gocql.UUID `json:"id"`
	At     time.Time  `json:"at"`
	Action Action     `json:"action"`
	// By is the relay's owner name or the operator's.
	By   string `json:"by,omitempty"`
	From Status `json:"from,omitempty"`
	To   Status `json:"to"`
	// Why is the operator's reason or the error of a replay.
	Why string `json:"why,omitempty"`
	// Outcome is what came of it.
	Outcome string `json:"outcome,omitempty"`
	// Class is the error class of a replay that failed.
	Class string `json:"class,omitempty"`
	// Job is the bulk job that made the change, zero without one.
	Job gocql.UUID `json:"job,omitzero"`
}

// maxHistory is how many changes a letter remembers; older ones are dropped.
const maxHistory = 1000

func (c Change) text() string {
	b, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("dlq: a history line of plain fields cannot be marshalled: %v", err))
	}
	return string(b)
}

// History are the changes of a letter, oldest first; ErrNotFound if there is no
// letter.
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

// didFor tells whether the job has changed the letter already. Only if another
// job did since has the history to be asked.
func (s *Store) didFor(ctx context.Context, l *Letter, job gocql.UUID) (bool, error) {
	none := gocql.UUID{}
	if job == none || l.job == none || l.job == job {
		return job != none && l.job == job, nil
	}
	version, err := s.ChangedBy(ctx, l.EventID, job)
	return version > 0, err
}

// ChangedBy is the version that the job's change made of a letter; 0 if it has not
// changed it.
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
