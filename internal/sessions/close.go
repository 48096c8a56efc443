// Package sessions ends sessions of gocql.
package sessions

import (
	"time"

	"github.com/gocql/gocql"
)

// Patience is how long Close waits.
const Patience = 5 * time.Second

// Close closes s, or leaves that to a goroutine of its own after Patience: in gocql
// 1.19.0 it waits for ever if a refresh of the ring was asked for at that moment, as
// when a connection is lost in an outage. What would be left are idle goroutines.
// See https://github.com/apache/cassandra-gocql-driver/issues/1752.
func Close(s *gocql.Session) { within(Patience, s.Close) }

// within calls f and waits for it that long; it returns whether f has ended.
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
