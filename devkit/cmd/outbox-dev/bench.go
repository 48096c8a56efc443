package main

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
)

// Optional peers of the relay in a benchmark.
const (
	peerTuned    = "tuned"
	peerDefaults = "defaults"
	peerNone     = "none"
)

// benchFlags are the flags of the command.
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
	onDisk      bool // the embedded engines keep their data in a folder
	tablets     int  // streams of the table; 0 has vnodes, or the default of the given cluster
	vnodes      bool // with vnodes on a given cluster, too
	nodeCosts   bool // the embedded database takes the time of a real node
	metricsPort int
}

// addSizeFlags adds the flags of payloads and runs.
func (f *benchFlags) addSizeFlags(fl *pflag.FlagSet) {
	fl.IntVar(&f.payload, "payload", 512, "bytes of a payload")
	fl.IntVar(&f.runs, "runs", 1, "number of runs; figures are their medians")
}

// costsFlag adds the flag of node costs.
func (f *benchFlags) costsFlag(fl *pflag.FlagSet, on bool) {
	fl.BoolVar(&f.nodeCosts, "node-costs", on, "requests to the embedded database take the time that they were measured to take on a ScyllaDB node")
}

// addFlags adds the flags that all benchmarks have; profiled names the profiled processes, "" for none.
func (f *benchFlags) addFlags(cmd *cobra.Command, profiled string) {
	fl := cmd.Flags()
	if profiled != "" {
		fl.StringVar(&f.profiles, "profiles", "", "folder for processor profiles of "+profiled)
	}
	fl.StringVarP(&f.output, "output", "o", "text", "text, json or markdown")
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionLog)
	fl.IntVar(&f.metricsPort, "scylla-metrics-port", 9180, "Prometheus port of the nodes in --scylla-hosts, for the processor time of a given cluster")
}

// checkTablets reports a number of tablets that there is not.
func (p *problems) checkTablets(n int) {
	p.bad(n < 0 || n > 1024 || bits.OnesCount(uint(n)) > 1, "--tablets %d: use a power of two up to 1024, or 0", n)
}

func newBenchCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure latency, drain rate and cost of the relay",
		Long: `Measure the relay and, in the same run, the clients alone on the same machine.

  latency   Events are written at a fixed rate, independent of the responses.
            Each event is timed until a consumer has it: from when it was to be
            sent, and from when it was stored. Measured are the relay with
            hints, the polling relay, and scylla-cdc-go with franz-go, whose
            window and delays are tuned to the same latency or are the defaults.
  drain     A backlog is written, then a relay starts and publishes it. Compared
            with reading the same rows and discarding them, and with producing
            the same records.
  cost      Processor time, memory, and requests to the database, under load and
            idle.
  restart   With --restart: the relay is killed under load and started again;
            measured is the time until it publishes.

The relay is a process of its own, and so are the embedded database and broker.
With --scylla-hosts and --kafka-seeds the given cluster is used instead, in
keyspaces and topics named outbox_bench_… that are removed in the end.

With --runs every figure is the median of the runs. Exit status 1 if an event
was lost, came twice, or came out of order.`,
		Args: cobra.NoArgs,
		RunE: measuring(&f, (*benchFlags).validate, func(ctx context.Context, b *benchmark) error { return b.run(ctx) }),
	}
	fl := cmd.Flags()
	fl.Float64Var(&f.rate, "rate", 1000, "events per second of the load")
	fl.DurationVar(&f.duration, "duration", 10*time.Second, "duration of a load after a second of warm-up; 0 skips latency")
	fl.DurationVar(&f.idle, "idle", 5*time.Second, "how long the idle relay is measured; 0 skips it")
	fl.DurationVar(&f.poll, "poll", 15*time.Millisecond, "interval of the relay that polls, and of the tuned peer")
	fl.Int64Var(&f.drain, "drain", 50_000, "events of the backlog; 0 skips draining")
	fl.IntVar(&f.payload, "payload", 512, "bytes of a payload")
	fl.IntVar(&f.runs, "runs", 1, "number of runs; figures are their medians")
	fl.BoolVar(&f.restart, "restart", false, "kill the relay under load and measure the time until it publishes again")
	fl.Float64Var(&f.restartRate, "restart-rate", 5000, "events per second during the restart")
	fl.IntVar(&f.tablets, "tablets", 0, "tablets, and so CDC streams, of the table; 0 is 256 vnodes, or the default of a given cluster")
	fl.StringSliceVar(&f.peers, "peers", []string{peerTuned}, "scylla-cdc-go with franz-go: tuned, defaults (takes minutes), or none")
	f.costsFlag(fl, false)
	f.addFlags(cmd, "the relay and its peers")
	cmd.AddCommand(newBenchOrdersCommand(), newBenchMessagesCommand(), newBenchScheduleCommand(), newBenchShapesCommand(), newBenchStreamsCommand(), newBenchLatencyCostCommand(), newBenchSustainedCommand(), newBenchSubscriptionsCommand(), newBenchPeerCommand(), newBenchServeCommand(), newBenchRelayCommand(), newBenchSubscribedCommand())
	return cmd
}

// problems are the errors of flags.
type problems []error

func (p *problems) bad(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// with returns all problems, including an unknown output.
func (p problems) with(output string) error {
	return errors.Join(append(p, cli.CheckChoice("output", output, "text", "json", "markdown"))...)
}

// measuring returns the function of a command that validates its flags, starts the engines that
// it measures with, measures, and stops all of it.
func measuring(f *benchFlags, validate func(*benchFlags) error, measure func(context.Context, *benchmark) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) (err error) {
		if err := validate(f); err != nil {
			return cli.Usage(err)
		}
		b, err := newBenchmark(cmd, *f)
		if err != nil {
			return err
		}
		teardown := daemon.Teardown{Logger: b.log}
		defer func() { err = errors.Join(err, teardown.Run()) }()
		if err := b.start(&teardown); err != nil {
			return err
		}
		b.findNodes(cmd.Context())
		return measure(cmd.Context(), b)
	}
}

func (f *benchFlags) validate() error {
	var errs problems
	bad := errs.bad
	bad(f.rate <= 0 || f.rate > 1e6, "--rate %g: use events per second, up to a million", f.rate)
	bad(f.restartRate <= 0 || f.restartRate > 1e6, "--restart-rate %g: use events per second, up to a million", f.restartRate)
	bad(f.restart && f.duration == 0, "--restart needs a --duration: the relay is killed after a third of it")
	bad(f.duration < 0, "--duration %s: must not be negative", f.duration)
	bad(f.idle < 0, "--idle %s: must not be negative", f.idle)
	bad(f.poll < time.Millisecond, "--poll %s: use a millisecond or more", f.poll)
	bad(f.drain < 0, "--drain %d: must not be negative", f.drain)
	bad(f.payload < 32 || f.payload > 900_000, "--payload %d: use 32 to 900000 bytes", f.payload)
	errs.checkTablets(f.tablets)
	bad(f.runs < 1, "--runs %d: use 1 or more", f.runs)
	for _, p := range f.peers {
		bad(!slices.Contains([]string{peerTuned, peerDefaults, peerNone}, p), "--peers %q: use tuned, defaults or none", p)
	}
	return errs.with(f.output)
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
