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

// Outage is an outage of the broker as a relay reports it, whose circuit breaker is not
// closed, or as an instance that no broker acknowledges: it has stopped its shards, and their
// breakers with them.
type Outage struct {
	Relay, Table, Instance string
	Since                  time.Time // of the first failure
	Cause                  string
	Unreachable            bool // no broker answers; otherwise it answers with errors
}

// Outages returns the outages that the running relays of a keyspace report, by their last
// heartbeats. A relay without a heartbeat for 10 s before now is omitted: its status is unknown.
func Outages(ctx context.Context, session *gocql.Session, keyspace string, now time.Time) ([]Outage, error) {
	var out []Outage
	if err := heartbeats(ctx, session, keyspace, func(key heardRow, at time.Time, text []byte) {
		var status heartbeat
		if json.Unmarshal(text, &status) != nil || status.State == "stopped" || now.Sub(at) > silence {
			return
		}
		o := Outage{Relay: key.relay, Table: key.table, Instance: key.instance}
		switch b, s := status.Breaker, status.Sharing; {
		case s != nil && s.Error != "":
			o.Since, o.Cause, o.Unreachable = s.Since, s.Error, s.Unreachable
		case s == nil && status.State == "running" && b.State != "" && b.State != BreakerClosed.String() && b.Opened != nil:
			o.Since, o.Cause, o.Unreachable = *b.Opened, b.Cause, b.Unreachable
		default:
			return
		}
		out = append(out, o)
	}); err != nil {
		return nil, fmt.Errorf("read the outages that relays report: %w", err)
	}
	return out, nil
}
