package admin

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/cached"
	"github.com/scylla-outbox/scylla-outbox/internal/latency"
)

const (
	// historyStep is the interval of the points of the history.
	historyStep = 5 * time.Minute
	// historySample is the interval at which the counters in heartbeats are read for the next
	// point. A process that ends leaves its last heartbeat.
	historySample = 15 * time.Second
	// historyKept is how far back a request may read; rows expire a day later.
	historyKept = 7 * 24 * time.Hour
	// recentSamples is the number of the latest samples that a process keeps, which cover 15 minutes.
	recentSamples = 60
)

// historyPoint is the state of the system in one step.
type historyPoint struct {
	At        time.Time `json:"at" doc:"Start of the five minutes"`
	Open      int64     `json:"open" doc:"Open dead letters at the end"`
	Total     int64     `json:"total" doc:"Dead letters in the tables at the end"`
	Published float64   `json:"published" doc:"Events per second, of all relays: their number in the five minutes, divided by 300"`
	P50       *float64  `json:"p50_ms,omitempty" doc:"Median of the latency from commit to acknowledgement of these events. Absent if no event was published."`
	P99       *float64  `json:"p99_ms,omitempty" doc:"Its 99th percentile"`
}

// history records the points of the history and reads them. Its methods are safe for
// concurrent use, except run, which is called once.
type history struct {
	session *gocql.Session
	timeout time.Duration
	log     *slog.Logger
	stats   *cached.Value[StatsBody]
	relays  *relayEndpoints
	stmt    struct{ write, read string }
	// step and sample are historyStep and historySample, but in tests.
	step, sample time.Duration

	mu     sync.Mutex
	recent []historyPoint // of samples, oldest first
}

func newHistory(cfg *Config, stats *cached.Value[StatsBody], relays *relayEndpoints) *history {
	r := &history{session: cfg.Session, timeout: cfg.Timeout, log: cfg.Logger, stats: stats, relays: relays, step: historyStep, sample: historySample}
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
	began := time.Now()
	counts := newRelayCounts(began)
	for step := newStep(began, r.step); ; {
		// A sample that fails is part of the next one: counters lose nothing.
		if relays, err := r.relays.read(ctx); err == nil {
			before, now := counts.at, time.Now()
			p := counts.since(relays, now)
			step.add(p)
			r.remember(ctx, &historyCount{at: before, end: now, sum: p})
		}
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			if step.over(now) {
				if err := r.write(ctx, step, began.After(step.at)); err != nil && ctx.Err() == nil {
					r.log.Warn("a point of the history is missing", "at", step.at, "err", err)
				}
				step = newStep(now, r.step)
			}
		}
	}
}

// remember keeps a sample, unless the dead letters cannot be counted or no time has passed.
func (r *history) remember(ctx context.Context, sample *historyCount) {
	stats, err := r.stats.Get(ctx)
	if err != nil || !sample.at.Before(sample.end) {
		return
	}
	p := sample.point()
	p.At, p.Open, p.Total = sample.end.UTC(), stats.Open, stats.Total
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recent = append(r.recent, p)
	r.recent = r.recent[max(0, len(r.recent)-recentSamples):]
}

// samples returns the latest samples.
func (r *history) samples() []historyPoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]historyPoint{}, r.recent...)
}

// write completes the point of a step and writes it. One of a process that began within the step
// does not replace that of a process that has counted all of it.
func (r *history) write(ctx context.Context, step *historyCount, partial bool) error {
	if partial {
		points, err := r.read(ctx, step.at, step.end)
		if err != nil || len(points) > 0 {
			return err
		}
	}
	stats, err := r.stats.Get(ctx)
	if err != nil {
		return fmt.Errorf("count dead letters: %w", err)
	}
	p := step.point()
	p.Open, p.Total = stats.Open, stats.Total
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	return r.session.Query(r.stmt.write, dayPartition(p.At), p.At, p.Open, p.Total, p.Published, p.P50, p.P99).
		WithContext(ctx).Idempotent(true).Exec()
}

// read returns the points from since until until, oldest first.
func (r *history) read(ctx context.Context, since, until time.Time) ([]historyPoint, error) {
	out := []historyPoint{}
	for day := dayPartition(since); day.Before(until); day = day.AddDate(0, 0, 1) {
		if err := r.readDay(ctx, day, since, until, &out); err != nil {
			return nil, fmt.Errorf("read the history of %s: %w", day.Format(time.DateOnly), err)
		}
	}
	return out, nil
}

func (r *history) readDay(ctx context.Context, day, since, until time.Time, out *[]historyPoint) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	iter := r.session.Query(r.stmt.read, day, since, until).WithContext(ctx).Idempotent(true).Iter()
	for {
		var p historyPoint
		if !iter.Scan(&p.At, &p.Open, &p.Total, &p.Published, &p.P50, &p.P99) {
			return iter.Close()
		}
		p.At = p.At.UTC()
		*out = append(*out, p)
	}
}

// published is what relays published in a time.
type published struct {
	events  float64
	latency latency.Counts
}

// relayCounts are the counters of all processes as they were read last.
type relayCounts struct {
	at   time.Time
	last map[string]published
}

// newRelayCounts returns counters that begin at a time.
func newRelayCounts(at time.Time) *relayCounts {
	return &relayCounts{at: at, last: make(map[string]published)}
}

// since counts the events published since the previous call, by the heartbeats at a time. Of a process that is heard of first,
// all count if it began after that; otherwise it is not known when. An instance of shards publishes nothing itself.
func (c *relayCounts) since(heartbeats []heartbeatBody, at time.Time) (sum published) {
	now := make(map[string]published, len(heartbeats))
	for i := range heartbeats {
		h := &heartbeats[i]
		if h.Sharing != nil || h.StartedAt == nil {
			continue
		}
		is := published{events: h.Published}
		if h.Commits != nil {
			is.latency = *h.Commits
		}
		key := strings.Join([]string{h.Name, h.Table, h.Instance, h.StartedAt.Format(time.RFC3339Nano)}, " ")
		now[key] = is
		if was, known := c.last[key]; known || h.StartedAt.After(c.at) {
			sum.events += max(is.events-was.events, 0)
			sum.latency = sum.latency.Plus(is.latency.Since(was.latency))
		}
	}
	c.last, c.at = now, at
	return sum
}

// historyCount counts the events published in one step.
type historyCount struct {
	at, end time.Time
	sum     published
}

// newStep returns the step of a time, in which nothing was published.
func newStep(now time.Time, step time.Duration) *historyCount {
	at := now.UTC().Truncate(step)
	return &historyCount{at: at, end: at.Add(step)}
}

// over reports whether the step has ended.
func (s *historyCount) over(now time.Time) bool { return !now.Before(s.end) }

// add adds the events published in a part of the step.
func (s *historyCount) add(p published) {
	s.sum.events += p.events
	s.sum.latency = s.sum.latency.Plus(p.latency)
}

// point returns the step's point, without dead letters.
func (s *historyCount) point() historyPoint {
	p := historyPoint{At: s.at, Published: s.sum.events / s.end.Sub(s.at).Seconds()}
	if q := s.sum.latency.Quantiles(.5, .99); q != nil {
		p50, p99 := 1000*q[0].Seconds(), 1000*q[1].Seconds()
		p.P50, p.P99 = &p50, &p99
	}
	return p
}

type historyInput struct {
	Since time.Time `query:"since" doc:"Points of this time or later; default a day before until, at most seven days ago"`
	Until time.Time `query:"until" doc:"Points before this time; default now"`
	Live  bool      `query:"live" doc:"The latest samples instead, those of up to 15 minutes, which this process took every 15 s; since and until do not apply"`
}

type historyOutput struct {
	Body struct {
		StepSeconds int            `json:"step_seconds" doc:"Interval of the points: 300 or, of live samples, 15. A time without a point is one in which no outbox admin ran, or the database could not be reached."`
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
	if in.Live {
		out := new(historyOutput)
		out.Body.StepSeconds, out.Body.Points = int(historySample.Seconds()), ep.history.samples()
		return out, nil
	}
	points, err := ep.history.read(ctx, since, until)
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	out := new(historyOutput)
	out.Body.StepSeconds, out.Body.Points = int(historyStep.Seconds()), points
	return out, nil
}
