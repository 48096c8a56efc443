// Package sessions closes sessions of gocql.
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
