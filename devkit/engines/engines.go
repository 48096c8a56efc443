package engines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/scylla-outbox/scylla-outbox/devkit/brokerstate"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/relay/share"
)

// Engines are the embedded database and broker.
type Engines struct {
	Dir                string // empty keeps everything in memory
	CQLAddr, KafkaAddr string // empty disables that engine
	Version            string
	Shards, Tokens     int
	Vnodes             bool // new keyspaces have vnodes, as with ScyllaDB 5.1
	// TabletInterval is how often tables split and merge their tablets; 0 is ScyllaDB's.
	TabletInterval time.Duration
	// Writes is the number of writes that the database executes concurrently, each for
	// WriteTime, as a model of a database of limited capacity. Zero limits nothing.
	Writes    int
	WriteTime time.Duration
	// NodeCosts makes requests to the database take the time of a real node with Shards
	// shards (engine.MeasuredCosts). The database then reports how long its shards are busy at
	// MetricsURL, as a node does at its Prometheus port.
	NodeCosts  bool
	MetricsURL string // from Start on; empty without NodeCosts
	// Listener, if not nil, wraps the listener of the broker.
	Listener func(net.Listener) net.Listener
	// Database and Broker are the running engines, from Start on.
	Database *scyllafake.Server
	Broker   *kfake.Cluster
	failed   func(error) // receives the error of a disk that refused a write; nil for nobody
}

// UntilFailed returns a context that ends when the disk refuses a write, with the error
// as its cause. Call it before Start.
func (e *Engines) UntilFailed(ctx context.Context) context.Context {
	ctx, e.failed = context.WithCancelCause(ctx)
	return ctx
}

// Failure returns the error of the disk if that ended ctx.
func (e *Engines) Failure(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, store.ErrFailed) {
		return cli.WithHint(fmt.Errorf("data directory %s: %w", e.Dir, err), "free space on that disk, or use another directory with --data-dir; acknowledged writes are kept")
	}
	return nil
}

// Start starts the engines and registers their teardown. It replaces the addresses in e
// by the ones that the engines listen on.
func (e *Engines) Start(teardown *daemon.Teardown, log *slog.Logger) error {
	if err := e.makeDir(); err != nil {
		return err
	}
	if e.CQLAddr != "" {
		cfg := scyllafake.Config{
			Dir: e.subdir("scylla"), Addr: e.CQLAddr, Version: e.Version,
			Shards: e.Shards, Tokens: e.Tokens, Vnodes: e.Vnodes, TabletInterval: e.TabletInterval, Logger: log, Failed: e.failed,
		}
		if e.Writes > 0 {
			cfg.Hook = newCapacity(e.Writes, e.WriteTime)
		}
		if e.NodeCosts {
			cfg.NodeCosts = &engine.MeasuredCosts
		}
		srv, err := scyllafake.Start(cfg)
		if errors.Is(err, store.ErrInUse) {
			return cli.WithHint(fmt.Errorf("data directory %s is in use by another process", e.Dir), "stop that process, or use another directory with --data-dir")
		}
		if err != nil {
			return cli.PortHint(fmt.Errorf("start the embedded database: %w", err), e.CQLAddr, "--cql-addr")
		}
		teardown.Add("embedded database", srv.Close)
		e.Database, e.CQLAddr = srv, srv.Addr()
		if e.NodeCosts {
			if e.MetricsURL, err = serveMetrics(srv, teardown); err != nil {
				return fmt.Errorf("serve the metrics of the embedded database: %w", err)
			}
		}
	}
	if e.KafkaAddr != "" {
		broker, err := e.startBroker(log)
		if err != nil {
			return cli.PortHint(fmt.Errorf("start the embedded broker: %w", err), e.KafkaAddr, "--kafka-addr")
		}
		teardown.AddFunc("embedded broker", broker.Close)
		e.Broker, e.KafkaAddr = broker, broker.ListenAddrs()[0]
	}
	return nil
}

// makeDir makes the data directory and checks that it can be written.
func (e *Engines) makeDir() error {
	if e.Dir == "" {
		return nil
	}
	err := os.MkdirAll(e.Dir, 0o755)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(e.Dir, ".writable-*"); err == nil {
			f.Close()
			err = os.Remove(f.Name())
		}
	}
	if err != nil {
		return cli.WithHint(fmt.Errorf("data directory %s cannot be written: %w", e.Dir, err), "use another directory with --data-dir")
	}
	return nil
}

func (e *Engines) subdir(name string) string {
	if e.Dir == "" {
		return ""
	}
	return filepath.Join(e.Dir, name)
}

// startBroker starts a one-node broker that listens on KafkaAddr.
func (e *Engines) startBroker(log *slog.Logger) (*kfake.Cluster, error) {
	addr, dir := e.KafkaAddr, e.subdir("kafka")
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("address %q: use host:port", addr))
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("address %q: %q is not a port number", addr, port))
	}
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.GroupMinSessionTimeout(share.MinSessionTimeout),
		kfake.Ports(n),
		kfake.ListenFn(func(network, _ string) (net.Listener, error) {
			l, err := new(net.ListenConfig).Listen(context.Background(), network, net.JoinHostPort(host, port))
			if err == nil && e.Listener != nil {
				l = e.Listener(l)
			}
			return l, err
		}),
	}
	if dir != "" {
		opts = append(opts, kfake.DataDir(dir))
		ahead, err := brokerstate.Recover(dir)
		if err != nil {
			log.Warn("embedded broker: failed to rebuild the state of producers; after a crash a record may be in its topic twice", "data", dir, "err", err)
		} else if ahead > 0 {
			log.Info("embedded broker: rebuilt the state of producers after a crash", "windows", ahead)
		}
	}
	return kfake.NewCluster(opts...)
}
