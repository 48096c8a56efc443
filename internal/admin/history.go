package admin

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/cached"
)

const (
	// historyStep is the interval of the points of the history.
	historyStep = 5 * time.Minute
	// historySample is the interval at which heartbeats are read for the next point.
	historySample = 15 * time.Second
	// historyKept is how far back a request may read; rows expire a day later.
	historyKept = 7 * 24 * time.Hour
)

// historyPoint is the state of the system in one step.
type historyPoint struct {
	At        time.Time `json:"at" doc:"Start of the five minutes"`
	Open      int64     `json:"open" doc:"Open dead letters at the end"`
	Total     int64     `json:"total" doc:"Dead letters in the tables at the end"`
	Published float64   `json:"published" doc:"Events per second, of all relays: the mean of samples"`
	P50       *float64  `json:"p50_ms,omitempty" doc:"Latency from commit to acknowledgement of the slowest relay: the mean of the medians of samples. Absent if no event was published."`
	P99       *float64  `json:"p99_ms,omitempty" doc:"The largest 99th percentile of a sample"`
}

// history records the points of the history and reads them. Its methods are safe for
// concurrent use, except run, which is called once.
type history struct {
	session     *gocql.Session
	consistency gocql.Consistency
	timeout     time.Duration
	log         *slog.Logger
	stats       *cached.Value[StatsBody]
	relays      *relayEndpoints
	stmt        struct{ write, read string }
	// step and sample are historyStep and historySample, but in tests.
	step, sample time.Duration
}

func newHistory(cfg *Config, stats *cached.Value[StatsBody], relays *relayEndpoints) *history {
	r := &history{session: cfg.Session, consistency: cfg.Consistency, timeout: cfg.Timeout, log: cfg.Logger, stats: stats, relays: relays, step: historyStep, sample: historySample}
	table := cfg.Keyspace + ".admin_history"
	r.stmt.write = "INSERT INTO " + table + " (day, at, open, total, published, p50_ms, p99_ms) VALUES (?, ?, ?, ?, ?, ?, ?)"
	r.stmt.read = "SELECT at, open, total, published, p50_ms, p99_ms FROM " + table + " WHERE day = ? AND at >= ? AND at < ?"
	return r
}

// run writes a point at the end of each step until ctx ends. A point that cannot be read or
// written is missing, which is logged.
func (r *history) run(ctx context.Context) {
	t := time.NewTicker(r.sample)
	defer t.Stop()
	for step := newStep(time.Now(), r.step); ; {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			if step.over(now) {
				if err := r.write(ctx, step); err != nil && ctx.Err() == nil {
					r.log.Warn("a point of the history is missing", "at", step.at, "err", err)
				}
				step = newStep(now, r.step)
			}
			if relays, err := r.relays.read(ctx); err == nil { // otherwise the mean is that of fewer samples
				step.add(relays)
			}
		}
	}
}

// write completes the point of a step and writes it.
func (r *history) write(ctx context.Context, step *historySamples) error {
	stats, err := r.stats.Get(ctx)
	if err != nil {
		return fmt.Errorf("count dead letters: %w", err)
	}
	p := step.point()
	p.Open, p.Total = stats.Open, stats.Total
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	return r.session.Query(r.stmt.write, dayOf(p.At), p.At, p.Open, p.Total, p.Published, p.P50, p.P99).
		WithContext(ctx).Consistency(r.consistency).Idempotent(true).Exec()
}

// read returns the points from since until until, oldest first.
func (r *history) read(ctx context.Context, since, until time.Time) ([]historyPoint, error) {
	out := []historyPoint{}
	for day := dayOf(since); day.Before(until); day = day.AddDate(0, 0, 1) {
		if err := r.readDay(ctx, day, since, until, &out); err != nil {
			return nil, fmt.Errorf("read the history of %s: %w", day.Format(time.DateOnly), err)
		}
	}
	return out, nil
}

func (r *history) readDay(ctx context.Context, day, since, until time.Time, out *[]historyPoint) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	iter := r.session.Query(r.stmt.read, day, since, until).WithContext(ctx).Consistency(r.consistency).Idempotent(true).Iter()
	for {
		var p historyPoint
		if !iter.Scan(&p.At, &p.Open, &p.Total, &p.Published, &p.P50, &p.P99) {
			return iter.Close()
		}
		p.At = p.At.UTC()
		*out = append(*out, p)
	}
}

// historySamples are the samples of one step.
type historySamples struct {
	at, end   time.Time
	n, with   int // samples, and those with a latency
	published float64
	p50, p99  float64
}

// newStep returns the step of a time, without samples.
func newStep(now time.Time, step time.Duration) *historySamples {
	at := now.UTC().Truncate(step)
	return &historySamples{at: at, end: at.Add(step)}
}

// over reports whether the step has ended.
func (s *historySamples) over(now time.Time) bool { return !now.Before(s.end) }

// add adds a sample: the last heartbeats of the relays that run. A heartbeat of an instance
// has no rates; its shards have them.
func (s *historySamples) add(relays []heartbeatBody) {
	last := make(map[[2]string]*heartbeatBody)
	for i := range relays {
		b := &relays[i]
		key := [2]string{b.Name, b.Table}
		if b.Silent || b.State == stateStopped || b.Sharing != nil || last[key] != nil && last[key].At.After(b.At) {
			continue
		}
		last[key] = b
	}
	s.n++
	p50, with := 0., false
	for _, b := range last {
		s.published += b.Rates.Published
		if b.Latency != nil {
			p50, with = max(p50, b.Latency.P50), true
			s.p99 = max(s.p99, b.Latency.P99)
		}
	}
	if with {
		s.with++
		s.p50 += p50
	}
}

// point returns the step's point, without dead letters.
func (s *historySamples) point() historyPoint {
	p := historyPoint{At: s.at, Published: s.published / float64(max(s.n, 1))}
	if s.with > 0 {
		p50, p99 := s.p50/float64(s.with), s.p99
		p.P50, p.P99 = &p50, &p99
	}
	return p
}

type historyInput struct {
	Since time.Time `query:"since" doc:"Points of this time or later; default a day before until, at most seven days ago"`
	Until time.Time `query:"until" doc:"Points before this time; default now"`
}

type historyOutput struct {
	Body struct {
		StepSeconds int            `json:"step_seconds" doc:"Interval of the points. A time without a point is one in which no outbox admin ran, or the database could not be reached."`
		Points      []historyPoint `json:"points" nullable:"false" doc:"Oldest first"`
	}
}

// historyEndpoints list the points of the history.
type historyEndpoints struct {
	*operations
	history *history
}

func (ep *historyEndpoints) register() {
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "list-history", Method: http.MethodGet, Path: "/v1/history", Summary: "List the state of the system over the last week, every five minutes",
	}), ep.list)
}

func (ep *historyEndpoints) list(ctx context.Context, in *historyInput) (*historyOutput, error) {
	now := time.Now()
	since, until := in.Since, in.Until
	if until.IsZero() || until.After(now) {
		until = now
	}
	if since.IsZero() {
		since = until.Add(-24 * time.Hour)
	}
	if oldest := now.Add(-historyKept); since.Before(oldest) {
		since = oldest
	}
	if err := span(ctx, "query.", since, until); err != nil {
		return nil, err
	}
	points, err := ep.history.read(ctx, since, until)
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	out := new(historyOutput)
	out.Body.StepSeconds, out.Body.Points = int(historyStep.Seconds()), points
	return out, nil
}
