package dlq

import (
	"context"
	"errors"
)

// Preview is what an operator's action would do, without doing it.
type Preview struct {
	Action Action `json:"action"`
	// Letters are those on which the action can begin.
	Letters int `json:"letters"`
	// ByStatus, ByClass and ByTopic divide them.
	ByStatus map[Status]int `json:"by_status"`
	ByClass  map[string]int `json:"by_error_class"`
	ByTopic  map[string]int `json:"by_topic"`
	// Aggregates is how many aggregates they are of.
	Aggregates int `json:"aggregates"`
	// Followers are the letters parked behind them, which go on once those before
	// them are gone. Beyond MaxPreviewed aggregates they are not counted, and
	// FollowersOf says of how many aggregates they are.
	Followers   int `json:"followers"`
	FollowersOf int `json:"followers_of_aggregates"`
	// Refused counts letters on which the action cannot begin, by status.
	Refused map[Status]int `json:"refused"`
}

// MaxPreviewed is of how many aggregates a preview looks at the chain.
const MaxPreviewed = 1000

// Check returns nil if an operator's action could begin on the letter as it
// stands in l, and a *RefusedError if not.
func (s *Store) Check(action Action, l *Letter) error { return s.allowed(action, l) }

// Preview says what the action would do to the letters, and which they are:
// those on which it can begin, in their order. It changes nothing.
func (s *Store) Preview(ctx context.Context, action Action, letters []Letter) (Preview, []Letter, error) {
	p := Preview{
		Action: action, ByStatus: make(map[Status]int), ByClass: make(map[string]int), ByTopic: make(map[string]int),
		Refused: make(map[Status]int),
	}
	type aggregate struct{ table, id string }
	of := make(map[aggregate][]string) // the letters' ids
	var may []Letter
	for i := range letters {
		l := &letters[i]
		err := s.Check(action, l)
		if errors.Is(err, ErrRefused) {
			p.Refused[l.Status]++
			continue
		}
		if err != nil {
			return Preview{}, nil, err
		}
		p.Letters++
		p.ByStatus[l.Status]++
		p.ByClass[l.ErrorClass]++
		p.ByTopic[l.Topic]++
		a := aggregate{l.Table, l.AggregateID}
		of[a] = append(of[a], l.EventID.String())
		may = append(may, *l)
	}
	p.Aggregates = len(of)
	for a, ids := range of {
		if p.FollowersOf == MaxPreviewed {
			break
		}
		p.FollowersOf++
		chain, err := s.Chain(ctx, a.table, a.id)
		if err != nil {
			return Preview{}, nil, err
		}
		p.Followers += followers(chain, ids)
	}
	return p, may, nil
}

// followers counts the parked letters of a chain that stand behind one of ids.
func followers(chain []ChainEntry, ids []string) (n int) {
	mine := make(map[string]bool, len(ids))
	for _, id := range ids {
		mine[id] = true
	}
	behind := false
	for _, e := range chain {
		if mine[e.EventID.String()] {
			behind = true
		} else if behind && e.Status == Parked {
			n++
		}
	}
	return n
}
