package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/share"
)

// relayStopMargin is how much longer than DrainTimeout a relay may take to end: it
// saves its checkpoints, and says that it stopped.
const relayStopMargin = 15 * time.Second

// checkShards returns an error if the number of shards is out of bounds.
func (r *RelayConfig) checkShards() error {
	if r.Shards < 1 || r.Shards > share.MaxShards {
		return fmt.Errorf("relay.shards: %d is not allowed; set it to 1 for one active instance and standbys, or to a larger number, at most %d, for instances that share the work",
			r.Shards, share.MaxShards)
	}
	return nil
}

// rebalanceTimeout is how long an instance may take to give up shards: at least half of
// SessionTimeout, because a lease is no longer than it. That is also long enough to drain
// them, because the broker gives them to another one afterwards.
func (r *RelayConfig) rebalanceTimeout() time.Duration {
	return max(share.DefaultRebalanceTimeout, r.SessionTimeout/2)
}

// Sharing runs the relays of one process: for each shard that the process owns, the relays
// of all tables.
type Sharing struct {
	c       *Config
	confs   []relay.Config // of the tables, whole
	session *gocql.Session
	reg     prometheus.Registerer
	log     *slog.Logger
	hints   *hintFan // nil without hints
	Member  *share.Member
	rows    relay.Membership
	agreed  relay.Agreement
	tables  []relay.Process // the parts that the shards of each table share

	mu         sync.Mutex
	running    map[int]*Relays // by shard
	unattended []string        // tables that no instance publishes
}

// NewSharing returns the relays; Run starts them. reg receives the metrics of the relays
// too, as long as they run. hints may be nil.
func NewSharing(c *Config, confs []relay.Config, session *gocql.Session, log *slog.Logger, reg prometheus.Registerer, hints net.PacketConn) (*Sharing, error) {
	s := &Sharing{c: c, confs: confs, session: session, reg: reg, log: log, running: make(map[int]*Relays), tables: make([]relay.Process, len(confs))}
	s.rows = relay.Membership{Session: session, Keyspace: confs[0].Keyspace, Name: c.Relay.Name, Version: cli.Version, Status: s.status}
	s.agreed = relay.Agreement{Session: session, Keyspace: confs[0].Keyspace, Name: c.Relay.Name}
	for i := range confs {
		s.rows.Tables = append(s.rows.Tables, TableName(&confs[i]))
		// An invalid configuration is reported before a shard is owned.
		conf := confs[i]
		conf.Session, conf.Shard = session, relay.Shard{Count: c.Relay.Shards}
		if _, err := relay.New(conf); err != nil {
			return nil, cli.Usage(fmt.Errorf("table %s: %w", TableName(&conf), InSettings(err)))
		}
	}
	if hints != nil {
		s.hints = newHintFan(hints)
	}
	var err error
	s.Member, err = share.New(share.Config{
		Brokers: c.Kafka.Seeds, Kafka: append([]kgo.Opt(nil), confs[0].Kafka...),
		Name: GroupName(c.Relay.Name), Shards: c.Relay.Shards, Replication: c.Relay.Replication,
		SessionTimeout: c.Relay.SessionTimeout, RebalanceTimeout: c.Relay.rebalanceTimeout(), StopTimeout: relay.Defaults().DrainTimeout + relayStopMargin,
		Fatal: func(err error) bool {
			var usage cli.UsageError
			return errors.As(err, &usage) || failure.Classify(err) == failure.Fatal
		},
		Logger: log, Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"relay": c.Relay.Name}, reg),
	})
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("relay.name, relay.shards, relay.topic_replication: %w", err))
	}
	s.registerUnattended(prometheus.WrapRegistererWith(prometheus.Labels{"relay": c.Relay.Name}, reg))
	return s, nil
}

// Run works on the shards that the group assigns until ctx ends.
func (s *Sharing) Run(ctx context.Context) error {
	beats, stop := context.WithCancel(context.WithoutCancel(ctx))
	var beating sync.WaitGroup
	beating.Go(func() { s.rows.Beat(beats) })
	beating.Go(func() { s.watchTables(beats) })
	defer beating.Wait()
	defer stop()
	if err := s.agree(ctx, s.agreed.Shards); err != nil { // before a control topic is created
		return IgnoreStop(ctx, err)
	}
	var database string
	if err := s.untilKnown(ctx, "cannot read the identity of the keyspace", func() (err error) {
		database, err = s.agreed.Database(ctx)
		return err
	}); err != nil {
		return IgnoreStop(ctx, err)
	}
	var count *share.CountError
	err := s.Member.Run(ctx, database, s.Carry)
	if !errors.As(err, &count) {
		return err
	}
	if agreed, askErr := s.agreed.Shards(ctx); askErr == nil && agreed == count.Shards {
		return cli.Usage(cli.WithHint(fmt.Errorf("relay.shards is %d, to which a change of relay %s from %d shards was begun and not finished: %w", count.Shards, s.c.Relay.Name, count.Partitions, err),
			"finish it: outbox relay reshard --shards %d; or go back: outbox relay reshard --shards %d", count.Shards, count.Partitions))
	}
	return s.refusal(count.Partitions, err)
}

// untilKnown calls ask until it succeeds, however long the database is away. It returns
// the error of ask only if retries cannot resolve it.
func (s *Sharing) untilKnown(ctx context.Context, failed string, ask func() error) error {
	for said := false; ; said = true {
		err := ask()
		switch {
		case err == nil || ctx.Err() == nil && failure.Classify(err) == failure.Fatal:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !said:
			s.log.Warn(failed+"; retrying", "relay", s.c.Relay.Name, "err", err)
		}
		if retry.Wait(ctx, relay.DefaultHeartbeat) != nil {
			return context.Cause(ctx)
		}
	}
}

// agree returns an error if another number of shards than the configured one was
// agreed on.
func (s *Sharing) agree(ctx context.Context, ask func(context.Context) (int, error)) error {
	var n int
	err := s.untilKnown(ctx, "cannot read the number of shards", func() (err error) {
		n, err = ask(ctx)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return cli.WithHint(err, "outbox schema migrate creates the table relay_sharing, on which the relay's user needs SELECT and MODIFY")
	case n != 0 && n != s.c.Relay.Shards:
		return s.refusal(n, nil)
	}
	return nil
}

// refusal says that the relay is divided into another number of shards.
func (s *Sharing) refusal(n int, why error) error {
	err := fmt.Errorf("relay.shards is %d, and relay %s is divided into %d shards", s.c.Relay.Shards, s.c.Relay.Name, n)
	if why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return cli.Usage(cli.WithHint(err, "set relay.shards to %d; or, to divide it anew, stop all instances and run: outbox relay reshard --shards %d", n, s.c.Relay.Shards))
}

// Carry carries a shard of all tables.
func (s *Sharing) Carry(ctx context.Context, h *share.Hold) error {
	// Not before the group has this instance: whoever changes the number looks there
	// when he has written the new one.
	if err := s.agree(ctx, func(ctx context.Context) (int, error) { return s.agreed.AgreeOn(ctx, s.c.Relay.Shards) }); err != nil {
		return err
	}
	confs := slices.Clone(s.confs)
	for i := range confs {
		confs[i].Shard = relay.Shard{Index: h.Shard(), Count: s.c.Relay.Shards}
		confs[i].Fence, confs[i].Process = h, &s.tables[i]
		if s.hints != nil {
			b := s.hints.branch()
			defer s.hints.drop(b)
			confs[i].Hints = b
		}
	}
	all, err := NewRelays(s.c, confs, s.session, s.log, s.reg)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.running[h.Shard()] = all
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, h.Shard())
	}()
	return all.Run(ctx)
}

// committed announces a stored event to the relays of a table, by its index.
func (s *Sharing) committed(table int, aggregate outbox.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.running {
		r.all[table].Committed(aggregate)
	}
}

// tailLag returns the greatest lag of the tail readers of a table in this process, false if it is
// unknown: the process may own no shard.
func (s *Sharing) tailLag(table int) (lag time.Duration, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.running {
		if one, ok := r.all[table].TailLag(); ok {
			lag, known = max(lag, one), true
		}
	}
	return lag, known
}

// Reading says that all shards are carried here, and that each tail has read once.
func (s *Sharing) Reading() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, all := range s.running {
		if !all.Reading() {
			return false
		}
	}
	return len(s.running) == s.c.Relay.Shards
}

// backfill returns the sum of the scans of the outbox tables.
func (s *Sharing) backfill() (sum relay.BackfillStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, all := range s.running {
		for _, one := range all.all {
			b := one.Status().Backfill
			sum.Running = sum.Running || b.Running
			sum.Done, sum.Ranges = sum.Done+b.Done, sum.Ranges+b.Ranges
			sum.Rows, sum.Published = sum.Rows+b.Rows, sum.Published+b.Published
		}
	}
	return sum
}

// status is what other instances are told.
func (s *Sharing) status() (heartbeat.RelaySharing, []string) {
	st := s.Member.Status()
	var begin []string // shards whose relays have not begun
	s.mu.Lock()
	for _, shard := range st.Owned {
		if s.running[shard] == nil {
			begin = append(begin, strconv.Itoa(shard))
		}
	}
	s.mu.Unlock()
	var problems []string
	switch {
	case !st.Joined && st.Err != nil:
		problems = append(problems, fmt.Sprintf("no heartbeat is acknowledged by the broker, so it owns no shard: %v", st.Err))
	case !st.Joined:
		problems = append(problems, "joining the group of instances")
	}
	if len(begin) > 0 {
		problems = append(problems, "owned and not started yet: shard "+strings.Join(begin, ", "))
	}
	sharing := heartbeat.RelaySharing{Shards: st.Shards, Owned: st.Owned, Joined: st.Joined}
	if !st.Joined && st.Err != nil {
		since := st.ErrSince.UTC()
		sharing.Error, sharing.Since, sharing.Unreachable = st.Err.Error(), &since, failure.IsUnreachable(st.Err)
	}
	return sharing, problems
}

// Readiness shows what this instance owns, and the status of its relays, on /readyz.
// An instance that is in the group and owns nothing stands by, and is ready.
func (s *Sharing) Readiness() httpapi.Readiness {
	return func() (bool, any) {
		sharing, problems := s.status()
		detail := struct {
			Ready    bool     `json:"ready"`
			Problems []string `json:"problems"`
			Shards   int      `json:"shards"`
			Owned    []int    `json:"owned_shards"`
			StandBy  bool     `json:"stands_by"`
			Lease    float64  `json:"lease_seconds"`
			// Unattended are tables that no instance publishes, which is no reason to restart this one.
			Unattended []string       `json:"unattended_tables,omitempty"`
			Relays     map[string]any `json:"relays"`
		}{
			len(problems) == 0, append([]string{}, problems...), sharing.Shards, sharing.Owned, sharing.Joined && len(sharing.Owned) == 0,
			s.Member.Status().Lease.Seconds(), nil, make(map[string]any),
		}
		s.mu.Lock()
		detail.Unattended = s.unattended
		running := maps.Clone(s.running)
		s.mu.Unlock()
		for shard, all := range running {
			ready, d := all.Readiness()()
			detail.Ready = detail.Ready && ready
			detail.Relays[relay.Shard{Index: shard, Count: sharing.Shards}.String()] = d
		}
		return detail.Ready, detail
	}
}
