package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

const (
	// VerifyDuty is the name of the dlq.Duty of the verification, and VerifyTTL the time after
	// which another process takes it from a failed one.
	VerifyDuty = "verify"
	VerifyTTL  = 2 * time.Minute
)

// repairPatience is the maximum wait of the verifier for the relay's answers.
const repairPatience = 10 * time.Minute

// Verifier returns the function that verifies the relay's tables until its context ends.
func (c *Config) Verifier(session *gocql.Session, deadLetters *dlq.Store, reg prometheus.Registerer, log *slog.Logger) (run func(context.Context), err error) {
	if c.Verify.RowsPerSecond < 0 {
		return nil, cli.Usage(errors.New("verify.rows_per_second must not be negative; 0 disables it"))
	}
	if c.Verify.RowsPerSecond == 0 {
		return func(context.Context) {}, nil
	}
	confs, err := c.RelayConfigs()
	if err != nil {
		return nil, err
	}
	conf := verify.VerifierConfig{
		Kafka: c.Kafka, Rate: c.Verify.RowsPerSecond, Window: c.Relay.ConfidenceWindow + VerifyMargin, Logger: log, Registerer: reg,
	}
	for i := range confs {
		confs[i].Session = session
		conf.Tables = append(conf.Tables, c.VerifierTable(confs[i], deadLetters))
	}
	if conf.Duty, err = deadLetters.Duty(VerifyDuty, self.Unique(), VerifyTTL); err != nil {
		return nil, err
	}
	return verify.NewVerifier(conf).Run, nil
}

// VerifierTable returns the verification of one table, whose session conf contains. Missing
// events are published by the relay if verify.repair is set, and only reported otherwise.
func (c *Config) VerifierTable(conf relay.Config, deadLetters *dlq.Store) verify.VerifierTable {
	name := TableName(&conf)
	t := verify.VerifierTable{
		Scan:     &verify.Scan{Session: conf.Session, Table: name, Topic: NewTopics(conf)},
		Keyspace: conf.TableKeyspace, Table: conf.Table, Mapping: conf.Mapping, Source: cmp.Or(conf.Source, relay.Defaults().Source), Former: c.Verify.Topics,
		Relay:       &verifiedRelay{conf, relay.NewRepairs(conf.Session, conf.Keyspace, conf.Name, name)},
		DeadLetters: DeadLettersOf{deadLetters, name},
		Repair:      c.Verify.Repair,
	}
	for _, topic := range conf.Topics {
		t.Topics = append(t.Topics, topic)
	}
	return t
}

// verifiedRelay is the relay of a verified table.
type verifiedRelay struct {
	conf     relay.Config
	requests *relay.Repairs
}

func (r *verifiedRelay) Passed(ctx context.Context) (time.Time, error) {
	return relay.Passed(ctx, r.conf)
}

func (r *verifiedRelay) Repair(ctx context.Context, missing []verify.Row) (published []gocql.UUID, err error) {
	deadline := time.Now().Add(repairPatience)
	for from := 0; from < len(missing); from += RepairAtOnce {
		var part []relay.Repair
		for _, m := range missing[from:min(from+RepairAtOnce, len(missing))] {
			part = append(part, relay.Repair{Aggregate: m.Aggregate, EventID: m.Event.UUID(), Sequence: m.Seq})
		}
		answers, err := r.requests.Publish(ctx, part, deadline)
		if err != nil {
			return published, err
		}
		for _, a := range answers {
			if a.State == relay.RepairPublished {
				published = append(published, a.EventID)
			}
		}
	}
	return published, nil
}
