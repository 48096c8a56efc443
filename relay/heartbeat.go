package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"runtime"
	runtimemetrics "runtime/metrics"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/scylla-outbox/scylla-outbox/internal/latency"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/capture"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
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

// heartbeat is the status of a relay, as JSON in relay_instances.
type heartbeat struct {
	State     string     `json:"state"` // starting, running, stopped
	Ready     bool       `json:"ready"`
	Problems  []string   `json:"problems"`
	Host      string     `json:"host"`
	Version   string     `json:"version"`
	StartedAt *time.Time `json:"started_at,omitempty"` // of the process's heartbeat
	// Breaker is empty in the rows of Membership.
	Breaker struct {
		State       string     `json:"state,omitempty"`
		Since       *time.Time `json:"since,omitempty"`
		Cause       string     `json:"cause,omitempty"`
		Opened      *time.Time `json:"opened,omitempty"`      // since when it is not closed
		Unreachable bool       `json:"unreachable,omitempty"` // no broker answered
	} `json:"breaker,omitzero"`
	Streams int `json:"streams"`
	// BehindSeconds is the lag of the stream that is furthest behind, including the
	// confidence window. Groups contains all streams by parts of the token ring, Lag the
	// streams that are furthest behind.
	BehindSeconds float64                `json:"behind_seconds"`
	Groups        []checkpoint.GroupLag  `json:"groups"`
	Lag           []checkpoint.StreamLag `json:"lag"`

	InFlight             int      `json:"in_flight"`
	OldestUnackedSeconds float64  `json:"oldest_unacknowledged_seconds"`
	DeadLetters          int      `json:"dead_letters"`
	Spilled              int      `json:"spilled"`
	BlockedAggregates    int      `json:"blocked_aggregates"`
	HeldAggregates       int      `json:"held_aggregates"`
	HeldStreams          int      `json:"held_streams"`
	Holding              bool     `json:"holding"`
	StalledTopics        []string `json:"stalled_topics"`
	ReaderRestarts       int      `json:"reader_restarts"`
	// Shard is the part of the table that the relay processes, nil for all of it. Only
	// the rows of Membership contain Sharing.
	Shard   *heartbeatShard `json:"shard,omitempty"`
	Sharing *Sharing        `json:"sharing,omitempty"`

	Tail struct {
		On         bool       `json:"on"`
		Streams    int        `json:"streams"`
		Groups     int        `json:"groups"`
		IntervalMS float64    `json:"interval_ms"`
		LastRead   *time.Time `json:"last_read,omitempty"`
		Waiting    int        `json:"aggregates_waiting"`
		Paused     bool       `json:"waits_for_sweep"`
		Error      string     `json:"error,omitempty"`
	} `json:"tail"`
	Backfill struct {
		Running bool   `json:"running"`
		Reason  string `json:"reason,omitempty"`
		Done    int    `json:"ranges_done"`
		Ranges  int    `json:"ranges"`
		Error   string `json:"error,omitempty"`
	} `json:"backfill"`

	// Rates are per second since the previous heartbeat.
	Rates struct {
		Published float64            `json:"published"`
		Failures  float64            `json:"failures"`
		Found     map[string]float64 `json:"found"` // accepted events by the reader that found them
	} `json:"rates"`
	// Published is the number of events published since StartedAt, and CommitLatency the times from
	// the write's timestamp to the acknowledgement of these. From two heartbeats follows what
	// happened between them, however far apart they are.
	Published     float64         `json:"published_total"`
	CommitLatency *latency.Counts `json:"commit_latency,omitempty"`
	// Latency is the time from the write's timestamp to the acknowledgement of the events
	// since the previous heartbeat, nil if there were none.
	Latency     *heartbeatLatency `json:"latency,omitempty"`
	MemoryBytes uint64            `json:"memory_bytes"` // of the heap in use
	Goroutines  int               `json:"goroutines"`
}

// heartbeatLatency are quantiles in milliseconds.
type heartbeatLatency struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// heartbeatShard is a Shard in the JSON of relay_instances.
type heartbeatShard struct {
	Index int `json:"index"`
	Count int `json:"count"`
}

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
		b.beat(ctx, "running")
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.beat(context.WithoutCancel(ctx), "stopped")
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
	text, err := json.Marshal(b.report(state, time.Now()))
	if err != nil {
		return err
	}
	cfg := &b.r.cfg
	return saveInstance(ctx, cfg.Session, cfg.Keyspace, cfg.shardName(), cfg.TableKeyspace+"."+cfg.Table, b.instance, string(text))
}

// saveInstance writes the row of an instance with a timestamp of the database. With its
// own timestamp, the writes of an instance whose clock was set back would have no
// effect, and it would count as dead.
func saveInstance(ctx context.Context, session *gocql.Session, keyspace, relay, table, instance, status string) error {
	return session.Query("INSERT INTO "+keyspace+".relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', ?, ?, ?, toTimestamp(now()), ?) USING TTL ?",
		relay, table, instance, status, int(heartbeatLife.Seconds())).
		WithContext(ctx).Idempotent(true).DefaultTimestamp(false).Exec()
}

// report returns the status of the relay.
func (b *beating) report(state string, now time.Time) *heartbeat {
	s := b.r.Status()
	h := &heartbeat{
		State: state, Ready: len(s.Problems) == 0 && state == "running", Problems: s.Problems, Host: self.Host(), Version: b.version, StartedAt: utc(b.started),
		Streams: s.Streams, BehindSeconds: s.Behind.Seconds(),
		InFlight: s.InFlight, OldestUnackedSeconds: s.OldestUnacknowledged.Seconds(), DeadLetters: s.DeadLetters, Spilled: s.Spilled,
		BlockedAggregates: s.BlockedAggregates, HeldAggregates: len(s.Held), HeldStreams: len(s.HeldStreams), Holding: s.Holding,
		StalledTopics: b.r.publisher.Load().StalledTopics(), ReaderRestarts: s.Restarts, Goroutines: runtime.NumGoroutine(),
	}
	h.Lag, h.Groups = b.r.streams.Lags(now, capture.GroupStreams)
	if h.Problems == nil {
		h.Problems = []string{}
	}
	if state == "running" && !s.Idle && s.LastWindow.IsZero() && s.Tail.LastRead.IsZero() {
		h.State = "starting"
	}
	h.Breaker.State, h.Breaker.Since, h.Breaker.Cause = s.Breaker.State.String(), utc(s.Breaker.Since), message(s.Breaker.Cause)
	h.Breaker.Opened, h.Breaker.Unreachable = utc(s.Breaker.Opened), failure.IsUnreachable(s.Breaker.Cause)
	t := &h.Tail
	t.On, t.Streams, t.Groups, t.LastRead, t.Waiting, t.Paused, t.Error = s.Tail.On, s.Tail.Streams, s.Tail.Groups, utc(s.Tail.LastRead), s.Tail.Waiting, s.Tail.Paused, message(s.Tail.Err)
	t.IntervalMS = float64(s.Tail.Interval.Microseconds()) / 1000
	f := &h.Backfill
	f.Running, f.Reason, f.Done, f.Ranges, f.Error = s.Backfill.Running, s.Backfill.Reason, s.Backfill.Done, s.Backfill.Ranges, message(s.Backfill.Err)
	b.rates(h, now)
	if s := b.r.cfg.Shard; s.Count > 0 {
		h.Shard = &heartbeatShard{s.Index, s.Count}
	}
	h.MemoryBytes = heapBytes()
	return h
}

// heapBytes returns the bytes of the heap in use.
func heapBytes() uint64 {
	heap := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	runtimemetrics.Read(heap)
	if heap[0].Value.Kind() == runtimemetrics.KindUint64 {
		return heap[0].Value.Uint64()
	}
	return 0
}

// rates sets the rates since the previous call.
func (b *beating) rates(h *heartbeat, now time.Time) {
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
	h.CommitLatency = &commits
	if q := commits.Since(b.latency).Quantiles(.5, .99); q != nil {
		h.Latency = &heartbeatLatency{1000 * q[0].Seconds(), 1000 * q[1].Seconds()}
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
