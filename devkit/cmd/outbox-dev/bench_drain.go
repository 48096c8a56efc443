package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/load"
)

const (
	// drainSpread is the number of other aggregates' events between two events of one
	// aggregate.
	drainSpread = 1024
	// sweepWindow is the confidence window of the relay that only sweeps: the rows are
	// already older.
	sweepWindow = time.Millisecond
	// drainProfile is how long a drain is profiled from its start.
	drainProfile = 3 * time.Second
	// drainAge is the age of the changes that the peer starts with.
	drainAge = 72 * time.Hour
)

// drainer is one way of getting a backlog to a topic.
type drainer struct {
	name string
	peer bool
	args []string
}

// measureDrain writes a backlog and drains it in every way.
func (b *benchmark) measureDrain(ctx context.Context) error {
	if b.drain == 0 {
		return nil
	}
	drainers := []drainer{
		{name: "relay, rows just written (tail)"},
		{name: "relay, older rows (sweep alone)", args: []string{"--relay-tail-max-interval", "off", "--relay-confidence-window", sweepWindow.String()}},
	}
	if slices.Contains(b.peers, peerTuned) {
		drainers = append(drainers, drainer{name: "scylla-cdc-go + franz-go", peer: true, args: []string{
			"--window", "1ms", "--delay", b.poll.String(), "--age", drainAge.String(),
		}})
	}
	ceilings := make([]bench.Ceilings, 0, b.runs)
	drained := make([][]bench.Drained, len(drainers))
	for run := range b.runs {
		c, err := b.drainAll(ctx, drainers, func(i int, d bench.Drained) {
			if !drainers[i].peer {
				b.report.Counts.Add(d.Counts)
			}
			drained[i] = append(drained[i], d)
		}, run)
		if err != nil {
			return err
		}
		ceilings = append(ceilings, *c)
	}
	c := bench.Median(ceilings)
	b.report.Ceilings = &c
	for _, runs := range drained {
		b.report.Drain = append(b.report.Drain, bench.Median(runs))
	}
	return nil
}

// drainAll runs all drainers once.
func (b *benchmark) drainAll(ctx context.Context, drainers []drainer, done func(int, bench.Drained), run int) (c *bench.Ceilings, err error) {
	p, err := b.newPlace(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.remove(ctx)) }()
	events := bench.NewEvents(p.keyspace, drainSpread, b.payload)
	var wrote atomic.Int64
	b.progress("drain: writing %d events, run %d of %d", b.drain, run+1, b.runs)
	err = load.Showing(ctx, cli.NewProgress(b.errOut, func() cli.Work { return cli.Work{Done: wrote.Load(), Total: b.drain} }), func() error {
		return bench.WriteBacklog(ctx, p.session, p.table, events, b.drain, func(n int64) { wrote.Add(n) })
	})
	if err != nil {
		return nil, err
	}
	c = new(bench.Ceilings)
	got := make([]bench.Drained, len(drainers))
	for i, d := range drainers {
		b.progress("drain: %s", d.name)
		if got[i], err = p.drain(ctx, d, events); err != nil {
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
	}
	b.progress("drain: the clients alone")
	if c.Read, err = bench.RawRead(ctx, p.session, p.keyspace, b.conf.Relay.Table, p.streams); err != nil {
		return nil, err
	}
	topic, err := p.topic(ctx)
	if err != nil {
		return nil, err
	}
	client, err := b.conf.Kafka.Client()
	if err != nil {
		return nil, err
	}
	c.Produce, err = bench.RawProduce(ctx, client, events, topic, b.drain)
	client.Close()
	if err != nil {
		return nil, err
	}
	for i := range got {
		got[i].Share = got[i].Rate.PerSecond / c.OneAfterTheOther()
		done(i, got[i])
	}
	return c, nil
}

// drain drains the backlog once. There is no consumer during the drain: the ends of the
// topic show the progress, and its contents are read afterwards.
func (p *place) drain(ctx context.Context, d drainer, events *bench.Events) (got bench.Drained, err error) {
	b := p.bench
	topic, err := p.topic(ctx)
	if err != nil {
		return got, err
	}
	start := func() (*bench.Child, error) { return p.startRelay(topic, "", d.args...) }
	if d.peer {
		start = func() (*bench.Child, error) { return p.startPeer(append([]string{"--topic", topic}, d.args...)...) }
	}
	child, err := start()
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, child.Stop()) }()
	at := child.UsageAtStart()
	profiled := b.profile(ctx, child, "drain "+d.name, drainProfile)
	first, last, atFirst, err := b.follow(ctx, topic, b.drain)
	if err != nil {
		return got, err
	}
	got = bench.Drained{
		Name: d.name, Start: first.Sub(child.Started).Seconds(), Rate: bench.RateOf(b.drain-atFirst, last.Sub(first)),
	}
	used := child.Usage()
	got.Process, got.EventCPU = bench.CostOf(at, used), float64(used.CPU.Microseconds())/float64(b.drain)
	if got.Queries, err = bench.Scrape(ctx, child.Attr("admin"), bench.QueriesMetric); err != nil {
		return got, err
	}

	if err := errors.Join(profiled(), b.profile(ctx, child, "drain "+d.name+" allocs", 0)()); err != nil {
		return got, err
	}

	arrivals := bench.NewArrivals(events, b.drain)
	stop, err := b.consume(ctx, arrivals, topic)
	if err != nil {
		return got, err
	}
	defer stop()
	if err := arrivals.Wait(ctx, b.drain, benchPatience); err != nil {
		return got, err
	}
	got.Counts = arrivals.Counts(b.drain)
	return got, nil
}

// follow polls the ends of a topic until it has n records, or gets none for long. It
// returns when the first came, how many they were then, and when the last came.
func (b *benchmark) follow(ctx context.Context, topic string, n int64) (first, last time.Time, atFirst int64, err error) {
	admin := kadm.NewClient(b.client)
	for seen := int64(0); ; {
		ends, err := admin.ListEndOffsets(ctx, topic)
		if err != nil {
			return first, last, 0, fmt.Errorf("list the ends of %s: %w", topic, err)
		}
		var now int64
		ends.Each(func(o kadm.ListedOffset) { now += max(0, o.Offset) })
		at := time.Now()
		if first.IsZero() && now > 0 {
			first, atFirst = at, now
		}
		switch {
		case now > seen || last.IsZero():
			seen, last = now, at
		case at.Sub(last) > benchPatience:
			return first, last, atFirst, nil // the counts show the loss
		}
		if seen >= n {
			return first, last, atFirst, nil
		}
		if err := stoppable(ctx, 5*time.Millisecond); err != nil {
			return first, last, 0, err
		}
	}
}

// measureRestart kills a relay under load and starts it again.
func (b *benchmark) measureRestart(ctx context.Context) error {
	if !b.restart {
		return nil
	}
	var runs []bench.Restarted
	for run := range b.runs {
		b.progress("restart: at %g events/s, run %d of %d", b.restartRate, run+1, b.runs)
		r, err := b.killed(ctx)
		if err != nil {
			return fmt.Errorf("restart: %w", err)
		}
		b.report.Counts.Add(r.Counts)
		runs = append(runs, r)
	}
	r := bench.Median(runs)
	b.report.Restart = &r
	return nil
}

func (b *benchmark) killed(ctx context.Context) (got bench.Restarted, err error) {
	u, err := b.underLoad(ctx, b.restartRate, b.duration)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, u.remove(ctx)) }()
	load, arrivals := u.load, u.arrivals
	relay, _, err := u.startContender(ctx, contender{}, u.name)
	if err != nil {
		return got, err
	}
	loading := make(chan error, 1)
	var written int64
	go func() {
		var err error
		written, err = load.Run(ctx)
		loading <- err
	}()
	if err := stoppable(ctx, load.Length()/3); err != nil {
		return got, errors.Join(err, <-loading)
	}
	relay.Kill()
	again, err := u.startRelay(u.name, "")
	if err != nil {
		return got, errors.Join(err, <-loading)
	}
	defer func() { err = errors.Join(err, again.Stop()) }()
	if err := <-loading; err != nil {
		return got, err
	}
	if err := arrivals.Wait(ctx, written, benchPatience); err != nil {
		return got, err
	}
	got = bench.Restarted{Rate: b.restartRate, Counts: arrivals.Counts(written)}
	// Each process is a producer of its own.
	for _, t := range arrivals.Producers() {
		got.First = max(got.First, t.Sub(again.Started).Seconds())
	}
	return got, nil
}
