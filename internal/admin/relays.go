package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// silentAfter is for how long a relay may say nothing before it is called silent:
// it says something every two seconds.
const silentAfter = 10 * time.Second

// States of a relay that mean something here.
const (
	stateRunning = "running"
	stateStopped = "stopped"
	stateSilent  = "silent"
)

// relayBody is a relay, and what it last said of itself. What it is now, state, ready
// and problems, is told by the time as well: who is silent is not ready.
type relayBody struct {
	Name     string    `json:"name"`
	Table    string    `json:"table" doc:"Its outbox table, keyspace.table"`
	Instance string    `json:"instance" doc:"Which process"`
	At       time.Time `json:"at" doc:"When it last said something"`
	Silent   bool      `json:"silent" doc:"It has said nothing for 10 s, and did not say that it stops: state is silent, ready is false, problems begins with that, and all else is what it said last"`
	RelayStatus
}

// RelayStatus is what a relay writes (relay/heartbeat.go). A relay of another
// version may leave something out. It is exported for huma alone, like Summary.
type RelayStatus struct {
	State     string       `json:"state" enum:"starting,running,waiting,silent,stopped" doc:"waiting if it publishes nothing, because relays of its name run with relay.shards and it without, or the reverse; silent instead of these if it says nothing any more"`
	Ready     bool         `json:"ready" doc:"It does its work, as far as it and this server know: never true of one that is silent or stopped"`
	Problems  []string     `json:"problems" nullable:"false" doc:"Why it is not ready, a sentence each"`
	Host      string       `json:"host"`
	Version   string       `json:"version"`
	StartedAt *time.Time   `json:"started_at,omitempty"`
	Breaker   relayBreaker `json:"breaker"`

	Streams int         `json:"streams" doc:"CDC streams that it reads"`
	Behind  float64     `json:"behind_seconds" doc:"How far the stream is behind that is furthest behind, the confidence window included"`
	Groups  []groupLag  `json:"groups,omitempty" doc:"All its streams in groups, by equal parts of the token ring, at most 64; parts without a stream are left out"`
	Lag     []streamLag `json:"lag" doc:"The streams that are furthest behind"`

	Shard   *relayShard   `json:"shard,omitempty" doc:"Which part of its table it carries, where several instances share; its name ends with the same"`
	Sharing *relaySharing `json:"sharing,omitempty" doc:"Of an instance that shares the table with others, in a row beside those of the shards that it carries"`

	OtherInstances []string `json:"other_instances,omitempty" doc:"Other live processes with this relay's name and table: all of them publish everything, so stop all but one"`

	InFlight         int      `json:"in_flight" doc:"Events read and not yet acknowledged"`
	OldestUnacked    float64  `json:"oldest_unacknowledged_seconds"`
	DeadLetters      int      `json:"dead_letters"`
	Spilled          int      `json:"spilled" doc:"Dead letters that an open breaker made"`
	ParkedAggregates int      `json:"parked_aggregates"`
	HeldAggregates   int      `json:"held_aggregates"`
	HeldStreams      int      `json:"held_streams"`
	Holding          bool     `json:"holding" doc:"The breaker is open and nothing more is spilled"`
	StalledTopics    []string `json:"stalled_topics" doc:"Topics that acknowledge nothing while others do"`
	ReaderRestarts   int      `json:"reader_restarts"`

	Tail        relayTail     `json:"tail"`
	Backfill    relayBackfill `json:"backfill"`
	Rates       relayRates    `json:"rates"`
	MemoryBytes int64         `json:"memory_bytes" doc:"Of the process's heap"`
	Goroutines  int           `json:"goroutines"`
}

type relayShard struct {
	Index int `json:"index" doc:"From 0"`
	Count int `json:"count"`
}

type relaySharing struct {
	Shards int   `json:"shards" doc:"How many the instances share"`
	Owned  []int `json:"owned" nullable:"false" doc:"Which of them it carries; one that carries none stands by"`
	Joined bool  `json:"joined" doc:"The broker acknowledges it as one of those that share"`
}

type relayBreaker struct {
	State string     `json:"state" doc:"closed, half-open or open"`
	Since *time.Time `json:"since,omitempty"`
	Cause string     `json:"cause,omitempty"`
}

type streamLag struct {
	Name          string  `json:"name"`
	BehindSeconds float64 `json:"behind_seconds"`
}

type groupLag struct {
	Part          int     `json:"part" doc:"Which part of the ring, from 1"`
	Parts         int     `json:"parts" doc:"Of how many"`
	FromToken     string  `json:"from_token" doc:"The part's first token, a 64-bit integer as text"`
	Streams       int     `json:"streams"`
	BehindSeconds float64 `json:"behind_seconds" doc:"How far its stream is behind that is furthest behind, the confidence window included"`
	OldestUnacked float64 `json:"oldest_unacknowledged_seconds" doc:"How long ago its oldest change was read that is not acknowledged"`
}

type relayTail struct {
	On         bool       `json:"on"`
	Streams    int        `json:"streams"`
	Groups     int        `json:"groups" doc:"In how many queries it reads them"`
	IntervalMS float64    `json:"interval_ms" doc:"Mean wait between two readings of a group"`
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
	Published float64            `json:"published" doc:"Events per second, since the heartbeat before"`
	Failures  float64            `json:"failures"`
	Found     map[string]float64 `json:"found" doc:"Events per second by who found them: tail, sweep, key, backfill"`
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
	now         func() time.Time
}

func (ep *relayEndpoints) register() {
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "list-relays", Method: http.MethodGet, Path: "/v1/relays", Summary: "List the relays that run, and what they say of themselves",
	}), ep.list)
}

func (ep *relayEndpoints) list(ctx context.Context, _ *struct{}) (*relaysOutput, error) {
	relays, err := ep.read(ctx)
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	out := new(relaysOutput)
	out.Body.Relays = relays
	return out, nil
}

func (ep *relayEndpoints) read(ctx context.Context) ([]relayBody, error) {
	ctx, cancel := context.WithTimeout(ctx, ep.timeout)
	defer cancel()
	out := []relayBody{}
	iter := ep.session.Query("SELECT relay, table_name, instance, at, status FROM "+ep.keyspace+".relay_instances WHERE scope = ?", relayScope).
		WithContext(ctx).Consistency(ep.consistency).Idempotent(true).Iter()
	for {
		var r relayBody
		var status string
		if !iter.Scan(&r.Name, &r.Table, &r.Instance, &r.At, &status) {
			break
		}
		if err := json.Unmarshal([]byte(status), &r.RelayStatus); err != nil {
			r.RelayStatus = RelayStatus{State: stateRunning, Problems: []string{"what it says cannot be read: " + err.Error()}}
		}
		r.At = r.At.UTC()
		r.seen(ep.now())
		out = append(out, r)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read which relays run: %w", err)
	}
	return out, nil
}

// seen makes what the relay said last what it is now.
func (r *relayBody) seen(now time.Time) {
	r.Silent = r.State != stateStopped && now.Sub(r.At) > silentAfter
	since := r.At.Format(time.RFC3339)
	switch {
	case r.Silent:
		r.State, r.Ready = stateSilent, false
		r.Problems = append([]string{"it has said nothing since " + since + " and did not say that it stops: its process is gone, stands still, or cannot write to the database"}, r.Problems...)
	case r.State == stateStopped:
		r.Ready = false
		r.Problems = append([]string{"it was stopped at " + since}, r.Problems...)
	case r.Problems == nil:
		r.Problems = []string{}
	}
}

// sameRelays tells whether nobody said anything in between.
func sameRelays(a, b []relayBody) bool {
	return slices.EqualFunc(a, b, func(x, y relayBody) bool {
		return x.Name == y.Name && x.Table == y.Table && x.Instance == y.Instance && x.At.Equal(y.At) && x.Silent == y.Silent
	})
}
