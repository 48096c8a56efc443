package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// finding is the outcome of one check.
type finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
	// Fix is what to do about a failure.
	Fix string `json:"fix,omitempty"`
}

// checkTimeout bounds one check.
const checkTimeout = 10 * time.Second

func newDoctorCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check ScyllaDB, Kafka and their permissions, and report what to fix",
		Long: `Check that ScyllaDB and Kafka are reachable and may be used, and report what to fix.
It leaves nothing behind: the one row it writes is deleted again. Exit status 1
if a check failed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.OneOf("output", output, "text", "json"); err != nil {
				return err
			}
			c, err := app.LoadConfig(cmd)
			if err != nil {
				return err
			}
			findings := append(checkScylla(c, cmd.Context()), checkRate(c))
			findings = append(findings, checkKafka(c, cmd.Context())...)
			if output == "json" {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(findings)
			} else {
				err = printFindings(cmd.OutOrStdout(), findings)
			}
			for _, f := range findings {
				if err == nil && !f.OK {
					err = cli.QuietError{}
				}
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionRelay)
	return cmd
}

func printFindings(w io.Writer, findings []finding) error {
	bad := 0
	for _, f := range findings {
		mark := "ok  "
		if !f.OK {
			mark = "FAIL"
			bad++
		}
		fmt.Fprintf(w, "%s  %s: %s\n", mark, f.Check, strings.Join(strings.Fields(f.Detail), " ")) // drivers' errors have line ends
		if f.Fix != "" {
			fmt.Fprintf(w, "      -> %s\n", f.Fix)
		}
	}
	total := fmt.Sprintf("%d checks passed", len(findings))
	if bad > 0 {
		total = fmt.Sprintf("%d of %d checks failed", bad, len(findings))
	}
	_, err := fmt.Fprintln(w, total)
	return err
}

// checkScylla goes from the connection to the permissions; what a failed check
// makes pointless is not tried.
func checkScylla(c *app.Config, ctx context.Context) (out []finding) {
	c.Scylla.Nodes = sessions.NewNodes(slog.New(slog.DiscardHandler), nil)
	session, err := c.Scylla.Session("")
	if err != nil {
		fix := "start it, or name other hosts with --scylla-hosts or OUTBOX_SCYLLA_HOSTS; check user, password and TLS"
		return append(out, finding{"ScyllaDB is reachable", false, err.Error(), fix})
	}
	defer sessions.Close(session)
	out = append(out, finding{"ScyllaDB is reachable", true, c.Scylla.Addresses(), ""})

	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	out = append(out, checkNodes(c, ctx))
	report, err := schema.Status(ctx, session, c.SchemaOptions(nil))
	switch {
	case err != nil:
		return append(out, finding{"schema", false, err.Error(), "this user needs SELECT on system_schema and on keyspace " + c.Scylla.Keyspace})
	case !report.UpToDate():
		return append(out, finding{"schema", false, fmt.Sprintf("keyspace %s is not up to date", c.Scylla.Keyspace), "outbox schema migrate (outbox schema status shows what is missing)"})
	}
	out = append(out, finding{"schema", true, fmt.Sprintf("keyspace %s is up to date, ScyllaDB %s", c.Scylla.Keyspace, cmp.Or(report.Server.Version, "(release unknown)")), ""})
	out = append(out, checkTables(c, ctx, session)...)
	out = append(out, checkCheckpoints(c, ctx, session), checkAgreed(c, ctx, session))
	out = append(out, checkInstances(c, ctx, session)...)
	out = append(out, checkVerification(c, ctx, session)...)
	return out
}

// checkNodes checks that every node that the driver knows answers.
func checkNodes(c *app.Config, ctx context.Context) finding {
	const check = "all nodes of ScyllaDB answer"
	if down := c.Scylla.Nodes.Probe(ctx); len(down) > 0 {
		return finding{
			check, false, strings.Join(down, ", ") + " accepts no connection or does not answer",
			"statements go to the other nodes while these have a quorum; start the node, or restart it if it is silent (nodetool status shows its state to the others)",
		}
	}
	return finding{check, true, "none is silent or refuses connections", ""}
}

// doctorName is the relay name of the row that checks the permission to write.
const doctorName = "doctor"

// checkCheckpoints checks that a checkpoint can be written and deleted.
func checkCheckpoints(c *app.Config, ctx context.Context, session *gocql.Session) finding {
	const check = "checkpoints can be saved"
	table := c.Scylla.Keyspace + ".relay_checkpoints"
	generation, stream := time.Unix(0, 0), []byte{0}
	err := session.Query("INSERT INTO "+table+" (relay, table_name, generation, stream_id, updated_at) VALUES (?, ?, ?, ?, ?)",
		doctorName, c.Relay.Table, generation, stream, time.Now()).WithContext(ctx).DefaultTimestamp(false).Exec()
	if err == nil {
		err = session.Query("DELETE FROM "+table+" WHERE relay = ? AND table_name = ?", doctorName, c.Relay.Table).WithContext(ctx).DefaultTimestamp(false).Exec()
	}
	if err != nil {
		fix := "the database answers, and takes no writes: look at its disks, its load, and at how many replicas are up"
		if cqlcode.Of(err) == gocql.ErrCodeUnauthorized {
			fix = "GRANT MODIFY ON " + table + " TO the relay's role"
		}
		return finding{check, false, err.Error(), fix}
	}
	return finding{check, true, table + " can be written", ""}
}

// checkKafka checks that the broker is there and that the topics can be used.
func checkKafka(c *app.Config, ctx context.Context) (out []finding) {
	client, err := c.Kafka.Client(kgo.RequestTimeoutOverhead(checkTimeout))
	if err != nil {
		return append(out, finding{"Kafka is reachable", false, err.Error(), "see the message"})
	}
	defer client.Close()
	if err := app.Reachable(ctx, client, c.Kafka.Seeds); err != nil {
		return append(out, finding{
			"Kafka is reachable", false, err.Error(),
			"start it, or name other brokers with --kafka-seeds or OUTBOX_KAFKA_SEEDS; check SASL and TLS",
		})
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	admin := kadm.NewClient(client)
	meta, err := admin.BrokerMetadata(ctx)
	if err != nil {
		return append(out, finding{"Kafka is reachable", false, err.Error(), "see the message"})
	}
	out = append(out, finding{"Kafka is reachable", true, fmt.Sprintf("%d broker(s) at %s", len(meta.Brokers), strings.Join(c.Kafka.Seeds, ", ")), ""})

	conf, err := c.RelayConfig()
	if err != nil {
		return append(out, finding{"topics", false, err.Error(), "fix the relay settings"})
	}
	topics, templates, err := topics(c, ctx, admin)
	if err != nil {
		return append(out, finding{"topics", false, err.Error(), "see the message"})
	}
	r := newRights(c, client)
	for _, t := range topics {
		f := r.topic(ctx, t, publishing, conf.Partitions, conf.Replication)
		if f.OK {
			f = r.keeps(ctx, t, f)
		}
		out = append(out, f)
	}
	for _, t := range templates {
		out = append(out, finding{"topics " + t, true, "events name them, and the relay makes them; what it may do there cannot be told yet", ""})
	}
	return append(out, r.sharing(ctx, c)...)
}
