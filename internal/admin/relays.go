package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/latency"
)

// silentAfter is the time without a heartbeat after which a relay is silent. A relay
// sends a heartbeat every two seconds.
const silentAfter = 10 * time.Second

// States of a relay that this package uses.
const (
	stateRunning = "running"
	stateStopped = "stopped"
	stateSilent  = "silent"
)

// relayBody is a relay of a table: the processes that share its shards, and the shards.
type relayBody struct {
	Name      string          `json:"name"`
	Table     string          `json:"table" doc:"Its outbox table, keyspace.table"`
	Instances []heartbeatBody `json:"instances" doc:"The processes that share the shards, with the ones that each owns"`
	Shards    []heartbeatBody `json:"shards" doc:"What publishes: a shard or, without shards, the whole relay; a process that owned it before is listed too, until its heartbeat expires"`
}

// heartbeatBody is the last heartbeat of a process as an instance of a relay, or as the owner of
// a shard. state, ready and problems also depend on
// the current time: a silent relay is not ready.
type heartbeatBody struct {
	Name     string    `json:"name" doc:"That of the relay; of a shard, with its number"`
	Table    string    `json:"table" doc:"Its outbox table, keyspace.table"`
	Instance string    `json:"instance" doc:"The process"`
	At       time.Time `json:"at" doc:"Time of the last heartbeat"`
	Silent   bool      `json:"silent" doc:"It has sent no heartbeat for 10 s and did not report that it stops. Then state is silent, ready is false, problems begins with this, and the other fields are those of the last heartbeat."`
	RelayStatus
}

// RelayStatus is the status that a relay writes (relay/heartbeat.go). A relay of another
// version may omit members. It is exported only for huma, which describes no unexported embedded types.
type RelayStatus struct {
	State     string       `json:"state" enum:"starting,running,silent,stopped" doc:"silent if it no longer sends heartbeats"`
	Ready     bool         `json:"ready" doc:"It reports no problem; false for a silent or stopped relay"`
	Problems  []string     `json:"problems" nullable:"false" doc:"Reasons why it is not ready; none of a stopped relay"`
	Host      string       `json:"host"`
	Version   string       `json:"version"`
	StartedAt *time.Time   `json:"started_at,omitempty"`
	Breaker   relayBreaker `json:"breaker"`

	Streams int         `json:"streams" doc:"Number of CDC streams that it reads"`
	Behind  float64     `json:"behind_seconds" doc:"Largest lag of a stream, including the confidence window"`
	Groups  []groupLag  `json:"groups,omitempty" doc:"Its streams grouped by equal parts of the token ring, at most 64; parts without a stream are omitted"`
	Lag     []streamLag `json:"lag" doc:"The streams with the largest lag"`

	Shard   *relayShard   `json:"shard,omitempty" doc:"The shard; the name ends with the same number"`
	Sharing *relaySharing `json:"sharing,omitempty" doc:"Set for an instance"`

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

	Tail        relayTail       `json:"tail"`
	Backfill    relayBackfill   `json:"backfill"`
	Rates       relayRates      `json:"rates"`
	Published   float64         `json:"published_total" doc:"Events published since started_at"`
	Commits     *latency.Counts `json:"commit_latency,omitempty" doc:"Times from the write's timestamp to the acknowledgement of these events"`
	Latency     *relayLatency   `json:"latency,omitempty"`
	MemoryBytes int64           `json:"memory_bytes" doc:"Heap of the process"`
	Goroutines  int             `json:"goroutines"`
}

type relayShard struct {
	Index int `json:"index" doc:"From 0"`
	Count int `json:"count"`
}

type relaySharing struct {
	Shards int   `json:"shards" doc:"Number of shards"`
	Owned  []int `json:"owned" nullable:"false" doc:"The shards that it owns; an instance without shards is a standby"`
	Joined bool  `json:"joined" doc:"It is a member of the consumer group of the instances"`

	Error       string     `json:"error,omitempty" doc:"The last error of the broker; absent while it acknowledges the instance"`
	Since       *time.Time `json:"since,omitempty" doc:"Time of the first error after the last success"`
	Unreachable bool       `json:"unreachable,omitempty" doc:"The error is that no broker answered"`
}

type relayBreaker struct {
	State       string     `json:"state,omitempty" doc:"closed, half-open or open; absent for an instance, whose shards have breakers"`
	Since       *time.Time `json:"since,omitempty" doc:"Time of the last change of state"`
	Opened      *time.Time `json:"opened,omitempty" doc:"Time since when it is not closed"`
	Cause       string     `json:"cause,omitempty"`
	Unreachable bool       `json:"unreachable,omitempty" doc:"The cause is that no broker answered"`
}

type streamLag struct {
	Name          string  `json:"name"`
	BehindSeconds float64 `json:"behind_seconds"`
}

type groupLag struct {
	Part          int     `json:"part" doc:"The part of the ring, from 1"`
	Parts         int     `json:"parts" doc:"Number of parts"`
	FromToken     string  `json:"from_token" doc:"The first token of the part, a 64-bit integer as text"`
	Streams       int     `json:"streams"`
	BehindSeconds float64 `json:"behind_seconds" doc:"Largest lag of its streams, including the confidence window"`
	OldestUnacked float64 `json:"oldest_unacknowledged_seconds" doc:"Age of its oldest unacknowledged change"`
}

type relayTail struct {
	On         bool       `json:"on"`
	Streams    int        `json:"streams"`
	Groups     int        `json:"groups" doc:"Number of queries that read them"`
	IntervalMS float64    `json:"interval_ms" doc:"Mean interval between two reads of a group"`
	LastRead   *time.Time `json:"last_read,omitempty"`
	Waiting    int        `json:"aggregates_waiting"`
	Paused     bool       `json:"waits_for_sweep"`
	Error      string     `json:"error,omitempty"`
}

type relayBackfill struct {
	Running bool   `json:"running"`
	Reason  string `json:"reason,omitempty"`
	Done    int    `json:"ranges_done"`
	Ranges  int    `json:"ranges"`
	Error   string `json:"error,omitempty"`
}

type relayRates struct {
	Published float64            `json:"published" doc:"Events per second since the previous heartbeat"`
	Failures  float64            `json:"failures"`
	Found     map[string]float64 `json:"found" doc:"Events per second by reader: tail, sweep, key, backfill"`
}

type relayLatency struct {
	P50 float64 `json:"p50_ms" doc:"Time from the write's timestamp to the acknowledgement of half of the events since the previous heartbeat, to the width of a bucket of the histogram"`
	P99 float64 `json:"p99_ms"`
}

type relaysOutput struct {
	Body struct {
		Relays []relayBody `json:"relays"`
	}
}

// relayScope is the partition of relay_instances.
const relayScope = "keyspace"

// relayEndpoints list the relays by their heartbeats.
type relayEndpoints struct {
	*operations
	session     *gocql.Session
	keyspace    string
	consistency gocql.Consistency
	timeout     time.Duration
}

func (ep *relayEndpoints) register() {
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "list-relays", Method: http.MethodGet, Path: "/v1/relays", Summary: "List relays with their status",
	}), ep.list)
}

func (ep *relayEndpoints) list(ctx context.Context, _ *struct{}) (*relaysOutput, error) {
	relays, err := ep.read(ctx)
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	out := new(relaysOutput)
	out.Body.Relays = byRelay(relays)
	return out, nil
}

// byRelay groups heartbeats by relay and table.
func byRelay(all []heartbeatBody) []relayBody {
	out := []relayBody{}
	for i := range all {
		h := &all[i]
		name := h.Name
		if end := strings.LastIndexByte(name, '/'); h.Shard != nil && end > 0 {
			name = name[:end]
		}
		at := slices.IndexFunc(out, func(r relayBody) bool { return r.Name == name && r.Table == h.Table })
		if at < 0 {
			at = len(out)
			out = append(out, relayBody{Name: name, Table: h.Table, Instances: []heartbeatBody{}, Shards: []heartbeatBody{}})
		}
		if r := &out[at]; h.Sharing != nil {
			r.Instances = append(r.Instances, *h)
		} else {
			r.Shards = append(r.Shards, *h)
		}
	}
	return out
}

// selectInstances returns the statement that reads the last heartbeats of relays.
func selectInstances(keyspace string) string {
	return "SELECT relay, table_name, instance, at, status FROM " + keyspace + ".relay_instances WHERE scope = ?"
}

func (ep *relayEndpoints) read(ctx context.Context) ([]heartbeatBody, error) {
	ctx, cancel := context.WithTimeout(ctx, ep.timeout)
	defer cancel()
	out := []heartbeatBody{}
	iter := ep.session.Query(selectInstances(ep.keyspace), relayScope).
		WithContext(ctx).Consistency(ep.consistency).Idempotent(true).Iter()
	for {
		var r heartbeatBody
		var status string
		if !iter.Scan(&r.Name, &r.Table, &r.Instance, &r.At, &status) {
			break
		}
		if err := json.Unmarshal([]byte(status), &r.RelayStatus); err != nil {
			r.RelayStatus = RelayStatus{State: stateRunning, Problems: []string{"its status cannot be decoded: " + err.Error()}}
		}
		r.At = r.At.UTC()
		r.seen(time.Now())
		out = append(out, r)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read relay instances: %w", err)
	}
	return out, nil
}

// seen updates the state of the last heartbeat to the current time.
func (r *heartbeatBody) seen(now time.Time) {
	if r.Lag == nil { // a relay of another version may omit it
		r.Lag = []streamLag{}
	}
	if r.StalledTopics == nil {
		r.StalledTopics = []string{}
	}
	r.Silent = r.State != stateStopped && now.Sub(r.At) > silentAfter
	since := r.At.Format(time.RFC3339)
	switch {
	case r.Silent:
		r.State, r.Ready = stateSilent, false
		r.Problems = append([]string{"no heartbeat since " + since + ": the process has ended without reporting it, hangs, or cannot write to the database"}, r.Problems...)
	case r.State == stateStopped:
		// An operator stopped it, or it owns the shard no longer.
		r.Ready, r.Problems = false, []string{}
	case r.Problems == nil:
		r.Problems = []string{}
	}
}
