package doctor

import (
	"context"
	"encoding/json"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay"
)

// relaySilent is for how long a relay may say nothing before it counts as gone, as in
// GET /v1/relays.
const relaySilent = 5 * relay.DefaultHeartbeat

// stateWaiting is the state of a relay that publishes nothing, because others of its
// name carry the table in another way.
const stateWaiting = "waiting"

// said is what is wanted of a relay's last word.
type said struct {
	State    string   `json:"state"`
	Problems []string `json:"problems"` // why it is not ready
	Breaker  struct {
		State string `json:"state"`
	} `json:"breaker"`
	// OtherInstances are other live processes of the relay's name.
	OtherInstances []string `json:"other_instances"`
	// Shard is what it carries of the table, nil for all of it.
	Shard *struct {
		Index int `json:"index"`
		Count int `json:"count"`
	} `json:"shard"`
	Sharing *relay.Sharing `json:"sharing"`
}

// instance is a relay that runs, or one of several that share.
type instance struct {
	relay, table, name string
	at                 time.Time // when it was heard of last
	said
}

// instances reads which relays run, of all tables. What cannot be read is of another
// version, and what was silent for too long is gone.
func instances(ctx context.Context, session *gocql.Session, keyspace string) (alive []instance, err error) {
	alive, _, err = heardOf(ctx, session, keyspace)
	return alive, err
}

// heardOf is instances, and those apart that are gone without having said that they stop.
func heardOf(ctx context.Context, session *gocql.Session, keyspace string) (alive, gone []instance, err error) {
	iter := session.Query("SELECT relay, table_name, instance, at, status FROM "+keyspace+".relay_instances WHERE scope = ?", "keyspace").
		WithContext(ctx).Idempotent(true).Iter()
	var i instance
	var status string
	for iter.Scan(&i.relay, &i.table, &i.name, &i.at, &status) {
		i.said, i.name = said{}, relay.ProcessOf(i.name)
		switch {
		case json.Unmarshal([]byte(status), &i.said) != nil || i.State == "stopped":
		case time.Since(i.at) <= relaySilent:
			alive = append(alive, i)
		default:
			gone = append(gone, i)
		}
	}
	return alive, gone, iter.Close()
}

// uncarried are the shards of a table that no instance carries, where instances
// share it; all are those of the table.
func uncarried(all []instance) (missing []int) {
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
