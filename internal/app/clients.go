package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/certificates"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/clientlog"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
)

// Addresses returns the contact points with their ports, as the driver dials them, or as
// configured if they cannot be parsed.
func (c ScyllaConfig) Addresses() string {
	hosts, port, err := ContactPoints(c.Hosts)
	if err != nil {
		return strings.Join(c.Hosts, ", ")
	}
	for i, host := range hosts {
		hosts[i] = net.JoinHostPort(host, strconv.Itoa(port))
	}
	return strings.Join(hosts, ", ")
}

// Session connects to the database. keyspace may be empty. Without a component of [ScyllaConfig.Need]
// it returns an error of usage.
func (c ScyllaConfig) Session(keyspace string) (*gocql.Session, error) {
	// For a missing keyspace the driver only reports that it made no connections, so the
	// keyspace is checked first.
	first := c
	first.brief = c.brief || keyspace != ""
	s, err := first.connect("")
	if err == nil && keyspace != "" {
		err = c.checkKeyspace(s, keyspace)
		sessions.Close(s)
		if err == nil {
			s, err = c.connect(keyspace)
		}
	}
	if err != nil {
		return nil, err
	}
	if c.Nodes != nil {
		c.Nodes.Follow(s)
	}
	return s, nil
}

// BriefSession is Session for one command, in few round trips: its requests go to one node, and it does not wait for
// the check of the keyspace. checked does, and returns its error, which is the cause of the errors of statements.
// Without use, which is a round trip, statements have to name their keyspace.
func (c ScyllaConfig) BriefSession(keyspace string, use bool) (s *gocql.Session, checked func() error, err error) {
	c.brief = true
	if use {
		s, err = c.connect(keyspace)
		if errors.Is(err, gocql.ErrNoConnectionsStarted) { // the keyspace may be missing
			s, err = c.Session(keyspace)
		}
	} else {
		s, err = c.connect("")
	}
	if err != nil {
		return nil, nil, err
	}
	check := make(chan struct{})
	var failed error
	go func() {
		defer close(check)
		failed = c.checkKeyspace(s, keyspace)
	}()
	return s, func() error { <-check; return failed }, nil
}

// connect creates a session.
func (c ScyllaConfig) connect(keyspace string) (*gocql.Session, error) {
	cluster, err := c.Cluster(keyspace) // a new one, because a host selection policy belongs to one session
	if err != nil {
		return nil, err
	}
	s, err := cluster.CreateSession()
	if err != nil {
		return nil, c.away(err)
	}
	return s, nil
}

// checkKeyspace returns nil if the keyspace exists and has the needed components. The driver's timeout bounds it.
func (c ScyllaConfig) checkKeyspace(s *gocql.Session, keyspace string) error {
	known, err := c.components.check(context.Background(), s, keyspace)
	if err == nil && !known {
		var name string
		err = s.Query("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?", keyspace).Scan(&name)
	}
	switch {
	case errors.Is(err, gocql.ErrNotFound):
		return cli.WithHint(fmt.Errorf("keyspace %s does not exist", keyspace), "outbox schema migrate creates it")
	case err != nil && !errors.As(err, new(cli.UsageError)):
		return c.away(err)
	}
	return err
}

func (c ScyllaConfig) away(err error) error {
	dc := ""
	if c.LocalDC != "" { // the driver connects to no host of another one
		dc = fmt.Sprintf(", that scylla.local_dc %q is one of its data centers", c.LocalDC)
	}
	return cli.WithHint(fmt.Errorf("connect to ScyllaDB at %s: %w", c.Addresses(), err),
		"check that it runs there and is reachable%s, and check user, password and TLS; --scylla-hosts or OUTBOX_SCYLLA_HOSTS sets other hosts", dc)
}

// SessionOnceUp is Session for a service: it retries with back-off until the database is
// reachable, because services start in any order. It returns only errors that a retry cannot
// fix, such as a wrong configuration.
func (c ScyllaConfig) SessionOnceUp(ctx context.Context, keyspace string, log *slog.Logger) (s *gocql.Session, err error) {
	waits, repeated := c.Waits, false
	c.Waits = func(err error) {
		if c.Requests != nil {
			c.Requests.unreached.Inc() // there are no other requests before the first session
		}
		if waits != nil {
			waits(err)
		}
	}
	err = c.untilUp(ctx, log, "database not ready; retrying", func() (err error) {
		if repeated {
			err = c.Listening(ctx)
		}
		if repeated = true; err == nil {
			s, err = c.Session(keyspace)
		}
		return err
	})
	return s, err
}

// untilUp calls try until it succeeds, with back-off. It returns errors of usage, which a retry cannot fix,
// and that of ctx. failed is the message of the others in the log.
func (c ScyllaConfig) untilUp(ctx context.Context, log *slog.Logger, failed string, try func() error) error {
	for attempt := 1; ; attempt++ {
		err := try()
		if err == nil || errors.As(err, new(cli.UsageError)) {
			return err
		}
		if c.Waits != nil {
			c.Waits(err)
		}
		wait := retry.Backoff(time.Second, maxConnectWait, attempt)
		log.Warn(failed, "wait", wait, "err", err, "hint", cli.FindHint(err))
		if err := retry.Wait(ctx, wait); err != nil {
			return err
		}
	}
}

// Listening returns nil if one of the hosts accepts connections. Call it before each retry of
// a session: a failed session leaves five goroutines behind (gocql 1.19.0), which would be
// many thousands after a day.
func (c ScyllaConfig) Listening(ctx context.Context) error {
	cluster, err := c.Cluster("")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	answers := make(chan error, len(cluster.Hosts))
	for _, host := range cluster.Hosts {
		go func() {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(cluster.Port)))
			if err == nil {
				_ = conn.Close() // nothing was sent
			}
			answers <- err
		}()
	}
	for range cluster.Hosts {
		if err = <-answers; err == nil {
			return nil
		}
	}
	return c.away(err) // the last host's
}

// protocolVersion is the version of the CQL protocol: that of ScyllaDB.
const protocolVersion = 4

// maxConnectWait is the longest wait between two attempts to reach the database.
const maxConnectWait = 15 * time.Second

// consistency is that of reads and writes. It is not a setting: at a lower level a read can
// miss an acknowledged write, and an event would be lost or repeated; at a higher one the
// outage of another data centre would stop this one.
const consistency = gocql.LocalQuorum

// serialConsistency returns the consistency of lightweight transactions.
func (c ScyllaConfig) serialConsistency() gocql.Consistency {
	if c.LocalDC != "" {
		return gocql.LocalSerial
	}
	return gocql.Serial
}

// Cluster returns the driver's configuration for sessions with the keyspace, which may be
// empty. Its host selection policy belongs to one session, so each session needs a cluster
// of its own. Errors are of usage, or of files with certificates.
func (c ScyllaConfig) Cluster(keyspace string) (*gocql.ClusterConfig, error) {
	points, port, err := ContactPoints(c.Hosts)
	if err != nil {
		return nil, err
	}
	cluster := gocql.NewCluster(points...)
	cluster.Keyspace = keyspace
	cluster.Timeout = c.Timeout
	cluster.ConnectTimeout = c.Timeout
	cluster.ReconnectInterval = sessions.ReconnectInterval
	cluster.Logger, cluster.WarningsHandlerBuilder = c.driverLog()
	// The version that the driver would find out by a connection of its own; a database without it is none
	// that this program works with.
	cluster.ProtoVersion = protocolVersion
	cluster.Port = port // always set: listening dials it before the driver resolves its own default
	// Writes have the database's time unless they choose one: clocks of clients differ.
	cluster.DefaultTimestamp = false
	if c.pageSize > 0 {
		cluster.PageSize = c.pageSize
	}
	cluster.Consistency, cluster.SerialConsistency = consistency, c.serialConsistency()
	hosts := gocql.RoundRobinHostPolicy()
	if c.LocalDC != "" {
		hosts = gocql.DCAwareRoundRobinPolicy(c.LocalDC)
	}
	if c.brief {
		// Replicas of statements and events of the cluster take five round trips before the first statement.
		e := &cluster.Events
		e.DisableNodeStatusEvents, e.DisableTopologyEvents, e.DisableSchemaEvents = true, true, true
		hosts = sessions.OneNode(hosts)
	} else {
		hosts = gocql.TokenAwareHostPolicy(hosts)
	}
	cluster.PoolConfig.HostSelectionPolicy = hosts
	if c.Requests != nil {
		c.Requests.observe(cluster)
	}
	switch {
	case c.Username != "":
		cluster.Authenticator = gocql.PasswordAuthenticator{Username: c.Username, Password: c.Password}
	case c.Password != "":
		return nil, cli.Usage(errors.New("scylla.password is set and scylla.username is not: set both or none"))
	}
	conf, err := c.config("scylla", c.Log)
	if err != nil {
		return nil, err
	}
	if conf != nil {
		cluster.SslOpts = &gocql.SslOptions{Config: conf, EnableHostVerification: true}
	}
	if c.Configure != nil {
		c.Configure(cluster)
	}
	nodes := c.Nodes
	if nodes == nil {
		nodes = sessions.NewNodes(slog.New(slog.DiscardHandler), nil)
	}
	nodes.Watch(cluster)
	return cluster, nil
}

// driverLog returns the logger of the driver, and that of warnings by the database. A command
// that ends with its first error discards both: it prints the error.
func (c ScyllaConfig) driverLog() (gocql.StdLogger, gocql.WarningHandlerBuilder) {
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	lines := clientlog.Scylla(log)
	return lines, lines.Warnings
}

// defaultPort is the port of a contact point without one: the CQL port of ScyllaDB.
const defaultPort = 9042

// ContactPoints parses scylla.hosts: host, host:port, IPv6 addresses with or without
// brackets. All ports must be equal, because the driver has one port per cluster; without a
// port it is defaultPort. The returned hosts have no brackets.
func ContactPoints(in []string) (hosts []string, port int, err error) {
	for _, point := range in {
		point = strings.TrimSpace(point)
		host, p, err := net.SplitHostPort(point)
		if err != nil { // no port
			host, p = strings.TrimSuffix(strings.TrimPrefix(point, "["), "]"), ""
			if strings.Contains(host, ":") && net.ParseIP(host) == nil {
				return nil, 0, cli.Usage(fmt.Errorf("scylla.hosts: %q is neither host, host:port nor an IPv6 address", point))
			}
		} else if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return nil, 0, cli.Usage(fmt.Errorf("scylla.hosts: %q has no port number after the colon", point))
		} else if port != 0 && n != port {
			return nil, 0, cli.Usage(fmt.Errorf("scylla.hosts: ports %d and %d: all hosts of a cluster use one port", port, n))
		} else {
			port = n
		}
		if host == "" {
			return nil, 0, cli.Usage(fmt.Errorf("scylla.hosts: %q names no host", point))
		}
		hosts = append(hosts, host)
	}
	if len(hosts) == 0 {
		return nil, 0, cli.Usage(errors.New("scylla.hosts is empty: name at least one host"))
	}
	return hosts, cmp.Or(port, defaultPort), nil
}

// Options returns the options of Kafka clients for TLS, SASL, the rack, their log and
// their metrics.
func (c KafkaConfig) Options() ([]kgo.Opt, error) {
	if len(c.Seeds) == 0 {
		return nil, cli.Usage(errors.New("kafka.seeds is empty: name at least one broker"))
	}
	for _, seed := range c.Seeds {
		if err := checkSeed(seed); err != nil {
			return nil, cli.Usage(fmt.Errorf("kafka.seeds: %w", err))
		}
	}
	var opts []kgo.Opt
	if c.Log != nil {
		opts = append(opts, kgo.WithLogger(clientlog.Kafka(c.Log)))
	}
	if c.metrics != nil {
		opts = append(opts, kgo.WithHooks(c.metrics))
	}
	conf, err := c.config("kafka", c.Log)
	if err != nil {
		return nil, err
	}
	if conf != nil {
		opts = append(opts, kgo.DialTLSConfig(conf))
	}
	if c.Rack != "" {
		opts = append(opts, kgo.Rack(c.Rack))
	}
	m, err := c.mechanism()
	if err != nil {
		return nil, err
	}
	if m != nil {
		opts = append(opts, kgo.SASL(m))
	}
	return opts, nil
}

// checkSeed returns an error unless a broker is host:port, or a host for the default port.
func checkSeed(seed string) error {
	host, port, err := net.SplitHostPort(seed)
	if err != nil { // no port, or an IPv6 address without one
		if host = strings.TrimSuffix(strings.TrimPrefix(seed, "["), "]"); strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return fmt.Errorf("%q is neither host:port, host nor an IPv6 address", seed)
		}
	} else if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q: the port must be a number from 1 to 65535", seed)
	}
	if host == "" {
		return fmt.Errorf("%q names no host", seed)
	}
	return nil
}

// Client creates a Kafka client with further options. It does not connect yet.
func (c KafkaConfig) Client(more ...kgo.Opt) (*kgo.Client, error) {
	opts, err := c.Options()
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(append(opts, kgo.SeedBrokers(c.Seeds...)), more...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	return cl, nil
}

// SchemaRegistry returns the client of kafka.schema_registry; nil if it is empty. Errors are of
// usage, and do not contain the URL.
func (c KafkaConfig) SchemaRegistry() (*registry.Registry, error) {
	if c.Registry == "" {
		return nil, nil //nolint:nilnil // nil has no schemas
	}
	conf, err := c.config("kafka", c.Log)
	if err != nil {
		return nil, err
	}
	r, err := registry.New(c.Registry, conf, c.Log)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("kafka.schema_registry: %w", err))
	}
	return r, nil
}

// config returns the TLS configuration of a client, nil without TLS. of is the section in
// errors; log, which may be nil, receives renewals of the client's certificate.
func (c tlsConfig) config(of string, log *slog.Logger) (*tls.Config, error) {
	if !c.TLS {
		if c.TLSCA != "" || c.TLSCert != "" || c.TLSKey != "" {
			return nil, cli.Usage(fmt.Errorf("%s.tls is off but %s.tls_ca, tls_cert or tls_key is set: turn it on, or remove them", of, of))
		}
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.TLSCA != "" {
		pem, err := os.ReadFile(c.TLSCA)
		if err != nil {
			return nil, fmt.Errorf("%s.tls_ca: %w", of, err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s.tls_ca: no certificate in %s", of, c.TLSCA)
		}
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return nil, cli.Usage(fmt.Errorf("%s.tls_cert and %s.tls_key go together: one is missing", of, of))
	}
	if c.TLSCert != "" {
		if log == nil {
			log = slog.New(slog.DiscardHandler)
		}
		pair, err := certificates.Load(c.TLSCert, c.TLSKey, log)
		if err != nil {
			return nil, fmt.Errorf("%s.tls_cert: %w", of, err)
		}
		conf.GetClientCertificate = pair.Client
	}
	return conf, nil
}
