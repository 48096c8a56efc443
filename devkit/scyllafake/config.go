package scyllafake

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
)

// Defaults of Config.
const (
	DefaultShards  = 1
	DefaultTokens  = 256
	DefaultVersion = "2026.1"
)

// releases are the values of Config.Version: the behavior of the node in them was compared with real nodes.
var releases = []string{"5.1", "2025.4", "2026.1"}

// Config configures a Server. The zero value is a node in memory that listens on the
// in-memory listener only (see Server.Dial).
type Config struct {
	// Dir is the data directory; empty keeps everything in memory.
	Dir string
	// Addr is the TCP address to listen on, such as "127.0.0.1:9042"; port 0
	// picks a free one. Empty means no TCP.
	Addr string
	// ShardAwarePort is the second port, on which the client's source port chooses the
	// shard. 0 means none; -1 picks a free one. Without Addr the node advertises port
	// 19042, which Server.DialContext knows.
	ShardAwarePort int
	// Shards is the number of shards that the node reports. Default 1.
	Shards int
	// Tokens is the number of tokens (vnodes) of the node. Default 256.
	Tokens int
	// Nodes is the number of nodes as which the server presents itself, at consecutive
	// addresses of loopback and with the same port: see Server.Freeze and Server.Kill.
	// More than one needs data in memory and no shard-aware port. Default 1.
	Nodes int
	// Identity is the identity of a new node: its host id, tokens and first CDC
	// generation. Nil means a random one with Tokens tokens.
	Identity *topology.Identity
	// Version is the emulated ScyllaDB release: "5.1" (vnodes only), "2025.4" or
	// "2026.1" (tablets, CDC on tablets). Default DefaultVersion.
	Version string
	// Vnodes creates new keyspaces with vnodes unless they ask for tablets, as with
	// tablets_mode_for_new_keyspaces: disabled. Otherwise those with
	// NetworkTopologyStrategy have tablets, if Version has them.
	Vnodes bool
	// TabletInterval is how often the sizes of tables are looked at: that long after a
	// change of the schema or of the cluster, tables with CDC split or merge. Default one
	// minute, as ScyllaDB's.
	TabletInterval time.Duration
	// RingDelay is how long a node waits for gossip to settle: a new CDC generation
	// starts twice this and 5 s after it was made; without a delay it starts
	// immediately. Default 0. A real node's is 30 s.
	RingDelay time.Duration
	// Users contains names and passwords for the password authenticator. Without users
	// the server requires no authentication.
	Users map[string]string
	// Permit decides each access of the statements of a user, as the permissions of a role do.
	// Nil permits everything. It must be safe for concurrent use.
	Permit func(Access) bool
	// Failed is called once when the disk refused a write, for example because it is
	// full: the node closes all its connections and accepts no more. Nil disables the
	// call.
	Failed func(error)
	// Now is the node's clock. Nil means time.Now.
	Now func() time.Time
	// Logger receives messages for an operator. Nil discards them.
	Logger *slog.Logger
	// Seed seeds the random choices that clients can observe: a new node's tokens, the
	// order of a CDC log's rows of one microsecond, and the faults (see Server.Faults).
	// Default 1, the same in every run.
	Seed uint64
	// Hook decides the fate of operations that the server's own faults let pass. Nil
	// disables it.
	Hook engine.Hook
	// Costs counts the cost of paged reads of named partitions on a real node; reads
	// are slower with it. Nil counts nothing.
	Costs *engine.ReadCosts
	// NodeCosts makes requests take the time of a real node with Shards shards, such as
	// engine.MeasuredCosts: see engine.NodeTimes and Server.Busy. Nil takes no time beside
	// the server's own.
	NodeCosts *engine.NodeCosts

	fs vfs.FS // of Dir; nil is the operating system's
}

// withDefaults returns a copy with defaults, or an error with all problems.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	if c.Shards == 0 {
		c.Shards = DefaultShards
	}
	if c.Tokens == 0 {
		c.Tokens = DefaultTokens
	}
	if c.Version == "" {
		c.Version = DefaultVersion
	}
	if v, err := catalog.ParseVersion(c.Version); err != nil {
		errs = append(errs, fmt.Errorf("version: %w", err))
	} else if !slices.Contains(releases, v.String()) {
		errs = append(errs, fmt.Errorf("version: %q is not emulated: use one of %s", c.Version, strings.Join(releases, ", ")))
	}
	if c.Nodes < 0 || c.Nodes > 200 || c.Nodes > 1 && (c.Dir != "" || c.ShardAwarePort != 0) {
		errs = append(errs, fmt.Errorf("nodes: %d must be 1 to 200; more than one needs data in memory and no shard-aware port", c.Nodes))
	}
	if c.TabletInterval == 0 {
		c.TabletInterval = time.Minute
	}
	if c.TabletInterval < 0 {
		errs = append(errs, errors.New("tablet interval: must not be negative"))
	}
	if c.RingDelay < 0 {
		errs = append(errs, errors.New("ring delay: must not be negative"))
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Seed == 0 {
		c.Seed = 1
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(errs...)
}
