package main

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
)

// mostTablets is the largest number of streams that --streams makes by tablets: together
// with the other tables' they are below the goal of ScyllaDB, 100 on a shard.
const mostTablets = 32

// streamBench measures tables with different numbers of streams.
type streamBench struct {
	*benchmark
	counts []int
	result bench.StreamReport
}

func newBenchStreamsCommand() *cobra.Command {
	var s streamBench
	f := benchFlags{poll: 15 * time.Millisecond, runs: 1}
	cmd := &cobra.Command{
		Use:   "streams",
		Short: "Measure the relay with different numbers of CDC streams",
		Long: `Measure latency, drain rate and idle cost of the relay for tables with different
numbers of CDC streams: up to 32 by tablets, more by vnodes, 256 on each shard. The
embedded database takes the times that were measured on a ScyllaDB node, with as many
shards: see --node-costs.

For each number are measured: the idle relay; the latency at --rate with hints, and
polling every 15 ms; the drain of --drain events by the tail reader, the sweep reader
and scylla-cdc-go with franz-go.

With --scylla-hosts and --kafka-seeds the given cluster is used: numbers up to 32
are asked for by min_tablet_count, which takes minutes, and of the larger ones one
is measured, with the vnodes of the cluster. The report shows the streams that the
table had. Exit status 1 if the relay lost an event, published one twice, or
published one out of order.`,
		Args: cobra.NoArgs,
		RunE: measuring(&f, s.validate, s.measure),
	}
	fl := cmd.Flags()
	fl.IntSliceVar(&s.counts, "streams", []int{1, 2, 16, 256, 3072}, "numbers of streams: powers of two up to 32, or multiples of 256")
	fl.Float64Var(&f.rate, "rate", 1000, "events per second of the load")
	fl.DurationVar(&f.duration, "duration", 5*time.Second, "duration of a load after a second of warm-up")
	fl.DurationVar(&f.idle, "idle", 3*time.Second, "how long the idle relay is measured")
	fl.Int64Var(&f.drain, "drain", 50_000, "events of the backlog")
	fl.IntVar(&f.payload, "payload", 512, "bytes of a payload")
	f.costsFlag(fl, true)
	f.addFlags(cmd, "the relay and its peer")
	return cmd
}

func (s *streamBench) validate(f *benchFlags) error {
	var errs problems
	bad := errs.bad
	bad(len(s.counts) == 0, "--streams: name a number")
	for _, n := range s.counts {
		bad(n < 1 || n <= mostTablets && bits.OnesCount(uint(n)) > 1 || n > mostTablets && n%benchTokens != 0,
			"--streams %d: use a power of two up to %d, or a multiple of %d", n, mostTablets, benchTokens)
	}
	bad(f.rate <= 0 || f.rate > 1e6, "--rate %g: use events per second, up to a million", f.rate)
	bad(f.duration <= 0, "--duration %s: must be positive", f.duration)
	bad(f.idle <= 0, "--idle %s: must be positive", f.idle)
	bad(f.drain < 1, "--drain %d: use 1 or more", f.drain)
	bad(f.payload < 32 || f.payload > 900_000, "--payload %d: use 32 to 900000 bytes", f.payload)
	return errs.with(f.output)
}

func (s *streamBench) measure(ctx context.Context, b *benchmark) error {
	s.benchmark = b
	r := &s.result
	*r = bench.StreamReport{Head: s.head(), Drain: s.drain}
	vnodes := false
	for _, n := range s.counts {
		if n > mostTablets && !s.embedded {
			if vnodes {
				continue // the cluster has one number of vnodes
			}
			vnodes = true
		}
		got, err := s.measureStreams(ctx, n)
		if err != nil {
			return fmt.Errorf("%d streams: %w", n, err)
		}
		for _, c := range []bench.Counts{got.Hints.Counts, got.Polling.Counts, got.Tail.Counts, got.Sweep.Counts} {
			r.Counts.Add(c)
		}
		r.Shapes = append(r.Shapes, got)
	}
	return s.print(r, r.Counts.OK())
}

// measureStreams measures a table with n streams, on an embedded database of its own.
func (s *streamBench) measureStreams(ctx context.Context, n int) (got bench.StreamShape, err error) {
	b := *s.benchmark
	got.Name = "vnodes"
	var args []string
	switch {
	case n <= mostTablets:
		b.tablets, got.Name = n, "tablets"
	case s.embedded:
		got.Shards = n / benchTokens
		args = []string{"--shards", strconv.Itoa(got.Shards)}
	default:
		b.vnodes = true
	}
	if s.embedded {
		got.Shards = max(got.Shards, 1)
		got.Name = fmt.Sprintf("%s on %s", got.Name, bench.CountShards(got.Shards))
		teardown := daemon.Teardown{Logger: b.log}
		defer func() { err = errors.Join(err, teardown.Run()) }()
		if err := b.startDatabase(&teardown, args...); err != nil {
			return got, err
		}
	}
	for i, c := range b.contenders()[:2] {
		s.progress("%d streams: %s", n, c.name)
		m, idle, err := b.measureLoad(ctx, c, i == 0, apart(int(b.rate)))
		if err != nil {
			return got, fmt.Errorf("%s: %w", c.name, err)
		}
		if i == 0 {
			got.Idle, got.Hints = *idle, m
		} else {
			got.Polling = m
		}
		s.progress("   p50 %.1f ms, p99 %.1f ms since stored", m.Committed.P50, m.Committed.P99)
	}
	p, err := b.newPlace(ctx)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, p.remove(ctx)) }()
	events := bench.NewEvents(p.keyspace, drainSpread, b.payload)
	s.progress("%d streams: writing %d events", n, b.drain)
	if err := p.write(ctx, events, b.drain); err != nil {
		return got, err
	}
	drained := []*bench.Drained{&got.Tail, &got.Sweep, &got.Peer}
	for i, d := range []drainer{tailDrain, sweepDrain, {name: peerName, peer: true, args: b.peerDrains()}} {
		if *drained[i], err = p.drain(ctx, d, events, b.drain); err != nil {
			return got, fmt.Errorf("%s: %w", d.name, err)
		}
		s.progress("   %s: %.0f/s", d.name, drained[i].Rate.PerSecond)
	}
	return got, nil
}

// costBench measures what latency costs the database.
type costBench struct {
	*benchmark
	intervals []time.Duration
	result    bench.CostReport
}

func newBenchLatencyCostCommand() *cobra.Command {
	var s costBench
	f := benchFlags{poll: 15 * time.Millisecond, runs: 1}
	cmd := &cobra.Command{
		Use:   "latency-cost",
		Short: "Measure what the latency costs the database",
		Long: `Measure latency, queries and processor time of the database, with hints and
without, for values of the setting that chooses between them,
relay.tail_max_interval. The load alone, without a relay, is measured first, and
subtracted.

The embedded database takes the times that were measured on a ScyllaDB node (see
--node-costs), and its processor time is their sum. Of a given cluster it comes from
the Prometheus ports of --scylla-hosts; name all nodes. Exit status 1 if an event
was lost, came twice, or came out of order.`,
		Args: cobra.NoArgs,
		RunE: measuring(&f, s.validate, s.measure),
	}
	fl := cmd.Flags()
	fl.DurationSliceVar(&s.intervals, "intervals", []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second}, "values of relay.tail_max_interval")
	fl.Float64Var(&f.rate, "rate", 1000, "events per second of the load")
	fl.DurationVar(&f.duration, "duration", 8*time.Second, "duration of a load after a second of warm-up")
	fl.IntVar(&f.payload, "payload", 512, "bytes of a payload")
	fl.IntVar(&f.tablets, "tablets", 16, "tablets, and so CDC streams, of the table; 0 is 256 vnodes, or the default of a given cluster")
	f.costsFlag(fl, true)
	f.addFlags(cmd, "")
	return cmd
}

func (s *costBench) validate(f *benchFlags) error {
	var errs problems
	bad := errs.bad
	bad(len(s.intervals) == 0, "--intervals: name a duration")
	for _, d := range s.intervals {
		bad(d < time.Millisecond, "--intervals %s: use a millisecond or more", d)
	}
	bad(f.rate <= 0 || f.rate > 1e6, "--rate %g: use events per second, up to a million", f.rate)
	bad(f.duration <= 0, "--duration %s: must be positive", f.duration)
	bad(f.payload < 32 || f.payload > 900_000, "--payload %d: use 32 to 900000 bytes", f.payload)
	errs.checkTablets(f.tablets)
	return errs.with(f.output)
}

func (s *costBench) measure(ctx context.Context, b *benchmark) (err error) {
	s.benchmark = b
	r := &s.result
	*r = bench.CostReport{Head: s.head()}
	s.progress("the writes alone")
	if r.Writes, r.Streams, err = s.measureWrites(ctx); err != nil {
		return fmt.Errorf("the writes alone: %w", err)
	}
	for _, d := range s.intervals {
		p := bench.CostPoint{Interval: d.String()}
		for _, to := range []struct {
			got   *bench.Contender
			hints bool
		}{{&p.Hints, true}, {&p.Polling, false}} {
			c := contender{name: fmt.Sprintf("%s, hints %t", d, to.hints), hints: to.hints, args: []string{"--relay-tail-max-interval", d.String()}}
			if to.hints {
				c.args = append(c.args, hinted.args...)
			}
			if *to.got, _, err = s.measureLoad(ctx, c, false, apart(int(s.rate))); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			s.progress("%s: p50 %.1f ms, %.0f queries/s, %.0f µs of the database for an event", c.name, to.got.Committed.P50, to.got.Queries, to.got.DatabaseEvent)
			r.Counts.Add(to.got.Counts)
		}
		r.Points = append(r.Points, p)
	}
	return s.print(r, r.Counts.OK())
}

// measureWrites measures the load without a relay. It returns the time of the database for
// an event, and the number of streams.
func (s *costBench) measureWrites(ctx context.Context) (micros float64, streams int64, err error) {
	u, err := s.underLoad(ctx, s.rate, s.duration, apart(int(s.rate)))
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, u.remove(ctx)) }()
	all, err := u.streams(ctx)
	if err != nil {
		return 0, 0, err
	}
	before := s.usages(ctx)
	written, err := u.load.Run(ctx)
	return spentForEach(before.database, s.usages(ctx).database, written), int64(len(all.Current)), err
}
