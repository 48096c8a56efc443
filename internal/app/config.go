package app

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
)

// Config is every setting, after flags, environment, file and defaults.
type Config struct {
	Scylla   scyllaConfig   `koanf:"scylla"`
	Kafka    kafkaConfig    `koanf:"kafka"`
	HTTP     HTTPConfig     `koanf:"http"`
	Messages messagesConfig `koanf:"messages"`
	Watch    watchConfig    `koanf:"watch"`
	React    ReactConfig    `koanf:"react"`
	Admin    AdminConfig    `koanf:"admin"`
	Relay    RelayConfig    `koanf:"relay"`
	DLQ      dlqConfig      `koanf:"dlq"`
	Schema   schemaConfig   `koanf:"schema"`
	Log      logConfig      `koanf:"log"`

	Notifications notificationsConfig `koanf:"notifications"`
	Retention     retentionConfig     `koanf:"retention"`
	Verify        VerifyConfig        `koanf:"verify"`
}

type scyllaConfig struct {
	Hosts       []string      `koanf:"hosts"`
	Keyspace    string        `koanf:"keyspace"`
	Replication string        `koanf:"replication"`
	LocalDC     string        `koanf:"local_dc"`
	Consistency string        `koanf:"consistency"`
	Timeout     time.Duration `koanf:"timeout"`
	Username    string        `koanf:"username"`
	Password    string        `koanf:"password"`
	tlsConfig   `koanf:",squash"`

	Requests *requests       // counts what is asked of the database; nil does not
	Nodes    *sessions.Nodes // finds nodes that do not answer; nil lets each session find them by itself
	pageSize int             // rows in one answer; 0 for the driver's own
	Waits    func(err error) // told why the database is waited for; nil for nobody
}

type kafkaConfig struct {
	Seeds     []string `koanf:"seeds"`
	SASL      string   `koanf:"sasl"`
	Username  string   `koanf:"username"`
	Password  string   `koanf:"password"`
	tlsConfig `koanf:",squash"`
}

type tlsConfig struct {
	TLS     bool   `koanf:"tls"`
	TLSCA   string `koanf:"tls_ca"`
	TLSCert string `koanf:"tls_cert"`
	TLSKey  string `koanf:"tls_key"`
}

type HTTPConfig struct {
	Addr            string        `koanf:"addr"`
	TLSCert         string        `koanf:"tls_cert"`
	TLSKey          string        `koanf:"tls_key"`
	Tokens          []string      `koanf:"tokens"`
	TokenRate       float64       `koanf:"token_rate"`
	Insecure        bool          `koanf:"insecure"`
	Hosts           []string      `koanf:"hosts"`
	HintAddrs       []string      `koanf:"hint_addrs"`
	HintKey         string        `koanf:"hint_key"`
	TrustedProxies  []string      `koanf:"trusted_proxies"`
	ForwardedHeader string        `koanf:"forwarded_header"`
	DrainDelay      time.Duration `koanf:"drain_delay"`
	ShutdownTimeout time.Duration `koanf:"shutdown_timeout"`
}

type AdminConfig struct {
	Addr     string   `koanf:"addr"`
	Hosts    []string `koanf:"hosts"`
	Profiles bool     `koanf:"profiles"`

	APIAddr         string        `koanf:"api_addr"`
	DrainDelay      time.Duration `koanf:"drain_delay"`
	TLSCert         string        `koanf:"tls_cert"`
	TLSKey          string        `koanf:"tls_key"`
	Insecure        bool          `koanf:"insecure"`
	TrustedProxies  []string      `koanf:"trusted_proxies"`
	ForwardedHeader string        `koanf:"forwarded_header"`
	TraceURL        string        `koanf:"trace_url"`
	OIDCIssuer      string        `koanf:"oidc_issuer"`
	OIDCAudience    string        `koanf:"oidc_audience"`
	OIDCRoleClaim   string        `koanf:"oidc_role_claim"`
	OIDCRolePrefix  string        `koanf:"oidc_role_prefix"`
	Tokens          []string      `koanf:"tokens"`
}

type RelayConfig struct {
	Name             string        `koanf:"name"`
	Table            string        `koanf:"table"`
	Source           string        `koanf:"source"`
	Topic            string        `koanf:"topic"`
	Topics           []string      `koanf:"topics"`
	Partitions       int32         `koanf:"partitions"`
	TopicReplication int16         `koanf:"topic_replication"`
	Tail             string        `koanf:"tail"`
	TailMinInterval  time.Duration `koanf:"tail_min_interval"`
	TailMaxInterval  time.Duration `koanf:"tail_max_interval"`
	TailOverlap      time.Duration `koanf:"tail_overlap"`
	TailReorder      time.Duration `koanf:"tail_reorder"`
	TailMaxQPS       float64       `koanf:"tail_max_qps"`
	HintAddr         string        `koanf:"hint_addr"`
	HintKey          string        `koanf:"hint_key"`
	ConfidenceWindow time.Duration `koanf:"confidence_window"`
	MaxRemembered    int           `koanf:"max_remembered"`
	ReadBackMargin   time.Duration `koanf:"read_back_margin"`
	ReadBackQuiet    time.Duration `koanf:"read_back_quiet"`
	Backfill         string        `koanf:"backfill"`
	BackfillRows     int           `koanf:"backfill_rows_per_second"`
	BusyDelay        time.Duration `koanf:"busy_delay"`
	IdleDelay        time.Duration `koanf:"idle_delay"`
	MaxInFlight      int           `koanf:"max_in_flight"`
	MaxInFlightBytes int64         `koanf:"max_in_flight_bytes"`
	MaxRecordBytes   int32         `koanf:"max_record_bytes"`
	DrainTimeout     time.Duration `koanf:"drain_timeout"`
	Shards           int           `koanf:"shards"`
	SessionTimeout   time.Duration `koanf:"session_timeout"`
	RebalanceTimeout time.Duration `koanf:"rebalance_timeout"`
	Schedule         string        `koanf:"schedule"`
	ScheduleRate     int           `koanf:"schedule_rate"`
	relayPublishing  `koanf:",squash"`
	// Tables are several tables instead of Table; see tablesKey.
	Tables []tableConfig `koanf:"-"`
}

// dlqConfig is what operators' tools for dead letters want.
type dlqConfig struct {
	Schemas string `koanf:"schemas"`
}

type schemaConfig struct {
	RowTTL  time.Duration `koanf:"row_ttl"`
	CDCTTL  time.Duration `koanf:"cdc_ttl"`
	Tablets string        `koanf:"tablets"`
}

type logConfig struct {
	Level  string `koanf:"level"`
	Format string `koanf:"format"`
}

// AddFlags gives the command --config and the flags of the sections. Secrets
// have none.
func AddFlags(cmd *cobra.Command, sections ...Section) {
	f := cmd.Flags()
	f.String("config", "", "configuration file (YAML); flags win over the environment, the environment over the file")
	for _, s := range Settings {
		if s.Secret || !slices.Contains(sections, s.Section) {
			continue
		}
		usage := s.Usage + " [" + s.Env() + "]"
		def := s.Default
		if addr, ok := AdminAddrs[cmd.Name()]; ok && s.Key() == AdminAddrKey {
			def = addr
		}
		switch v := def.(type) {
		case string:
			f.String(s.flag(), v, usage)
		case []string:
			f.StringSlice(s.flag(), v, usage)
		case bool:
			f.Bool(s.flag(), v, usage)
		case time.Duration:
			f.Duration(s.flag(), v, usage)
		default:
			f.String(s.flag(), fmt.Sprint(v), usage) // a number; its type is checked with the others'
		}
	}
}

// LoadConfig reads the configuration of a command whose flags addFlags made:
// flag over environment over file over default. Every problem is reported at once,
// as an error of usage.
func LoadConfig(cmd *cobra.Command) (*Config, error) {
	path, err := cmd.Flags().GetString("config")
	if err != nil {
		return nil, err
	}
	c, err := LoadConfigFrom(path, os.LookupEnv, cmd.Flags())
	if err != nil {
		return nil, err
	}
	log, err := c.Log.Logger(cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	warnOfStrangers(log, os.Environ())
	return c, nil
}

func LoadConfigFrom(path string, lookup func(string) (string, bool), flags *pflag.FlagSet) (_ *Config, err error) {
	defer func() {
		if err != nil {
			err = cli.Usage(err)
		}
	}()
	k := koanf.New(".")
	values := make(map[string]any, len(Settings))
	for _, s := range Settings {
		values[s.Key()] = s.Default
	}
	if f := flags.Lookup(FlagAdminAddr); f != nil {
		values[AdminAddrKey] = f.DefValue
	}
	if path != "" {
		fromFile, err := readFile(path)
		if err != nil {
			return nil, err
		}
		for key, v := range fromFile {
			values[key] = v
		}
	}
	for _, s := range Settings {
		if v, ok := lookup(s.Env()); ok {
			values[s.Key()] = v
		}
		if f := flags.Lookup(s.flag()); f != nil && f.Changed {
			if sl, ok := f.Value.(pflag.SliceValue); ok {
				values[s.Key()] = sl.GetSlice()
			} else {
				values[s.Key()] = f.Value.String()
			}
		}
	}
	tables, err := tablesFrom(values[TablesKey])
	if err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	delete(values, TablesKey)
	rules, err := rulesFrom(values[RulesKey])
	if err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	delete(values, RulesKey)
	reactRules, err := reactRulesFrom(values[ReactRulesKey])
	if err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	delete(values, ReactRulesKey)
	if err := k.Load(confmap.Provider(values, "."), nil); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	var c Config
	err = k.UnmarshalWithConf("", &c, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		Result:           &c,
		TagName:          "koanf",
		WeaklyTypedInput: true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(
			durationHook(),
			mapstructure.StringToSliceHookFunc(","),
		),
	}})
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	c.Relay.Tables, c.Relay.Rules, c.React.Rules = tables, rules, reactRules
	return &c, nil
}

// readFile reads a YAML file and refuses keys that no setting has: a misspelt
// key would otherwise leave a default in force without a word.
func readFile(path string) (map[string]any, error) {
	k := koanf.New(".")
	if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	var errs []error
	for _, key := range k.Keys() {
		if key == TablesKey || key == RulesKey || key == ReactRulesKey {
			continue
		}
		if !slices.ContainsFunc(Settings, func(s setting) bool { return s.Key() == key }) {
			errs = append(errs, fmt.Errorf("configuration file %s: unknown key %q%s", path, key, suggest(key)))
		}
	}
	return k.All(), errors.Join(errs...)
}

// suggest names the key that was probably meant: one of the same last part, or
// of the same section.
func suggest(key string) string {
	sec, name, _ := strings.Cut(key, ".")
	var same []string
	for _, s := range Settings {
		if s.Name == name || strings.HasSuffix(key, s.Name) {
			return fmt.Sprintf("; did you mean %q?", s.Key())
		}
		if s.Section.name() == sec {
			same = append(same, s.Key())
		}
	}
	if len(same) > 0 {
		return "; there are " + strings.Join(same, ", ")
	}
	return "; see outbox --help for the settings there are"
}

// flag is the setting's flag without the dashes before it.
func (s setting) flag() string {
	return strings.ReplaceAll(strings.ReplaceAll(s.Key(), ".", "-"), "_", "-")
}

// envPrefix begins the name of each setting's environment variable.
const envPrefix = "OUTBOX_"

// Env is the setting's environment variable.
func (s setting) Env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.Key(), ".", "_"))
}

// NoEnv keeps a shell's settings for real clusters away from dev.
func NoEnv(string) (string, bool) { return "", false }
