package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// Others returns the other relays that have begun to publish a table, a name with its keyspace:
// relays with checkpoints in the keyspace, by name, and relays of other keyspaces, as NAME in
// KEYSPACE. It omits other keyspaces that the relay may not read, or whose table is another
// one or gone.
func Others(ctx context.Context, session *gocql.Session, keyspace, relay, table string) (others []string, err error) {
	keyspaces, err := withCheckpoints(ctx, session)
	if err != nil {
		return nil, fmt.Errorf("find the keyspaces with checkpoints: %w", err)
	}
	for _, home := range keyspaces {
		began, err := Begun(ctx, session, home)
		switch code := cqlcode.Of(err); {
		case err == nil:
		case home != keyspace && (code == gocql.ErrCodeUnauthorized || code == gocql.ErrCodeInvalid):
			continue
		default:
			return nil, fmt.Errorf("read the relays with checkpoints of %s in %s: %w", table, home, err)
		}
		for _, b := range began {
			switch {
			case b.Table != table || home == keyspace && b.Relay == relay:
			case home == keyspace:
				others = append(others, b.Relay)
			default:
				others = append(others, b.Relay+" in "+home)
			}
		}
	}
	slices.Sort(others)
	return slices.Compact(others), nil
}

// BegunTable is a table that a relay has begun to publish.
type BegunTable struct{ Relay, Table string }

// Begun returns the tables that relays have begun to publish, by the checkpoints in a keyspace.
// Tables of several shards are returned several times.
func Begun(ctx context.Context, session *gocql.Session, keyspace string) (all []BegunTable, err error) {
	iter := session.Query("SELECT DISTINCT relay, table_name FROM " + keyspace + ".relay_checkpoints").
		WithContext(ctx).Consistency(gocql.LocalQuorum).Idempotent(true).Iter()
	var b BegunTable
	for iter.Scan(&b.Relay, &b.Table) {
		b.Relay, _, _ = strings.Cut(b.Relay, "/") // of a shard
		all = append(all, b)
	}
	return all, iter.Close()
}

// withCheckpoints returns the keyspaces that have a table of checkpoints.
func withCheckpoints(ctx context.Context, session *gocql.Session) (keyspaces []string, err error) {
	iter := session.Query("SELECT keyspace_name, table_name FROM system_schema.tables").WithContext(ctx).Idempotent(true).Iter()
	var keyspace, name string
	for iter.Scan(&keyspace, &name) {
		if name == "relay_checkpoints" {
			keyspaces = append(keyspaces, keyspace)
		}
	}
	return keyspaces, iter.Close()
}
