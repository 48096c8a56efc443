package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
	// Fix is the operator's next step after a failed check.
	Fix string `json:"fix,omitempty"`
}

// checkTimeout bounds one check.
const checkTimeout = 10 * time.Second

// Check checks the database, the relay's settings, the broker, the schema registry and the
// archive, in this order, and returns one finding per check. It skips the checks that a failed
// one makes pointless. It writes one row and one object and deletes them. c.Scylla.Nodes is
// replaced.
func Check(ctx context.Context, c *app.Config) []Finding {
	out := append(CheckScylla(ctx, c), checkRate(c))
	out = append(append(out, checkKafka(ctx, c)...), checkRegistry(ctx, c)...)
	return append(out, checkArchive(ctx, c)...)
}

// checkArchive checks that the archive, if there is one, can be used. The services open it
// without a request and report a wrong bucket with its first use only.
func checkArchive(ctx context.Context, c *app.Config) []Finding {
	const check = "archive can be used"
	if c.Archive.URL == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	a, err := archive.Open(ctx, c.Archive.URL)
	if err == nil {
		err = errors.Join(a.Check(ctx), a.Close())
	}
	where, _, _ := strings.Cut(c.Archive.URL, "?") // the rest may contain keys
	if err != nil {
		return []Finding{{
			check, false, where + ": " + err.Error(),
			"check archive.url: name, region and endpoint; make the bucket if it is missing; grant this user to list, read, write and delete its objects",
		}}
	}
	return []Finding{{check, true, where + " can be listed, read, written and deleted", ""}}
}

// checkRegistry checks that the schema registry, if there is one, answers and accepts the
// credentials.
func checkRegistry(ctx context.Context, c *app.Config) []Finding {
	const check = "schema registry is reachable"
	r, err := c.Kafka.SchemaRegistry()
	if r == nil && err == nil {
		return nil
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		err = r.Ping(ctx)
	}
	if err != nil {
		return []Finding{{check, false, err.Error(), "check kafka.schema_registry: address, user and password; for https kafka.tls and kafka.tls_ca"}}
	}
	return []Finding{{check, true, r.URL(), ""}}
}

// CheckScylla checks connection, schema, tables and permissions, in this order. It skips the
// checks that a failed one makes pointless. It writes one row and deletes it. c.Scylla.Nodes is
// replaced.
func CheckScylla(ctx context.Context, c *app.Config) (out []Finding) {
	c.Scylla.Nodes = sessions.NewNodes(slog.New(slog.DiscardHandler), nil)
	session, err := c.Scylla.Session("")
	if err != nil {
		fix := "start it, or set other hosts with --scylla-hosts or OUTBOX_SCYLLA_HOSTS; check user, password and TLS"
		return append(out, Finding{"ScyllaDB is reachable", false, err.Error(), fix})
	}
	defer sessions.Close(session)
	out = append(out, Finding{"ScyllaDB is reachable", true, c.Scylla.Addresses(), ""})

	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	out = append(out, checkNodes(ctx, c), checkClock(ctx, session))
	report, err := schema.Status(ctx, session, c.SchemaOptions(nil))
	switch {
	case err != nil:
		return append(out, Finding{"schema", false, err.Error(), "this user needs SELECT on system_schema and on keyspace " + c.Scylla.Keyspace})
	case !report.UpToDate():
		return append(out, Finding{"schema", false, fmt.Sprintf("keyspace %s is not up to date", c.Scylla.Keyspace), "outbox schema migrate (outbox schema status shows what is missing)"})
	}
	out = append(out, Finding{
		"schema", true, fmt.Sprintf("keyspace %s is up to date with %s, ScyllaDB %s",
			c.Scylla.Keyspace, schema.JoinComponents(report.Components), cmp.Or(report.Server.Version, "(release unknown)")), "",
	})
	out = append(out, checkComponents(c, report.Components)...)
	out = append(out, checkTables(ctx, c, session)...)
	out = append(out, checkCheckpoints(ctx, c, session), checkAgreed(ctx, c, session))
	out = append(out, checkInstances(ctx, c, session)...)
	if slices.Contains(report.Components, schema.DeadLetters) {
		out = append(out, checkVerification(ctx, c, session)...)
	}
	return out
}

// checkClock checks that the clock of this host is the database's: a relay corrects the
// difference, and other processes do not.
func checkClock(ctx context.Context, session *gocql.Session) Finding {
	const check = "clock of this host"
	switch ahead, reported, err := relay.ClockAhead(ctx, session); {
	case err != nil:
		return Finding{check, false, err.Error(), "fix the reported error"}
	case reported:
		return Finding{check, false, fmt.Sprintf("is %s ahead of the database's", ahead.Round(time.Millisecond)), "synchronize the clocks of all hosts and database nodes (chrony, NTP)"}
	}
	return Finding{check, true, "agrees with the database's", ""}
}

// checkComponents returns a finding if the keyspace does not have the components that the relay
// needs.
func checkComponents(c *app.Config, has []schema.Component) []Finding {
	missing := slices.DeleteFunc(c.Relay.Components(), func(x schema.Component) bool { return slices.Contains(has, x) })
	if len(missing) == 0 {
		return nil
	}
	return []Finding{{
		"components of the relay", false, fmt.Sprintf("keyspace %s does not have %s", c.Scylla.Keyspace, schema.JoinComponents(missing)),
		app.MigrateComponents(c.Scylla.Keyspace, missing) + "; or set relay.dead_letters to false",
	}}
}

// checkNodes checks that every node that the driver knows answers.
func checkNodes(ctx context.Context, c *app.Config) Finding {
	const check = "all nodes of ScyllaDB answer"
	if down := c.Scylla.Nodes.Probe(ctx); len(down) > 0 {
		return Finding{
			check, false, strings.Join(down, ", ") + " accepts no connection or does not answer",
			"statements go to the other nodes while these have a quorum; start the node, or restart it if it is silent (nodetool status shows its state to the others)",
		}
	}
	return Finding{check, true, "no node is silent or refuses connections", ""}
}

// doctorName is the relay name of the row that checks the permission to write.
const doctorName = "doctor"

// checkCheckpoints checks that a checkpoint can be written and deleted.
func checkCheckpoints(ctx context.Context, c *app.Config, session *gocql.Session) Finding {
	const check = "checkpoints can be saved"
	table := c.Scylla.Keyspace + ".relay_checkpoints"
	generation, stream := time.Unix(0, 0), []byte{0}
	err := session.Query("INSERT INTO "+table+" (relay, table_name, generation, stream_id, updated_at) VALUES (?, ?, ?, ?, ?)",
		doctorName, c.Relay.Table, generation, stream, time.Now()).WithContext(ctx).DefaultTimestamp(false).Exec()
	if err == nil {
		err = session.Query("DELETE FROM "+table+" WHERE relay = ? AND table_name = ?", doctorName, c.Relay.Table).WithContext(ctx).DefaultTimestamp(false).Exec()
	}
	if err != nil {
		fix := "the database accepts no writes: check its disks, its load and the number of live replicas"
		if cqlcode.Of(err) == gocql.ErrCodeUnauthorized {
			fix = "GRANT MODIFY ON " + table + " TO the relay's role"
		}
		return Finding{check, false, err.Error(), fix}
	}
	return Finding{check, true, table + " can be written", ""}
}

// checkKafka checks that the broker is reachable and that the topics can be used.
func checkKafka(ctx context.Context, c *app.Config) (out []Finding) {
	client, err := c.Kafka.Client(kgo.RequestTimeoutOverhead(checkTimeout))
	if err != nil {
		return append(out, Finding{"Kafka is reachable", false, err.Error(), "fix the reported error"})
	}
	defer client.Close()
	if err := app.Reachable(ctx, client, c.Kafka.Seeds); err != nil {
		return append(out, Finding{
			"Kafka is reachable", false, err.Error(),
			"start it, or set other brokers with --kafka-seeds or OUTBOX_KAFKA_SEEDS; check SASL and TLS",
		})
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	admin := kadm.NewClient(client)
	meta, err := admin.BrokerMetadata(ctx)
	if err != nil {
		return append(out, Finding{"Kafka is reachable", false, err.Error(), "fix the reported error"})
	}
	out = append(out, Finding{"Kafka is reachable", true, fmt.Sprintf("%d broker(s) at %s", len(meta.Brokers), strings.Join(c.Kafka.Seeds, ", ")), ""})

	conf, err := c.RelayConfig()
	if err != nil {
		return append(out, Finding{"topics", false, err.Error(), "fix the relay settings"})
	}
	topics, templates, err := topics(ctx, c, admin)
	if err != nil {
		return append(out, Finding{"topics", false, err.Error(), "fix the reported error"})
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
		out = append(out, Finding{"topics " + t, true, "created by the relay for the first event; its permissions cannot be checked before", ""})
	}
	return append(out, r.sharing(ctx, c)...)
}
