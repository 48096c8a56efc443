package doctor

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// relaySilent is the time without a heartbeat after which an instance counts as gone, as in
// GET /v1/relays.
const relaySilent = 5 * relay.DefaultHeartbeat

// readInstances returns the live instances and, apart, instances that ended without reporting a stop
// since an instance of the same relay reported one.
func readInstances(ctx context.Context, session *gocql.Session, keyspace string) (alive, gone []heartbeat.Row, err error) {
	all, err := heartbeat.Read(ctx, session, keyspace)
	if err != nil {
		return nil, nil, err
	}
	all = slices.DeleteFunc(all, func(i heartbeat.Row) bool { return i.Bad != nil })
	ahead, _, err := relay.ClockAhead(ctx, session) // heartbeats have the database's time
	alive, gone = divideInstances(all, time.Now().Add(-ahead))
	return alive, gone, err
}

// divideInstances divides instances as heardOf returns them.
func divideInstances(all []heartbeat.Row, now time.Time) (alive, gone []heartbeat.Row) {
	stops := make(map[string]time.Time) // the last reported stop, by key
	for _, i := range all {
		switch {
		case i.State == heartbeat.Stopped:
			if i.At.After(stops[key(&i)]) {
				stops[key(&i)] = i.At
			}
		case now.Sub(i.At) <= relaySilent:
			alive = append(alive, i)
		default:
			gone = append(gone, i)
		}
	}
	return alive, slices.DeleteFunc(gone, func(i heartbeat.Row) bool { return i.At.Before(stops[key(&i)]) })
}

// key identifies the relay and the table of an instance.
func key(i *heartbeat.Row) string {
	name, _, _ := strings.Cut(i.Relay, "/")
	return name + " " + i.Table
}
