package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
)

const (
	// shapeBytes limits the payloads of a backlog, all together.
	shapeBytes = 400_000_000
	// smallPayload is the size of payloads where there are many events.
	smallPayload = 128
	// aggregatePayload is the size of payloads of one aggregate.
	aggregatePayload = 512
	// peerPatience limits the wait for the peer's next event under load: of events that are
	// stored concurrently it may lose some.
	peerPatience = 3 * time.Second
	// largePayload leaves room for the headers of a record in package outbox's limit of
	// 1,000,000 bytes.
	largePayload = 999_000
	// shapeLoad and shapeRestart are the names of the shapes that are no backlogs.
	shapeLoad    = "one aggregate under load"
	shapeRestart = "restart"
)

// shapeBench measures loads of different shapes.
type shapeBench struct {
	*benchmark
	events, aggregates, restartEvents int64
	only                              string
	result                            bench.ShapeReport
}

// shape is a kind of backlog.
type shape struct {
	name    string
	n       int64
	payload int
	number  numbering
}

func newBenchShapesCommand() *cobra.Command {
	var s shapeBench
	f := benchFlags{poll: 15 * time.Millisecond, payload: aggregatePayload}
	cmd := &cobra.Command{
		Use:   "shapes",
		Short: "Measure the relay under loads of different shapes",
		Long: `Measure throughput and memory of the relay, with its default settings, and in the
same run those of scylla-cdc-go with franz-go, for loads of different shapes.

  payloads       backlogs of payloads of 10 B, 512 B, 10 kB and 1 MB; each has
                 --events events, or fewer that have 400 MB
  aggregates     a backlog of --aggregates aggregates with one event each
  one aggregate  a backlog of a tenth of --events events of one aggregate, stored
                 one after the other; and a load of --rate events per second with
                 hints. The writes of the load are concurrent, over the
                 connections of one session, and get sequence numbers in the order
                 in which they are sent.
  restart        a relay that has published --restart-events events is killed
                 before it saves a checkpoint behind them, and started again;
                 measured is the time until it publishes a new event. The peer
                 has no checkpoints, and is not measured.

A processor time includes the start of the process. 'outbox-dev bench
subscriptions' measures consumers.

The relay is a process of its own, and so are the embedded database and broker;
--scylla-hosts and --kafka-seeds replace them. Exit status 1 if the relay lost an
event, published one twice, or published one out of order.`,
		Args: cobra.NoArgs,
		RunE: measuring(&f, s.validate, s.measure),
	}
	fl := cmd.Flags()
	fl.Int64Var(&s.events, "events", 200_000, "events of a backlog of payloads")
	fl.Int64Var(&s.aggregates, "aggregates", 1_000_000, "aggregates with one event each")
	fl.Int64Var(&s.restartEvents, "restart-events", 1_000_000, "events since the last checkpoint of a killed relay")
	fl.Float64Var(&f.rate, "rate", 5000, "events per second of one aggregate")
	fl.DurationVar(&f.duration, "duration", 10*time.Second, "duration of the load after a second of warm-up")
	fl.StringVar(&s.only, "only", "", "measure only shapes whose name contains this text")
	fl.IntVar(&f.runs, "runs", 1, "number of runs; figures are their medians")
	f.addFlags(cmd, "the relay and its peer")
	return cmd
}

func (s *shapeBench) validate(f *benchFlags) error {
	var errs problems
	bad := errs.bad
	bad(s.events < 10, "--events %d: use 10 or more", s.events)
	bad(s.aggregates < 1, "--aggregates %d: use 1 or more", s.aggregates)
	bad(s.restartEvents < 1, "--restart-events %d: use 1 or more", s.restartEvents)
	bad(f.rate <= 0 || f.rate > 1e6, "--rate %g: use events per second, up to a million", f.rate)
	bad(f.duration <= 0, "--duration %s: must be positive", f.duration)
	bad(f.runs < 1, "--runs %d: use 1 or more", f.runs)
	names := []string{}
	for _, sh := range s.shapes() {
		names = append(names, sh.name)
	}
	return errors.Join(errs.with(f.output), checkOnly(s.only, append(names, shapeLoad, shapeRestart)))
}

// shapes returns the backlogs.
func (s *shapeBench) shapes() []shape {
	spread := apart(drainSpread)
	out := []shape{
		{"payloads of 10 B", s.events, 10, spread},
		{"payloads of 512 B", s.events, 512, spread},
		{"payloads of 10 kB", s.events, 10_000, spread},
		{"payloads of 1 MB", s.events, largePayload, spread},
		{fmt.Sprintf("%d aggregates", s.aggregates), s.aggregates, smallPayload, bench.NewMessages},
		{"one aggregate", s.events / 10, aggregatePayload, bench.NewAggregate},
	}
	for i := range out {
		out[i].n = min(out[i].n, shapeBytes/int64(out[i].payload))
	}
	return out
}

// isSelected reports whether a shape is measured.
func (s *shapeBench) isSelected(name string) bool { return strings.Contains(name, s.only) }

func (s *shapeBench) measure(ctx context.Context, b *benchmark) error {
	s.benchmark = b
	r := &s.result
	*r = bench.ShapeReport{Head: s.head()}
	var loads []contender
	if s.isSelected(shapeLoad) {
		peer := s.tunedPeer()
		peer.wait = peerPatience
		loads = []contender{hinted, peer}
	}
	shapes := slices.DeleteFunc(s.shapes(), func(sh shape) bool { return !s.isSelected(sh.name) })
	drained, loaded, resumed := make([][]bench.Shape, len(shapes)), make([][]bench.Contender, len(loads)), []bench.Resumed(nil)
	for run := range s.runs {
		s.progress("run %d of %d", run+1, s.runs)
		for i, sh := range shapes {
			got, err := s.drainShape(ctx, sh)
			if err != nil {
				return fmt.Errorf("%s: %w", sh.name, err)
			}
			r.Counts.Add(got.Relay.Counts)
			drained[i] = append(drained[i], got)
		}
		for i, c := range loads {
			s.progress("one aggregate at %g events/s: %s", s.rate, c.name)
			got, _, err := s.measureLoad(ctx, c, false, bench.NewAggregate)
			if err != nil {
				return fmt.Errorf("one aggregate: %s: %w", c.name, err)
			}
			if !c.peer {
				r.Counts.Add(got.Counts)
			}
			loaded[i] = append(loaded[i], got)
		}
		if s.isSelected(shapeRestart) {
			got, err := s.resume(ctx)
			if err != nil {
				return fmt.Errorf("restart: %w", err)
			}
			r.Counts.Add(got.Counts)
			resumed = append(resumed, got)
		}
	}
	for _, runs := range drained {
		r.Shapes = append(r.Shapes, bench.Median(runs))
	}
	for _, runs := range loaded {
		r.Load = append(r.Load, bench.Median(runs))
	}
	if len(resumed) > 0 {
		m := bench.Median(resumed)
		r.Resumed = &m
	}
	return s.print(r, r.Counts.OK())
}

// drainShape drains a backlog by the relay and by its peer.
func (s *shapeBench) drainShape(ctx context.Context, sh shape) (got bench.Shape, err error) {
	p, err := s.newPlace(ctx)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, p.remove(ctx)) }()
	events := sh.number(p.keyspace, sh.payload)
	s.progress("%s: writing %d events", sh.name, sh.n)
	if err := p.write(ctx, events, sh.n); err != nil {
		return got, err
	}
	got = bench.Shape{Name: sh.name, Payload: int64(sh.payload)}
	if got.Relay, err = p.drain(ctx, drainer{name: sh.name + ", relay"}, events, sh.n); err != nil {
		return got, fmt.Errorf("relay: %w", err)
	}
	s.progress("%s: relay %.0f/s, %.0f MB", sh.name, got.Relay.Rate.PerSecond, got.Relay.Process.PeakMB)
	if got.Peer, err = p.drain(ctx, drainer{name: sh.name + ", " + peerName, peer: true, args: s.peerDrains()}, events, sh.n); err != nil {
		return got, fmt.Errorf("%s: %w", peerName, err)
	}
	s.progress("%s: peer %.0f/s, %.0f MB", sh.name, got.Peer.Rate.PerSecond, got.Peer.Process.PeakMB)
	return got, nil
}

// resume kills a relay that has published a backlog, and starts it again.
func (s *shapeBench) resume(ctx context.Context) (got bench.Resumed, err error) {
	p, err := s.newPlace(ctx)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, p.remove(ctx)) }()
	topic, err := p.topic(ctx)
	if err != nil {
		return got, err
	}
	events := bench.NewEvents(topic, drainSpread, smallPayload)
	s.progress("restart: writing %d events", s.restartEvents)
	if err := p.write(ctx, events, s.restartEvents); err != nil {
		return got, err
	}
	relay, err := p.startRelay(topic, "")
	if err != nil {
		return got, err
	}
	_, _, _, err = s.follow(ctx, topic, s.restartEvents)
	relay.Kill()
	if err != nil {
		return got, err
	}
	fresh, all := events.Fresh(s.restartEvents), s.restartEvents+1
	b := p.session.Batch(gocql.LoggedBatch).WithContext(ctx)
	if err := p.table.Append(b, events.At(fresh)); err != nil {
		return got, err
	}
	if err := b.Exec(); err != nil {
		return got, fmt.Errorf("write a new event: %w", err)
	}
	again, err := p.startRelay(topic, "")
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, again.Stop()) }()
	if err := p.await(ctx, again, "outbox_relay_shard_owned"); err != nil {
		return got, err
	}
	got.Waited = time.Since(again.Started).Seconds()
	profiled := s.profile(ctx, again, "restart", drainProfile)
	_, last, _, err := s.follow(ctx, topic, all)
	if err != nil {
		return got, err
	}
	got.First = last.Sub(again.Started).Seconds()
	var readBack, read float64
	for name, value := range map[string]*float64{
		"outbox_relay_readback_events": &readBack, "outbox_relay_readback_duration_seconds": &got.ReadBackSeconds, "outbox_kafka_read_bytes_total": &read,
	} {
		if *value, err = bench.Scrape(ctx, again.Attr("ops"), name); err != nil {
			return got, err
		}
	}
	got.ReadBack, got.ReadMB = int64(readBack), read/1e6
	// It reads the log back too, and may publish events twice while it does.
	if err := errors.Join(profiled(), stoppable(ctx, benchSettle)); err != nil {
		return got, err
	}
	got.PeakMB = float64(again.Usage().Peak) / 1e6
	got.Counts, err = s.count(ctx, topic, bench.NewArrivals(events, fresh+1), all)
	s.progress("restart: a new event is published after %.2f s, %d events read back in %.2f s", got.First, got.ReadBack, got.ReadBackSeconds)
	return got, err
}
