package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gocql/gocql"
)

// silence is the time without a heartbeat after which an instance counts as stopped.
const silence = 5 * DefaultHeartbeat

// OpenBreaker is the circuit breaker of a relay that is open or half-open, or an instance
// that no broker acknowledges: it has stopped its shards, and their breakers with them.
type OpenBreaker struct {
	Relay, Table, Instance string
	Since                  time.Time
	Cause                  string // the failure that opened it
}

// OpenBreakers returns the breakers of the running relays of a keyspace that are not closed,
// by their last heartbeats, and the instances that no broker acknowledges, whose Since is the
// time of the heartbeat. A relay without a heartbeat for 10 s before now is omitted: its status
// is unknown.
func OpenBreakers(ctx context.Context, session *gocql.Session, keyspace string, now time.Time) ([]OpenBreaker, error) {
	var out []OpenBreaker
	if err := heartbeats(ctx, session, keyspace, func(key heardRow, at time.Time, text []byte) {
		var status heartbeat
		if json.Unmarshal(text, &status) != nil || status.State == "stopped" || now.Sub(at) > silence {
			return
		}
		open := OpenBreaker{Relay: key.relay, Table: key.table, Instance: key.instance}
		switch b, s := status.Breaker, status.Sharing; {
		case s != nil && s.Error != "":
			open.Since, open.Cause = at, s.Error
		case s == nil && status.State == "running" && b.State != "" && b.State != BreakerClosed.String() && b.Since != nil:
			open.Since, open.Cause = *b.Since, b.Cause
		default:
			return
		}
		out = append(out, open)
	}); err != nil {
		return nil, fmt.Errorf("read the breakers of the relays: %w", err)
	}
	return out, nil
}
