package notifications

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// state is the state for the next process on duty, so that no notice is repeated.
type state struct {
	// Mark is up to when deaths have been counted.
	Mark time.Time `json:"mark"`
	// Seen are the counted dead letters of the last minutes, in which more may appear.
	// If there were too many to store, all with a first failure up to SeenUntil count
	// as seen.
	Seen      []gocql.UUID        `json:"seen,omitempty"`
	SeenUntil time.Time           `json:"seen_until,omitzero"`
	Groups    map[string]*group   `json:"groups,omitempty"`
	Alerts    map[dlq.Rule]*alert `json:"alerts,omitempty"`
	died      map[gocql.UUID]time.Time
}

// group contains the new dead letters of one error class, event type and table.
type group struct {
	Class, Type string
	Table       string `json:",omitempty"`
	Count       int
	AtLeast     bool `json:",omitempty"`
	Told        time.Time
	Samples     []dlq.Sample `json:",omitempty"`
}

// alert is the state of a rule with a limit.
type alert struct {
	Firing bool
	Since  time.Time
	Told   time.Time
	// Good counts consecutive polls that were well within the limit.
	Good int `json:",omitempty"`
}

const (
	// keptSeen limits the stored ids, so that the row of the database remains small.
	keptSeen = 1000
	// maxSeen and maxGroups bound the memory.
	maxSeen   = 100_000
	maxGroups = 200
	// forgetGroup is the time after which an idle group is removed.
	forgetGroup = 24 * time.Hour
	// goodPolls is the number of consecutive good polls that ends an alert.
	goodPolls = 2
)

func newState(mark time.Time) *state {
	return &state{Mark: mark, Groups: make(map[string]*group), Alerts: make(map[dlq.Rule]*alert), died: make(map[gocql.UUID]time.Time)}
}

func parseState(text string) (*state, error) {
	st := newState(time.Time{})
	if err := json.Unmarshal([]byte(text), st); err != nil {
		return nil, err
	}
	for _, id := range st.Seen {
		st.died[id] = st.Mark
	}
	return st, nil
}

// text is the state as it is kept.
func (st *state) text() (string, error) {
	ids := slices.SortedFunc(maps.Keys(st.died), func(a, b gocql.UUID) int {
		return cmp.Or(st.died[b].Compare(st.died[a]), slices.Compare(a[:], b[:]))
	})
	kept := *st // this process has newer state
	kept.Seen = ids
	if len(ids) > keptSeen {
		kept.Seen, kept.SeenUntil = nil, st.Mark
	}
	b, err := json.Marshal(&kept)
	return string(b), err
}

// isNew reports whether a dead letter has not been counted, and counts it.
func (st *state) isNew(l *dlq.DeadLetter) bool {
	if _, ok := st.died[l.EventID]; ok || !l.FirstFailedAt.After(st.SeenUntil) {
		return false
	}
	st.died[l.EventID] = l.FirstFailedAt
	return true
}

// settle removes dead letters with a first failure before since, because lists are not
// read that far back any more.
func (st *state) settle(since time.Time) {
	maps.DeleteFunc(st.died, func(_ gocql.UUID, at time.Time) bool { return at.Before(since) })
	if len(st.died) > maxSeen {
		clear(st.died)
		st.SeenUntil = st.Mark
	}
}

// add counts a new dead letter of a group.
func (st *state) add(l *dlq.DeadLetter, sample *dlq.Sample, samples int) {
	key := l.ErrorClass + "\x00" + l.EventType + "\x00" + l.Table
	g := st.Groups[key]
	if g == nil {
		if len(st.Groups) >= maxGroups {
			key = ""
			if g = st.Groups[key]; g == nil {
				g = &group{Class: "others"}
			}
		} else {
			g = &group{Class: l.ErrorClass, Type: l.EventType, Table: l.Table}
		}
		st.Groups[key] = g
	}
	g.Count++
	if len(g.Samples) < samples {
		g.Samples = append(g.Samples, *sample)
	}
}

// due returns the groups to notify now, the ones with most dead letters first.
func (st *state) due(now time.Time, window time.Duration) []*group {
	var out []*group
	for key, g := range st.Groups {
		switch {
		case g.Count > 0 && now.Sub(g.Told) >= window:
			out = append(out, g)
		case g.Count == 0 && now.Sub(g.Told) > forgetGroup:
			delete(st.Groups, key)
		}
	}
	slices.SortFunc(out, func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Table, b.Table))
	})
	return out
}

// step evaluates one poll of a rule with a limit: bad reports that the limit is
// exceeded by a condition that began at since, good that the value is well within it; between the
// two the state remains. It returns the notice to send.
func (a *alert) step(now, since time.Time, bad, good bool, repeat time.Duration) (tell, resolved bool) {
	switch {
	case bad:
		a.Good = 0
		if !a.Firing {
			a.Firing, a.Since, a.Told = true, since, now
			return true, false
		}
		if repeat > 0 && now.Sub(a.Told) >= repeat {
			a.Told = now
			return true, false
		}
	case good && a.Firing:
		if a.Good++; a.Good >= goodPolls {
			a.Firing, a.Good = false, 0
			return true, true
		}
	default:
		a.Good = 0
	}
	return false, false
}
