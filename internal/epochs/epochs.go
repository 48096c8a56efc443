// Package epochs stores since when the numbers of aggregates may have begun again.
//
// A service whose database is restored from a backup gives numbers again that are in the topics
// already. An operator then begins an epoch of its outbox table: the relay marks the events of the
// epoch, and consumers compare epochs before numbers.
//
// What it relies on, and what follows where that fails:
//
//   - An epoch begins while no writer of the table runs: the rows that were restored are written
//     before it, and every number that is given again is written in it. The write time is the only
//     property that tells the two apart in every table; the time of an event is what its service
//     sets it to.
//   - A row that is written again in an epoch, as a decided event is by Appender, is of that epoch.
//     The relay publishes an event once, so its record has one epoch, unless the topic has lost it.
//   - Epochs are named by the Unix times at which they begin, not counted: a restore may undo the
//     row of an epoch, and a name that was given again would hide that events are later.
package epochs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
)

// Epochs are the epochs of an outbox table, oldest first, as the Unix times of their begins in
// seconds.
type Epochs []int64

// Of returns the epoch of a row that was written at a time in microseconds, 0 before the first one.
func (e Epochs) Of(written int64) int64 {
	for _, epoch := range slices.Backward(e) {
		if written >= time.Unix(epoch, 0).UnixMicro() {
			return epoch
		}
	}
	return 0
}

// Current returns the latest epoch, 0 without any.
func (e Epochs) Current() int64 {
	if len(e) == 0 {
		return 0
	}
	return e[len(e)-1]
}

// Read returns the epochs of a table. keyspace is that of the relay, table the name with its
// keyspace.
func Read(ctx context.Context, session *gocql.Session, keyspace, table string) (Epochs, error) {
	iter := session.Query("SELECT epoch FROM "+keyspace+".relay_epochs WHERE table_name = ?", table).
		WithContext(ctx).Consistency(gocql.LocalQuorum).Idempotent(true).Iter()
	var all Epochs
	for n := int64(0); iter.Scan(&n); {
		all = append(all, n)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the epochs of %s: %w", table, err)
	}
	return all, nil
}

// Begin begins an epoch of a table. It can be repeated. The relays of all data centers read it
// once it returns nil; after an error the outcome is unknown.
func Begin(ctx context.Context, session *gocql.Session, keyspace, table string, epoch int64, by, reason string) error {
	err := session.Query("INSERT INTO "+keyspace+".relay_epochs (table_name, epoch, set_at, set_by, reason) VALUES (?, ?, toTimestamp(now()), ?, ?)", table, epoch, by, reason).
		WithContext(ctx).Consistency(gocql.EachQuorum).Idempotent(true).DefaultTimestamp(false).Exec()
	if err != nil {
		return fmt.Errorf("begin epoch %d of %s: %w", epoch, table, err)
	}
	return nil
}
