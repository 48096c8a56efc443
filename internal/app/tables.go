package app

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// tablesKey is the key of the list of tables, which has no flag and no environment variable.
const tablesKey = "relay.tables"

// tableConfig is one of several outbox tables.
type tableConfig struct {
	Keyspace      string            `setting:"keyspace"`
	Table         string            `setting:"table"`
	Preset        string            `setting:"preset"`
	Columns       map[string]string `setting:"columns"`
	AggregateType string            `setting:"aggregate_type"`
	EventType     string            `setting:"event_type"`
	Unordered     bool              `setting:"unordered"`
	RecordHeaders map[string]string `setting:"record_headers"`
	Topic         string            `setting:"topic"`
	Topics        map[string]string `setting:"topics"`
	Source        string            `setting:"source"`
}

// mapping returns the mapping of the table's columns.
func (t *tableConfig) mapping() outbox.Mapping {
	return outbox.Mapping{
		Preset: t.Preset, Columns: t.Columns, AggregateType: t.AggregateType, Type: t.EventType, Unordered: t.Unordered,
		RecordHeaders: t.RecordHeaders,
	}
}

// tailIntervals returns the shortest wait between two reads of the tail reader and the wait
// after a read for hints, by relay.tail_max_interval. Up to its default it bounds the
// former alone, and hints are read at once. Above it both grow with it, so that the setting
// chooses between latency and the database's time under load, too.
func tailIntervals(defaults *relay.Settings, longest time.Duration) (least, hinted time.Duration) {
	if longest <= defaults.TailMaxInterval {
		return min(defaults.TailMinInterval, longest), defaults.TailHintInterval
	}
	least = longest / 100 * 3 // as the defaults
	return least, max(defaults.TailHintInterval, least-defaults.TailMinInterval)
}

// RelayConfig returns the relay's configuration without session, logger and registry.
func (c *Config) RelayConfig() (relay.Config, error) {
	opts, err := c.Kafka.Options()
	if err != nil {
		return relay.Config{}, err
	}
	conf := relay.Config{
		Settings: c.Relay.Settings, Brokers: c.Kafka.Seeds, Kafka: opts, Keyspace: c.Scylla.Keyspace, HintKey: []byte(c.Hints.Key), Tracer: c.Tracer,
	}
	defaults := relay.Defaults()
	if c.Relay.TailMaxInterval < 0 {
		conf.Tail, conf.TailMaxInterval = relay.TailOff, defaults.TailMaxInterval
	}
	conf.TailMinInterval, conf.TailHintInterval = tailIntervals(&defaults, conf.TailMaxInterval)
	if !c.Relay.WriteDeadLetters {
		conf.DeadLetters = relay.DeadLettersOff
	}
	if c.Relay.SpillLimit < 0 {
		conf.WhenOpen = relay.WhenOpenHold
	}
	// With a short confidence window, as in tests, the sweep reader must poll more often.
	const least = 100 * time.Millisecond
	conf.BusyDelay = min(defaults.BusyDelay, max(least, conf.ConfidenceWindow/120))
	conf.IdleDelay = min(defaults.IdleDelay, max(least, conf.ConfidenceWindow/24))
	return conf, nil
}

// RelayConfigs returns the configurations of the relays, one per table, without session,
// logger, registry and hints.
func (c *Config) RelayConfigs() ([]relay.Config, error) {
	base, err := c.RelayConfig()
	base.TableKeyspace = base.Keyspace
	if base.Keyspace == dlq.ReservedKeyspace {
		return nil, cli.Usage(fmt.Errorf("scylla.keyspace: %q is reserved for the dead letters of subscriptions: use another name", base.Keyspace))
	}
	if err != nil || len(c.Relay.Tables) == 0 {
		return []relay.Config{base}, err
	}
	out := make([]relay.Config, len(c.Relay.Tables))
	seen, sources := make(map[string]bool), make(map[string]string)
	for i := range c.Relay.Tables {
		t := &c.Relay.Tables[i]
		conf := base
		conf.TableKeyspace, conf.Table = cmp.Or(t.Keyspace, base.Keyspace), cmp.Or(t.Table, base.Table)
		name := TableName(&conf)
		if conf.TableKeyspace == dlq.ReservedKeyspace {
			return nil, cli.Usage(fmt.Errorf("%s: keyspace %q is reserved for the dead letters of subscriptions: use another name", tablesKey, conf.TableKeyspace))
		}
		if seen[name] {
			return nil, cli.Usage(fmt.Errorf("%s: %s is listed twice: list it once", tablesKey, name))
		}
		seen[name] = true
		conf.Mapping = t.mapping()
		conf.AwaitTable = len(c.Relay.Tables) > 1
		// Read-back distinguishes the records of tables by their source.
		if conf.Source = t.Source; conf.Source == "" {
			conf.Source = base.Source
			if name != base.Keyspace+"."+base.Table {
				conf.Source += "/" + name
			}
		}
		if other := sources[conf.Source]; other != "" {
			return nil, cli.Usage(fmt.Errorf("%s: %s and %s have the same source %q, so events of one with an id of the other would count as published: leave source out, or give each its own",
				tablesKey, other, name, conf.Source))
		}
		sources[conf.Source] = name
		if t.Topic != "" || t.Preset == outbox.PresetDebezium {
			conf.TopicTemplate, conf.Topics = t.Topic, nil
		}
		if len(t.Topics) > 0 {
			conf.Topics = maps.Clone(t.Topics)
		}
		out[i] = conf
	}
	return out, nil
}

// TableName returns the name of the table with its keyspace.
func TableName(c *relay.Config) string { return cmp.Or(c.TableKeyspace, c.Keyspace) + "." + c.Table }

// tableNames returns the tables of the relays.
func tableNames(confs []relay.Config) []string {
	out := make([]string, len(confs))
	for i := range confs {
		out[i] = TableName(&confs[i])
	}
	return out
}

// AddOrders adds the table of the order service to the tables, unless they contain it.
func (c *RelayConfig) AddOrders(keyspace string) {
	orders := tableConfig{Keyspace: keyspace, Table: outbox.DefaultTableName}
	if len(c.Tables) == 0 && c.Table == orders.Table {
		return
	}
	if len(c.Tables) == 0 {
		c.Tables = []tableConfig{{Keyspace: keyspace, Table: c.Table}}
	}
	if !slices.ContainsFunc(c.Tables, func(t tableConfig) bool {
		return cmp.Or(t.Keyspace, keyspace) == orders.Keyspace && cmp.Or(t.Table, c.Table) == orders.Table
	}) {
		c.Tables = append(c.Tables, orders)
	}
}

// Only returns the configuration of the table that relay.table names, in scylla.keyspace or with
// a keyspace of its own.
func (c *Config) Only() (relay.Config, error) {
	all, err := c.RelayConfigs()
	if err != nil {
		return relay.Config{}, err
	}
	if len(c.Relay.Tables) == 0 {
		return all[0], nil
	}
	name := c.Relay.Table
	if !strings.Contains(name, ".") {
		name = c.Scylla.Keyspace + "." + name
	}
	i := slices.IndexFunc(all, func(r relay.Config) bool { return TableName(&r) == name })
	if i < 0 {
		return relay.Config{}, cli.Usage(fmt.Errorf("%s is not in %s: name one of its tables with --relay-table KEYSPACE.TABLE", name, tablesKey))
	}
	return all[i], nil
}
