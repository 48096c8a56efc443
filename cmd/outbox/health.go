package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// healthTimeout is below the timeout of usual health checks, so that the reason is
// printed before the check is killed.
const healthTimeout = 4 * time.Second

func newHealthCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "health COMMAND",
		Short: "Check whether a process on this host is ready",
		Long: `Check /readyz of the process of COMMAND at its ops.addr on this host. The exit
status is 0 if it is ready; otherwise the reason is printed. It is for health checks
of containers, whose image has no shell.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 || target.Flags().Lookup(app.FlagOpsAddr) == nil {
				return cli.Usage(fmt.Errorf("COMMAND %q has no ops listener; use relay, messages, subscriptions, admin, notifier or orders", strings.Join(args, " ")))
			}
			c, err := app.LoadConfigFrom(file, os.LookupEnv, target.Flags())
			if err != nil {
				return err
			}
			return checkHealth(cmd.Context(), c.Ops.Addr)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file (YAML) of the process; the environment takes precedence")
	return cmd
}

// checkHealth returns nil if the process with the ops listener addr is ready.
func checkHealth(ctx context.Context, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return cli.Usage(fmt.Errorf("ops.addr %q has no listener to ask; set host:port", addr))
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1" // all addresses, this one included
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return cli.Usage(fmt.Errorf("ops.addr %q: %w", addr, err))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return cli.WithHint(err, "ops.addr (OUTBOX_OPS_ADDR, or --config) must be that of the process")
	}
	defer resp.Body.Close()
	detail, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("not ready: %s: %s", resp.Status, strings.TrimSpace(string(detail)))
	}
	return err
}
