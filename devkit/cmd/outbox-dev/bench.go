package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// What else may be measured beside the relay.
const (
	peerTuned    = "tuned"
	peerDefaults = "defaults"
	peerNone     = "none"
)

// benchFlags are the command's own.
type benchFlags struct {
	rate        float64
	duration    time.Duration
	idle        time.Duration
	poll        time.Duration
	drain       int64
	payload     int
	runs        int
	restart     bool
	restartRate float64
	peers       []string
	output      string
	profiles    string
}

func newBenchCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the relay: latency, drain rate, cost; and what the clients alone give on the same machine",
		Long: `Measure the relay, and beside it, in the same run, what the clients alone give.

  latency   events are written at a fixed rate, whatever the answers take, and
            each one's time counts from when it was to be sent and from when it
            was stored until a consumer has it: the relay with hints, the relay
            that polls, and scylla-cdc-go with franz-go alone, whose window and
            delays are tuned to the same latency, or left as they are by default
  drain     a backlog is written and then a relay is started: how fast it gets
            to the topic, and what reading the same rows and discarding them, and
            producing the same records, take on their own
  cost      processor time, memory, and requests to the database, under load and
            with nothing to do
  restart   with --restart: the relay is killed under load and started again;
            how long until it publishes

The relay is a process of its own. Without --scylla-hosts and --kafka-seeds so
are an embedded database and an embedded broker; with both, they are used, in
keyspaces and topics named outbox_bench_… that are removed in the end.

With --runs every figure is the median of so many runs. Exit status 1 if an
event was lost, came twice, or came out of order.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return cli.Usage(err)
			}
			b, err := newBenchmark(cmd, f)
			if err != nil {
				return err
			}
			return b.run(cmd.Context())
		},
	}
	fl := cmd.Flags()
	fl.Float64Var(&f.rate, "rate", 1000, "events per second of the load")
	fl.DurationVar(&f.duration, "duration", 10*time.Second, "how long a load takes, after a second of warm-up; 0 leaves latency out")
	fl.DurationVar(&f.idle, "idle", 5*time.Second, "how long the relay is watched with nothing to do; 0 leaves it out")
	fl.DurationVar(&f.poll, "poll", 15*time.Millisecond, "interval of the relay that polls, and of the tuned peer")
	fl.Int64Var(&f.drain, "drain", 50_000, "events of the backlog; 0 leaves draining out")
	fl.IntVar(&f.payload, "payload", 512, "bytes of a payload")
	fl.IntVar(&f.runs, "runs", 1, "runs; the figures are their medians")
	fl.BoolVar(&f.restart, "restart", false, "kill the relay under load and measure how long until it publishes again")
	fl.Float64Var(&f.restartRate, "restart-rate", 5000, "events per second of the load that a restart happens under")
	fl.StringSliceVar(&f.peers, "peers", []string{peerTuned}, "scylla-cdc-go with franz-go alone: tuned, defaults (takes minutes), or none")
	fl.StringVar(&f.profiles, "profiles", "", "write processor profiles of the relay and of its peers into this folder")
	fl.StringVarP(&f.output, "output", "o", "text", "text, json or markdown")
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionLog)
	cmd.AddCommand(newBenchOrdersCommand(), newBenchMessagesCommand(), newBenchScheduleCommand(), newBenchPeerCommand(), newBenchServeCommand(), newBenchRelayCommand())
	return cmd
}

func (f *benchFlags) validate() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(f.rate <= 0 || f.rate > 1e6, "--rate %g: use events per second, up to a million", f.rate)
	bad(f.restartRate <= 0 || f.restartRate > 1e6, "--restart-rate %g: use events per second, up to a million", f.restartRate)
	bad(f.restart && f.duration == 0, "--restart needs a --duration: the relay is killed after a third of it")
	bad(f.duration < 0, "--duration %s: must not be negative", f.duration)
	bad(f.idle < 0, "--idle %s: must not be negative", f.idle)
	bad(f.poll < time.Millisecond, "--poll %s: use a millisecond or more", f.poll)
	bad(f.drain < 0, "--drain %d: must not be negative", f.drain)
	bad(f.payload < 32 || f.payload > 900_000, "--payload %d: use 32 to 900000 bytes", f.payload)
	bad(f.runs < 1, "--runs %d: use 1 or more", f.runs)
	for _, p := range f.peers {
		bad(!slices.Contains([]string{peerTuned, peerDefaults, peerNone}, p), "--peers %q: use tuned, defaults or none", p)
	}
	if err := cli.OneOf("output", f.output, "text", "json", "markdown"); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// stoppable ends with the first error or with ctx.
func stoppable(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
