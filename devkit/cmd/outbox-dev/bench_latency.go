package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
	relayhint "github.com/scylla-outbox/scylla-outbox/outbox/hint"
)

// contender is one way of getting events to a topic.
type contender struct {
	name  string
	peer  bool
	hints bool
	args  []string
	// wait limits the wait for the next event; 0 is benchPatience.
	wait time.Duration
	once bool // it is measured in the first run only
}

// hinted is the relay with hints.
var hinted = contender{name: "relay, hints", hints: true, args: []string{"--hints-addr", "127.0.0.1:0"}}

// contenders returns the selected contenders.
func (b *benchmark) contenders() []contender {
	poll := b.poll.String()
	out := []contender{
		hinted,
		{name: "relay, polling every " + poll, args: []string{"--relay-tail-max-interval", poll}},
	}
	if slices.Contains(b.peers, peerTuned) {
		out = append(out, b.tunedPeer())
	}
	if slices.Contains(b.peers, peerDefaults) {
		out = append(out, contender{name: peerName + ", defaults", peer: true, wait: 2 * time.Minute, once: true})
	}
	return out
}

// tunedPeer returns the peer that polls as often as the relay.
func (b *benchmark) tunedPeer() contender {
	poll := b.poll.String()
	return contender{name: peerName + ", polling every " + poll, peer: true, args: []string{"--window", "1ms", "--delay", poll}}
}

// measureLatency puts a load on each contender in turn, and measures the first one
// idle. Runs of one contender are far apart, so that other activity of the machine
// disturbs all contenders alike.
func (b *benchmark) measureLatency(ctx context.Context) error {
	if b.duration == 0 {
		return nil
	}
	var idles []bench.Idle
	contenders := b.contenders()
	runs := make([][]bench.Contender, len(contenders))
	for run := range b.runs {
		for n, c := range contenders {
			if run > 0 && c.once {
				continue
			}
			b.progress("latency: %s, run %d of %d", c.name, run+1, b.runs)
			got, idle, err := b.measureLoad(ctx, c, n == 0 && b.idle > 0, apart(int(b.rate)))
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			b.progress("         p50 %.1f ms, p99 %.1f ms since stored; others kept %.1f cores busy", got.Committed.P50, got.Committed.P99, got.Others)
			runs[n] = append(runs[n], got)
			if !c.peer {
				b.report.Counts.Add(got.Counts)
			}
			if idle != nil {
				idles = append(idles, *idle)
			}
		}
	}
	for _, r := range runs {
		b.report.Latency = append(b.report.Latency, bench.Median(r))
	}
	if len(idles) > 0 {
		idle := bench.Median(idles)
		b.report.Idle = &idle
	}
	return nil
}

// measureLoad measures one contender under a load once.
func (b *benchmark) measureLoad(ctx context.Context, c contender, watchIdle bool, number numbering) (got bench.Contender, idle *bench.Idle, err error) {
	u, err := b.underLoad(ctx, b.rate, b.duration, number)
	if err != nil {
		return got, nil, err
	}
	defer func() { err = errors.Join(err, u.remove(ctx)) }()
	p, load, arrivals := u.place, u.load, u.arrivals

	process, key, err := p.startContender(ctx, c, u.name)
	if err != nil {
		return got, nil, err
	}
	defer func() { err = errors.Join(err, process.Stop()) }()
	if err := stoppable(ctx, min(benchSettle, b.duration)); err != nil {
		return got, nil, err
	}
	if watchIdle {
		if idle, err = b.watch(ctx, process); err != nil {
			return got, nil, err
		}
		streams, err := p.streams(ctx)
		if err != nil {
			return got, nil, err
		}
		idle.Streams = int64(len(streams.Current))
	}
	if c.hints {
		load.Hints, err = relayhint.NewSender(relayhint.SenderConfig{Addrs: []string{process.Attr("hints")}, Key: []byte(key), Logger: b.log})
		if err != nil {
			return got, nil, err
		}
		defer load.Hints.Close() //nolint:errcheck // hints that wait are of no use any more
	}

	queries, err := bench.Scrape(ctx, process.Attr("ops"), bench.QueriesMetric)
	if err != nil {
		return got, nil, err
	}
	before := b.usages(ctx, process)
	profiled := b.profile(ctx, process, c.name, load.Length())
	written, err := load.Run(ctx)
	if err != nil {
		return got, nil, err
	}
	if err := arrivals.Wait(ctx, written, cmp.Or(c.wait, benchPatience)); err != nil {
		return got, nil, err
	}
	after := b.usages(ctx, process)
	sent, err := bench.Scrape(ctx, process.Attr("ops"), bench.QueriesMetric)
	if err != nil {
		return got, nil, err
	}
	if err := profiled(); err != nil {
		return got, nil, err
	}
	got = bench.Contender{
		Name: c.name, Counts: arrivals.Counts(written), Arrived: load.ArrivalRate(arrivals),
		Process: bench.CostBetween(before.process, after.process), Database: bench.CostBetween(before.database, after.database),
		Broker: bench.CostBetween(before.broker, after.broker), Queries: (sent - queries) / after.process.At.Sub(before.process.At).Seconds(),
		DatabaseEvent: spentForEach(before.database, after.database, written), Others: after.others(before),
	}
	got.Intended, got.Committed = load.Latencies(arrivals)
	return got, idle, nil
}

// spentForEach returns the processor time between two moments for each of n events, in
// microseconds; 0 if it is not known.
func spentForEach(from, to bench.Usage, n int64) float64 {
	if from.At.IsZero() || to.At.IsZero() || n == 0 {
		return 0
	}
	return float64((to.CPU - from.CPU).Microseconds()) / float64(n)
}

// startContender starts c and waits until it reads.
func (p *place) startContender(ctx context.Context, c contender, topic string) (*bench.Child, string, error) {
	if c.peer {
		child, err := p.startPeer(c.args...)
		return child, "", err
	}
	key := rand.Text()
	child, err := p.startRelay(topic, key, c.args...)
	if err != nil {
		return nil, "", err
	}
	return child, key, p.awaitTail(ctx, child)
}

// awaitTail waits until the relay's tail reader reads.
func (p *place) awaitTail(ctx context.Context, relay *bench.Child) error {
	return p.await(ctx, relay, "outbox_relay_tail_streams")
}

// await waits until a gauge of the relay is not zero.
func (p *place) await(ctx context.Context, relay *bench.Child, gauge string) error {
	for end := time.Now().Add(benchPatience); ; {
		value, err := bench.Scrape(ctx, relay.Attr("ops"), gauge)
		if err != nil || value > 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("the relay did not begin: %s is 0", gauge)
		}
		if err := stoppable(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// watch measures an idle relay.
func (b *benchmark) watch(ctx context.Context, process *bench.Child) (*bench.Idle, error) {
	queries, err := bench.Scrape(ctx, process.Attr("ops"), bench.QueriesMetric)
	if err != nil {
		return nil, err
	}
	before := b.usages(ctx, process)
	if err := stoppable(ctx, b.idle); err != nil {
		return nil, err
	}
	after := b.usages(ctx, process)
	sent, err := bench.Scrape(ctx, process.Attr("ops"), bench.QueriesMetric)
	if err != nil {
		return nil, err
	}
	return &bench.Idle{
		Relay: bench.CostBetween(before.process, after.process), Database: bench.CostBetween(before.database, after.database),
		Queries: (sent - queries) / after.process.At.Sub(before.process.At).Seconds(),
	}, nil
}
