package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/orders"
	relayhint "github.com/scylla-outbox/scylla-outbox/relay/hint"
	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
	"github.com/scylla-outbox/scylla-outbox/watch"
)

func newOrdersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "orders",
		Short: "Serve the API of orders and messages, until SIGTERM",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return usageError{err}
			}
			return runOrders(cmd, c)
		},
	}
	addFlags(cmd, sectionScylla, sectionKafka, sectionHTTP, sectionMessages, sectionWatch, sectionLog)
	return cmd
}

func runOrders(cmd *cobra.Command, c *config) (err error) {
	ctx := cmd.Context()
	log, err := c.Log.logger(cmd.ErrOrStderr())
	if err != nil {
		return usageError{err}
	}
	teardown := daemon.Teardown{Logger: log}
	defer func() { err = errors.Join(err, teardown.Run()) }()
	session, err := c.Scylla.sessionOnceUp(ctx, c.Scylla.Keyspace, log)
	if err != nil {
		return stopped(ctx, err)
	}
	teardown.AddFunc("scylla session", session.Close)
	api, err := startOrders(ctx, c, session, newRegistry(), log)
	if err != nil {
		return portHint(err, c.HTTP.Addr, "--http-addr")
	}
	return api.wait()
}

// orderAPI is a running order API.
type orderAPI struct {
	addr string
	stop context.CancelFunc
	done chan error // delivers what ended it, once
}

// registry is where metrics go and where they are shown from.
type registry interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// orderServer is the order API before it listens.
type orderServer struct {
	*orders.Server
	hub   *watch.Hub
	hints *relayhint.Sender // nil for none
}

// newOrderServer puts the order API together. What it has must be closed.
func newOrderServer(ctx context.Context, c *config, session *gocql.Session, reg registry, log *slog.Logger) (_ *orderServer, err error) {
	consistency, err := gocql.ParseConsistencyWrapper(c.Scylla.Consistency)
	if err != nil {
		return nil, usageError{fmt.Errorf("scylla.consistency %q is no consistency level: use LOCAL_QUORUM", c.Scylla.Consistency)}
	}
	conf := orders.Config{Consistency: consistency, Logger: log, Registerer: reg}
	if conf.RepairWindow, err = repairWindow(ctx, session, c.Scylla.Keyspace, log); err != nil {
		return nil, err
	}
	s := new(orderServer)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if len(c.HTTP.HintAddrs) > 0 {
		s.hints, err = relayhint.NewSender(relayhint.SenderConfig{Addrs: c.HTTP.HintAddrs, Key: []byte(c.HTTP.HintKey), Logger: log})
		if err != nil {
			return nil, usageError{fmt.Errorf("http.hint_addrs and http.hint_key: %w", err)}
		}
		conf.Committed = s.hints.Committed
	}
	service, err := orders.New(session, conf)
	if err != nil {
		return nil, usageError{err}
	}
	intake, err := c.newMessages(session, consistency, conf.Committed, reg, log)
	if err != nil {
		return nil, err
	}
	if s.hub, err = c.newHub(reg, log); err != nil {
		return nil, err
	}
	gate, err := c.HTTP.gate(log)
	if err != nil {
		return nil, usageError{err}
	}
	s.Server, err = orders.NewServer(service, orders.ServerConfig{
		DrainTimeout: c.HTTP.ShutdownTimeout, Gatherer: reg, Logger: log, Gate: gate, Routes: []func(huma.API){intake.Register, s.hub.Register},
	})
	if err != nil {
		return nil, usageError{err}
	}
	return s, nil
}

func (s *orderServer) close() error {
	if s.hints == nil {
		return nil
	}
	return s.hints.Close()
}

// startOrders starts the order API; it listens when startOrders returns. It
// ends with ctx, or by shutdown.
func startOrders(ctx context.Context, c *config, session *gocql.Session, reg registry, log *slog.Logger) (*orderAPI, error) {
	server, err := newOrderServer(ctx, c, session, reg, log)
	if err != nil {
		return nil, err
	}
	ln, err := c.HTTP.listen(ctx)
	if err != nil {
		return nil, errors.Join(err, server.close())
	}
	running, stop := context.WithCancel(ctx)
	api := &orderAPI{addr: ln.Addr().String(), stop: stop, done: make(chan error, 1)}
	go func() {
		// The hub ends with running, and with it all that is being watched, so that
		// the server need not wait for that.
		watching := make(chan error, 1)
		go func() { watching <- server.hub.Run(running) }()
		err := server.Serve(running, ln)
		stop()
		api.done <- errors.Join(err, <-watching, server.close())
	}()
	return api, nil
}

// repairWindow is how old an order may be whose missing event is written again:
// the default, or less where the outbox keeps its rows for less. An event that
// has outlived its row is not missing; to write it again would publish it twice.
// It waits for a database that has just gone away again.
func repairWindow(ctx context.Context, session *gocql.Session, keyspace string, log *slog.Logger) (time.Duration, error) {
	var seconds int64
	for wait := time.Second; ; wait = min(2*wait, maxConnectWait) {
		err := session.Query("SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?",
			keyspace, outbox.DefaultTableName).WithContext(ctx).Scan(&seconds)
		if errors.Is(err, gocql.ErrNotFound) {
			return 0, withHint(fmt.Errorf("keyspace %s has no table %s", keyspace, outbox.DefaultTableName), "outbox schema migrate makes it")
		}
		if err == nil {
			break
		}
		log.Warn("cannot read how long the outbox keeps its rows; trying again", "wait", wait, "err", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	if seconds == 0 {
		return orders.DefaultRepairWindow, nil
	}
	kept := time.Duration(seconds) * time.Second
	return max(min(orders.DefaultRepairWindow, kept*6/7), orders.DefaultRepairAfter), nil
}

// wait returns what ended the API; nil after a requested stop.
func (a *orderAPI) wait() error {
	defer a.stop()
	return <-a.done
}

// shutdown lets the requests under way finish and returns.
func (a *orderAPI) shutdown() error {
	a.stop()
	return a.wait()
}
