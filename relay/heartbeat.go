package relay

import (
	"cmp"
	"context"
	"runtime"
	runtimemetrics "runtime/metrics"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/internal/latency"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/capture"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

const (
	// DefaultHeartbeat is the interval between heartbeats.
	DefaultHeartbeat = 2 * time.Second
	// heartbeatLife is the ttl of a heartbeat: the row of a crashed relay remains
	// visible to the operator the next morning, then expires.
	heartbeatLife = 12 * time.Hour
	// heartbeatTimeout bounds one write.
	heartbeatTimeout = 2 * time.Second
)

// Heartbeat writes the status of the relay to the table relay_instances, immediately and
// at the given interval (DefaultHeartbeat if zero) until ctx ends, and then that the
// relay stopped. It lets operators see all relays in one place.
//
// It uses Status and does not affect publishing: an unavailable or slow database delays
// only the heartbeat.
func (r *Relay) Heartbeat(ctx context.Context, version string, every time.Duration) {
	b := newBeating(r, version)
	tick := time.NewTicker(cmp.Or(every, DefaultHeartbeat))
	defer tick.Stop()
	for {
		b.beat(ctx, heartbeat.Running)
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.beat(context.WithoutCancel(ctx), heartbeat.Stopped)
			return
		}
	}
}

// beating is a running heartbeat.
type beating struct {
	r                 *Relay
	version, instance string
	started           time.Time
	silent            bool // the last write failed
	last              counted
	latency           latency.Counts // of the previous heartbeat
}

func newBeating(r *Relay, version string) *beating {
	return &beating{r: r, version: version, instance: self.Process(), started: time.Now().UTC()}
}

// counted contains counter values.
type counted struct {
	at                  time.Time
	published, failures float64
	found               [publish.ByBackfill + 1]float64
}

// beat writes one heartbeat. It logs the first failure and the recovery.
func (b *beating) beat(ctx context.Context, state string) {
	err := b.write(ctx, state)
	switch {
	case err != nil && ctx.Err() == nil && !b.silent:
		b.silent = true
		b.r.log.Warn("failed to write heartbeat; peers see stale status", "err", err)
	case err == nil && b.silent:
		b.silent = false
		b.r.log.Info("heartbeat recovered")
	}
}

// write writes the status of the relay.
func (b *beating) write(ctx context.Context, state string) error {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	cfg := &b.r.cfg
	row := heartbeat.Row{Relay: cfg.shardName(), Table: cfg.TableKeyspace + "." + cfg.Table, Instance: b.instance, RelayStatus: *b.report(state, time.Now())}
	return heartbeat.Write(ctx, cfg.Session, cfg.Keyspace, &row, heartbeatLife)
}

// report returns the status of the relay.
func (b *beating) report(state string, now time.Time) *heartbeat.RelayStatus {
	h := b.r.Report(state, b.version, now)
	h.StartedAt = utc(b.started)
	b.rates(h, now)
	return h
}

// Report returns the status of a relay in a state as its heartbeats contain it, but for what follows from two of
// them: rates, latencies and totals. It is safe for concurrent use.
func (r *Relay) Report(state, version string, now time.Time) *heartbeat.RelayStatus {
	s := r.Status()
	h := &heartbeat.RelayStatus{
		State: state, Ready: len(s.Problems) == 0 && state == heartbeat.Running, Problems: s.Problems, Host: self.Host(), Version: version,
		Streams: s.Streams, Behind: s.Behind.Seconds(),
		InFlight: s.InFlight, OldestUnacked: s.OldestUnacknowledged.Seconds(), DeadLetters: s.DeadLetters, Spilled: s.Spilled,
		BlockedAggregates: s.BlockedAggregates, HeldAggregates: len(s.Held), HeldStreams: len(s.HeldStreams), Holding: s.Holding,
		StalledTopics: r.publisher.Load().StalledTopics(), ReaderRestarts: s.Restarts, Goroutines: runtime.NumGoroutine(),
	}
	h.Lag, h.Groups = r.streams.Lags(now, capture.GroupStreams)
	if h.Problems == nil {
		h.Problems = []string{}
	}
	if state == heartbeat.Running && !s.Idle && s.LastWindow.IsZero() && s.Tail.LastRead.IsZero() {
		h.State = heartbeat.Starting
	}
	h.Breaker.State, h.Breaker.Since, h.Breaker.Cause = s.Breaker.State.String(), utc(s.Breaker.Since), message(s.Breaker.Cause)
	h.Breaker.Opened, h.Breaker.Unreachable = utc(s.Breaker.Opened), failure.IsUnreachable(s.Breaker.Cause)
	t := &h.Tail
	t.On, t.Streams, t.Groups, t.LastRead, t.Waiting, t.Paused, t.Error = s.Tail.On, s.Tail.Streams, s.Tail.Groups, utc(s.Tail.LastRead), s.Tail.Waiting, s.Tail.Paused, message(s.Tail.Err)
	t.IntervalMS = float64(s.Tail.Interval.Microseconds()) / 1000
	f := &h.Backfill
	f.Running, f.Reason, f.Done, f.Ranges, f.Error = s.Backfill.Running, s.Backfill.Reason, s.Backfill.Done, s.Backfill.Ranges, message(s.Backfill.Err)
	if s := r.cfg.Shard; s.Count > 0 {
		h.Shard = &heartbeat.RelayShard{Index: s.Index, Count: s.Count}
	}
	h.MemoryBytes = heapBytes()
	return h
}

// heapBytes returns the bytes of the heap in use.
func heapBytes() int64 {
	heap := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	runtimemetrics.Read(heap)
	if heap[0].Value.Kind() == runtimemetrics.KindUint64 {
		return int64(heap[0].Value.Uint64())
	}
	return 0
}

// rates sets the rates since the previous call.
func (b *beating) rates(h *heartbeat.RelayStatus, now time.Time) {
	m := b.r.metrics
	c := counted{at: now, published: sum(m.Published), failures: sum(m.Failures)}
	for i, f := range m.Found {
		c.found[i] = sum(f)
	}
	h.Rates.Found = make(map[string]float64, len(publish.FoundBy))
	if seconds := now.Sub(b.last.at).Seconds(); !b.last.at.IsZero() && seconds > 0 {
		h.Rates.Published, h.Rates.Failures = (c.published-b.last.published)/seconds, (c.failures-b.last.failures)/seconds
		for i, name := range publish.FoundBy {
			h.Rates.Found[name] = (c.found[i] - b.last.found[i]) / seconds
		}
	}
	b.last = c
	h.Published = c.published
	commits := latency.ReadCounts(m.CommitSeconds)
	h.Commits = &commits
	if q := commits.Since(b.latency).Quantiles(.5, .99); q != nil {
		h.Latency = &heartbeat.RelayLatency{P50: 1000 * q[0].Seconds(), P99: 1000 * q[1].Seconds()}
	}
	b.latency = commits
}

// sum returns the sum of the counters of a collector.
func sum(c prometheus.Collector) (total float64) {
	ch := make(chan prometheus.Metric)
	go func() {
		c.Collect(ch)
		close(ch)
	}()
	for m := range ch {
		var d dto.Metric
		if m.Write(&d) == nil {
			total += d.GetCounter().GetValue()
		}
	}
	return total
}

func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
