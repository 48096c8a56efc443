package main

import (
	"context"
	"fmt"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
)

// slowestBurst is the rate per second at which a burst is expected to be released at least, unless
// the setting permits less.
const slowestBurst = 5000

// liveLoad is a load of immediate events on a relay that also releases scheduled ones.
type liveLoad struct {
	bench    *scheduleBench
	load     bench.Load
	arrivals *bench.Arrivals
	stop     func()
	before   usages
	relay    *bench.Child
	written  int64
}

// runLive stores events at --live for a time, and returns when all have come. The
// caller stops it.
func (s *scheduleBench) runLive(ctx context.Context, p *place, relay *bench.Child, d time.Duration) (l *liveLoad, err error) {
	events := bench.NewEvents(p.keyspace, int(s.live), s.payload) // the relay's topic of all events that are not messages
	l = &liveLoad{
		bench: s, relay: relay, before: s.usages(ctx, relay),
		load: bench.Load{Session: p.session, Table: p.table, Events: events, Rate: s.live, Duration: d},
	}
	l.arrivals = bench.NewArrivals(events, l.load.Total())
	if l.stop, err = s.consume(ctx, l.arrivals, p.keyspace); err != nil {
		return nil, err
	}
	defer l.stop()
	if l.written, err = l.load.Run(ctx); err != nil {
		return nil, err
	}
	return l, l.arrivals.Wait(ctx, l.written, benchPatience)
}

// result returns the result up to a time.
func (l *liveLoad) result(ctx context.Context, name string, until time.Time) bench.Live {
	_, latency := l.load.LatenciesUntil(l.arrivals, until)
	return bench.Live{Name: name, Counts: l.arrivals.Counts(l.written), Latency: latency, Others: l.bench.usages(ctx, l.relay).others(l.before)}
}

// liveAlone measures events while no message is due.
func (s *scheduleBench) liveAlone(ctx context.Context, p *place, relay *bench.Child, r *bench.ScheduleReport) error {
	if s.live == 0 || s.burst == 0 {
		return nil
	}
	l, err := s.runLive(ctx, p, relay, s.duration)
	if err != nil {
		return fmt.Errorf("events alone: %w", err)
	}
	r.Live = append(r.Live, l.result(ctx, fmt.Sprintf("%g/s alone", s.live), time.Now()))
	return nil
}

// besideBurst stores events from just before a burst, for at least as long as it takes.
// The returned function waits for them and adds the result of the events stored before
// the last message of the burst was published.
func (s *scheduleBench) besideBurst(ctx context.Context, p *place, relay *bench.Child, start time.Time, r *bench.ScheduleReport) func(*bench.Delivered) error {
	type ended struct {
		*liveLoad
		err error
	}
	done := make(chan ended, 1)
	least := max(time.Second, time.Duration(float64(s.burst)/float64(min(s.scheduleRate, slowestBurst))*float64(time.Second)))
	go func() {
		err := stoppable(ctx, time.Until(start.Add(-time.Second))) // its first second is the warm-up
		if err != nil {
			done <- ended{nil, err}
			return
		}
		l, err := s.runLive(ctx, p, relay, least)
		done <- ended{l, err}
	}()
	return func(d *bench.Delivered) error {
		e := <-done
		if e.err != nil {
			return fmt.Errorf("events beside the burst: %w", e.err)
		}
		r.Live = append(r.Live, e.result(ctx, fmt.Sprintf("%g/s beside the burst", s.live), start.Add(time.Duration(d.Seconds*float64(time.Second)))))
		return nil
	}
}
