package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

const (
	// DefaultVerifyRate is the number of rows that a Verifier reads per second.
	DefaultVerifyRate = 1000
	// verifyInterval is the minimum time between the starts of two passes.
	verifyInterval = 10 * time.Minute
	// verifyEvents is the maximum number of event ids in memory: 90 MB.
	verifyEvents = 5_000_000
	// recordsPerRow is the number of records read in the time of one row: a topic is read
	// sequentially, and only once for each segment.
	recordsPerRow = 20
	// maxMissing bounds the missing events that are kept by id.
	maxMissing = 10_000
	// maxNamed bounds the events of a confirmation that are logged.
	maxNamed = 20
	// confirmBatch is the number of suspects that are confirmed together.
	confirmBatch = 10_000
)

// VerifierConfig configures a Verifier.
type VerifierConfig struct {
	// Tables are verified sequentially. Required.
	Tables []VerifierTable
	// Kafka connects to the topics. Required.
	Kafka Kafka
	// Rate is the number of rows read per second. Default DefaultVerifyRate.
	Rate int
	// Window is the minimum age of a missing event, and the minimum time for which it
	// must be missing: the relay's confidence window and a margin. Required.
	Window time.Duration
	// Interval is the minimum time between the starts of two passes. Default 10 min.
	Interval time.Duration
	// Duty selects one of several processes and keeps the progress. Nil verifies in this
	// process, from the start.
	Duty Duty
	// Logger logs missing events. Required.
	Logger *slog.Logger
	// Registerer registers the metrics. Required.
	Registerer prometheus.Registerer

	// maxEvents is the maximum number of event ids in memory; 0 means verifyEvents.
	maxEvents int
}

// VerifierTable is an outbox table with sequence numbers.
type VerifierTable struct {
	// Scan reads it; its Topic returns the topic of an event. Required.
	Scan *Scan
	// Keyspace and Table are the names of the table. Required.
	Keyspace, Table string
	// Mapping maps its columns. The zero value is that of outbox_messages.
	Mapping outbox.Mapping
	// Source is the ce_source of the table's records, as in Verification.
	Source string
	// Topics are read in addition to the topics of the rows' events.
	Topics []string
	// Former are topics that events of any row may be in, because the relay published to
	// them before its topics were changed. An event that one of them may have deleted is
	// not missing.
	Former []string
	// Relay publishes the table's events. Required.
	Relay Relay
	// DeadLetters are the dead letters of the table. Nil means no dead letters.
	DeadLetters DeadLetters
	// Repair has the relay publish missing events; otherwise they are only reported.
	Repair bool
}

// Relay is the relay of a table, as far as a Verifier depends on it.
type Relay interface {
	// Passed returns the write time up to which the relay has published every captured
	// event; zero if unknown.
	Passed(ctx context.Context) (time.Time, error)
	// Repair requests the publication of missing events and returns events that the relay
	// has acknowledged, also with an error.
	Repair(ctx context.Context, missing []Row) (published []gocql.UUID, err error)
}

func (t *VerifierTable) name() string { return t.Keyspace + "." + t.Table }

// Verifier verifies continuously that every event of outbox tables is in its topic.
//
// A pass walks a table by token range, in segments. Of each segment it first reads the
// ids of the events in the topics into memory, then the rows. A row is checked if the
// relay has passed its write time and it is older than Window; everything else is
// pending. Its event is missing only if it is in none of the topics that were read, is
// not older than what its topic and the former topics still hold, still has its row, and
// has no dead letter, all of which is confirmed once more a Window after it was first seen to be missing.
//
// Memory is bounded by the segments: their number grows with the number of records.
// A pass that is interrupted, or fails, continues before the first range in which
// an event was missing; an error never makes an event missing.
type Verifier struct {
	cfg     VerifierConfig
	log     *slog.Logger
	metrics *verifierMetrics

	// progress, by table, is used only by the goroutine of Run or Pass.
	progress map[string]*PassState
	saved    time.Time // when it was
	skipped  map[string]bool

	mu      sync.Mutex
	missing []map[gocql.UUID]Row // by table
}

// NewVerifier returns a Verifier; Run starts it.
func NewVerifier(cfg VerifierConfig) *Verifier {
	cfg.Rate = cmp.Or(cfg.Rate, DefaultVerifyRate)
	cfg.Interval = cmp.Or(cfg.Interval, verifyInterval)
	cfg.maxEvents = cmp.Or(cfg.maxEvents, verifyEvents)
	v := &Verifier{cfg: cfg, log: cfg.Logger, metrics: newVerifierMetrics(cfg.Registerer), missing: make([]map[gocql.UUID]Row, len(cfg.Tables)), progress: make(map[string]*PassState), skipped: make(map[string]bool)}
	for i := range v.missing {
		v.progress[cfg.Tables[i].name()] = new(PassState)
		if cfg.Duty != nil { // the process with the duty reports the metrics
			v.missing[i] = make(map[gocql.UUID]Row)
			continue
		}
		v.missing[i] = make(map[gocql.UUID]Row)
		v.metrics.missing.WithLabelValues(cfg.Tables[i].name()).Set(0)
	}
	return v
}

// passes makes passes until ctx ends.
func (v *Verifier) passes(ctx context.Context) {
	for {
		began := time.Now()
		_ = v.Pass(ctx) // the error is logged
		select {
		case <-time.After(max(v.cfg.Interval-time.Since(began), v.cfg.Interval/10)):
		case <-ctx.Done():
			return
		}
	}
}

// Pass makes one pass over every table. An error is logged, and ends only the pass over
// its table.
func (v *Verifier) Pass(ctx context.Context) (err error) {
	for i := range v.cfg.Tables {
		table := v.cfg.Tables[i].name()
		failed := v.verify(ctx, i)
		if errors.Is(failed, ErrUnnumbered) {
			v.metrics.forget(table)
			if !v.skipped[table] {
				v.skipped[table] = true
				v.log.Info("table is not verified", "table", table, "err", failed)
			}
			continue
		}
		if failed != nil && ctx.Err() == nil {
			v.metrics.errors.WithLabelValues(table).Inc()
			v.log.Warn("verification pass failed; a new one follows", "table", table, "err", failed)
			err = errors.Join(err, failed)
		}
	}
	return errors.Join(err, context.Cause(ctx))
}

// Missing returns the missing events of all tables, at most 10,000 of each, by
// aggregate and sequence.
func (v *Verifier) Missing() (out []Row) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, missing := range v.missing {
		out = slices.AppendSeq(out, maps.Values(missing))
	}
	slices.SortFunc(out, bySequence)
	return out
}

func bySequence(a, b Row) int {
	return cmp.Or(cmp.Compare(a.Aggregate.String(), b.Aggregate.String()), cmp.Compare(a.Seq, b.Seq))
}

// errNotKnown means that a pass cannot verify anything now.
var errNotKnown = errors.New("the progress of the relay is unknown: it never ran or is scanning the table")

// verify makes one pass over a table.
func (v *Verifier) verify(ctx context.Context, i int) error {
	t := &v.cfg.Tables[i]
	check := Verification{Scan: t.Scan, Keyspace: t.Keyspace, Table: t.Table, Mapping: t.Mapping}
	if _, err := check.head(ctx); err != nil {
		return err
	}
	limit := rate.NewLimiter(rate.Limit(v.cfg.Rate), min(pageRows, v.cfg.Rate))
	topics := newTopicReader(v.cfg.Kafka, origin{t.Source, t.name()}, t.Topics, t.Former, check.Window.Alive, rate.NewLimiter(rate.Limit(v.cfg.Rate*recordsPerRow), 10_000))
	defer topics.close()
	return v.newPass(i, topics, &tableRows{t.Scan, limit}).run(ctx)
}

// tableRows reads rows from the database, at a limited rate.
type tableRows struct {
	scan  *Scan
	limit *rate.Limiter
}

func (t *tableRows) read(ctx context.Context, after, upTo int64, each func(*Row) error) error {
	return t.scan.walk(ctx, after, upTo, t.limit, func(r *Row, bad *Unreadable) error {
		if bad != nil {
			return nil // the relay makes a dead letter of it, and outbox verify names it
		}
		return each(r)
	})
}

func (t *tableRows) exists(ctx context.Context, r *Row) (bool, error) {
	if err := t.limit.Wait(ctx); err != nil {
		return false, err
	}
	_, ok, err := t.scan.find(ctx, r)
	return ok, err
}

// found removes an event that is in a topic from the missing ones.
func (p *pass) found(r *Row) {
	p.v.mu.Lock()
	defer p.v.mu.Unlock()
	if known, ok := p.v.missing[p.table][r.Event.UUID()]; ok && known.Aggregate == r.Aggregate {
		delete(p.v.missing[p.table], r.Event.UUID())
		p.v.metrics.missing.WithLabelValues(p.t.name()).Set(float64(len(p.v.missing[p.table])))
	}
}

// lost records and logs missing events, and repairs them.
func (p *pass) lost(ctx context.Context, missing []Row) error {
	p.v.mu.Lock()
	known := p.v.missing[p.table]
	fresh := 0
	for _, r := range missing {
		_, ok := known[r.Event.UUID()]
		if !ok && len(known) >= maxMissing {
			continue
		}
		p.confirmed[r.Event.UUID()] = true
		if ok {
			continue
		}
		known[r.Event.UUID()] = r
		if fresh++; fresh <= maxNamed {
			p.v.log.Error("event is missing from its topic", "table", p.t.name(), "event_id", r.Event, "aggregate_id", r.Aggregate, "sequence", r.Seq,
				"topic", r.Topic, "written", time.UnixMicro(r.Written).UTC())
		}
	}
	n := len(known)
	p.v.mu.Unlock()
	p.v.progress[p.t.name()].Missing = n
	if fresh > 0 {
		if err := p.v.save(ctx); err != nil {
			return err
		}
	}
	if fresh > maxNamed {
		p.v.log.Error("more events are missing; outbox verify names all of them", "table", p.t.name(), "more", fresh-maxNamed)
	}
	p.v.metrics.missing.WithLabelValues(p.t.name()).Set(float64(n))
	p.count("missing", len(missing))
	if !p.t.Repair || len(missing) == 0 {
		return nil
	}
	if p.lostAll += len(missing); p.lostAll > 100 && int64(p.lostAll) > p.checked/100 {
		// A wrong or changed relay.topics or relay.source has the same effect, and a repair
		// would publish every event again.
		p.v.log.Error("too many events are missing to be repaired automatically: check relay.topics and relay.source, then run outbox verify --repair",
			"table", p.t.name(), "missing", p.lostAll, "checked", p.checked)
		return nil
	}
	slices.SortFunc(missing, bySequence)
	published, err := p.t.Relay.Repair(ctx, missing)
	if err != nil {
		return fmt.Errorf("repair: %w", err)
	}
	// Only the topic proves a publication, not the response of the relay.
	if err := p.topics.more(ctx, p.add); err != nil {
		return err
	}
	for _, id := range published {
		i := slices.IndexFunc(missing, func(r Row) bool { return r.Event.UUID() == id })
		if i < 0 {
			continue
		}
		r := &missing[i]
		if !p.has(r) {
			p.v.log.Error("the relay reported an event as published that is not in its topic", "table", p.t.name(), "event_id", id)
			continue
		}
		delete(p.confirmed, id)
		p.found(r)
		p.v.metrics.repaired.WithLabelValues(p.t.name()).Inc()
		p.v.log.Info("missing event repaired", "table", p.t.name(), "event_id", id)
	}
	return nil
}
