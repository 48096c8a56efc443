package main

import (
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// section is a group of settings; a command shows the flags of those it uses.
type section string

const (
	sectionScylla   section = "scylla"
	sectionKafka    section = "kafka"
	sectionHTTP     section = "http"
	sectionMessages section = "messages"
	sectionWatch    section = "watch"
	sectionAdmin    section = "admin"
	sectionRelay    section = "relay"
	sectionDLQ      section = "dlq"
	sectionSchema   section = "schema"
	sectionLog      section = "log"

	// sectionAdminAPI are the settings of the admin API: those of the section
	// admin that the relay has no use for.
	sectionAdminAPI section = "admin API"
)

// name is the section's in a file.
func (s section) name() string {
	if s == sectionAdminAPI {
		return string(sectionAdmin)
	}
	return string(s)
}

// setting is one configuration value. Its key in the file is Section.Name, its
// flag --section-name with dashes, its environment variable
// OUTBOX_SECTION_NAME. Default's type is the value's.
type setting struct {
	Section section
	Name    string
	Default any
	Usage   string
	// Secret values come from the file or the environment only: a flag would
	// show in the process list.
	Secret bool
}

// settings is every configuration value there is: flags, environment, the keys
// allowed in a file, and the table in docs/settings.md come from it.
var settings = slices.Concat(ownSettings, sharingSettings, messageSettings, watchSettings, reactSettings, publishingSettings, upkeepSettings, verifySettings)

var ownSettings = []setting{
	{sectionScylla, "hosts", []string{"127.0.0.1:9042"}, "contact points, host or host:port; the default port is 9042", false},
	{sectionScylla, "keyspace", "outbox", "keyspace of the outbox", false},
	{sectionScylla, "replication", "1", "replication of a new keyspace: a factor for every data centre, or dc1:3,dc2:3", false},
	{sectionScylla, "local_dc", "", "prefer this data centre; required where there are several", false},
	{sectionScylla, "consistency", "LOCAL_QUORUM", "consistency of reads and writes", false},
	{sectionScylla, "timeout", 5 * time.Second, "how long one request may take", false},
	{sectionScylla, "username", "", "user name; empty means no authentication", false},
	{sectionScylla, "password", "", "password", true},
	{sectionScylla, "tls", false, "use TLS", false},
	{sectionScylla, "tls_ca", "", "file with the CA certificates (PEM); empty means the system's", false},
	{sectionScylla, "tls_cert", "", "file with the client certificate (PEM)", false},
	{sectionScylla, "tls_key", "", "file with the client key (PEM)", false},

	{sectionKafka, "seeds", []string{"127.0.0.1:9092"}, "first brokers, host:port", false},
	{sectionKafka, "sasl", "", "SASL mechanism: plain, scram-sha-256 or scram-sha-512; empty means none", false},
	{sectionKafka, "username", "", "SASL user name", false},
	{sectionKafka, "password", "", "SASL password", true},
	{sectionKafka, "tls", false, "use TLS", false},
	{sectionKafka, "tls_ca", "", "file with the CA certificates (PEM); empty means the system's", false},
	{sectionKafka, "tls_cert", "", "file with the client certificate (PEM)", false},
	{sectionKafka, "tls_key", "", "file with the client key (PEM)", false},

	{sectionHTTP, "addr", "127.0.0.1:8080", "address of the order API", false},
	{sectionHTTP, "tls_cert", "", "file with the server certificate (PEM), used anew when it is renewed; with tls_key it turns TLS on", false},
	{sectionHTTP, "tls_key", "", "file with the server key (PEM)", false},
	{sectionHTTP, "tokens", []string{}, "tokens of the API, each NAME:ROLE:sha256:HEX as 'outbox token' prints it; roles are viewer, operator and admin; empty permits everybody, on loopback only", true},
	{sectionHTTP, "token_rate", 1000.0, "requests per second with one token; a burst of twice as many", false},
	{sectionHTTP, "insecure", false, "serve beyond loopback without TLS or without tokens, because something else protects the connection", false},
	{sectionHTTP, "hosts", []string{}, "host names that the API answers to without http.tokens, beside localhost, IP addresses and the host of http.addr; others may be pages that use DNS rebinding", false},
	{sectionHTTP, "trusted_proxies", []string{}, "CIDRs of trusted reverse proxies, such as 10.0.0.0/8, whose forwarded headers are used as the client address: for wrong tokens, and for quotas without tokens; empty trusts none", false},
	{sectionHTTP, "forwarded_header", string(access.XForwardedFor), "header with the client address: x-forwarded-for or forwarded (RFC 7239), the one that the proxies write; the other is ignored", false},
	{sectionHTTP, "hint_addrs", []string{}, "relays that receive a hint for each stored order, host:port by UDP, so that they read it immediately; a name resolves to all its addresses; empty sends none", false},
	{sectionHTTP, "hint_key", "", "key shared with the relays that signs the hints, at least 16 characters", true},
	{sectionHTTP, "drain_delay", time.Second, "how long requests are still accepted after SIGTERM, while /readyz is 503; behind a load balancer as long as it needs to detect this: 10s on Kubernetes, with a terminationGracePeriodSeconds above this plus http.shutdown_timeout", false},
	{sectionHTTP, "shutdown_timeout", orders.DefaultDrainTimeout, "how long requests in progress may take after that", false},

	{sectionAdmin, "addr", adminAddrs["relay"], "address of the admin listener: /metrics, /healthz and /readyz, without tokens; off disables it; the default port is 9090 for relay and dev, 9091 for orders, 9093 for react, 9094 for dlq watch, 9096 for admin", false},
	{sectionAdmin, "hosts", []string{}, "host names allowed in requests to admin.addr, such as those of Prometheus targets, beside localhost, IP addresses and the host of admin.addr; others may be pages that use DNS rebinding", false},
	{sectionAdmin, "profiles", false, "serve Go's profiles there too, under /debug/pprof/", false},
	{sectionAdminAPI, "api_addr", "127.0.0.1:8090", "address of the admin API and its console", false},
	{sectionAdminAPI, "drain_delay", time.Second, "how long its requests are still accepted after SIGTERM, while /readyz is 503, as http.drain_delay; requests in progress may take 10s after that", false},
	{sectionAdminAPI, "tokens", []string{}, "tokens of the admin API, each NAME:ROLE:sha256:HEX as 'outbox token' prints it; roles are viewer, operator and admin; there must be one, or an issuer", true},
	{sectionAdminAPI, "tls_cert", "", "file with its certificate (PEM), used anew when it is renewed; beyond loopback it is needed", false},
	{sectionAdminAPI, "tls_key", "", "file with its key (PEM)", false},
	{sectionAdminAPI, "insecure", false, "listen beyond loopback without TLS, because something else protects the connection", false},
	{sectionAdminAPI, "trusted_proxies", []string{}, "CIDRs of trusted reverse proxies, such as 10.0.0.0/8, whose forwarded headers are used as the client address: for wrong tokens, and in the audit trail; empty trusts none", false},
	{sectionAdminAPI, "forwarded_header", string(access.XForwardedFor), "header with the client address: x-forwarded-for or forwarded (RFC 7239), the one that the proxies write; the other is ignored", false},
	{sectionAdminAPI, "trace_url", "", "address of a trace, with {trace_id} and {span_id} in it, that the console links events to, such as http://localhost:16686/trace/{trace_id}", false},
	{sectionAdminAPI, "oidc_issuer", "", "URL of an OpenID Connect issuer whose JWTs are accepted as tokens; empty accepts none", false},
	{sectionAdminAPI, "oidc_audience", "", "required audience of those JWTs: the API's client id", false},
	{sectionAdminAPI, "oidc_role_claim", access.DefaultRoleClaim, "claim with the roles; dots lead into objects", false},
	{sectionAdminAPI, "oidc_role_prefix", access.DefaultRolePrefix, "prefix of viewer, operator and admin in that claim", false},

	{sectionRelay, "name", relay.DefaultName, "name of the relay; each name has checkpoints of its own", false},
	{sectionRelay, "table", relay.DefaultTable, "outbox table", false},
	{sectionRelay, "source", relay.DefaultSource, "CloudEvents source (header ce_source)", false},
	{sectionRelay, "topic", relay.DefaultTopicTemplate, "topic of an event; {event_type} and {aggregate_type} are replaced by the event's", false},
	{sectionRelay, "topics", []string{}, "topics by event type, type=topic; others follow relay.topic", false},
	{sectionRelay, "partitions", relay.DefaultPartitions, "partitions of a topic that the relay makes; -1 leaves it to the broker", false},
	{sectionRelay, "topic_replication", relay.DefaultReplication, "replication of a topic that the relay makes; -1 leaves it to the broker", false},
	{sectionRelay, "tail", relay.DefaultTail, "on or off: read the log immediately, beside the sweep reader, so that events are published within milliseconds", false},
	{sectionRelay, "tail_min_interval", relay.DefaultTailMinInterval, "wait between two reads by the tail reader of streams that had rows", false},
	{sectionRelay, "tail_max_interval", relay.DefaultTailMaxInterval, "wait between two reads by the tail reader of streams that had none", false},
	{sectionRelay, "tail_overlap", relay.DefaultTailOverlap, "how far back the tail reader reads for rows that became visible late", false},
	{sectionRelay, "tail_reorder", relay.DefaultTailReorder, "how long the tail reader holds an event of a table without numbers for an earlier one of its aggregate; -1ns holds nothing: only rows that become visible in the order of their times keep it", false},
	{sectionRelay, "tail_max_qps", relay.DefaultTailMaxQueriesPerSecond, "queries of the tail reader per second, at most", false},
	{sectionRelay, "hint_addr", "", "UDP address for writers' hints about stored rows, host:port; empty accepts no hints", false},
	{sectionRelay, "hint_key", "", "key shared with the writers that signs the hints, at least 16 characters", true},
	{sectionRelay, "confidence_window", relay.DefaultConfidenceWindow, "how old a change must be before the sweep reader reads it; less than 2m can lose rows that become visible late on a cluster", false},
	{sectionRelay, "busy_delay", relay.DefaultBusyDelay, "wait between two reads by the sweep reader of streams that had rows", false},
	{sectionRelay, "idle_delay", relay.DefaultIdleDelay, "wait between two reads by the sweep reader of streams that had none", false},
	{sectionRelay, "max_remembered", relay.DefaultMaxRememberedEvents, "published events that the sweep reader has not read yet, some 40 bytes of memory each; at the limit the tail reader waits; 1.25 × events per second × confidence window in seconds", false},
	{sectionRelay, "read_back_margin", relay.DefaultReadBackMargin, "how much the clocks of writers, relays and brokers may differ: at its start the relay reads its topics back that much further than the oldest checkpoint, so that a crash repeats nothing; -1ns does not read back", false},
	{sectionRelay, "read_back_quiet", relay.DefaultReadBackQuiet, "how long nothing may have come to the topics before they count as read back", false},
	{sectionRelay, "backfill", relay.DefaultBackfill, "auto or off: scan the outbox table for events that the CDC log may not have any more, because the relay was away for longer than the log keeps its rows or starts for the first time", false},
	{sectionRelay, "backfill_rows_per_second", relay.DefaultBackfillRowsPerSecond, "rows that such a scan reads per second, at most; -1 does not bound it", false},
	{sectionRelay, "max_in_flight", relay.DefaultMaxInFlightRecords, "events read and not yet acknowledged, at most", false},
	{sectionRelay, "max_in_flight_bytes", relay.DefaultMaxInFlightBytes, "their bytes, at most", false},
	{sectionRelay, "max_record_bytes", relay.DefaultMaxRecordBytes, "size of a record and of a batch, at most; a topic's max.message.bytes bounds it further", false},
	{sectionRelay, "drain_timeout", relay.DefaultDrainTimeout, "how long acknowledgements may take after SIGTERM", false},

	{sectionDLQ, "schemas", "", "directory of JSON Schemas, <event type>.json, that the payloads of edited dead letters must fit; empty has none", false},

	{sectionSchema, "row_ttl", schema.DefaultRowTTL, "how long outbox rows live; must outlive the longest outage of the relay", false},
	{sectionSchema, "cdc_ttl", schema.DefaultCDCTTL, "how long the CDC log lives", false},
	{sectionSchema, "tablets", "auto", "auto, vnodes or tablets", false},

	{sectionLog, "level", "info", "debug, info, warn or error", false},
	{sectionLog, "format", "text", "text or json", false},
}

// key is the setting's key in a file.
func (s setting) key() string { return s.Section.name() + "." + s.Name }
