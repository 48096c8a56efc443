package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// relaySilent is for how long a relay may say nothing before it counts as gone, as in
// GET /v1/relays.
const relaySilent = 5 * relay.DefaultHeartbeat

// healthy returns nil if a replay of the letters may begin, and says what speaks
// against it.
func (f *dlqChangeFlags) healthy(cmd *cobra.Command, c *app.Config, letters []dlq.Letter) error {
	tables := make(map[string]bool)
	for i := range letters {
		tables[letters[i].Table] = true
	}
	problems := append(relayProblems(cmd.Context(), c, tables), brokerProblems(cmd.Context(), c)...)
	if len(problems) == 0 {
		return nil
	}
	text := strings.Join(problems, "; ")
	if f.force {
		fmt.Fprintln(cmd.ErrOrStderr(), "not well: "+text+"; going on, as --force says")
		return nil
	}
	return cli.WithHint(errors.New("nothing was replayed: "+text), "fix it, or add --force: the relay publishes the dead letters once it can")
}

// brokerProblems says whether the broker cannot be reached.
func brokerProblems(ctx context.Context, c *app.Config) []string {
	client, err := c.Kafka.Client()
	if err != nil {
		return []string{err.Error()}
	}
	defer client.Close()
	if err := app.Reachable(ctx, client, c.Kafka.Seeds); err != nil {
		return []string{err.Error()}
	}
	return nil
}

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

// relayProblems says for which tables no relay runs, or more than one of a name, or
// one that has its breaker open.
func relayProblems(ctx context.Context, c *app.Config, tables map[string]bool) (problems []string) {
	session, err := c.Scylla.Session(c.Scylla.Keyspace)
	if err != nil {
		return []string{err.Error()}
	}
	defer sessions.Close(session)
	found, err := instances(ctx, session, c.Scylla.Keyspace)
	if err != nil {
		return []string{"read which relays run: " + err.Error()}
	}
	alive, sharers, open := make(map[string]said), make(map[string][]instance), make(map[string]bool)
	for i := range found {
		v, table := found[i].said, found[i].table
		if v.State == stateWaiting {
			continue // it carries nothing
		}
		if v.Shard != nil || v.Sharing != nil {
			sharers[table] = append(sharers[table], found[i])
			open[table] = open[table] || v.Breaker.State == "open"
		}
		if before, other := alive[table]; !other || v.Breaker.State != "open" {
			if len(v.OtherInstances) == 0 {
				v.OtherInstances = before.OtherInstances
			}
			alive[table] = v // of several relays of a table one that can publish counts
		}
	}
	for t := range tables {
		v, ok := alive[t]
		missing := uncarried(sharers[t])
		switch {
		case len(missing) > 0:
			problems = append(problems, fmt.Sprintf("no instance carries shards %v of %s", missing, t))
		case open[t]: // each shard has a breaker of its own
			problems = append(problems, "the breaker of a shard of the relay of "+t+" is open")
		case !ok:
			problems = append(problems, "no relay of "+t+" runs")
		case v.Breaker.State == "open":
			problems = append(problems, "the breaker of the relay of "+t+" is open")
		case len(v.OtherInstances) > 0:
			problems = append(problems, "more than one process runs the relay of "+t+", and each would publish the letters: "+strings.Join(v.OtherInstances, ", ")+" beside the one that says so")
		}
	}
	return problems
}
