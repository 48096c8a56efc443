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

// tailDrain and sweepDrain are the relay with either reader.
var (
	tailDrain  = drainer{name: "relay, rows just written (tail)"}
	sweepDrain = drainer{name: "relay, older rows (sweep alone)", args: []string{"--relay-tail-max-interval", "off", "--relay-confidence-window", sweepWindow.String()}}
)

// peerDrains returns the arguments of a peer that drains a backlog.
func (b *benchmark) peerDrains() []string {
	return []string{"--window", "1ms", "--delay", b.poll.String(), "--age", drainAge.String()}
}

// measureDrain writes a backlog and drains it in every way.
func (b *benchmark) measureDrain(ctx context.Context) error {
	if b.drain == 0 {
		return nil
	}
	drainers := []drainer{tailDrain, sweepDrain}
	if slices.Contains(b.peers, peerTuned) {
		drainers = append(drainers, drainer{name: peerName, peer: true, args: b.peerDrains()})
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
	b.progress("drain: writing %d events, run %d of %d", b.drain, run+1, b.runs)
	if err := p.write(ctx, events, b.drain); err != nil {
		return nil, err
	}
	c = new(bench.Ceilings)
	got := make([]bench.Drained, len(drainers))
	for i, d := range drainers {
		b.progress("drain: %s", d.name)
		if got[i], err = p.drain(ctx, d, events, b.drain); err != nil {
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
	}
	b.progress("drain: the clients alone")
	streams, err := p.streams(ctx)
	if err != nil {
		return nil, err
	}
	if c.Read, err = bench.RawRead(ctx, p.session, p.keyspace, b.conf.Relay.Table, streams.Written); err != nil {
		return nil, err
	}
	if c.Read.Count < b.drain {
		return nil, fmt.Errorf("reading the rows found %d of %d in %d streams", c.Read.Count, b.drain, len(streams.Written))
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

// write stores the first n events, and shows the progress.
func (p *place) write(ctx context.Context, events *bench.Events, n int64) error {
	var wrote atomic.Int64
	return load.Showing(ctx, cli.NewProgress(p.bench.errOut, func() cli.Work { return cli.Work{Done: wrote.Load(), Total: n} }), func() error {
		return bench.WriteBacklog(ctx, p.session, p.table, events, n, func(n int64) { wrote.Add(n) })
	})
}

// drain drains a backlog of n events once. There is no consumer during the drain: the ends of the
// topic show the progress, and its contents are read afterwards.
func (p *place) drain(ctx context.Context, d drainer, events *bench.Events, n int64) (got bench.Drained, err error) {
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
	first, last, atFirst, err := b.follow(ctx, topic, n)
	if err != nil {
		return got, err
	}
	got = bench.Drained{
		Name: d.name, Start: first.Sub(child.Started).Seconds(), Rate: bench.NewRate(n-atFirst, last.Sub(first)),
	}
	used := child.Usage()
	got.Process, got.EventCPU = bench.CostBetween(at, used), float64(used.CPU.Microseconds())/float64(n)
	if got.Queries, err = bench.Scrape(ctx, child.Attr("ops"), bench.QueriesMetric); err != nil {
		return got, err
	}
	if err := errors.Join(profiled(), b.profile(ctx, child, "drain "+d.name+" allocs", 0)()); err != nil {
		return got, err
	}
	got.Counts, err = b.count(ctx, topic, bench.NewArrivals(events, n), n)
	return got, err
}

// count reads a topic that contains n events and nothing else, once all are published.
func (b *benchmark) count(ctx context.Context, topic string, arrivals *bench.Arrivals, n int64) (c bench.Counts, err error) {
	stop, err := b.consume(ctx, arrivals, topic)
	if err != nil {
		return c, err
	}
	defer stop()
	if err := arrivals.Wait(ctx, n, benchPatience); err != nil {
		return c, err
	}
	records, err := b.records(ctx, topic)
	c = arrivals.Counts(n)
	c.Doubles = max(c.Doubles, records-c.Consumed) // some may be behind the last event
	return c, err
}

// records returns the number of records of a topic.
func (b *benchmark) records(ctx context.Context, topic string) (n int64, err error) {
	ends, err := kadm.NewClient(b.client).ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("list the ends of %s: %w", topic, err)
	}
	ends.Each(func(o kadm.ListedOffset) { n += max(0, o.Offset) })
	return n, nil
}

// follow polls the ends of a topic until it has n records, or gets none for long. It
// returns when the first came, how many they were then, and when the last came.
func (b *benchmark) follow(ctx context.Context, topic string, n int64) (first, last time.Time, atFirst int64, err error) {
	for seen := int64(0); ; {
		now, err := b.records(ctx, topic)
		if err != nil {
			return first, last, 0, err
		}
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
		r, err := b.killAndMeasure(ctx)
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

func (b *benchmark) killAndMeasure(ctx context.Context) (got bench.Restarted, err error) {
	u, err := b.underLoad(ctx, b.restartRate, b.duration, apart(int(b.restartRate)))
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
