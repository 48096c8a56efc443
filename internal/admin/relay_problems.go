package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
)

// breakerOpen is the state of a breaker that permits no calls.
const breakerOpen = "open"

// problems returns the reasons why relays would not publish dead letters now. Dead letters
// of subscriptions need no relay.
func (ep *relayEndpoints) problems(ctx context.Context, deadLetters []dlq.DeadLetter) (out []string, err error) {
	tables := make(map[string][]heartbeatBody)
	for i := range deadLetters {
		if _, ok := dlq.ParseSubscription(deadLetters[i].Table); !ok {
			tables[deadLetters[i].Table] = nil
		}
	}
	if len(tables) == 0 {
		return nil, nil
	}
	relays, err := ep.read(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range relays {
		if _, ok := tables[r.Table]; ok && r.State != stateSilent && r.State != heartbeat.Stopped {
			tables[r.Table] = append(tables[r.Table], r)
		}
	}
	for _, table := range slices.Sorted(maps.Keys(tables)) {
		if p := findProblem(table, tables[table]); p != "" {
			out = append(out, p)
		}
	}
	return out, nil
}

// findProblem returns the reason why the relays of a table would not publish all of its
// dead letters now, empty for none.
func findProblem(table string, relays []heartbeatBody) string {
	missing := heartbeat.MissingShards(relays, func(r *heartbeatBody) *heartbeat.RelayStatus { return &r.RelayStatus })
	switch {
	case len(relays) == 0:
		return "no relay of " + table + " runs"
	case len(missing) > 0:
		return fmt.Sprintf("no instance owns shards %v of %s", missing, table)
	case slices.ContainsFunc(relays, func(r heartbeatBody) bool { return r.Breaker.State == breakerOpen }): // each shard has its own
		return "the breaker of a shard of the relay of " + table + " is open"
	}
	return ""
}
