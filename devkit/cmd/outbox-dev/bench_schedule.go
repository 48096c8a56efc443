package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/load"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

const (
	// storedPerSecond is the minimum rate of storing messages for later. It determines
	// how long before their due time storing begins.
	storedPerSecond = 1000
	// waitingFrom is how far in the future the first of the messages that only wait is
	// due, waitingOver the period of their due times.
	waitingFrom, waitingOver = 24 * time.Hour, 300 * 24 * time.Hour
	// shortDelay and shortRate are the delay and the rate of messages that are due
	// almost immediately.
	shortDelay = 50 * time.Millisecond
	shortRate  = 100
)

// scheduleBench measures messages for later.
type scheduleBench struct {
	*benchmark
	waiting, burst int64
	live           float64
	scheduleRate   int
	result         bench.ScheduleReport
}

func newBenchScheduleCommand() *cobra.Command {
	var (
		f benchFlags
		s scheduleBench
	)
	cmd := &cobra.Command{
		Use:   "schedule",
		Short: "Measure the lateness of scheduled messages and the cost of waiting ones",
		Long: `Measure scheduled delivery, from when a message is due until a consumer has it.

  waiting   messages wait for a day and more; compared are the relay's memory,
            processor time and queries with and without them
  steady    messages are due at --rate
  short     messages are stored one by one and are due 50 ms later
  burst     --burst messages are due at one moment
  live      unscheduled events are stored at --live, alone and beside the burst,
            which must not delay them

The relay is a process of its own, and so are the embedded database and broker;
--scylla-hosts and --kafka-seeds replace them. Exit status 1 if a message was
lost or came twice.`,
		Args: cobra.NoArgs,
		RunE: measuring(&f, s.validate, s.measure),
	}
	fl := cmd.Flags()
	fl.Int64Var(&s.waiting, "waiting", 20_000, "messages that wait")
	fl.Int64Var(&s.burst, "burst", 50_000, "messages due at one moment; 0 skips the burst")
	fl.Float64Var(&s.live, "live", 200, "events per second beside the burst; 0 disables them")
	fl.IntVar(&s.scheduleRate, "schedule-rate", schedule.DefaultRate, "the relay's relay.scheduled_per_second")
	fl.Float64Var(&f.rate, "rate", 1000, "messages due per second")
	fl.DurationVar(&f.duration, "duration", 10*time.Second, "duration of the steady load and of the load with a short delay")
	fl.DurationVar(&f.idle, "idle", 5*time.Second, "how long the idle relay is measured")
	f.addSizeFlags(fl)
	f.addFlags(cmd, "the relay")
	return cmd
}

func (s *scheduleBench) validate(f *benchFlags) error {
	var errs problems
	bad := errs.bad
	bad(s.waiting < 0, "--waiting %d: must not be negative", s.waiting)
	bad(s.burst < 0, "--burst %d: must not be negative", s.burst)
	bad(s.live < 0 || s.live > 1e6, "--live %g: use events per second, up to a million", s.live)
	bad(s.scheduleRate < 1, "--schedule-rate %d: use 1 or more", s.scheduleRate)
	bad(f.rate <= 0 || f.rate > 1e6, "--rate %g: use messages per second, up to a million", f.rate)
	bad(f.duration <= 0, "--duration %s: must be positive", f.duration)
	bad(f.idle <= 0, "--idle %s: must be positive", f.idle)
	bad(f.payload < 32 || f.payload > 200_000, "--payload %d: use 32 to 200000 bytes", f.payload)
	bad(f.runs < 1, "--runs %d: use 1 or more", f.runs)
	return errs.with(f.output)
}

func (s *scheduleBench) measure(ctx context.Context, b *benchmark) error {
	s.benchmark = b
	s.result = bench.ScheduleReport{Head: s.head()}
	var results []bench.ScheduleReport
	for run := range s.runs {
		s.progress("run %d of %d", run+1, s.runs)
		r, err := s.once(ctx)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	m := bench.Median(results)
	s.result.Stored, s.result.None, s.result.Many, s.result.PeakMB = m.Stored, m.None, m.Many, m.PeakMB
	for part := range results[0].Parts {
		var runs []bench.Delivered
		for i := range results {
			runs = append(runs, results[i].Parts[part])
			s.result.Counted.Add(results[i].Parts[part].Counts)
		}
		s.result.Parts = append(s.result.Parts, bench.Median(runs))
	}
	for part := range results[0].Live {
		var runs []bench.Live
		for i := range results {
			runs = append(runs, results[i].Live[part])
			s.result.Counted.Add(results[i].Live[part].Counts)
		}
		s.result.Live = append(s.result.Live, bench.Median(runs))
	}
	return s.print(&s.result, s.result.Counted.OK())
}

// once runs all parts once with one relay.
func (s *scheduleBench) once(ctx context.Context) (r bench.ScheduleReport, err error) {
	p, err := s.newPlace(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.remove(ctx)) }()
	store := schedule.NewStore(p.session, gocql.LocalQuorum, s.conf.Scylla.Timeout)
	relay, err := p.startRelay(p.keyspace, "", "--relay-scheduled-per-second", fmt.Sprint(s.scheduleRate))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, relay.Stop()) }()
	if err := p.awaitTail(ctx, relay); err != nil {
		return r, err
	}
	if err := stoppable(ctx, benchSettle); err != nil {
		return r, err
	}
	if r.None, err = s.watchWaiting(ctx, relay, 0); err != nil {
		return r, err
	}
	if s.waiting > 0 {
		from, spread := time.Now().Add(waitingFrom), waitingOver/time.Duration(s.waiting)
		began := time.Now()
		// They are due in pseudo-random order of their numbers: 7919 is a prime.
		at := func(i int64) time.Time { return from.Add(time.Duration(i*7919%s.waiting) * spread) }
		if err := s.store(ctx, store, bench.NewMessages("waiting", s.payload), s.waiting, at); err != nil {
			return r, err
		}
		r.Stored = bench.NewRate(s.waiting, time.Since(began))
	}
	if r.Many = r.None; s.waiting > 0 {
		if r.Many, err = s.watchWaiting(ctx, relay, s.waiting); err != nil {
			return r, err
		}
	}

	if err := s.liveAlone(ctx, p, relay, &r); err != nil {
		return r, err
	}
	n := int64(s.rate * s.duration.Seconds())
	lead := func(n int64) time.Duration { return 3*time.Second + time.Duration(n)*time.Second/storedPerSecond }
	for _, part := range []struct {
		name  string
		n     int64
		due   func(start time.Time, i int64) time.Time
		lead  time.Duration
		pace  float64
		burst bool
	}{
		{fmt.Sprintf("steady, %g/s due", s.rate), n, func(start time.Time, i int64) time.Time {
			return start.Add(time.Duration(float64(i) / s.rate * float64(time.Second)))
		}, lead(n), 0, false},
		{fmt.Sprintf("short, stored %s before they are due, %d/s", shortDelay, shortRate), int64(shortRate * s.duration.Seconds()), func(start time.Time, i int64) time.Time {
			return start.Add(time.Duration(i) * time.Second / shortRate)
		}, time.Second, shortRate, false},
		{fmt.Sprintf("burst, %d due at one moment", s.burst), s.burst, func(start time.Time, _ int64) time.Time { return start }, lead(s.burst), 0, true},
	} {
		if part.n == 0 {
			continue
		}
		start := time.Now().Add(part.lead).Truncate(time.Millisecond)
		beside := func(*bench.Delivered) error { return nil }
		if s.live > 0 && part.burst {
			beside = s.besideBurst(ctx, p, relay, start, &r)
		}
		d, err := s.deliver(ctx, p, relay, store, part.name, part.n, part.pace > 0, func(i int64) time.Time { return part.due(start, i) })
		if err = errors.Join(err, beside(&d)); err != nil {
			return r, fmt.Errorf("%s: %w", part.name, err)
		}
		s.progress("%s: p50 %.0f ms, p95 %.0f ms late, all published after %.1f s; others kept %.1f cores busy", d.Name, d.Late.P50, d.Late.P95, d.Seconds, d.Others)
		r.Parts = append(r.Parts, d)
	}
	r.PeakMB = float64(relay.Usage().Peak) / 1e6
	return r, nil
}

// store stores messages, and shows the progress.
func (s *scheduleBench) store(ctx context.Context, store *schedule.Store, e *bench.Events, n int64, at func(int64) time.Time) error {
	var wrote atomic.Int64
	s.progress("storing %d messages for later", n)
	return load.Showing(ctx, cli.NewProgress(s.errOut, func() cli.Work { return cli.Work{Done: wrote.Load(), Total: n} }), func() error {
		return bench.Schedule(ctx, store, e, n, at, func() { wrote.Add(1) })
	})
}

// deliver stores n messages and follows them to their topic. With late, each is stored
// shortly before it is due; otherwise all are stored long before the first is due.
func (s *scheduleBench) deliver(ctx context.Context, p *place, relay *bench.Child, store *schedule.Store, name string, n int64, late bool, due func(int64) time.Time) (d bench.Delivered, err error) {
	topic, err := p.topic(ctx)
	if err != nil {
		return d, err
	}
	events := bench.NewMessages(topic, s.payload)
	arrivals := bench.NewArrivals(events, n)
	stop, err := s.consume(ctx, arrivals, topic)
	if err != nil {
		return d, err
	}
	defer stop()
	before, queries, hinted := s.usages(ctx, relay), 0.0, 0.0
	mark := func() (err error) {
		before = s.usages(ctx, relay)
		if queries, err = bench.Scrape(ctx, relay.Attr("ops"), bench.QueriesMetric); err != nil {
			return err
		}
		hinted, err = bench.Scrape(ctx, relay.Attr("ops"), "outbox_relay_tail_queries_total", "hinted")
		return err
	}
	if late {
		if err := mark(); err != nil {
			return d, err
		}
		at := func(i int64) time.Time {
			_ = stoppable(ctx, time.Until(due(i).Add(-shortDelay))) // Put returns the error of ctx
			return due(i)
		}
		if err := bench.Schedule(ctx, store, events, n, at, func() {}); err != nil {
			return d, err
		}
	} else {
		if err := s.store(ctx, store, events, n, due); err != nil {
			return d, err
		}
		if wait := time.Until(due(0)); wait < schedule.DefaultLookAhead {
			return d, fmt.Errorf("storing %d messages took too long: the first is due in %s; use fewer", n, wait)
		}
		if err := mark(); err != nil {
			return d, err
		}
	}
	if err := stoppable(ctx, time.Until(due(0))); err != nil {
		return d, err
	}
	profiled := s.profile(ctx, relay, "schedule "+name, 5*time.Second)
	if err := arrivals.Wait(ctx, n, benchPatience+time.Until(due(n-1))); err != nil {
		return d, err
	}
	after := s.usages(ctx, relay)
	d = bench.Delivered{Name: name, Counts: arrivals.Counts(n), Others: after.others(before)}
	d.Lateness(arrivals, n, due)
	d.Process = float64((after.process.CPU - before.process.CPU).Microseconds()) / float64(n)
	sent, err := bench.Scrape(ctx, relay.Attr("ops"), bench.QueriesMetric)
	if err != nil {
		return d, err
	}
	d.Queries = (sent - queries) / float64(n)
	sent, err = bench.Scrape(ctx, relay.Attr("ops"), "outbox_relay_tail_queries_total", "hinted")
	d.Hinted = sent - hinted
	return d, errors.Join(err, profiled())
}

// watchWaiting measures the relay while nothing is due.
func (s *scheduleBench) watchWaiting(ctx context.Context, relay *bench.Child, n int64) (w bench.Waiting, err error) {
	idle, err := s.watch(ctx, relay)
	if err != nil {
		return w, err
	}
	w = bench.Waiting{Messages: n, ResidentMB: float64(relay.Usage().Resident) / 1e6, Cores: idle.Relay.Cores, Queries: idle.Queries}
	s.progress("%d waiting: %.0f MB", n, w.ResidentMB)
	return w, nil
}
