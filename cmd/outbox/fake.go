package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/scylla-outbox/scylla-outbox/internal/brokerstate"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/store"
)

// engines are the embedded database and broker.
type engines struct {
	dir                string // empty keeps everything in memory
	cqlAddr, kafkaAddr string // empty leaves that engine out
	adminAddr          string
	version            string
	shards, tokens     int
	tablets            bool
	failed             func(error) // receives the error of a disk that refused a write; nil for nobody
}

// untilFailed returns a context that ends when the disk refuses a write, with that
// as its cause. It comes before start.
func (e *engines) untilFailed(ctx context.Context) context.Context {
	ctx, e.failed = context.WithCancelCause(ctx)
	return ctx
}

// failure returns the error of the disk if that ended ctx.
func (e *engines) failure(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, store.ErrFailed) {
		return withHint(fmt.Errorf("data directory %s: %w", e.dir, err), "free space on that disk, or name another directory with --data-dir; acknowledged writes are kept")
	}
	return nil
}

func newFakeCommand() *cobra.Command {
	var e engines
	cmd := &cobra.Command{
		Use:   "fake",
		Short: "Run the embedded engines alone: a ScyllaDB-compatible server and a Kafka broker",
		Long: `Run the embedded engines alone: a ScyllaDB-compatible CQL server (scyllafake)
and a Kafka broker (kfake). They are for trying things out and for tests, and
are never production databases. What was acknowledged survives the death of the
process; it may not survive that of the machine.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return serving(cmd, c, func(ctx context.Context, log *slog.Logger, teardown *daemon.Teardown) error {
				ctx = e.untilFailed(ctx)
				if err := e.start(teardown, log); err != nil {
					return err
				}
				log.Info("embedded engines running, not for production", "cql", e.cqlAddr, "kafka", e.kafkaAddr, "admin", e.adminAddr, "data", e.dir)
				<-ctx.Done()
				log.Info("stopping", "cause", context.Cause(ctx))
				return e.failure(ctx)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&e.dir, "data-dir", "", "keep the data here; empty keeps it in memory")
	f.StringVar(&e.cqlAddr, "cql-addr", "127.0.0.1:9042", "CQL address; empty leaves the database out")
	f.StringVar(&e.kafkaAddr, "kafka-addr", "", "Kafka address; empty leaves the broker out")
	f.StringVar(&e.adminAddr, "admin-addr", "", "address of the database's fault administration; empty means none")
	f.StringVar(&e.version, "scylla-version", scyllafake.DefaultVersion, "release to behave like: 5.1, or 2025.4 (tablets)")
	f.BoolVar(&e.tablets, "tablets", false, "make new keyspaces in tablets mode")
	f.IntVar(&e.shards, "shards", scyllafake.DefaultShards, "shards of the node")
	f.IntVar(&e.tokens, "tokens", scyllafake.DefaultTokens, "tokens (vnodes) of the node")
	addFlags(cmd, sectionLog)
	return cmd
}

// start starts the engines and registers their teardown. The addresses in e
// become the ones listened on.
func (e *engines) start(teardown *daemon.Teardown, log *slog.Logger) error {
	if err := e.makeDir(); err != nil {
		return err
	}
	if e.cqlAddr != "" {
		srv, err := scyllafake.Start(scyllafake.Config{
			Dir: e.subdir("scylla"), Addr: e.cqlAddr, AdminAddr: e.adminAddr, Version: e.version,
			Shards: e.shards, Tokens: e.tokens, Tablets: e.tablets, Logger: log, Failed: e.failed,
		})
		if errors.Is(err, store.ErrInUse) {
			return withHint(fmt.Errorf("data directory %s is in use by another process", e.dir), "stop that one, or name another with --data-dir")
		}
		if err != nil {
			return portHint(fmt.Errorf("start the embedded database: %w", err), e.cqlAddr, "--cql-addr")
		}
		teardown.Add("embedded database", srv.Close)
		e.cqlAddr = srv.Addr()
	}
	if e.kafkaAddr != "" {
		broker, err := startBroker(e.kafkaAddr, e.subdir("kafka"), log)
		if err != nil {
			return portHint(fmt.Errorf("start the embedded broker: %w", err), e.kafkaAddr, "--kafka-addr")
		}
		teardown.AddFunc("embedded broker", broker.Close)
		e.kafkaAddr = broker.ListenAddrs()[0]
	}
	return nil
}

// startBroker starts a one-node broker that listens on addr.
func startBroker(addr, dir string, log *slog.Logger) (*kfake.Cluster, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, usageError{fmt.Errorf("address %q: use host:port", addr)}
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, usageError{fmt.Errorf("address %q: %q is no port number", addr, port)}
	}
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.Ports(n),
		kfake.ListenFn(func(network, _ string) (net.Listener, error) {
			return new(net.ListenConfig).Listen(context.Background(), network, net.JoinHostPort(host, port))
		}),
	}
	if dir != "" {
		opts = append(opts, kfake.DataDir(dir))
		ahead, err := brokerstate.Recover(dir)
		if err != nil {
			log.Warn("embedded broker: the state of its producers is not rebuilt; if it was killed, a record may be in its topic twice", "data", dir, "err", err)
		} else if ahead > 0 {
			log.Info("embedded broker was killed: the state of its producers is rebuilt from its log", "windows", ahead)
		}
	}
	return kfake.NewCluster(opts...)
}

// makeDir makes the data directory and checks that it can be written.
func (e *engines) makeDir() error {
	if e.dir == "" {
		return nil
	}
	err := os.MkdirAll(e.dir, 0o755)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(e.dir, ".writable-*"); err == nil {
			f.Close()
			err = os.Remove(f.Name())
		}
	}
	if err != nil {
		return withHint(fmt.Errorf("data directory %s cannot be written: %w", e.dir, err), "--data-dir names another directory")
	}
	return nil
}

func (e *engines) subdir(name string) string {
	if e.dir == "" {
		return ""
	}
	return filepath.Join(e.dir, name)
}
