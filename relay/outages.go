package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
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
	rows, err := heartbeat.Read(ctx, session, keyspace)
	if err != nil {
		return nil, fmt.Errorf("read the outages that relays report: %w", err)
	}
	var out []Outage
	for i := range rows {
		r := &rows[i]
		if r.Bad != nil || r.State == heartbeat.Stopped || now.Sub(r.At) > silence {
			continue
		}
		o := Outage{Relay: r.Relay, Table: r.Table, Instance: r.Instance}
		switch b, s := r.Breaker, r.Sharing; {
		case s != nil && s.Error != "" && s.Since != nil:
			o.Since, o.Cause, o.Unreachable = *s.Since, s.Error, s.Unreachable
		case s == nil && r.State == heartbeat.Running && b.State != "" && b.State != BreakerClosed.String() && b.Opened != nil:
			o.Since, o.Cause, o.Unreachable = *b.Opened, b.Cause, b.Unreachable
		default:
			continue
		}
		out = append(out, o)
	}
	return out, nil
}
