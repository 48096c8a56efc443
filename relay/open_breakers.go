package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gocql/gocql"
)

// OpenBreaker is the circuit breaker of a relay that is open or half-open.
type OpenBreaker struct {
	Relay, Table, Instance string
	Since                  time.Time
	Cause                  string // the failure that opened it
}

// OpenBreakers returns the breakers of the running relays of a keyspace that are not closed,
// by their last heartbeats. A relay without a heartbeat for 10 s before now is omitted: its
// status is unknown.
func OpenBreakers(ctx context.Context, session *gocql.Session, keyspace string, now time.Time) ([]OpenBreaker, error) {
	iter := session.Query("SELECT relay, table_name, instance, at, status FROM " + keyspace + ".relay_instances WHERE scope = 'keyspace'").
		WithContext(ctx).Idempotent(true).Iter()
	var out []OpenBreaker
	var b OpenBreaker
	var at time.Time
	var text string
	for iter.Scan(&b.Relay, &b.Table, &b.Instance, &at, &text) {
		var status heartbeat
		if json.Unmarshal([]byte(text), &status) != nil || status.State != "running" || now.Sub(at) > silence {
			continue
		}
		if s := status.Breaker.State; s == BreakerClosed.String() || s == "" || status.Breaker.Since == nil {
			continue // also a row of Membership, which has no breaker
		}
		b.Since, b.Cause = *status.Breaker.Since, status.Breaker.Cause
		out = append(out, b)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the breakers of the relays: %w", err)
	}
	return out, nil
}
