package doctor

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay"
)

// relaySilent is the time without a heartbeat after which an instance counts as gone, as in
// GET /v1/relays.
const relaySilent = 5 * relay.DefaultHeartbeat

// status contains the fields of a heartbeat that the checks use.
type status struct {
	State    string   `json:"state"`
	Problems []string `json:"problems"` // why it is not ready
	Breaker  struct {
		State string `json:"state"`
	} `json:"breaker"`
	// Shard is the part of the table that it publishes, nil for an instance's own row.
	Shard *struct {
		Index int `json:"index"`
		Count int `json:"count"`
	} `json:"shard"`
	Sharing *relay.Sharing `json:"sharing"`
}

// instance is the relay of a shard, or the instance that owns shards (Sharing).
type instance struct {
	relay, table, name string
	at                 time.Time // of its last heartbeat
	status
}

// readInstances returns the live instances and, apart, instances that ended without reporting a stop
// since an instance of the same relay reported one.
func readInstances(ctx context.Context, session *gocql.Session, keyspace string) (alive, gone []instance, err error) {
	iter := session.Query("SELECT relay, table_name, instance, at, status FROM "+keyspace+".relay_instances WHERE scope = ?", "keyspace").
		WithContext(ctx).Idempotent(true).Iter()
	var all []instance
	var i instance
	var text string
	for iter.Scan(&i.relay, &i.table, &i.name, &i.at, &text) {
		i.status, i.name = status{}, relay.ProcessName(i.name)
		if json.Unmarshal([]byte(text), &i.status) == nil {
			all = append(all, i)
		}
	}
	if err := iter.Close(); err != nil {
		return nil, nil, err
	}
	ahead, _, err := relay.ClockAhead(ctx, session) // heartbeats have the database's time
	alive, gone = divideInstances(all, time.Now().Add(-ahead))
	return alive, gone, err
}

// divideInstances divides instances as heardOf returns them.
func divideInstances(all []instance, now time.Time) (alive, gone []instance) {
	stops := make(map[string]time.Time) // the last reported stop, by key
	for _, i := range all {
		switch {
		case i.State == "stopped":
			if i.at.After(stops[i.key()]) {
				stops[i.key()] = i.at
			}
		case now.Sub(i.at) <= relaySilent:
			alive = append(alive, i)
		default:
			gone = append(gone, i)
		}
	}
	return alive, slices.DeleteFunc(gone, func(i instance) bool { return i.at.Before(stops[i.key()]) })
}

// key identifies the relay and the table of an instance.
func (i *instance) key() string {
	name, _, _ := strings.Cut(i.relay, "/")
	return name + " " + i.table
}

// missingShards returns the shards that no instance publishes; all are the instances of one table.
func missingShards(all []instance) (missing []int) {
	carried, count := make(map[int]bool), 0
	for i := range all {
		if s := all[i].Shard; s != nil {
			carried[s.Index], count = true, max(count, s.Count)
		}
		if s := all[i].Sharing; s != nil {
			count = max(count, s.Shards)
		}
	}
	for shard := range count {
		if !carried[shard] {
			missing = append(missing, shard)
		}
	}
	return missing
}
