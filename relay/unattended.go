package relay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// unattendedAfter is the time without a heartbeat after which no instance publishes a table.
const unattendedAfter = time.Minute

// Unattended returns the outbox tables, with their keyspaces, that a relay is to publish and that no
// running instance publishes, of any relay of the keyspace: the given ones, and the tables that the
// relay has begun to publish, whatever its instances are configured with now. It returns none while
// no instance of the relay runs, and omits tables without a CDC log.
func Unattended(ctx context.Context, session *gocql.Session, keyspace, name string, tables []string) ([]string, error) {
	waiting, running := make(map[string]bool), false
	for _, t := range tables {
		waiting[t] = true
	}
	began, err := checkpoint.Begun(ctx, session, keyspace)
	if err != nil {
		return nil, fmt.Errorf("read which tables relay %s has begun to publish: %w", name, err)
	}
	for _, b := range began {
		if b.Relay == name {
			waiting[b.Table] = true
		}
	}
	var clock dbclock.Clock // which dates heartbeats
	if err := clock.Measure(ctx, session); err != nil {
		return nil, err
	}
	now := clock.Now()
	alive, err := heard(ctx, session, keyspace, func(heardRow) bool { return true })
	if err != nil {
		return nil, fmt.Errorf("read the instances of the relays: %w", err)
	}
	for key, at := range alive {
		if now.Sub(at) >= unattendedAfter {
			continue
		}
		if of, _, _ := strings.Cut(key.relay, "/"); of == name {
			running = true
		}
		if !strings.HasSuffix(key.instance, heartbeat.SharesSuffix) { // its shards have rows of their own
			delete(waiting, key.table)
		}
	}
	if !running {
		return nil, nil
	}
	for table := range waiting {
		home, of, _ := strings.Cut(table, ".")
		columns, err := outbox.ReadColumns(ctx, session, home, of+"_scylla_cdc_log")
		if err != nil {
			return nil, err
		}
		if len(columns) == 0 {
			delete(waiting, table)
		}
	}
	return slices.Sorted(maps.Keys(waiting)), nil
}
