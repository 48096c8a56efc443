package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/internal/epochs"
	"github.com/scylla-outbox/scylla-outbox/internal/load"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// newEpochFlags contains the flags of schema new-epoch.
type newEpochFlags struct {
	dlqConfirm
	dlqActor
	topics []string
	output string
}

func newSchemaNewEpochCommand() *cobra.Command {
	var f newEpochFlags
	cmd := &cobra.Command{
		Use:   "new-epoch",
		Short: "Begin an epoch of the outbox table after a restore of the database",
		Long: `Begin an epoch of the outbox table after a restore of the database.

The restored database gives numbers of aggregates again that are in the topics already.
Events that are written from now on are of the new epoch: they have the header
ce_epoch, which consumers compare before the number. docs/operators/restore.md has the
steps of a restore.

Stop the relays and all writers of the table first. The command refuses to begin an
epoch while a relay runs, while rows are written, or if another epoch has begun
since its preview. It reads the outbox table, or with relay.tables the one of them that
--relay-table KEYSPACE.TABLE names, and the topics, as outbox verify does, and lists
the events that the restore has undone: they are in a topic, and the table has other
events with their numbers, or none. Once the epoch has begun, outbox verify lists them
as undone. An event that is unknown is no last one of its aggregate, so the restore
does not explain it. The number of a conflict was given again before the epoch.

The command has no --api-admin-url: it reads the whole outbox and the topics, as outbox verify does.
It needs the database and Kafka.

The command prints a preview first. On a terminal it asks for confirmation; elsewhere
it requires --yes. The audit trail records the change (GET /v1/audit). It is safe to
run the command again: an epoch without events is harmless.

Exit status: 0 success; 1 failure, or the table is in use; 2 wrong command line or
configuration.`,
		Args: cobra.NoArgs,
		RunE: app.WithConfig(func(cmd *cobra.Command, c *app.Config) error {
			if err := f.requireReason(f.dryRun); err != nil {
				return err
			}
			return f.run(cmd, c)
		}),
	}
	cmd.Flags().StringSliceVar(&f.topics, "more-topics", nil, "additional topics, such as those first used after the backup")
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd, "audit trail and the table")
	cli.OutputFlag(cmd, &f.output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionRelay)
	return cmd
}

// newEpoch is an epoch that is to begin.
type newEpoch struct {
	session         *gocql.Session
	keyspace, table string
	clock           dbclock.Clock
	previous        *epochs.Epoch // nil for none
	v               *verify.Verification
	lastWrite       time.Time // of a row
	lastRecord      int64     // the latest epoch of a record
}

// begunEpoch is the summary as JSON.
type begunEpoch struct {
	Table string `json:"table"`
	// Previous is the epoch before, if there was one.
	Previous *epochs.Epoch `json:"previous,omitempty"`
	// Epoch is the epoch that began, 0 for a dry run.
	Epoch   int64 `json:"epoch"`
	Undone  int64 `json:"undone"`
	Unknown int64 `json:"unknown"`
	// Conflicts are events whose number was given again before the epoch.
	Conflicts int64 `json:"conflicts"`
	DryRun    bool  `json:"dry_run"`
}

func (f *newEpochFlags) run(cmd *cobra.Command, c *app.Config) error {
	conf, err := c.Only()
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	c.Scylla.Need(schema.Core)
	session, disconnect, err := c.Connect(ctx)
	if err != nil {
		return err
	}
	defer disconnect()
	n := &newEpoch{session: session, keyspace: c.Scylla.Keyspace, table: app.TableName(&conf)}
	if err := f.idle(cmd, n.checkRelaysStopped(ctx)); err != nil {
		return err
	}
	if n.v, err = c.Verification(ctx, &conf, session); err != nil {
		return err
	}
	n.v.Topics = append(n.v.Topics, f.topics...)
	if err := n.read(cmd); err != nil {
		return err
	}
	if err := f.idle(cmd, n.quiet()); err != nil {
		return err
	}
	out := begunEpoch{Table: n.table, Previous: n.previous, DryRun: f.dryRun}
	if err := f.preview(cmd, n, &out); err != nil || f.dryRun {
		return errors.Join(err, f.print(cmd, n, &out))
	}
	if err := f.confirm(cmd, fmt.Sprintf("begin an epoch of %s?", n.table)); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	change := admin.Change{Actor: f.actorName(), Action: "begin-epoch", Target: n.table, Reason: f.reason, Detail: map[string]int64{"previous": n.previousEpoch(), "undone": out.Undone}}
	err = c.Trail(session, log).Record(ctx, change, func(ctx context.Context) (any, error) {
		if out.Epoch, err = n.begin(ctx, f.actorName(), f.reason); err != nil {
			return nil, err
		}
		return map[string]int64{"epoch": out.Epoch}, nil
	})
	if err != nil {
		return err
	}
	return f.print(cmd, n, &out)
}

// errInUse is wrapped by errors about a table that is in use.
var errInUse = errors.New("the table is in use")

// idle returns err. A dry run prints that the table is in use, and continues.
func (f *newEpochFlags) idle(cmd *cobra.Command, err error) error {
	if f.dryRun && errors.Is(err, errInUse) {
		fmt.Fprintf(cmd.ErrOrStderr(), "refused now: %s; %s\n", cli.Clean(err.Error(), 300), cli.FindHint(err))
		return nil
	}
	return err
}

// checkRelaysStopped returns an error if a relay publishes the table.
func (n *newEpoch) checkRelaysStopped(ctx context.Context) error {
	alive, err := relay.Running(ctx, n.session, n.keyspace, n.table)
	if err == nil && len(alive) > 0 {
		err = cli.WithHint(fmt.Errorf("%w: relays of %s run: %s", errInUse, n.table, strings.Join(alive, ", ")), "stop them and all writers of the table, and run this again")
	}
	return err
}

// quiet returns an error if rows were written while the table was read.
func (n *newEpoch) quiet() error {
	if young := n.v.Ledger().Check(n.v.Window, nil).Young; young > 0 {
		return cli.WithHint(fmt.Errorf("%w: %s has %s written since %s", errInUse, n.table, cli.Plural(int(young), "event"), n.v.Window.Until.UTC().Format(time.RFC3339)), "stop all writers of the table, and run this again")
	}
	return nil
}

func (n *newEpoch) previousEpoch() int64 {
	if n.previous == nil {
		return 0
	}
	return n.previous.Epoch
}

// read reads the table and the topics, and adds the epoch that would begin now to the window of the
// verification.
func (n *newEpoch) read(cmd *cobra.Command) (err error) {
	ctx := cmd.Context()
	if n.previous, err = epochs.Latest(ctx, n.session, n.keyspace, n.table); err != nil {
		return err
	}
	if err := n.clock.Measure(ctx, n.session); err != nil {
		return err
	}
	n.v.Window.Until = n.clock.Now()
	if err := load.Showing(ctx, verifyProgress(cmd.ErrOrStderr(), n.v), func() error { return n.v.Run(ctx) }); err != nil {
		if errors.Is(err, verify.ErrUnnumbered) {
			err = cli.WithHint(err, "it needs no epoch: its events have no numbers that could be given again")
		}
		return err
	}
	n.lastWrite, n.lastRecord = n.v.Ledger().Last()
	n.v.Window.Epochs = append(n.v.Window.Epochs, n.next(n.v.Window.Until))
	return nil
}

// next returns the epoch that begins at a time.
func (n *newEpoch) next(now time.Time) int64 {
	return epochs.Next(now, n.lastWrite, n.previousEpoch(), n.lastRecord)
}

// maxAhead is the time for which begin waits until the epoch begins.
const maxAhead = 10 * time.Second

// begin begins the epoch and returns it.
func (n *newEpoch) begin(ctx context.Context, by, reason string) (int64, error) {
	if err := n.checkRelaysStopped(ctx); err != nil {
		return 0, err
	}
	now := n.clock.Now()
	epoch := n.next(now)
	wait := time.Unix(epoch, 0).Sub(now)
	if wait > maxAhead {
		return 0, fmt.Errorf("the next epoch of %s would begin at %s, which is %s ahead of the database's clock: the last row was written at %s, and the last epoch is %d; run this again then",
			n.table, time.Unix(epoch, 0).UTC().Format(time.RFC3339), wait.Round(time.Second), n.lastWrite.UTC().Format(time.RFC3339), max(n.previousEpoch(), n.lastRecord))
	}
	if err := retry.Wait(ctx, max(wait, 0)); err != nil {
		return 0, err
	}
	err := epochs.Begin(ctx, n.session, n.keyspace, n.table, n.previousEpoch(), epoch, by, reason)
	switch {
	case errors.Is(err, epochs.ErrBegun):
		return 0, cli.WithHint(err, "run this again: the preview shows it")
	case err != nil:
		return 0, cli.WithHint(fmt.Errorf("%w; the outcome is unknown", err), "run this again: the preview shows whether it has begun")
	}
	return epoch, nil
}

// countForked calls each for the events that are in a topic and have no row, and counts them.
func (n *newEpoch) countForked(out *begunEpoch, each func(verify.Finding)) {
	counts := n.v.Ledger().Check(n.v.Window, func(f verify.Finding) {
		if f.Kind == verify.Undone || f.Kind == verify.Unknown || f.Kind == verify.Conflict {
			each(f)
		}
	})
	out.Undone, out.Unknown, out.Conflicts = counts.Undone, counts.Unknown, counts.Conflicts
}

// preview prints the state of the table.
func (f *newEpochFlags) preview(cmd *cobra.Command, n *newEpoch, out *begunEpoch) error {
	var text strings.Builder
	found := findings{out: &text}
	n.countForked(out, found.add)
	found.end()
	if f.dryRun && f.output != "table" {
		return nil
	}
	fmt.Fprintf(&text, "table       %s\n", n.table)
	if n.lastWrite.IsZero() {
		text.WriteString("last write  none\n")
	} else {
		fmt.Fprintf(&text, "last write  %s\n", n.lastWrite.UTC().Format(time.RFC3339))
	}
	if p := n.previous; p == nil {
		text.WriteString("last epoch  none\n")
	} else {
		fmt.Fprintf(&text, "last epoch  %d, begun at %s by %s: %s\n", p.Epoch, p.SetAt.Format(time.RFC3339), cli.Clean(p.SetBy, 40), cli.Clean(p.Reason, 80))
		if n.lastWrite.Before(time.Unix(p.Epoch, 0)) && n.lastRecord < p.Epoch {
			text.WriteString("            it has no event yet: a restore since then is the only reason for another one\n")
		}
	}
	if n.lastRecord > n.previousEpoch() {
		fmt.Fprintf(&text, "            the topics have events of epoch %d, which the restore has undone\n", n.lastRecord)
	}
	fmt.Fprintf(&text, "undone      %s\n", cli.Plural(int(out.Undone), "event"))
	if out.Unknown > 0 {
		fmt.Fprintf(&text, "unknown     %s: no restore explains them\n", cli.Plural(int(out.Unknown), "event"))
	}
	if out.Conflicts > 0 {
		fmt.Fprintf(&text, "conflict    %s: their numbers were given again before an epoch began, or by two writers\n", cli.Plural(int(out.Conflicts), "event"))
	}
	_, err := fmt.Fprint(cmd.ErrOrStderr(), text.String())
	return err
}

// print prints the result.
func (f *newEpochFlags) print(cmd *cobra.Command, n *newEpoch, out *begunEpoch) error {
	w := cmd.OutOrStdout()
	if f.output == "table" {
		if f.dryRun { // the preview is printed
			return nil
		}
		_, err := fmt.Fprintf(w, "epoch %d of %s began: start the relays, then the writers\n", out.Epoch, n.table)
		return err
	}
	return printFindingsAs(w, f.output, func(each func(verify.Finding)) any {
		n.countForked(out, each)
		return out
	})
}
