// Package heartbeat is the format of the table relay_instances: the rows that the processes of a
// relay write about themselves every two seconds, and that others read. The admin API returns the
// same members.
//
// It does not decide what a status means by now: a reader compares the time of a row with its own
// limit. A process of another version may omit members.
package heartbeat

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/latency"
)

// The states of a relay in its rows.
const (
	Starting = "starting"
	Running  = "running"
	Stopped  = "stopped"
)

// scope is the partition of relay_instances.
const scope = "keyspace"

// SharesSuffix ends the names of instances that share a relay, in the rows of what each owns.
const SharesSuffix = "/shards"

// ProcessName returns the host and process of an instance, for display.
func ProcessName(instance string) string { return strings.TrimSuffix(instance, SharesSuffix) }

// Row is a row of relay_instances: the last heartbeat of an instance of a relay, or of the owner of one
// of its shards, whose Relay ends with the number.
type Row struct {
	Relay, Table, Instance string // Table is keyspace.table
	At                     time.Time
	RelayStatus
	// Bad is why the status cannot be decoded. RelayStatus is then empty.
	Bad error
}

// SelectRows returns the statement of Read, for its preparation.
func SelectRows(keyspace string) string {
	return "SELECT relay, table_name, instance, at, status FROM " + keyspace + ".relay_instances WHERE scope = ?"
}

// Read returns all rows of a keyspace. Rows expire twelve hours after the last heartbeat.
func Read(ctx context.Context, session *gocql.Session, keyspace string) (all []Row, err error) {
	iter := session.Query(SelectRows(keyspace), scope).WithContext(ctx).Idempotent(true).Iter()
	for {
		var r Row
		var status string
		if !iter.Scan(&r.Relay, &r.Table, &r.Instance, &r.At, &status) {
			break
		}
		if r.Bad = json.Unmarshal([]byte(status), &r.RelayStatus); r.Bad != nil {
			r.RelayStatus = RelayStatus{}
		}
		all = append(all, r)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read relay instances: %w", err)
	}
	return all, nil
}

// Write replaces the row of an instance, for the duration of ttl. It has a timestamp of the database: with
// its own, the writes of an instance whose clock was set back would have no effect, and it would
// count as dead.
func Write(ctx context.Context, session *gocql.Session, keyspace string, r *Row, ttl time.Duration) error {
	status, err := json.Marshal(r.RelayStatus)
	if err != nil {
		return err
	}
	return session.Query("INSERT INTO "+keyspace+".relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', ?, ?, ?, toTimestamp(now()), ?) USING TTL ?",
		r.Relay, r.Table, r.Instance, string(status), int(ttl.Seconds())).
		WithContext(ctx).Idempotent(true).DefaultTimestamp(false).Exec()
}

// MissingShards returns the shards that no instance publishes; all are heartbeats of one table.
func MissingShards[T any](all []T, status func(*T) *RelayStatus) (missing []int) {
	owned, count := make(map[int]bool), 0
	for i := range all {
		h := status(&all[i])
		if h.Shard != nil {
			owned[h.Shard.Index], count = true, max(count, h.Shard.Count)
		}
		if h.Sharing != nil {
			count = max(count, h.Sharing.Shards)
		}
	}
	for shard := range count {
		if !owned[shard] {
			missing = append(missing, shard)
		}
	}
	return missing
}

// RelayStatus is the status of a relay, as JSON.
type RelayStatus struct {
	State     string       `json:"state" enum:"starting,running,silent,stopped" doc:"silent if it no longer sends heartbeats"`
	Ready     bool         `json:"ready" doc:"It reports no problem; false for a silent or stopped relay"`
	Problems  []string     `json:"problems" nullable:"false" doc:"Reasons why it is not ready; none of a stopped relay"`
	Host      string       `json:"host"`
	Version   string       `json:"version"`
	StartedAt *time.Time   `json:"started_at,omitempty"`
	Breaker   RelayBreaker `json:"breaker"`

	Streams int         `json:"streams" doc:"Number of CDC streams that it reads"`
	Behind  float64     `json:"behind_seconds" doc:"Largest lag of a stream, including the confidence window"`
	Groups  []GroupLag  `json:"groups,omitempty" doc:"Its streams grouped by equal parts of the token ring, at most 64; parts without a stream are omitted"`
	Lag     []StreamLag `json:"lag" doc:"The streams with the largest lag"`

	Shard   *RelayShard   `json:"shard,omitempty" doc:"The shard; the name ends with the same number"`
	Sharing *RelaySharing `json:"sharing,omitempty" doc:"Set for an instance"`

	InFlight          int      `json:"in_flight" doc:"Events that are read and not yet acknowledged"`
	OldestUnacked     float64  `json:"oldest_unacknowledged_seconds"`
	DeadLetters       int      `json:"dead_letters"`
	Spilled           int      `json:"spilled" doc:"Dead letters written because the breaker was open"`
	BlockedAggregates int      `json:"blocked_aggregates"`
	HeldAggregates    int      `json:"held_aggregates"`
	HeldStreams       int      `json:"held_streams"`
	Holding           bool     `json:"holding" doc:"The breaker is open and no more events are spilled"`
	StalledTopics     []string `json:"stalled_topics" doc:"Topics that acknowledge no records while others do"`
	ReaderRestarts    int      `json:"reader_restarts"`

	Tail        RelayTail       `json:"tail"`
	Backfill    RelayBackfill   `json:"backfill"`
	Rates       RelayRates      `json:"rates"`
	Published   float64         `json:"published_total" doc:"Events published since started_at"`
	Commits     *latency.Counts `json:"commit_latency,omitempty" doc:"Times from the write's timestamp to the acknowledgement of these events"`
	Latency     *RelayLatency   `json:"latency,omitempty"`
	MemoryBytes int64           `json:"memory_bytes" doc:"Heap of the process"`
	Goroutines  int             `json:"goroutines"`
}

// RelayShard is the part of a table that a relay publishes.
type RelayShard struct {
	Index int `json:"index" doc:"From 0"`
	Count int `json:"count"`
}

// RelaySharing is the part of a relay that one of its instances processes.
type RelaySharing struct {
	Shards int   `json:"shards" doc:"Number of shards"`
	Owned  []int `json:"owned" nullable:"false" doc:"The shards that it owns; an instance without shards is a standby"`
	Joined bool  `json:"joined" doc:"It is a member of the consumer group of the instances"`

	Error       string     `json:"error,omitempty" doc:"The last error of the broker; absent while it acknowledges the instance"`
	Since       *time.Time `json:"since,omitempty" doc:"Time of the first error after the last success"`
	Unreachable bool       `json:"unreachable,omitempty" doc:"The error is that no broker answered"`
}

// RelayBreaker is the circuit breaker of the broker.
type RelayBreaker struct {
	State       string     `json:"state,omitempty" doc:"closed, half-open or open; absent for an instance, whose shards have breakers"`
	Since       *time.Time `json:"since,omitempty" doc:"Time of the last change of state"`
	Opened      *time.Time `json:"opened,omitempty" doc:"Time since when it is not closed"`
	Cause       string     `json:"cause,omitempty"`
	Unreachable bool       `json:"unreachable,omitempty" doc:"The cause is that no broker answered"`
}

// StreamLag is the lag of one stream.
type StreamLag struct {
	Name          string  `json:"name"`
	BehindSeconds float64 `json:"behind_seconds"`
}

// GroupLag is the lag of the streams in one of equal parts of the token ring.
type GroupLag struct {
	Part          int     `json:"part" doc:"The part of the ring, from 1"`
	Parts         int     `json:"parts" doc:"Number of parts"`
	FromToken     string  `json:"from_token" doc:"The first token of the part, a 64-bit integer as text"`
	Streams       int     `json:"streams"`
	BehindSeconds float64 `json:"behind_seconds" doc:"Largest lag of its streams, including the confidence window"`
	OldestUnacked float64 `json:"oldest_unacknowledged_seconds" doc:"Age of its oldest unacknowledged change"`
}

// RelayTail is the tail reader.
type RelayTail struct {
	On         bool       `json:"on"`
	Streams    int        `json:"streams"`
	Groups     int        `json:"groups" doc:"Number of queries that read them"`
	IntervalMS float64    `json:"interval_ms" doc:"Mean interval between two reads of a group"`
	LastRead   *time.Time `json:"last_read,omitempty"`
	Waiting    int        `json:"aggregates_waiting"`
	Paused     bool       `json:"waits_for_sweep"`
	Error      string     `json:"error,omitempty"`
}

// RelayBackfill is a scan of the outbox table.
type RelayBackfill struct {
	Running bool   `json:"running"`
	Reason  string `json:"reason,omitempty"`
	Done    int    `json:"ranges_done"`
	Ranges  int    `json:"ranges"`
	Error   string `json:"error,omitempty"`
}

// RelayRates are rates since the previous heartbeat.
type RelayRates struct {
	Published float64            `json:"published" doc:"Events per second since the previous heartbeat"`
	Failures  float64            `json:"failures"`
	Found     map[string]float64 `json:"found" doc:"Events per second by reader: tail, sweep, key, backfill"`
}

// RelayLatency are quantiles of the time from the write of an event to its acknowledgement.
type RelayLatency struct {
	P50 float64 `json:"p50_ms" doc:"Time from the write's timestamp to the acknowledgement of half of the events since the previous heartbeat, to the width of a bucket of the histogram"`
	P99 float64 `json:"p99_ms"`
}
