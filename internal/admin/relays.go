package admin

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
)

// silentAfter is the time without a heartbeat after which a relay is silent. A relay
// sends a heartbeat every two seconds.
const silentAfter = 10 * time.Second

// stateSilent is the state of a relay that sends no heartbeats; a relay does not write it.
const stateSilent = "silent"

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
	heartbeat.RelayStatus
}

type relaysOutput struct {
	Body struct {
		Relays []relayBody `json:"relays"`
	}
}

// relayEndpoints list the relays by their heartbeats.
type relayEndpoints struct {
	*operations
	session  *gocql.Session
	keyspace string
	timeout  time.Duration
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

func (ep *relayEndpoints) read(ctx context.Context) ([]heartbeatBody, error) {
	ctx, cancel := context.WithTimeout(ctx, ep.timeout)
	defer cancel()
	rows, err := heartbeat.Read(ctx, ep.session, ep.keyspace)
	if err != nil {
		return nil, err
	}
	out := make([]heartbeatBody, len(rows))
	for i, r := range rows {
		if r.Bad != nil {
			r.RelayStatus = heartbeat.RelayStatus{State: heartbeat.Running, Problems: []string{"its status cannot be decoded: " + r.Bad.Error()}}
		}
		out[i] = heartbeatBody{Name: r.Relay, Table: r.Table, Instance: r.Instance, At: r.At.UTC(), RelayStatus: r.RelayStatus}
		out[i].seen(time.Now())
	}
	return out, nil
}

// seen updates the state of the last heartbeat to the current time.
func (r *heartbeatBody) seen(now time.Time) {
	if r.Lag == nil { // a relay of another version may omit it
		r.Lag = []heartbeat.StreamLag{}
	}
	if r.StalledTopics == nil {
		r.StalledTopics = []string{}
	}
	r.Silent = r.State != heartbeat.Stopped && now.Sub(r.At) > silentAfter
	since := r.At.Format(time.RFC3339)
	switch {
	case r.Silent:
		r.State, r.Ready = stateSilent, false
		r.Problems = append([]string{"no heartbeat since " + since + ": the process has ended without reporting it, hangs, or cannot write to the database"}, r.Problems...)
	case r.State == heartbeat.Stopped:
		// An operator stopped it, or it owns the shard no longer.
		r.Ready, r.Problems = false, []string{}
	case r.Problems == nil:
		r.Problems = []string{}
	}
}
