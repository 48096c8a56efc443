package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
)

// ReplayProblems returns the reasons why dead letters of the tables would not be published
// now: no relay of a table runs, several do, a breaker is open, or the broker cannot be
// reached. It returns nil if there are none.
func ReplayProblems(ctx context.Context, c *app.Config, tables map[string]bool) []string {
	return append(relayProblems(ctx, c, tables), brokerProblems(ctx, c)...)
}

// relayProblems lists the tables without a running relay, with several of one name, or with
// an open breaker.
func relayProblems(ctx context.Context, c *app.Config, tables map[string]bool) (problems []string) {
	session, err := c.Scylla.Session(c.Scylla.Keyspace)
	if err != nil {
		return []string{err.Error()}
	}
	defer sessions.Close(session)
	found, err := instances(ctx, session, c.Scylla.Keyspace)
	if err != nil {
		return []string{"read the heartbeats of relays: " + err.Error()}
	}
	alive, sharers, open := make(map[string]status), make(map[string][]instance), make(map[string]bool)
	for i := range found {
		v, table := found[i].status, found[i].table
		if v.State == stateWaiting {
			continue // it publishes nothing
		}
		if v.Shard != nil || v.Sharing != nil {
			sharers[table] = append(sharers[table], found[i])
			open[table] = open[table] || v.Breaker.State == "open"
		}
		if before, other := alive[table]; !other || v.Breaker.State != "open" {
			if len(v.OtherInstances) == 0 {
				v.OtherInstances = before.OtherInstances
			}
			alive[table] = v // of several relays, one that can publish is sufficient
		}
	}
	for t := range tables {
		v, ok := alive[t]
		missing := uncarried(sharers[t])
		switch {
		case len(missing) > 0:
			problems = append(problems, fmt.Sprintf("no instance owns shards %v of %s", missing, t))
		case open[t]: // each shard has a breaker of its own
			problems = append(problems, "the breaker of a shard of the relay of "+t+" is open")
		case !ok:
			problems = append(problems, "no relay of "+t+" runs")
		case v.Breaker.State == "open":
			problems = append(problems, "the breaker of the relay of "+t+" is open")
		case len(v.OtherInstances) > 0:
			problems = append(problems, "more than one process runs the relay of "+t+", and each would publish the dead letters: "+strings.Join(v.OtherInstances, ", ")+" and the instance that reports this")
		}
	}
	return problems
}

// brokerProblems returns the error of a broker that cannot be reached.
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
