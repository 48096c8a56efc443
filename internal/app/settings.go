package app

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/trace"

	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/dlq/notifications"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/internal/settings"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/relay/share"
	"github.com/scylla-outbox/scylla-outbox/schedule"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// The sections are groups of settings. A command has the flags of the sections that it uses.
const (
	SectionScylla        = "scylla"
	SectionKafka         = "kafka"
	SectionAccess        = "http access" // the part of the section http of the APIs for programs
	SectionServer        = "http server" // the part of the section http of all APIs
	SectionMessages      = "messages"
	SectionWatch         = "watch"
	SectionSubscriptions = "subscriptions"
	SectionPush          = "push" // the part of the section subscriptions with the targets of push delivery
	SectionOps           = "ops"
	SectionAdmin         = "admin"
	SectionRelay         = "relay"
	SectionDLQ           = "dlq"
	SectionHints         = "hints"         // the part of the section hints of relays and writers
	SectionWriter        = "hints writers" // the part of the section hints of writers
	SectionSchema        = "schema"
	SectionAPI           = "api"
	SectionLog           = "log"
	SectionNotifications = "notifications"
	SectionRetention     = "retention"
	SectionVerify        = "verify"
)

// Sections of the settings of a service that several commands run.
var (
	// RelaySections are the sections of the relay.
	RelaySections = []string{SectionScylla, SectionKafka, SectionOps, SectionRelay, SectionHints, SectionNotifications, SectionRetention, SectionLog}
	// OrdersSections are the sections of the order API.
	OrdersSections = []string{SectionScylla, SectionKafka, SectionAccess, SectionServer, SectionHints, SectionWriter, SectionOps, SectionLog}
	// MessagesSections are the sections of the messages API and the event streams.
	MessagesSections = []string{SectionScylla, SectionKafka, SectionMessages, SectionAccess, SectionServer, SectionWatch, SectionHints, SectionWriter, SectionRetention, SectionOps, SectionLog}
	// SubscriptionsSections are the sections of the process that runs subscriptions.
	SubscriptionsSections = []string{SectionScylla, SectionKafka, SectionAccess, SectionServer, SectionSubscriptions, SectionPush, SectionOps, SectionLog}
)

// Config is every setting. A field with its tags is the only place of a setting; package
// settings has their meaning. Defaults that are constants elsewhere are in defaults.
type Config struct {
	Scylla   ScyllaConfig   `setting:"scylla"`
	Kafka    KafkaConfig    `setting:"kafka"`
	HTTP     HTTPConfig     `setting:"http"`
	Hints    hintsConfig    `setting:"hints"`
	Messages MessagesConfig `setting:"messages"`
	Watch    watchConfig    `setting:"watch"`
	Ops      OpsConfig      `setting:"ops"`
	Admin    AdminConfig    `setting:"admin"`
	Relay    RelayConfig    `setting:"relay"`
	DLQ      dlqConfig      `setting:"dlq"`
	API      APIConfig      `setting:"api"`
	Schema   schemaConfig   `setting:"schema"`
	Log      logConfig      `setting:"log"`

	Subscriptions SubscriptionsConfig `setting:"subscriptions"`
	Notifications notificationsConfig `setting:"notifications"`
	Archive       archiveConfig       `setting:"archive" section:"retention"`
	Retention     retentionConfig     `setting:"retention"`
	Verify        VerifyConfig        `setting:"verify"`

	overridden []string // keys of the file that the environment overrides

	OrdersAddr string // address of the order API, which is an example: no setting

	Tracer trace.TracerProvider // makes the spans of all parts; nil makes none
}

// ScyllaConfig is the database.
type ScyllaConfig struct {
	Hosts       []string      `setting:"hosts" production:"true" default:"127.0.0.1:9042" usage:"contact points, host or host:port; the default port is 9042"`
	Keyspace    string        `setting:"keyspace" default:"outbox" field:"Keyspace" usage:"keyspace of the outbox"`
	Replication string        `setting:"replication" production:"true" default:"1" usage:"replication of a new keyspace: a factor for every data centre, or dc1:3,dc2:3"`
	LocalDC     string        `setting:"local_dc" production:"true" usage:"prefer this data centre; required where there are several"`
	Timeout     time.Duration `setting:"timeout" default:"5s" min:"1ms" usage:"how long one request may take"`
	Username    string        `setting:"username" production:"true" usage:"user name; empty means no authentication"`
	Password    string        `setting:"password" production:"true" secret:"true" usage:"password"`
	tlsConfig

	Log      *slog.Logger    // receives the log of the driver; nil discards it
	Requests *Requests       // counts the requests to the database; nil counts none
	Nodes    *sessions.Nodes // detects nodes that do not answer; nil: each session does so separately
	pageSize int             // rows in one answer; 0 for the driver's own
	Waits    func(err error) // called with the reason of each retry of the connection; may be nil
	// Configure changes the driver's configuration of a session last; may be nil. Tests observe
	// statements with it, and connect to an embedded database.
	Configure func(*gocql.ClusterConfig)

	components *components // nil: the session checks none
	brief      bool        // sessions for a command that connects once and reads little
}

// KafkaConfig is the broker.
type KafkaConfig struct {
	Seeds    []string `setting:"seeds" production:"true" field:"Brokers" default:"127.0.0.1:9092" usage:"first brokers, host:port"`
	SASL     string   `setting:"sasl" production:"true" usage:"SASL mechanism: plain, scram-sha-256, scram-sha-512, oauthbearer or aws-msk-iam; empty means none"`
	Username string   `setting:"username" production:"true" usage:"SASL user name; the client id of oauthbearer; the access key id of aws-msk-iam, which is empty in outbox-cloud for the credentials of the environment, such as the role of a pod"`
	Password string   `setting:"password" production:"true" secret:"true" usage:"SASL password; the client secret of oauthbearer; the secret access key of aws-msk-iam"`
	TokenURL string   `setting:"token_url" usage:"token endpoint of oauthbearer: OAuth 2.0, client credentials"`
	Scopes   []string `setting:"token_scopes" usage:"scopes that oauthbearer requests"`
	Registry string   `setting:"schema_registry" secret:"true" usage:"URL of a Confluent-compatible schema registry, with user:password if it requires them; https trusts the system, or kafka.tls_ca if kafka.tls is true; messages and events of orders must fit the schema of their topic, and payloads are decoded; empty uses none"`
	Rack     string   `setting:"rack" usage:"rack or zone of this process, as the broker's broker.rack: records are read from a replica in the same one"`
	tlsConfig

	Log     *slog.Logger // receives the log of the clients; nil discards it
	metrics kgo.Hook     // counts the work of the clients; nil counts none
}

// tlsConfig is TLS of a client.
type tlsConfig struct {
	TLS     bool   `setting:"tls" production:"true" usage:"use TLS"`
	TLSCA   string `setting:"tls_ca" usage:"file with the CA certificates (PEM); empty means the system's"`
	TLSCert string `setting:"tls_cert" usage:"file with the client certificate (PEM); a new connection uses a renewed one"`
	TLSKey  string `setting:"tls_key" usage:"file with the client key (PEM)"`
}

// hintsConfig is the hints of writers to relays about stored rows.
type hintsConfig struct {
	Addr       string   `setting:"addr" section:"relay" usage:"UDP address at which the relay receives writers' hints about stored rows, host:port; empty accepts no hints"`
	Key        string   `setting:"key" secret:"true" field:"HintKey" usage:"key shared by relays and writers that signs the hints, at least 16 characters"`
	RelayAddrs []string `setting:"relay_addrs" section:"hints writers" usage:"relays that receive a hint for each stored order and message, host:port by UDP, so that they read it immediately; a name resolves to all its addresses; empty sends none"`
}

// HTTPConfig is what HTTP APIs have in common: tokens, TLS and proxies. Each API has a section
// of its own with its address.
type HTTPConfig struct {
	Tokens       []string `setting:"tokens" production:"true" secret:"true" section:"http access" usage:"tokens of the APIs of messages, subscriptions and orders, each NAME:ROLE:sha256:HEX as 'outbox token' prints it; roles are viewer, operator, admin, consumer(NAMES) of subscriptions and producer(TOPICS) of messages; empty permits everybody, on loopback only"`
	TokenRate    float64  `setting:"token_requests_per_second" default:"1000" min:"0.001" section:"http access" usage:"requests per second with one token; a burst of twice as many"`
	Insecure     bool     `setting:"insecure" section:"http server" usage:"serve beyond loopback without TLS, and all but the admin API without tokens, because something else protects the connection"`
	Hosts        []string `setting:"hosts" section:"ops" usage:"host names in requests to the API without http.tokens, and to ops.addr, such as those of Prometheus targets, beside localhost, IP addresses and the host of the address; others may be pages that use DNS rebinding"`
	serverConfig `section:"http server"`
}

// SubscriptionsConfig is the process that runs subscriptions.
type SubscriptionsConfig struct {
	Addr      string `setting:"addr" default:"127.0.0.1:8082" usage:"address of the subscriptions API"`
	Advertise string `setting:"advertise" usage:"URL at which other instances reach subscriptions.addr; empty derives it from the address or, for all addresses, from the host name"`

	Targets        []string `setting:"targets" secret:"true" section:"push" usage:"targets of subscriptions with push delivery, name=URL each, as in notifications.targets; log always exists and writes messages to the log"`
	WebhookSecrets []string `setting:"webhook_secrets" secret:"true" section:"push" usage:"secrets that sign their webhooks, as in notifications.webhook_secrets"`
}

// serverConfig is the settings of the section http that all APIs share: both
// are servers of one installation, behind the same proxies and with the same certificate.
type serverConfig struct {
	TLSCert        string        `setting:"tls_cert" production:"true" usage:"file with the server certificate (PEM) of all APIs, used anew when it is renewed; with tls_key it turns TLS on"`
	TLSKey         string        `setting:"tls_key" production:"true" usage:"file with the server key (PEM)"`
	TrustedProxies []string      `setting:"trusted_proxies" usage:"CIDRs of trusted reverse proxies, such as 10.0.0.0/8, whose X-Forwarded-For is used as the client address: for wrong tokens, the audit trail, and quotas without tokens; empty trusts none"`
	DrainDelay     time.Duration `setting:"drain_delay" default:"1s" min:"0s" usage:"how long requests are still accepted after SIGTERM, while /readyz is 503; behind a load balancer as long as it needs to detect this: 10s on Kubernetes, with a terminationGracePeriodSeconds above this plus the 30s that requests in progress may take"`
}

// MessagesConfig is the messages API.
type MessagesConfig struct {
	Addr      string   `setting:"addr" default:"127.0.0.1:8084" usage:"address of the messages API and of the event streams"`
	Topics    []string `setting:"topics" usage:"topics that clients may send messages to, with * for any characters; a topic of the relay's own events or of its shards only by its exact name, those that begin with _ never"`
	MaxBytes  int      `setting:"max_bytes" min:"1" usage:"payload, key and headers of one message, at most; above 1000000, up to 16777216, the payload of a message that does not fit into a record is stored in archive.url"`
	PerSecond float64  `setting:"client_per_second" off:"0" usage:"messages per second of one client, a token's owner or an address; a burst of twice as many, or one full batch; off for any number"`
}

// watchConfig is the event streams.
type watchConfig struct {
	Topics []string `setting:"topics" usage:"topics that clients may read as event streams and the console shows, with * for any characters; those that begin with _ never; empty means those of orders, messages and the relay"`
}

// OpsConfig is the ops listener of each process: metrics, health checks and profiles.
type OpsConfig struct {
	Addr     string `setting:"addr" usage:"address of the ops listener: /metrics, /livez and /readyz, without tokens; off disables it; the default port is 9090 for relay and outbox-dev run, 9091 for orders, 9094 for notifier, 9096 for admin, 9097 for subscriptions, 9099 for messages"`
	Profiles bool   `setting:"profiles" usage:"serve Go's profiles there too, under /debug/pprof/"`
}

// AdminConfig is the admin API.
type AdminConfig struct {
	Addr             string   `setting:"addr" default:"127.0.0.1:8090" usage:"address of the admin API and its console"`
	Tokens           []string `setting:"tokens" production:"true" secret:"true" usage:"tokens of the admin API, each NAME:ROLE:sha256:HEX as 'outbox token' prints it; roles are viewer, operator and admin; there must be one, or an issuer"`
	TraceURL         string   `setting:"trace_url" usage:"address of a trace, with {trace_id} and {span_id} in it, that the console links events to, such as http://localhost:16686/trace/{trace_id}"`
	OIDCIssuer       string   `setting:"oidc_issuer" usage:"URL of an OpenID Connect issuer whose JWTs are accepted as tokens; empty accepts none"`
	OIDCAudience     string   `setting:"oidc_audience" usage:"required audience of those JWTs: the API's client id"`
	OIDCRoleClaim    string   `setting:"oidc_role_claim" usage:"claim with the roles outbox-viewer, outbox-operator and outbox-admin; dots lead into objects"`
	OIDCClientSecret string   `setting:"oidc_client_secret" secret:"true" usage:"secret of the client admin.oidc_audience at the issuer; with it users sign in to the console at notifications.console_url; its change signs them out"`
}

// RelayConfig is the relay: the settings of relay.Config, and the settings of the process that runs it.
//
// Fields of relay.Settings that are no settings keep their default, because no installation
// needs another value: BreakerFailures (5 failures in a row are an outage, and a higher
// number only delays its detection), MaxInFlightRecords (10,000 saturate the producer, and
// MaxInFlightBytes bounds the memory), ReadBackMargin (30s is far above the clock
// differences that NTP leaves), DrainTimeout (acknowledgements that are missing 20s after
// SIGTERM lose nothing: the next start reads the ends of the topics), ReplayRate (2,000/s are below the rate of new events; a job
// has --rate).
type RelayConfig struct {
	relay.Settings
	Shards           int           `setting:"shards" default:"1" usage:"number of equal parts of the work that the instances of this relay share, 1 to 256, the same in all of them; with 1 one instance works and the others are standbys"`
	SessionTimeout   time.Duration `setting:"session_timeout" min:"1s" max:"5m" usage:"time without a heartbeat of an instance after which the broker assigns its shards to others; the broker permits no less than its group.min.session.timeout.ms, 6s unless changed"`
	ScheduleRate     int           `setting:"scheduled_per_second" off:"0" usage:"scheduled messages written to the outbox per second when they are due, at most, by one of several relays, which writes fewer, at least 1,000, while its tail reader lags; off writes none"`
	WriteDeadLetters bool          `setting:"dead_letters" default:"true" field:"DeadLetters" usage:"write an event that cannot be published to dead_letter_queue; without it its aggregate is held"`
	Tables           []tableConfig `setting:"tables" field:"TableKeyspace Mapping" usage:"several outbox tables instead of relay.table; docs/own-tables.md"`
}

// dlqConfig is for tools that change dead letters.
type dlqConfig struct {
	Schemas string `setting:"schemas" usage:"directory of JSON Schemas, <event type>.json, that the payloads of edited dead letters must fit; empty has none"`
}

// APIConfig is the APIs that commands use: the admin API instead of the database, and that of
// subscriptions.
type APIConfig struct {
	AdminURL         string `setting:"admin_url" usage:"URL of 'outbox admin', such as https://outbox.example.com:8090: commands use this API and need no access to the database; empty uses the database"`
	SubscriptionsURL string `setting:"subscriptions_url" usage:"URL of 'outbox subscriptions' for subscriptions and consume; empty is api.admin_url, whose server has the operations for operators, or http://127.0.0.1:8082"`
	Token            string `setting:"token" secret:"true" usage:"token for these APIs"`
	TLSCA            string `setting:"tls_ca" usage:"file with the CA certificates (PEM) of their servers; empty means the system's"`
}

// schemaConfig is the schema of a new keyspace.
type schemaConfig struct {
	RowTTL  time.Duration `setting:"row_ttl" usage:"how long outbox rows live; must outlive the longest outage of the relay"`
	CDCTTL  time.Duration `setting:"cdc_ttl" usage:"how long the CDC log lives"`
	Tablets string        `setting:"tablets" default:"auto" usage:"auto, vnodes or tablets"`
}

// logConfig is the log.
type logConfig struct {
	Level  string `setting:"level" default:"info" usage:"debug, info, warn or error"`
	Format string `setting:"format" default:"text" usage:"text or json"`
}

// notificationsConfig is notifications about dead letters. Two values are constants of
// package notifications: lasting conditions are repeated every four hours, once per shift,
// and half of a day's dead letters must be resolved, which separates handled from forgotten.
type notificationsConfig struct {
	Targets        []string      `setting:"targets" secret:"true" usage:"targets of notifications about dead letters, name=URL each: shoutrrr URLs (slack://, smtp://, pagerduty:// …) or webhook+https://…"`
	WebhookSecrets []string      `setting:"webhook_secrets" secret:"true" usage:"secrets that sign webhooks, whsec_ and base64, all of them while one is replaced"`
	ConsoleURL     string        `setting:"console_url" usage:"where the console is, such as https://outbox.example.com/console: for links in notifications, and for admin.oidc_client_secret"`
	Backlog        int           `setting:"max_open" off:"-1" usage:"how many dead letters may be open; off is no limit"`
	RatePerMinute  float64       `setting:"rate_per_minute" off:"-1" usage:"how many events may become dead letters per minute; off is no limit"`
	BlockedAge     time.Duration `setting:"blocked_age" off:"-1" usage:"how long an event may be blocked behind a dead letter; off is no limit"`
}

// archiveConfig is the store of old dead letters and of large payloads.
type archiveConfig struct {
	URL string `setting:"url" usage:"where old dead letters go, and payloads of large messages: a folder, or file://, s3://, gs:// or azblob:// (those three in outbox-cloud, which make build-cloud makes); empty deletes them at the end of their retention"`
}

// retentionConfig is how long dead letters are kept.
type retentionConfig struct {
	Resolved time.Duration `setting:"resolved" off:"-1" usage:"how long resolved dead letters stay in the database; off keeps them"`
	Failed   time.Duration `setting:"failed" off:"-1" usage:"how long failed dead letters stay in the database, or longer while others wait behind them; off keeps them"`
	Keep     time.Duration `setting:"keep" off:"-1" usage:"how long the archive keeps them, and the database their outlines; off keeps them"`
}

// check returns an error if this build does not contain the object store of the archive.
func (c *archiveConfig) check() error {
	if err := archive.CheckSupported(c.URL); err != nil {
		return fmt.Errorf("archive.url (OUTBOX_ARCHIVE_URL): %w", err)
	}
	return nil
}

// VerifyConfig is the continuous verification.
type VerifyConfig struct {
	RowsPerSecond int      `setting:"rows_per_second" off:"0" usage:"rows of the outbox that outbox admin verifies in a second, all the time; off disables it"`
	Repair        bool     `setting:"repair" usage:"let the relay publish events that are missing from their topics"`
	Topics        []string `setting:"topics" usage:"topics that may hold events too, such as those of an earlier relay.topics"`
}

// defaults returns the default of each setting but those with the tag default.
func defaults() *Config {
	return &Config{
		OrdersAddr: DefaultOrdersAddr,

		Messages: MessagesConfig{Topics: messages.DefaultTopics(), MaxBytes: messages.DefaultMaxMessageBytes},
		Ops:      OpsConfig{Addr: OpsAddrs["relay"]},
		Admin:    AdminConfig{OIDCRoleClaim: access.DefaultRoleClaim},
		Relay:    RelayConfig{SessionTimeout: share.DefaultSessionTimeout, ScheduleRate: schedule.DefaultRate},
		Schema:   schemaConfig{RowTTL: schema.DefaultRowTTL, CDCTTL: schema.DefaultCDCTTL},
		Notifications: notificationsConfig{
			Backlog:       notifications.DefaultBacklog,
			RatePerMinute: notifications.DefaultRatePerMinute, BlockedAge: notifications.DefaultBlockedAge,
		},
		Retention: retentionConfig{
			Resolved: archive.DefaultResolved, Failed: archive.DefaultFailed, Keep: archive.DefaultKeep,
		},
		Verify: VerifyConfig{RowsPerSecond: verify.DefaultVerifyRate},
	}
}

// Settings are all settings, with their defaults as values.
var Settings = settings.Of(defaults())
