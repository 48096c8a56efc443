package jobs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// Preview is what an operator's action would do, without doing it.
type Preview struct {
	Action dlq.Action `json:"action"`
	// Letters are those on which the action can begin.
	DeadLetters int `json:"letters"`
	// ByStatus, ByClass and ByTopic divide them.
	ByStatus map[dlq.Status]int `json:"by_status"`
	ByClass  map[string]int     `json:"by_error_class"`
	ByTopic  map[string]int     `json:"by_topic"`
	// Aggregates is how many aggregates they are of.
	Aggregates int `json:"aggregates"`
	// Sample are up to PreviewSample of them, those with most letters first.
	Sample []PreviewAggregate `json:"aggregates_sample,omitempty"`
	// Followers are the letters parked behind them, which go on once those before
	// them are gone. Beyond MaxPreviewed aggregates they are not counted, and
	// FollowersOf says of how many aggregates they are.
	Followers   int `json:"followers"`
	FollowersOf int `json:"followers_of_aggregates"`
	// Refused counts letters on which the action cannot begin, by status.
	Refused map[dlq.Status]int `json:"refused"`
	// Estimated is how long a job would take, in seconds; 0 if it was not asked for.
	// EstimatedBy says by what: "rate", "jobs before", or "default rate".
	Estimated   float64 `json:"estimated_seconds,omitempty"`
	EstimatedBy string  `json:"estimated_by,omitempty"`
}

// PreviewAggregate is an aggregate of which letters would be changed.
type PreviewAggregate struct {
	Table       string `json:"table"`
	AggregateID string `json:"aggregate_id"`
	// Letters would be changed, and Followers are parked behind them; of aggregates
	// beyond MaxPreviewed they are not counted.
	DeadLetters int `json:"letters"`
	Followers   int `json:"followers"`
}

// PreviewSample is how many aggregates a preview names.
const PreviewSample = 10

// MaxPreviewed is of how many aggregates a preview looks at the chain.
const MaxPreviewed = 1000

// Check is Check for the action of a job.
func (s *Store) Check(spec *Spec, l *dlq.DeadLetter) error {
	switch {
	case spec.Action == dlq.ActionPurge:
		return s.dead.CheckPurge(l, dlq.Purge{Force: spec.Force})
	case spec.Action == dlq.ActionRestore:
		return s.dead.CheckRestore(l)
	}
	return s.dead.Check(spec.Action, l)
}

// Preview is Preview for a job that would do as spec says to the letters.
func (s *Store) Preview(ctx context.Context, spec *Spec, letters []dlq.DeadLetter) (Preview, []dlq.DeadLetter, error) {
	p := Preview{
		Action: spec.Action, ByStatus: make(map[dlq.Status]int), ByClass: make(map[string]int), ByTopic: make(map[string]int),
		Refused: make(map[dlq.Status]int),
	}
	type aggregate struct{ table, id string }
	of := make(map[aggregate][]string) // the letters' ids
	var may []dlq.DeadLetter
	for i := range letters {
		l := &letters[i]
		err := s.Check(spec, l)
		if errors.Is(err, dlq.ErrRefused) {
			p.Refused[l.Status]++
			continue
		}
		if err != nil {
			return Preview{}, nil, err
		}
		p.DeadLetters++
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
		chain, err := s.dead.Chain(ctx, a.table, a.id)
		if err != nil {
			return Preview{}, nil, err
		}
		n := followers(chain, ids)
		p.Followers += n
		p.Sample = append(p.Sample, PreviewAggregate{Table: a.table, AggregateID: a.id, DeadLetters: len(ids), Followers: n})
	}
	slices.SortFunc(p.Sample, func(a, b PreviewAggregate) int {
		return cmp.Or(cmp.Compare(b.DeadLetters, a.DeadLetters), cmp.Compare(b.Followers, a.Followers), cmp.Compare(a.AggregateID, b.AggregateID))
	})
	p.Sample = p.Sample[:min(len(p.Sample), PreviewSample)]
	return p, may, nil
}

// measuredJobs is how many jobs before an estimate looks at.
const measuredJobs = 100

// AssumedRate is how many letters per second a job is taken to change where no
// job was made before: what DefaultConcurrency changes at a time come to
// that each take four round trips of some 7 ms, as within a region.
const AssumedRate = 300

// Estimate fills in how long a job would take for what p previews: at so many
// letters per second, 0 for as fast as it goes, and not faster than jobs of the
// same action went before, or than AssumedRate if there was none.
func (s *Store) Estimate(ctx context.Context, p *Preview, rate float64) error {
	if rate > 0 {
		p.Estimated, p.EstimatedBy = float64(p.DeadLetters)/rate, "rate"
	}
	jobs, err := s.List(ctx, gocql.UUID{}, measuredJobs)
	if err != nil {
		return err
	}
	var letters int
	var took time.Duration
	for _, j := range jobs {
		if j.Action == p.Action && j.State == Done && j.Rate == 0 && j.Progress.Waiting == 0 && len(j.History) == 1 {
			letters += j.Progress.Done
			took += j.Finished.Sub(j.Started)
		}
	}
	each, by := 1.0/AssumedRate, "default rate"
	if letters > 0 {
		each, by = took.Seconds()/float64(letters), "jobs before"
	}
	if d := each * float64(p.DeadLetters); d > p.Estimated {
		p.Estimated, p.EstimatedBy = d, by
	}
	return nil
}

// followers counts the parked letters of a chain that stand behind one of ids.
func followers(chain []dlq.ChainEntry, ids []string) (n int) {
	mine := make(map[string]bool, len(ids))
	for _, id := range ids {
		mine[id] = true
	}
	behind := false
	for _, e := range chain {
		if mine[e.EventID.String()] {
			behind = true
		} else if behind && e.Status == dlq.Parked {
			n++
		}
	}
	return n
}
