package doctor

import (
	"context"
	"fmt"
	"maps"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
)

// ReplayProblems returns the reasons why dead letters of the tables would not be published
// now: no relay of a table runs, a shard has no owner, a breaker is open, or the broker
// cannot be reached. It returns nil if there are none.
func ReplayProblems(ctx context.Context, c *app.Config, tables map[string]bool) []string {
	tables = maps.Clone(tables)
	maps.DeleteFunc(tables, func(table string, _ bool) bool {
		_, subscription := dlq.SubscriptionOf(table)
		return subscription
	})
	if len(tables) == 0 {
		return nil
	}
	return append(relayProblems(ctx, c, tables), brokerProblems(ctx, c)...)
}

// relayProblems lists the tables without a running relay, with a shard without owner, or
// with an open breaker.
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
	relays, open := make(map[string][]instance), make(map[string]bool)
	for _, i := range found {
		relays[i.table] = append(relays[i.table], i)
		open[i.table] = open[i.table] || i.Breaker.State == "open"
	}
	for t := range tables {
		missing := uncarried(relays[t])
		switch {
		case len(relays[t]) == 0:
			problems = append(problems, "no relay of "+t+" runs")
		case len(missing) > 0:
			problems = append(problems, fmt.Sprintf("no instance owns shards %v of %s", missing, t))
		case open[t]: // each shard has a breaker of its own
			problems = append(problems, "the breaker of a shard of the relay of "+t+" is open")
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
