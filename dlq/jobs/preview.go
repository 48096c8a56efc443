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

// Preview is the effect that an operator's action would have.
type Preview struct {
	Action dlq.Action `json:"action"`
	// DeadLetters counts the dead letters that the action would change.
	DeadLetters int `json:"dead_letters"`
	// ByStatus, ByClass and ByTopic divide them.
	ByStatus map[dlq.Status]int `json:"by_status"`
	ByClass  map[string]int     `json:"by_error_class"`
	ByTopic  map[string]int     `json:"by_topic"`
	// Aggregates is the number of their aggregates.
	Aggregates int `json:"aggregates"`
	// Sample contains up to PreviewSample of the aggregates, the ones with most dead
	// letters first.
	Sample []PreviewAggregate `json:"aggregates_sample,omitempty"`
	// Followers counts the blocked dead letters that the action would unblock.
	// Aggregates beyond MaxPreviewed are not counted; FollowersOf is the number of
	// counted aggregates.
	Followers   int `json:"followers"`
	FollowersOf int `json:"followers_of_aggregates"`
	// Refused counts dead letters whose status does not allow the action, by status.
	Refused map[dlq.Status]int `json:"refused"`
	// Estimated is the estimated duration of a job in seconds; 0 without an estimate.
	// EstimatedBy is its basis: "rate", "jobs before", or "default rate".
	Estimated   float64 `json:"estimated_seconds,omitempty"`
	EstimatedBy string  `json:"estimated_by,omitempty"`
}

// PreviewAggregate is an aggregate whose dead letters would be changed.
type PreviewAggregate struct {
	Table       string `json:"table"`
	AggregateID string `json:"aggregate_id"`
	// DeadLetters counts the dead letters to change, and Followers the blocked ones
	// behind them; aggregates beyond MaxPreviewed are not counted.
	DeadLetters int `json:"dead_letters"`
	Followers   int `json:"followers"`
}

// PreviewSample limits the aggregates in a preview.
const PreviewSample = 10

// MaxPreviewed limits the aggregates whose chain a preview reads.
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

// Preview returns the effect that a job with this specification would have on the given
// dead letters, and the ones that it would change, in their order. It changes nothing.
func (s *Store) Preview(ctx context.Context, spec *Spec, deadLetters []dlq.DeadLetter) (Preview, []dlq.DeadLetter, error) {
	p := Preview{
		Action: spec.Action, ByStatus: make(map[dlq.Status]int), ByClass: make(map[string]int), ByTopic: make(map[string]int),
		Refused: make(map[dlq.Status]int),
	}
	type aggregate struct{ table, id string }
	of := make(map[aggregate][]string) // the events' ids
	var may []dlq.DeadLetter
	for i := range deadLetters {
		l := &deadLetters[i]
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
		if spec.Action == dlq.ActionSet {
			break // it unblocks none
		}
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

// measuredJobs limits the earlier jobs that an estimate uses.
const measuredJobs = 100

// AssumedRate is the assumed number of dead letters per second without earlier jobs:
// DefaultConcurrency concurrent changes of four round trips of about 7 ms each, as
// within a region.
const AssumedRate = 300

// comparable bounds the sizes of jobs that an estimate compares: of a job of one dead letter
// nearly all time is polling, and that of the last of a hundred thousand is none.
const comparable = 10

// Estimate sets the estimated duration of a job for p: at rate dead letters per second,
// 0 for no limit, and not faster than earlier jobs of the same action with a tenth to ten times
// as many dead letters that were no redeliveries, whose time is that of a consumer, or than AssumedRate without any.
func (s *Store) Estimate(ctx context.Context, p *Preview, rate float64) error {
	if rate > 0 {
		p.Estimated, p.EstimatedBy = float64(p.DeadLetters)/rate, "rate"
	}
	jobs, err := s.List(ctx, gocql.UUID{}, measuredJobs)
	if err != nil {
		return err
	}
	var deadLetters int
	var took time.Duration
	for _, j := range jobs {
		n := j.Progress.Done
		if j.Action == p.Action && j.Redelivery == nil && j.State == Done && j.Rate == 0 && j.Progress.Waiting == 0 && len(j.History) == 1 &&
			n*comparable >= p.DeadLetters && n <= p.DeadLetters*comparable {
			deadLetters += n
			took += j.Finished.Sub(j.Started)
		}
	}
	each, by := 1.0/AssumedRate, "default rate"
	if deadLetters > 0 {
		each, by = took.Seconds()/float64(deadLetters), "jobs before"
	}
	if d := each * float64(p.DeadLetters); d > p.Estimated {
		p.Estimated, p.EstimatedBy = d, by
	}
	return nil
}

// followers counts the blocked dead letters of a chain behind one of ids.
func followers(chain []dlq.ChainEntry, ids []string) (n int) {
	mine := make(map[string]bool, len(ids))
	for _, id := range ids {
		mine[id] = true
	}
	behind := false
	for _, e := range chain {
		if mine[e.EventID.String()] {
			behind = true
		} else if behind && e.Status == dlq.Blocked {
			n++
		}
	}
	return n
}
