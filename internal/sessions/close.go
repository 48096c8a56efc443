// Package sessions cuts off silent nodes of the database, prepares statements ahead, and closes sessions of gocql.
//
// Nodes observes all sessions of a process: a node that owes an answer and sends nothing for 250 ms
// is probed on a connection of its own; without an answer for another 250 ms its connections are
// closed. The driver then repeats idempotent statements on the next node; batches and conditional
// writes end with an unknown outcome, which their callers resolve. The last node is never cut off.
package sessions

import (
	"time"

	"github.com/gocql/gocql"
)

// Patience is how long Close waits.
const Patience = 5 * time.Second

// Close closes s, or leaves that to a goroutine of its own after Patience. In gocql
// 1.19.0 it waits forever if a refresh of the ring was requested at that moment, as
// when a connection is lost in an outage. Only idle goroutines remain. See
// https://github.com/apache/cassandra-gocql-driver/issues/1752.
func Close(s *gocql.Session) { within(Patience, s.Close) }

// within calls f, waits for it for up to patience, and returns whether it has ended.
func within(patience time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
