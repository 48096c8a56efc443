package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/chaos"
	"github.com/scylla-outbox/scylla-outbox/devkit/processes"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// chaosDrill is outbox-dev chaos.
type chaosDrill struct {
	writers            chaos.Writers
	kills              chaos.Kills
	aggregates         int
	patience           time.Duration
	killer, ledgerFile string
	output             string

	command     []string
	relay       *processes.Process // that runs command; nil if none does
	beside      []string           // relays that ran before
	out, errOut io.Writer
	session     *gocql.Session
	topic       string
	ours        map[outbox.ID]bool // the aggregates
	ledger      *verify.Ledger

	mu   sync.Mutex
	file *os.File // nil for none
	errs []error
}

// chaosReport is the result of outbox-dev chaos.
type chaosReport struct {
	Stored       int64 `json:"events_stored"`
	Published    int64 `json:"events_published"`
	Undetermined int64 `json:"undetermined"`
	Conflicts    int64 `json:"conflicts"`
	Kills        int   `json:"kills"`
	// Beside are the relays of the table that ran before the command: with a relay behind "--"
	// the processes that it does not kill, and that may have published in its place.
	Beside     []string         `json:"relays_beside"`
	Lost       []verify.Finding `json:"lost"`
	Twice      []verify.Finding `json:"twice"`
	Gaps       []verify.Finding `json:"gaps"`
	OutOfOrder []verify.Finding `json:"out_of_order"`
	// Others are numbers that two events have, and events of a topic whose rows the database lost.
	Others []verify.Finding `json:"others"`
}

func newChaosCommand() *cobra.Command {
	d := chaosDrill{ledger: verify.NewLedger()}
	cmd := &cobra.Command{
		Use:   "chaos [flags] [-- RELAY [ARGUMENT]...]",
		Short: "Kill a relay while events are written, and account for each event",
		Long: `Kill a relay while events are written, and account for each event.

The command writes events to an outbox table of a cluster, by AppendNext and several
concurrent writers, while it kills a relay at random moments: the program behind
"--", which it starts, kills with SIGKILL and starts again, or whatever the shell command
of --kill ends, such as a pod. Relays that run before are reported: they publish too. Then it waits until the events that were stored are in
their topic, and reports each one that is lost, twice, out of order, or whose number
is missing.

The events go to aggregates of their own, so the table may be in use. They
have the types of --aggregate-type and --event-type; consumers of the topic receive
them. The table needs sequence numbers. Use a cluster for tests. An event that
became a dead letter is in no topic, so it is reported as lost.

Exit status: 0 each event is in the topic, once and in order; 1 one is not, or the
command failed; 2 wrong command line or configuration.`,
		Example: `  outbox-dev chaos --config relay.yaml --relay-table bank.account_events -- outbox relay --config relay.yaml
  outbox-dev chaos --config relay.yaml --kill 'kubectl delete pod -l app.kubernetes.io/component=relay --grace-period=0 --force' --pause 1m`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.check(args); err != nil {
				return err
			}
			c, err := app.LoadConfig(cmd)
			if err != nil {
				return err
			}
			d.command, d.out, d.errOut = args, cmd.OutOrStdout(), cmd.ErrOrStderr()
			return d.run(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.IntVar(&d.kills.Number, "kills", 10, "number of kills")
	f.DurationVar(&d.kills.Pause, "pause", 5*time.Second, "maximum time before a kill")
	f.DurationVar(&d.kills.Down, "down", 2*time.Second, "maximum time before the relay is started again")
	f.StringVar(&d.killer, "kill", "", "shell command that kills a relay, in place of one behind \"--\"")
	f.IntVar(&d.writers.Number, "writers", 8, "number of concurrent writers")
	f.IntVar(&d.aggregates, "aggregates", 20, "number of aggregates to which they write")
	f.Float64Var(&d.writers.Rate, "rate", 100, "maximum number of events per second")
	f.StringVar(&d.writers.AggregateType, "aggregate-type", "chaos", "aggregate type of the events")
	f.StringVar(&d.writers.EventType, "event-type", "ChaosHappened", "type of the events, which determines their topic")
	f.DurationVar(&d.patience, "patience", 5*time.Minute, "maximum wait for the next event to be stored or published")
	f.StringVar(&d.ledgerFile, "ledger", "", "file to which each stored event is appended, as JSON lines")
	cli.OutputFlag(cmd, &d.output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionRelay)
	return cmd
}

// check checks the command line.
func (d *chaosDrill) check(args []string) error {
	switch {
	case (len(args) == 0) == (d.killer == ""):
		return cli.Usage(errors.New(`name the relay to kill: its command line behind "--", or --kill with a command that kills it`))
	case d.kills.Number < 1 || d.writers.Number < 1 || d.aggregates < 1 || d.writers.Rate <= 0:
		return cli.Usage(errors.New("--kills, --writers, --aggregates and --rate must be positive"))
	case d.kills.Pause <= 0 || d.kills.Down < 0 || d.patience <= 0:
		return cli.Usage(errors.New("--pause and --patience must be positive, and --down not negative"))
	}
	return nil
}

func (d *chaosDrill) run(ctx context.Context, c *app.Config) error {
	conf, err := c.Only()
	if err != nil {
		return err
	}
	if d.topic, err = app.NewTopics(conf)(&outbox.Event{Type: d.writers.EventType, AggregateType: d.writers.AggregateType}); err != nil {
		return cli.Usage(err)
	}
	if d.session, err = c.Scylla.Session(c.Scylla.Keyspace); err != nil {
		return err
	}
	defer sessions.Close(d.session)
	// Records are dated by the relay's clock.
	began := time.Now().Add(-10 * time.Minute)
	client, err := c.Kafka.Client(append(verify.FollowFromStart(d.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AfterMilli(began.UnixMilli())))...)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := app.Reachable(ctx, client, c.Kafka.Seeds); err != nil {
		return err
	}
	if err := d.prepare(ctx, &conf); err != nil {
		return err
	}
	if d.ledgerFile != "" {
		if d.file, err = os.OpenFile(d.ledgerFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
			return err
		}
		defer d.file.Close()
	}
	consumer := verify.NewConsumer(client, d.ledger, d.topic)
	consumer.Aggregates = d.ours
	begin, err := kadm.NewClient(client).ListOffsetsAfterMilli(ctx, began.UnixMilli(), d.topic)
	if err != nil {
		return err
	}
	consumer.Begin(begin)
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	go consumer.Run(consuming)

	defer func() {
		if d.relay != nil && d.relay.Running() {
			d.relay.Kill() // it does not end with this process everywhere
		}
	}()
	if err := errors.Join(d.storm(ctx), errors.Join(d.errs...)); err != nil {
		return err
	}
	if err := d.await(ctx, consumer); err != nil {
		return err
	}
	return d.report()
}

// prepare makes the appender and the ids of the aggregates.
func (d *chaosDrill) prepare(ctx context.Context, conf *relay.Config) error {
	columns, err := outbox.ReadColumns(ctx, d.session, conf.TableKeyspace, conf.Table)
	if err != nil {
		return err
	}
	if len(columns) == 0 {
		return cli.Usage(fmt.Errorf("table %s does not exist: create it, or name another with --relay-table", app.TableName(conf)))
	}
	table, err := conf.Mapping.Table(conf.TableKeyspace, conf.Table, columns)
	if err != nil {
		return err
	}
	if d.writers.Appender, err = outbox.NewAppender(ctx, d.session, table, outbox.AppenderConfig{}); err != nil {
		return err
	}
	ids := func(field string) func() outbox.ID {
		for _, c := range columns {
			if name := rows.Column(table, field); name != c.Name && name != `"`+c.Name+`"` {
				continue
			}
			switch c.Type {
			case "timeuuid":
				return func() outbox.ID { return outbox.IDFromUUID(gocql.TimeUUID()) }
			case "bigint":
				return func() outbox.ID { return outbox.IDFromInt(rand.Int64()) }
			case "int":
				return func() outbox.ID { return outbox.IDFromInt(int64(rand.Int32())) }
			}
		}
		return outbox.NewID
	}
	if d.beside, err = relay.Running(ctx, d.session, conf.Keyspace, app.TableName(conf)); err != nil {
		return err
	}
	if len(d.command) > 0 && len(d.beside) > 0 {
		fmt.Fprintf(d.errOut, "relays of %s run beside the one that is killed, and may publish in its place: %s\n", app.TableName(conf), strings.Join(d.beside, ", "))
	}
	d.ours = make(map[outbox.ID]bool)
	for aggregate := ids("aggregate_id"); len(d.ours) < d.aggregates; {
		d.ours[aggregate()] = true
	}
	d.writers.Aggregates = slices.Collect(maps.Keys(d.ours))
	d.writers.NewID, d.writers.Patience, d.writers.Stored = ids("event_id"), d.patience, d.addToLedger
	return nil
}

// noteError notes an error that is no finding.
func (d *chaosDrill) noteError(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.errs = append(d.errs, fmt.Errorf(format, args...))
}

// addToLedger enters an event into the ledger.
func (d *chaosDrill) addToLedger(e outbox.Event) {
	if err := d.ledger.AddRows(d.row(&e)); err != nil {
		d.noteError("ledger: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file == nil {
		return
	}
	if err := json.NewEncoder(d.file).Encode(struct {
		Event     outbox.ID `json:"event_id"`
		Aggregate outbox.ID `json:"aggregate_id"`
		Sequence  int64     `json:"sequence"`
		Created   time.Time `json:"created_at"`
	}{e.ID, e.AggregateID, e.Sequence, e.CreatedAt.UTC()}); err != nil {
		d.errs = append(d.errs, err)
	}
}

// row returns the row of an event, whose time the table need not have.
func (d *chaosDrill) row(e *outbox.Event) verify.Row {
	written := e.CreatedAt
	if written.IsZero() {
		written = time.Now()
	}
	return verify.Row{Event: e.ID, Aggregate: e.AggregateID, Seq: e.Sequence, Topic: d.topic, Written: written.UnixMicro()}
}

// storm writes events while it kills the relay.
func (d *chaosDrill) storm(ctx context.Context) error {
	victim := &chaos.Victim{Name: "the relay", Restart: func() {}}
	d.kills.Victims = []*chaos.Victim{victim}
	d.kills.Killed = func(v *chaos.Victim) { fmt.Fprintf(d.errOut, "kill %d of %d\n", v.Kills(), d.kills.Number) }
	if d.killer != "" {
		victim.Kill = func() {
			if out, err := exec.CommandContext(ctx, "sh", "-c", d.killer).CombinedOutput(); err != nil {
				d.noteError("%s: %w: %s", d.killer, err, out)
			}
		}
	} else {
		p := processes.Start(processes.Config{Name: "the relay", Path: d.command[0], Args: d.command[1:], Log: os.Stderr, Fail: d.noteError})
		d.relay = p
		victim.Running, victim.Kill, victim.Restart = p.Running, p.Kill, p.Restart
	}
	writing, stop := context.WithCancel(ctx)
	defer stop()
	written := make(chan error, 1)
	go func() { written <- d.writers.Run(writing) }()
	killed := d.kills.Run(ctx, rand.New(rand.NewPCG(rand.Uint64(), 0)))
	stop()
	return errors.Join(<-written, killed, context.Cause(ctx))
}

// await completes the ledger by the rows of the table, and waits until their events are in the topic.
func (d *chaosDrill) await(ctx context.Context, consumer *verify.Consumer) error {
	for _, id := range d.writers.Aggregates {
		found, err := d.writers.Appender.Since(ctx, &outbox.Event{AggregateID: id}, 1)
		if err != nil {
			return err
		}
		for i := range found {
			if err := d.ledger.AddRows(d.row(&found[i])); err != nil {
				return err
			}
		}
		if len(found) > 0 { // it may be of a writer that never learned that it was decided
			if err := d.writers.Appender.Settle(ctx, found[len(found)-1]); err != nil {
				return err
			}
		}
	}
	for best, end := int64(-1), time.Now(); ; {
		t := d.ledger.Totals()
		if t.Both > best {
			best, end = t.Both, time.Now().Add(d.patience)
		}
		if t.Both == t.Rows || time.Now().After(end) {
			break
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	return consumer.ToEnd(ctx)
}

// report prints the result.
func (d *chaosDrill) report() error {
	none := func() []verify.Finding { return []verify.Finding{} }
	r := chaosReport{Lost: none(), Twice: none(), Gaps: none(), OutOfOrder: none(), Others: none(), Undetermined: d.writers.UndeterminedCount(), Conflicts: d.writers.Conflicts(), Kills: d.kills.Victims[0].Kills(), Beside: append([]string{}, d.beside...)}
	var text strings.Builder
	counts := d.ledger.Check(verify.Window{FromFirst: true}, func(f verify.Finding) {
		of, word := &r.Others, string(f.Kind)
		switch f.Kind {
		case verify.Missing:
			of, word = &r.Lost, "lost"
		case verify.Double:
			of, word = &r.Twice, "twice"
		case verify.Gap:
			of, word = &r.Gaps, "gap before"
		case verify.Disorder:
			of, word = &r.OutOfOrder, "out of order"
		}
		*of = append(*of, f)
		fmt.Fprintf(&text, "%s: event %s, number %d of %s: %s\n", word, f.Event, f.Seq, f.Aggregate, f.Detail)
	})
	r.Stored, r.Published = counts.Rows, counts.Published
	fmt.Fprintf(&text, "%d events stored, %d published; %s; %d conflicts: %d lost, %d twice, %d gaps, %d out of order\n",
		r.Stored, r.Published, cli.Plural(r.Kills, "kill"), r.Conflicts, len(r.Lost), len(r.Twice), len(r.Gaps), len(r.OutOfOrder))
	err := cli.Show(d.out, d.output, r, func(w io.Writer) error { _, err := io.WriteString(w, text.String()); return err })
	if err == nil && !counts.OK() {
		err = cli.QuietError{}
	}
	return err
}
