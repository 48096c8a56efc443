package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gocql/gocql"
)

// checkInstances checks that what runs under the relay's name carries each table
// once and whole: alone, or as one of several that share.
func (c *config) checkInstances(ctx context.Context, session *gocql.Session) []finding {
	all, gone, err := heardOf(ctx, session, c.Scylla.Keyspace)
	if err != nil {
		return []finding{{"instances of the relay", false, err.Error(), "GRANT SELECT ON " + c.Scylla.Keyspace + ".relay_instances TO the relay's role"}}
	}
	byTable := make(map[string][]instance)
	var tables []string
	for _, i := range all {
		if name, _, _ := strings.Cut(i.relay, "/"); name != c.Relay.Name {
			continue
		}
		if byTable[i.table] == nil {
			tables = append(tables, i.table)
		}
		byTable[i.table] = append(byTable[i.table], i)
	}
	if len(tables) == 0 {
		return []finding{c.checkGone(gone)}
	}
	slices.Sort(tables)
	out := make([]finding, len(tables))
	for i, t := range tables {
		out[i] = c.checkCarried(t, byTable[t])
	}
	return out
}

// checkGone checks what is left where no instance runs: one that was not stopped has
// died, and events wait.
func (c *config) checkGone(gone []instance) finding {
	const check = "instances of the relay"
	var last *instance
	for i, g := range gone {
		if name, _, _ := strings.Cut(g.relay, "/"); name == c.Relay.Name && (last == nil || last.at.Before(g.at)) {
			last = &gone[i]
		}
	}
	if last == nil {
		return finding{check, true, "none runs now", ""}
	}
	return finding{
		check, false, fmt.Sprintf("none runs; %s was heard of last at %s and did not say that it stops: events wait for it", last.name, last.at.UTC().Format("2006-01-02 15:04:05Z")),
		"start it: outbox relay; the end of its log may say why it is gone",
	}
}

// checkCarried checks the live instances of one table.
func (c *config) checkCarried(table string, all []instance) finding {
	check := "instances of the relay of " + table
	var alone, sharing []string
	counts := make(map[int]bool)
	for _, i := range all {
		switch {
		case i.Sharing != nil:
			sharing = append(sharing, fmt.Sprintf("%s carries %v", i.name, i.Sharing.Owned))
			counts[i.Sharing.Shards] = true
		case i.Shard == nil:
			alone = append(alone, i.name)
		}
	}
	missing := uncarried(all)
	switch {
	case len(alone) > 0 && len(sharing) > 0:
		return finding{
			check, false, fmt.Sprintf("%s carries the table alone, beside those that share it (%s): every event is published twice", strings.Join(alone, ", "), strings.Join(sharing, "; ")),
			"stop " + strings.Join(alone, ", ") + ", or set relay.shards there too",
		}
	case len(alone) > 1:
		return finding{
			check, false, strings.Join(alone, " and ") + " each carry the whole table: every event is published more than once",
			"stop all but one, or set relay.shards in all of them",
		}
	case c.Relay.Shards > 0 && len(counts) > 0 && !counts[c.Relay.Shards]:
		return finding{
			check, false, fmt.Sprintf("they share another number of shards than relay.shards, %d: %s", c.Relay.Shards, strings.Join(sharing, "; ")),
			"set relay.shards to the same number everywhere; outbox relay reshard changes it",
		}
	case len(missing) > 0:
		return finding{
			check, false, fmt.Sprintf("nobody carries shards %v: %s", missing, strings.Join(sharing, "; ")),
			"wait for relay.session_timeout if one has just gone; else look at /readyz of the instances",
		}
	case len(alone) == 0:
		return finding{check, true, strings.Join(sharing, "; "), ""}
	}
	return finding{check, true, alone[0] + " carries it alone", ""}
}
