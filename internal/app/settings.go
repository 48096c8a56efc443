package app

import (
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// Section is a group of settings; a command shows the flags of those it uses.
type Section string

const (
	SectionScylla   Section = "scylla"
	SectionKafka    Section = "kafka"
	SectionHTTP     Section = "http"
	SectionMessages Section = "messages"
	SectionWatch    Section = "watch"
	SectionAdmin    Section = "admin"
	SectionRelay    Section = "relay"
	SectionDLQ      Section = "dlq"
	SectionSchema   Section = "schema"
	SectionLog      Section = "log"

	// SectionAdminAPI are the settings of the admin API: those of the section
	// admin that the relay has no use for.
	SectionAdminAPI Section = "admin API"
)

// name is the section's in a file.
func (s Section) name() string {
	if s == SectionAdminAPI {
		return string(SectionAdmin)
	}
	return string(s)
}

// setting is one configuration value. Its key in the file is Section.Name, its
// flag --section-name with dashes, its environment variable
// OUTBOX_SECTION_NAME. Default's type is the value's.
type setting struct {
	Section Section
	Name    string
	Default any
	Usage   string
	// Secret values come from the file or the environment only: a flag would
	// show in the process list.
	Secret bool
}

// Settings is every configuration value there is: flags, environment, the keys
// allowed in a file, and the table in docs/settings.md come from it.
var Settings = slices.Concat(ownSettings, sharingSettings, messageSettings, watchSettings, reactSettings, publishingSettings, upkeepSettings, verifySettings)

var ownSettings = []setting{
	{SectionScylla, "hosts", []string{"127.0.0.1:9042"}, "contact points, host or host:port; the default port is 9042", false},
	{SectionScylla, "keyspace", "outbox", "keyspace of the outbox", false},
	{SectionScylla, "replication", "1", "replication of a new keyspace: a factor for every data centre, or dc1:3,dc2:3", false},
	{SectionScylla, "local_dc", "", "prefer this data centre; required where there are several", false},
	{SectionScylla, "consistency", "LOCAL_QUORUM", "consistency of reads and writes", false},
	{SectionScylla, "timeout", 5 * time.Second, "how long one request may take", false},
	{SectionScylla, "username", "", "user name; empty means no authentication", false},
	{SectionScylla, "password", "", "password", true},
	{SectionScylla, "tls", false, "use TLS", false},
	{SectionScylla, "tls_ca", "", "file with the CA certificates (PEM); empty means the system's", false},
	{SectionScylla, "tls_cert", "", "file with the client certificate (PEM)", false},
	{SectionScylla, "tls_key", "", "file with the client key (PEM)", false},

	{SectionKafka, "seeds", []string{"127.0.0.1:9092"}, "first brokers, host:port", false},
	{SectionKafka, "sasl", "", "SASL mechanism: plain, scram-sha-256 or scram-sha-512; empty means none", false},
	{SectionKafka, "username", "", "SASL user name", false},
	{SectionKafka, "password", "", "SASL password", true},
	{SectionKafka, "tls", false, "use TLS", false},
	{SectionKafka, "tls_ca", "", "file with the CA certificates (PEM); empty means the system's", false},
	{SectionKafka, "tls_cert", "", "file with the client certificate (PEM)", false},
	{SectionKafka, "tls_key", "", "file with the client key (PEM)", false},

	{SectionHTTP, "addr", "127.0.0.1:8080", "address of the order API", false},
	{SectionHTTP, "tls_cert", "", "file with the server certificate (PEM), used anew when it is renewed; with tls_key it turns TLS on", false},
	{SectionHTTP, "tls_key", "", "file with the server key (PEM)", false},
	{SectionHTTP, "tokens", []string{}, "tokens of the API, each NAME:ROLE:sha256:HEX as 'outbox token' prints it; roles are viewer, operator and admin; empty permits everybody, on loopback only", true},
	{SectionHTTP, "token_rate", 1000.0, "requests per second with one token; a burst of twice as many", false},
	{SectionHTTP, "insecure", false, "serve beyond loopback without TLS or without tokens, because something else protects the connection", false},
	{SectionHTTP, "hosts", []string{}, "host names that the API answers to without http.tokens, beside localhost, IP addresses and the host of http.addr; others may be pages that use DNS rebinding", false},
	{SectionHTTP, "trusted_proxies", []string{}, "CIDRs of trusted reverse proxies, such as 10.0.0.0/8, whose forwarded headers are used as the client address: for wrong tokens, and for quotas without tokens; empty trusts none", false},
	{SectionHTTP, "forwarded_header", string(access.XForwardedFor), "header with the client address: x-forwarded-for or forwarded (RFC 7239), the one that the proxies write; the other is ignored", false},
	{SectionHTTP, "hint_addrs", []string{}, "relays that receive a hint for each stored order, host:port by UDP, so that they read it immediately; a name resolves to all its addresses; empty sends none", false},
	{SectionHTTP, "hint_key", "", "key shared with the relays that signs the hints, at least 16 characters", true},
	{SectionHTTP, "drain_delay", time.Second, "how long requests are still accepted after SIGTERM, while /readyz is 503; behind a load balancer as long as it needs to detect this: 10s on Kubernetes, with a terminationGracePeriodSeconds above this plus http.shutdown_timeout", false},
	{SectionHTTP, "shutdown_timeout", orders.DefaultDrainTimeout, "how long requests in progress may take after that", false},

	{SectionAdmin, "addr", AdminAddrs["relay"], "address of the admin listener: /metrics, /healthz and /readyz, without tokens; off disables it; the default port is 9090 for relay and dev, 9091 for orders, 9093 for react, 9094 for dlq watch, 9096 for admin", false},
	{SectionAdmin, "hosts", []string{}, "host names allowed in requests to admin.addr, such as those of Prometheus targets, beside localhost, IP addresses and the host of admin.addr; others may be pages that use DNS rebinding", false},
	{SectionAdmin, "profiles", false, "serve Go's profiles there too, under /debug/pprof/", false},
	{SectionAdminAPI, "api_addr", "127.0.0.1:8090", "address of the admin API and its console", false},
	{SectionAdminAPI, "drain_delay", time.Second, "how long its requests are still accepted after SIGTERM, while /readyz is 503, as http.drain_delay; requests in progress may take 10s after that", false},
	{SectionAdminAPI, "tokens", []string{}, "tokens of the admin API, each NAME:ROLE:sha256:HEX as 'outbox token' prints it; roles are viewer, operator and admin; there must be one, or an issuer", true},
	{SectionAdminAPI, "tls_cert", "", "file with its certificate (PEM), used anew when it is renewed; beyond loopback it is needed", false},
	{SectionAdminAPI, "tls_key", "", "file with its key (PEM)", false},
	{SectionAdminAPI, "insecure", false, "listen beyond loopback without TLS, because something else protects the connection", false},
	{SectionAdminAPI, "trusted_proxies", []string{}, "CIDRs of trusted reverse proxies, such as 10.0.0.0/8, whose forwarded headers are used as the client address: for wrong tokens, and in the audit trail; empty trusts none", false},
	{SectionAdminAPI, "forwarded_header", string(access.XForwardedFor), "header with the client address: x-forwarded-for or forwarded (RFC 7239), the one that the proxies write; the other is ignored", false},
	{SectionAdminAPI, "trace_url", "", "address of a trace, with {trace_id} and {span_id} in it, that the console links events to, such as http://localhost:16686/trace/{trace_id}", false},
	{SectionAdminAPI, "oidc_issuer", "", "URL of an OpenID Connect issuer whose JWTs are accepted as tokens; empty accepts none", false},
	{SectionAdminAPI, "oidc_audience", "", "required audience of those JWTs: the API's client id", false},
	{SectionAdminAPI, "oidc_role_claim", access.DefaultRoleClaim, "claim with the roles; dots lead into objects", false},
	{SectionAdminAPI, "oidc_role_prefix", access.DefaultRolePrefix, "prefix of viewer, operator and admin in that claim", false},

	{SectionRelay, "name", relay.DefaultName, "name of the relay; each name has checkpoints of its own", false},
	{SectionRelay, "table", relay.DefaultTable, "outbox table", false},
	{SectionRelay, "source", relay.DefaultSource, "CloudEvents source (header ce_source)", false},
	{SectionRelay, "topic", relay.DefaultTopicTemplate, "topic of an event; {event_type} and {aggregate_type} are replaced by the event's", false},
	{SectionRelay, "topics", []string{}, "topics by event type, type=topic; others follow relay.topic", false},
	{SectionRelay, "partitions", relay.DefaultPartitions, "partitions of a topic that the relay makes; -1 leaves it to the broker", false},
	{SectionRelay, "topic_replication", relay.DefaultReplication, "replication of a topic that the relay makes; -1 leaves it to the broker", false},
	{SectionRelay, "tail", relay.DefaultTail, "on or off: read the log immediately, beside the sweep reader, so that events are published within milliseconds", false},
	{SectionRelay, "tail_min_interval", relay.DefaultTailMinInterval, "wait between two reads by the tail reader of streams that had rows", false},
	{SectionRelay, "tail_max_interval", relay.DefaultTailMaxInterval, "wait between two reads by the tail reader of streams that had none", false},
	{SectionRelay, "tail_overlap", relay.DefaultTailOverlap, "how far back the tail reader reads for rows that became visible late", false},
	{SectionRelay, "tail_reorder", relay.DefaultTailReorder, "how long the tail reader holds an event of a table without numbers for an earlier one of its aggregate; -1ns holds nothing: only rows that become visible in the order of their times keep it", false},
	{SectionRelay, "tail_max_qps", relay.DefaultTailMaxQueriesPerSecond, "queries of the tail reader per second, at most", false},
	{SectionRelay, "hint_addr", "", "UDP address for writers' hints about stored rows, host:port; empty accepts no hints", false},
	{SectionRelay, "hint_key", "", "key shared with the writers that signs the hints, at least 16 characters", true},
	{SectionRelay, "confidence_window", relay.DefaultConfidenceWindow, "how old a change must be before the sweep reader reads it; less than 2m can lose rows that become visible late on a cluster", false},
	{SectionRelay, "busy_delay", relay.DefaultBusyDelay, "wait between two reads by the sweep reader of streams that had rows", false},
	{SectionRelay, "idle_delay", relay.DefaultIdleDelay, "wait between two reads by the sweep reader of streams that had none", false},
	{SectionRelay, "max_remembered", relay.DefaultMaxRememberedEvents, "published events that the sweep reader has not read yet, some 40 bytes of memory each; at the limit the tail reader waits; 1.25 × events per second × confidence window in seconds", false},
	{SectionRelay, "read_back_margin", relay.DefaultReadBackMargin, "how much the clocks of writers, relays and brokers may differ: at its start the relay reads its topics back that much further than the oldest checkpoint, so that a crash repeats nothing; -1ns does not read back", false},
	{SectionRelay, "read_back_quiet", relay.DefaultReadBackQuiet, "how long nothing may have come to the topics before they count as read back", false},
	{SectionRelay, "backfill", relay.DefaultBackfill, "auto or off: scan the outbox table for events that the CDC log may not have any more, because the relay was away for longer than the log keeps its rows or starts for the first time", false},
	{SectionRelay, "backfill_rows_per_second", relay.DefaultBackfillRowsPerSecond, "rows that such a scan reads per second, at most; -1 does not bound it", false},
	{SectionRelay, "max_in_flight", relay.DefaultMaxInFlightRecords, "events read and not yet acknowledged, at most", false},
	{SectionRelay, "max_in_flight_bytes", relay.DefaultMaxInFlightBytes, "their bytes, at most", false},
	{SectionRelay, "max_record_bytes", relay.DefaultMaxRecordBytes, "size of a record and of a batch, at most; a topic's max.message.bytes bounds it further", false},
	{SectionRelay, "drain_timeout", relay.DefaultDrainTimeout, "how long acknowledgements may take after SIGTERM", false},

	{SectionDLQ, "schemas", "", "directory of JSON Schemas, <event type>.json, that the payloads of edited dead letters must fit; empty has none", false},

	{SectionSchema, "row_ttl", schema.DefaultRowTTL, "how long outbox rows live; must outlive the longest outage of the relay", false},
	{SectionSchema, "cdc_ttl", schema.DefaultCDCTTL, "how long the CDC log lives", false},
	{SectionSchema, "tablets", "auto", "auto, vnodes or tablets", false},

	{SectionLog, "level", "info", "debug, info, warn or error", false},
	{SectionLog, "format", "text", "text or json", false},
}

// Key is the setting's key in a file.
func (s setting) Key() string { return s.Section.name() + "." + s.Name }
