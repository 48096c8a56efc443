package admin

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

// Defaults of Config.
const (
	DefaultTimeout      = 5 * time.Second
	DefaultLiveInterval = time.Second
	DefaultMaxListeners = 64
	DefaultDrainTimeout = 10 * time.Second
)

// Config is how a Server behaves.
type Config struct {
	// Session reads and writes the keyspace's tables. Required, as are Keyspace,
	// Letters and Gate.
	Session  *gocql.Session
	Keyspace string
	// Letters is the store of the same keyspace.
	Letters *dlq.Store
	// Deliveries are those of package react. Default: those of the same keyspace, kept
	// as long as by default.
	Deliveries *delivery.Store
	// Gate says who may come in.
	Gate *access.Gate
	// Proxies are those whose word on who asked counts: for wrong tokens, in the audit
	// and in the log. Default: none.
	Proxies access.Proxies
	// Consistency is that of what the API reads and writes itself. Default
	// LOCAL_QUORUM.
	Consistency gocql.Consistency
	// Timeout bounds one statement. Default 5 s.
	Timeout time.Duration

	// Kafka makes a client with further options, with which the topics are read for
	// an event's biography; it is closed afterwards. Without one, biographies say
	// that the topics were not looked at.
	Kafka func(...kgo.Opt) (*kgo.Client, error)
	// Relay is the name of the relay whose topics those are, and Tables its outbox
	// tables, in which an event's row is looked for. Default: outbox_messages in
	// Keyspace.
	Relay  string
	Tables []Table

	// Archive is where jobs purge to, restore from and sweep into. Nil refuses jobs
	// that need one.
	Archive *archive.Keeper

	// Schemas are what edited payloads must fit. Nil has none.
	Schemas *dlq.Schemas
	// Routes are what else is offered here: each is called once with the API to
	// register its operations with. They are let in as the others are: by the role
	// that access.Needs gives an operation, or else a viewer to read and an operator
	// for the rest. Those that change something are audited by their operation id
	// and the path's id.
	Routes []func(huma.API)
	// Console, if there is one, is served below /console/.
	Console http.Handler
	// LiveInterval is how often the database is asked for what changed, as long as
	// anybody listens. Default 1 s.
	LiveInterval time.Duration
	// MaxListeners bounds how many may listen at the same time. Default 64.
	MaxListeners int
	// DrainDelay is how long requests are still taken when the server is to stop and
	// /readyz says so already: as long as a load balancer needs to notice. Default 0:
	// none are taken from then on.
	DrainDelay time.Duration
	// DrainTimeout is how long requests may still run after that. Default 10 s.
	DrainTimeout time.Duration

	// NodesDown returns the nodes of the database that do not answer, for /readyz. Nil
	// returns none.
	NodesDown func() []string

	// Registerer gets the metrics. Default: they are kept nowhere.
	Registerer prometheus.Registerer
	// Logger gets each change that was asked for at Info. Default discards.
	Logger *slog.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Table is an outbox table.
type Table struct {
	Keyspace, Name string
	// Mapping says what its columns hold. The zero value is that of outbox_messages.
	Mapping outbox.Mapping
}

// String is the table's name with its keyspace.
func (t Table) String() string { return t.Keyspace + "." + t.Name }

func (c Config) withDefaults() Config {
	// Zero is ANY, which no read may use.
	c.Consistency = cmp.Or(c.Consistency, gocql.LocalQuorum)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.LiveInterval = cmp.Or(c.LiveInterval, DefaultLiveInterval)
	c.MaxListeners = cmp.Or(c.MaxListeners, DefaultMaxListeners)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if len(c.Tables) == 0 {
		c.Tables = []Table{{Keyspace: c.Keyspace, Name: outbox.DefaultTableName}}
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Session == nil || c.Letters == nil || c.Keyspace == "" {
		errs = append(errs, errors.New("session, keyspace and letters are required"))
	}
	if c.Gate == nil {
		errs = append(errs, errors.New("gate is required; without it the API would be open to everyone"))
	}
	if c.DrainDelay < 0 {
		errs = append(errs, fmt.Errorf("drain delay %s: must not be negative; 0 disables it", c.DrainDelay))
	}
	if c.Timeout < 0 || c.LiveInterval < 0 || c.DrainTimeout < 0 || c.MaxListeners < 0 {
		errs = append(errs, errors.New("timeout, live interval, drain timeout and listeners: must not be negative"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("admin API: %w", err)
	}
	return nil
}
