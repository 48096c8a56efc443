package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// checkInstances checks that the instances with the relay's name own all shards of each
// table.
func checkInstances(ctx context.Context, c *app.Config, session *gocql.Session) []Finding {
	all, gone, err := readInstances(ctx, session, c.Scylla.Keyspace)
	if err != nil {
		return []Finding{{"instances of the relay", false, err.Error(), "GRANT SELECT ON " + c.Scylla.Keyspace + ".relay_instances TO the relay's role"}}
	}
	return append(checkHeard(c, all, gone), checkUnattended(ctx, c, session)...)
}

// checkUnattended checks that running instances publish every table of the relay, also the tables
// that the configuration does not list any more.
func checkUnattended(ctx context.Context, c *app.Config, session *gocql.Session) []Finding {
	check := "tables of relay " + c.Relay.Name
	confs, err := c.RelayConfigs()
	if err != nil {
		return nil // checkTables reports it
	}
	tables := make([]string, len(confs))
	for i := range confs {
		tables[i] = app.TableName(&confs[i])
	}
	tables, err = relay.Unattended(ctx, session, c.Scylla.Keyspace, c.Relay.Name, tables)
	switch {
	case err != nil:
		return []Finding{{check, false, err.Error(), "fix the reported error"}}
	case len(tables) > 0:
		return []Finding{{check, false, "no instance publishes " + strings.Join(tables, ", ") + ": events wait", app.UnattendedFix}}
	}
	return nil
}

// checkHeard checks live and gone instances.
func checkHeard(c *app.Config, all, gone []heartbeat.Row) []Finding {
	alive, silent := byTable(c, all), byTable(c, gone)
	tables := slices.Sorted(maps.Keys(alive))
	for t := range silent {
		if alive[t] == nil {
			tables = append(tables, t)
		}
	}
	if len(tables) == 0 {
		return []Finding{{"instances of the relay", true, "none is running", ""}}
	}
	slices.Sort(tables)
	out := make([]Finding, len(tables))
	for i, t := range tables {
		if alive[t] == nil {
			out[i] = checkGone(t, silent[t])
			continue
		}
		out[i] = checkCarried(c, t, alive[t])
	}
	return out
}

// byTable groups the instances of the configuration's relay by table.
func byTable(c *app.Config, all []heartbeat.Row) map[string][]heartbeat.Row {
	out := make(map[string][]heartbeat.Row)
	for _, i := range all {
		if name, _, _ := strings.Cut(i.Relay, "/"); name == c.Relay.Name {
			out[i.Table] = append(out[i.Table], i)
		}
	}
	return out
}

// checkGone returns the finding on a table without a live instance: its instances failed, and
// events wait.
func checkGone(table string, gone []heartbeat.Row) Finding {
	last := gone[0]
	for _, g := range gone {
		if last.At.Before(g.At) {
			last = g
		}
	}
	return Finding{
		"instances of the relay of " + table, false, fmt.Sprintf("none is running; the last heartbeat of %s was at %s, without a stop: its process is gone, hangs, or cannot write to the database, and events wait",
			heartbeat.ProcessName(last.Instance), last.At.UTC().Format("2006-01-02 15:04:05Z")),
		"start it, if it is gone: outbox relay; the end of its log may contain the reason. If it is running, /readyz shows its problem",
	}
}

// checkCarried checks the live instances of one table.
func checkCarried(c *app.Config, table string, all []heartbeat.Row) Finding {
	check := "instances of the relay of " + table
	var sharing []string
	counts := make(map[int]bool)
	for _, i := range all {
		if i.Sharing != nil {
			sharing = append(sharing, fmt.Sprintf("%s owns %v", heartbeat.ProcessName(i.Instance), i.Sharing.Owned))
			counts[i.Sharing.Shards] = true
		}
	}
	detail, missing := strings.Join(sharing, "; "), heartbeat.MissingShards(all, func(r *heartbeat.Row) *heartbeat.RelayStatus { return &r.RelayStatus })
	switch {
	case len(counts) > 0 && !counts[c.Relay.Shards]:
		return Finding{
			check, false, fmt.Sprintf("they share another number of shards than relay.shards, %d: %s", c.Relay.Shards, detail),
			"set relay.shards to the same number everywhere; outbox relay reshard changes it",
		}
	case len(missing) > 0:
		return Finding{
			check, false, fmt.Sprintf("no instance owns shards %v: %s", missing, detail),
			"wait for relay.session_timeout if an instance has just ended; otherwise /readyz of the instances contains the reason",
		}
	}
	if ill := unready(all); len(ill) > 0 {
		return Finding{
			check, false, strings.TrimPrefix(detail+"; not ready: ", "; ") + strings.Join(ill, "; "),
			"fix the reported problem; /readyz and the log of the instance contain the details, the runbook the steps",
		}
	}
	return Finding{check, true, detail, ""}
}

// unready returns the problems of live instances, each once. A starting instance has none.
func unready(all []heartbeat.Row) (out []string) {
	for i := range all {
		if all[i].State == heartbeat.Starting {
			continue
		}
		for _, p := range all[i].Problems {
			if text := heartbeat.ProcessName(all[i].Instance) + ": " + p; !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}
