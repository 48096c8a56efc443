package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

const (
	// verifierName is the name of the verifier in the network.
	verifierName = "verifier"
	// verifyMargin is the time that a relay may need beyond its confidence window.
	verifyMargin = 30 * time.Second
	// repairPatience limits the time of a repair.
	repairPatience = 10 * time.Minute
	// repairedAtMost is the number of missing events that are repaired without an operator.
	repairedAtMost = 100
)

// verifier is the verifier of outbox admin, with verify.repair enabled.
type verifier struct {
	*verify.Verifier
	session *session
	cancel  context.CancelFunc
	done    chan struct{}
}

// startVerifier starts a verifier that runs at this interval until the end.
func (w *world) startVerifier(every time.Duration) {
	w.t.Helper()
	v := &verifier{session: w.connect(verifierName, keyspace), done: make(chan struct{})}
	deadLetters, err := dlq.Open(v.session.Session, keyspace)
	if err != nil {
		w.t.Fatalf("open the dead letters: %v", err)
	}
	conf := w.relay().config
	conf.Session = v.session.Session
	requests := relay.NewRepairs(v.session.Session, keyspace, relay.Defaults().Name, keyspace+"."+events)
	v.Verifier = verify.NewVerifier(verify.VerifierConfig{
		Kafka:  append(testworld.Kafka{kgo.SeedBrokers(brokerAddr)}, w.kafka.options(w.net, verifierName)...),
		Window: conf.ConfidenceWindow + verifyMargin, Interval: every, Logger: w.log.With("process", verifierName), Registerer: prometheus.NewRegistry(),
		Tables: []verify.VerifierTable{{
			Scan: &verify.Scan{
				Session: v.session.Session, Table: keyspace + "." + events, Ranges: 16,
				Topic: func(e *outbox.Event) (string, error) { return e.Type, nil },
			},
			Keyspace: keyspace, Table: events, Source: relay.Defaults().Source,
			Relay: &verifiedRelay{conf, requests}, DeadLetters: readDeadLetters{deadLetters}, Repair: true,
		}},
	})
	ctx, cancel := context.WithCancel(context.Background())
	v.cancel = cancel
	go func() { defer close(v.done); v.Run(ctx) }()
	w.verifier = v
}

// verifiedRelay is the relay, as the verifier uses it.
type verifiedRelay struct {
	conf     relay.Config
	requests *relay.Repairs
}

func (r *verifiedRelay) Passed(ctx context.Context) (time.Time, error) {
	return relay.Passed(ctx, r.conf)
}

func (r *verifiedRelay) Repair(ctx context.Context, missing []verify.Row) (published []gocql.UUID, err error) {
	var asked []relay.Repair
	for _, m := range missing {
		asked = append(asked, relay.Repair{Aggregate: m.Aggregate, EventID: m.Event.UUID(), Sequence: m.Seq})
	}
	answers, err := r.requests.Publish(ctx, asked, time.Now().Add(repairPatience))
	for _, a := range answers {
		if a.State == relay.RepairPublished {
			published = append(published, a.EventID)
		}
	}
	return published, err
}

// readDeadLetters reads each dead letter by itself.
type readDeadLetters struct{ store *dlq.Store }

// Read calls each for the events whose dead letter is open, was resolved without a
// record, or was published since began.
func (d readDeadLetters) Read(ctx context.Context, began time.Time, ids []gocql.UUID, each func(verify.DeadLetter)) error {
	for _, id := range ids {
		l, err := d.store.Read(ctx, id)
		if err != nil {
			if errors.Is(err, dlq.ErrNotFound) {
				continue
			}
			return err
		}
		replayed := slices.Contains([]dlq.OutcomeKind{dlq.OutcomeReplayed, dlq.OutcomeFound, dlq.OutcomeUnblocked}, l.Outcome.Kind)
		if l.Status.Open() || !replayed || !l.ResolvedAt.Before(began.Add(-time.Minute)) {
			each(verify.DeadLetter{Event: id})
		}
	}
	return nil
}

// stopVerifier verifies a last time after all faults have ended, until no event is
// missing. A deleted topic may leave more of them than a verifier repairs by itself.
func (w *world) stopVerifier() {
	w.t.Helper()
	v := w.verifier
	if v == nil {
		return
	}
	v.cancel()
	<-v.done
	deadline := time.Now().Add(2 * time.Hour)
	for {
		err := v.Pass(context.Background())
		missing := v.Missing()
		if err == nil && (len(missing) == 0 || len(missing) > repairedAtMost && w.tap.haveDeleted(missing)) {
			break
		}
		if time.Now().After(deadline) {
			w.t.Errorf("verification did not complete: %v, missing %v", err, v.Missing())
			break
		}
		time.Sleep(time.Minute)
	}
	v.session.Close()
}
