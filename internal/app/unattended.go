package app

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// lookForTables is how often an instance looks for tables that no instance publishes.
const lookForTables = time.Minute

// watchTables looks for tables that no instance publishes, until ctx ends. Each instance does: the
// instances that list a table may own no shard.
func (s *Sharing) watchTables(ctx context.Context) {
	for retry.Wait(ctx, lookForTables) == nil {
		s.lookForTables(ctx)
	}
}

// lookForTables looks once, and logs the changes. While the broker does not answer, nobody owns a
// shard, so that no instance publishes any table: its outage is the cause, and is reported as such.
func (s *Sharing) lookForTables(ctx context.Context) {
	if sharing, _ := s.status(); sharing.Error != "" {
		return
	}
	found, err := relay.Unattended(ctx, s.session, s.agreed.Keyspace, s.c.Relay.Name, s.rows.Tables)
	if err != nil {
		s.log.Debug("cannot look for tables that no instance publishes", "err", err)
		return
	}
	s.mu.Lock()
	before := s.unattended
	s.unattended = found
	s.mu.Unlock()
	switch {
	case slices.Equal(found, before):
	case len(found) == 0:
		s.log.Info("every table of the relay is published again", "relay", s.c.Relay.Name)
	default:
		s.log.Warn("no instance publishes tables of the relay; their events wait", "relay", s.c.Relay.Name, "tables", found, "fix", UnattendedFix)
	}
}

// UnattendedFix is the operator's next step for tables that no instance publishes.
const UnattendedFix = "list them in relay.tables of every instance; turn CDC off for those that are not to be published"

const unattendedHelp = "Tables that the relay has begun to publish, or that this instance lists, and that no running instance publishes."

// registerUnattended registers the number of tables that no instance publishes.
func (s *Sharing) registerUnattended(reg prometheus.Registerer) {
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "outbox_relay_tables_unattended", Help: unattendedHelp,
	}, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(len(s.unattended))
	}))
}
