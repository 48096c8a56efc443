package app

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/trace/otlp"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/hint"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// Check returns the errors of all settings that a command would refuse at its start, without a
// connection. It is an error of usage.
func (c *Config) Check() error {
	log := slog.New(slog.DiscardHandler)
	var errs []error
	known := make(map[string]bool) // a missing file may be an error of several parts
	add := func(err error) {
		if err != nil && !known[err.Error()] {
			known[err.Error()] = true
			errs = append(errs, err)
		}
	}
	named := func(key string, err error) {
		if err != nil {
			add(fmt.Errorf("%s: %w", key, err))
		}
	}
	_, err := c.Scylla.Cluster(c.Scylla.Keyspace)
	add(err)
	add(schema.Print(io.Discard, c.SchemaOptions(log)))
	_, err = c.Kafka.Options()
	add(err)
	_, err = c.Kafka.SchemaRegistry()
	add(err)
	confs, err := c.RelayConfigs()
	add(err)
	add(checkRelays(confs))
	_, err = c.Publication()
	add(err)

	add(c.HTTP.checkPair())
	for _, api := range []struct {
		key, addr string
		tokens    bool
	}{
		{"messages.addr", c.Messages.Addr, len(c.HTTP.Tokens) > 0},
		{"admin.addr", c.Admin.Addr, true}, // AdminGate requires them
		{"subscriptions.addr", c.Subscriptions.Addr, len(c.HTTP.Tokens) > 0},
	} {
		if err := checkAddr(api.addr); err != nil {
			named(api.key, err)
			continue
		}
		_, err := c.HTTP.AllowedHosts(api.addr)
		add(err)
		if c.HTTP.checkPair() == nil {
			add(c.HTTP.checkListener(log, api.key, api.addr, api.tokens))
		}
	}
	if c.Ops.Addr != OpsOff {
		named(OpsAddrKey, checkAddr(c.Ops.Addr))
	}
	if c.Hints.Addr != "" {
		named("hints.addr", checkAddr(c.Hints.Addr))
	}
	for _, addr := range c.Hints.RelayAddrs {
		named("hints.relay_addrs", checkAddr(addr))
	}
	if (c.Hints.Addr != "" || len(c.Hints.RelayAddrs) > 0) && len(c.Hints.Key) < hint.MinKey {
		named("hints.key", hint.ErrKey)
	}
	for _, x := range []struct{ key, url string }{
		{"api.admin_url", c.API.AdminURL},
		{"api.subscriptions_url", c.API.SubscriptionsURL},
		{"notifications.console_url", c.Notifications.ConsoleURL},
		{"subscriptions.advertise", c.Subscriptions.Advertise},
	} {
		if x.url != "" {
			named(x.key, checkURL(x.url))
		}
	}

	_, err = c.HTTP.Gate(log)
	add(err)
	_, err = c.HTTP.Proxies()
	add(err)
	if len(c.Admin.Tokens) > 0 || c.Admin.OIDCIssuer != "" || c.Admin.OIDCClientSecret != "" { // a process without the admin API needs none
		_, err = c.AdminGate(log)
		add(err)
	}
	_, err = c.Admin.console(nil, false)
	add(err)
	_, err = c.Destinations(log)
	add(err)
	_, err = notify.ParseTargets(c.Notifications.Targets, c.Notifications.WebhookSecrets)
	named("notifications.targets", err)
	_, err = dlq.LoadSchemas(c.DLQ.Schemas)
	named("dlq.schemas", err)
	add(c.checkPayloads())
	_, err = otlp.Enabled(os.Getenv)
	add(err)
	if err := errors.Join(errs...); err != nil {
		return cli.Usage(err)
	}
	return nil
}

// checkPayloads returns an error if messages may be larger than an event and no store is
// configured for their payloads.
func (c *Config) checkPayloads() error {
	if c.Messages.MaxBytes > outbox.MaxEventBytes && c.Archive.URL == "" {
		return cli.Usage(fmt.Errorf("messages.max_bytes: %d: more than %d needs archive.url, where the payloads of such messages are stored; set it, or reduce messages.max_bytes",
			c.Messages.MaxBytes, outbox.MaxEventBytes))
	}
	return nil
}

// checkAddr returns an error unless addr is host:port.
func checkAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q: must be host:port: %w", addr, err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: the port must be a number from 0 to 65535", addr)
	}
	return nil
}

// checkURL returns an error unless text is an absolute URL of HTTP.
func checkURL(text string) error {
	if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q: use a URL such as https://outbox-1.example.com:8082", text)
	}
	return nil
}
