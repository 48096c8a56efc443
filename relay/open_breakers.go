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
	var out []OpenBreaker
	if err := heartbeats(ctx, session, keyspace, func(key heardRow, at time.Time, text []byte) {
		var status heartbeat
		if json.Unmarshal(text, &status) != nil || status.State != "running" || now.Sub(at) > silence {
			return
		}
		b := status.Breaker
		if b.State == BreakerClosed.String() || b.State == "" || b.Since == nil {
			return // also a row of Membership, which has no breaker
		}
		out = append(out, OpenBreaker{Relay: key.relay, Table: key.table, Instance: key.instance, Since: *b.Since, Cause: b.Cause})
	}); err != nil {
		return nil, fmt.Errorf("read the breakers of the relays: %w", err)
	}
	return out, nil
}
