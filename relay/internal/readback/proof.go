package readback

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/earlier"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

// proofBatch is the maximum size of a batch of events, and of each queue.
const proofBatch = 1000

// Proofs determines whether an event outside the dedup index is published: the
// predecessor of an event in its aggregate, after a start or after the aggregate was
// evicted. Its row may have become visible after the sweep reader passed it, as with a
// conditional write that timed out and that the next one of its key completes.
//
// A dead letter of the event proves that nobody else publishes it, and a record with its id
// that it is published. The record is usually near the row's write time, so one small fetch
// finds it (proof_near.go). Otherwise all records since then are read
// (proof_wide.go), once for all waiting events. Records deleted by retention prove
// nothing: such an event counts as published.
//
// It is safe for concurrent use.
type Proofs struct {
	cfg       *Config
	log       *slog.Logger
	publisher *publish.Publisher
	client    *kgo.Client
	admin     *kadm.Client
	store     checkpoint.Store
	Results   *prometheus.CounterVec
	Reads     prometheus.Counter

	// Gap returns the beginning of the time for which the CDC log may lack rows and no scan has
	// begun, zero without one.
	Gap func() time.Time

	near, wide chan *proofAsk
	unknown    *unknownTopics

	mu     sync.Mutex
	first  int64         // the write time from which a relay of this name has read rows; 0 if unknown
	early  int64         // the least delay of records after their rows, in milliseconds
	behind time.Duration // by how much the clock that dates records was found to be behind
	denied bool          // a denied topic was logged
}

// proofAsk is a request for one event.
type proofAsk struct {
	event   outbox.Event // without its payload and headers
	key     []byte       // of its record
	topic   string
	written int64
	since   int64            // the time of the row's first write, at most written
	from    int64            // the record time from which to read near, in milliseconds
	answer  chan proofAnswer // has room for one
}

// eventKey identifies an event: a defective writer may give one id to events of two aggregates.
type eventKey struct{ id, aggregate gocql.UUID }

func (a *proofAsk) eventKey() eventKey {
	return eventKey{a.event.ID.UUID(), a.event.AggregateID.UUID()}
}

type proofAnswer struct {
	result ProofResult
	err    error
}

// ProofResult is the result of a proof, and the value of the metric label result.
type ProofResult string

const (
	ProofPublished ProofResult = "published"
	// ProofDeadLetter: its dead letter is open, or was settled but not replayed in order.
	ProofDeadLetter  ProofResult = "dead_letter"
	ProofUnpublished ProofResult = "unpublished"
	// ProofUnproven: the relay may not read the topic. The event counts as published, unless
	// the log may lack it.
	ProofUnproven ProofResult = "unproven"
	// proofNotNear: all records since the row was written have to be read.
	proofNotNear ProofResult = ""
)

// NewProofs returns proofs for events that p does not remember.
func NewProofs(cfg *Config, p *publish.Publisher, store checkpoint.Store, m *ProofMetrics) *Proofs {
	client, admin := p.Kafka()
	return &Proofs{
		client: client, admin: admin, cfg: cfg, log: cfg.Logger, publisher: p, store: store, Results: m.Results, Reads: m.reads,
		near: make(chan *proofAsk, proofBatch), wide: make(chan *proofAsk, proofBatch),
		unknown: newUnknownTopics(),
		Gap:     func() time.Time { return time.Time{} },
	}
}

// UseClock takes over the findings of the start about the clock that dates records.
func (d *Proofs) UseClock(r *Reader) {
	r.mu.Lock()
	clock := r.clock
	r.mu.Unlock()
	d.setClock(clock)
}

func (d *Proofs) setClock(clock clockOffset) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.behind = max(d.behind, clock.behind())
	d.early = max(clock.least.Milliseconds(), -d.behind.Milliseconds())
}

// margin returns by how much a record may be earlier than its row.
func (d *Proofs) margin() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cfg.ReadBackMargin + d.behindLocked()
}

// behindLocked returns by how much the clock that dates records was behind at most, as far as the
// start and this run have seen.
func (d *Proofs) behindLocked() time.Duration {
	return max(d.behind, min(d.publisher.RecordClockBehind(), maxBehind))
}

// Run serves requests until ctx ends.
func (d *Proofs) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { d.serve(ctx, d.wide, d.readWide) })
	d.serve(ctx, d.near, d.readNear)
	return context.Cause(ctx)
}

// serve answers the requests in queue, in batches.
func (d *Proofs) serve(ctx context.Context, queue chan *proofAsk, read func(context.Context, []*proofAsk) error) {
	for {
		var batch []*proofAsk
		select {
		case a := <-queue:
			batch = append(batch, a)
		case <-ctx.Done():
			return
		}
		for len(batch) < proofBatch && len(queue) > 0 {
			batch = append(batch, <-queue)
		}
		if err := read(ctx, batch); err != nil {
			for _, a := range batch {
				a.reply(proofAnswer{err: err})
			}
		}
	}
}

// reply sends the first answer and drops later ones.
func (a *proofAsk) reply(answer proofAnswer) {
	select {
	case a.answer <- answer:
	default:
	}
}

// Prove returns whether an event is published, or a dead letter. It returns an error if that
// cannot be determined now. With quick set it returns publish.ErrLeft instead of reading all
// records since the row was written.
func (d *Proofs) Prove(ctx context.Context, f *cdclog.StoredEvent, quick bool) (earlier.Fate, error) {
	if d.cfg.ReadBackMargin < 0 {
		return d.unproven(f), nil
	}
	first, err := d.answersFrom(ctx)
	if err != nil || f.Written < first {
		return earlier.Published, err
	}
	ask := d.newAsk(f, first)
	e := &ask.event
	result, err := d.lookNear(ctx, ask)
	if err == nil && result == proofNotNear {
		var fate earlier.Fate
		fate, err = d.publisher.FateOfDeadLetter(ctx, e)
		result = ofDeadLetter[fate]
	}
	if err == nil && result == proofNotNear {
		if quick {
			return earlier.Doubtful, publish.ErrLeft
		}
		result, err = d.ask(ctx, d.wide, ask)
	}
	if err != nil {
		return earlier.Doubtful, err
	}
	d.Results.WithLabelValues(string(result)).Inc()
	if result == ProofUnpublished {
		d.log.Warn("an event whose row became visible late is in no topic", "event_id", e.ID.String(),
			"aggregate_id", e.AggregateID.String(), "sequence", e.Sequence, "written", time.UnixMicro(f.Written).UTC())
	}
	if result == ProofUnproven {
		return d.unproven(f), nil
	}
	return fates[result], nil
}

// unproven returns the fate of an event whose topic cannot be read. The scan of a gap publishes
// its events, also the published ones, so the later ones of the aggregate wait for them.
func (d *Proofs) unproven(f *cdclog.StoredEvent) earlier.Fate {
	if gap := d.Gap(); !gap.IsZero() && f.Written >= gap.UnixMicro() {
		return earlier.Unpublished
	}
	return earlier.Doubtful
}

// fates are the fates of events by the result of a proof, and ofDeadLetter the results by the
// fate that an event has because of its dead letter; proofNotNear without one.
var (
	fates = map[ProofResult]earlier.Fate{
		ProofPublished: earlier.Published, ProofDeadLetter: earlier.DeadLetter, ProofUnpublished: earlier.Unpublished,
	}
	ofDeadLetter = map[earlier.Fate]ProofResult{earlier.Published: ProofPublished, earlier.DeadLetter: ProofDeadLetter}
)

// Find looks for an event near the time of its creation, and for its dead letter. It reads
// no more, so an event that is not found may be published.
func (d *Proofs) Find(ctx context.Context, f *cdclog.StoredEvent) (earlier.Fate, error) {
	if d.cfg.ReadBackMargin < 0 {
		return earlier.Doubtful, nil
	}
	first, err := d.answersFrom(ctx)
	if err != nil {
		return earlier.Doubtful, err
	}
	ask := d.newAsk(f, first)
	ask.written = ask.since
	// The clock of the service may have been ahead of the broker's.
	froms := append(d.expectedTimes(ask.since), ask.since/1000-d.margin().Milliseconds())
	switch result, err := d.readFrom(ctx, ask, froms); {
	case err != nil:
		return earlier.Doubtful, err
	case result == proofNotNear:
		return d.publisher.FateOfDeadLetter(ctx, &f.Event)
	case result == ProofPublished:
		return earlier.Published, nil
	default:
		return earlier.Doubtful, nil
	}
}

// newAsk returns the request for an event. first is answersFrom.
//
// A row that was written again has lost the time of its first write, which is close to the
// creation of the event. A service may give its events creation times of long before, so
// since is at most FirstAge before written.
func (d *Proofs) newAsk(f *cdclog.StoredEvent, first int64) proofAsk {
	topic, err := d.publisher.TopicName(&f.Event)
	if err != nil || f.Err != nil {
		topic = "" // it has no topic, or was edited; its dead letter is stored
	}
	a := proofAsk{event: f.Event, key: f.Key(), topic: topic, written: f.Written, since: f.Written}
	a.event.Payload, a.event.Headers = nil, nil
	a.since = min(f.Written, max(f.FirstWrite(), first, f.Written-d.cfg.FirstAge.Microseconds()))
	return a
}

// lookNear looks for the event near the time of its row, and of the row's first write.
func (d *Proofs) lookNear(ctx context.Context, a proofAsk) (ProofResult, error) {
	result, err := d.readFrom(ctx, a, d.expectedTimes(a.written))
	if err != nil || result != proofNotNear || a.written-a.since < proofMargin*1000/2 {
		return result, err // the first write is within the margin
	}
	a.written = a.since
	return d.readFrom(ctx, a, d.expectedTimes(a.since))
}

// readFrom looks for the event among the records from each of the times on, in
// milliseconds, until it finds it.
func (d *Proofs) readFrom(ctx context.Context, a proofAsk, froms []int64) (result ProofResult, err error) {
	for _, from := range froms {
		a.from = max(from, 0)
		if result, err = d.ask(ctx, d.near, a); err != nil || result != proofNotNear {
			break
		}
	}
	return result, err
}

// answersFrom returns the earliest write time, in microseconds, from which the relay
// has read rows.
func (d *Proofs) answersFrom(ctx context.Context) (int64, error) {
	d.mu.Lock()
	first := d.first
	d.mu.Unlock()
	if first > 0 {
		return first, nil
	}
	_, began, err := d.store.Start(ctx)
	if err != nil {
		return 0, err
	}
	first = 1
	if !began.IsZero() {
		first = max(began.UnixMicro(), 1)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.first = first
	return first, nil
}

// ask sends a copy of a, because a late answer to it must not answer another one.
func (d *Proofs) ask(ctx context.Context, queue chan *proofAsk, a proofAsk) (ProofResult, error) {
	a.answer = make(chan proofAnswer, 1)
	select {
	case queue <- &a:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	select {
	case got := <-a.answer:
		return got.result, got.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// logRefusal logs, once, that the relay may not read a topic.
func (d *Proofs) logRefusal(topic string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.denied {
		d.denied = true
		d.log.Warn("a topic may not be read; earlier events of aggregates after a start count as published", "topic", topic, "err", err, "grant", "READ on the topics")
	}
}

// ProofMetrics count the proofs.
type ProofMetrics struct {
	Results *prometheus.CounterVec
	reads   prometheus.Counter
}

// NewProofMetrics registers the metrics of proofs.
func NewProofMetrics(reg prometheus.Registerer) *ProofMetrics {
	m := &ProofMetrics{
		Results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_relay_predecessor_proofs_total",
			Help: "Lookups of earlier events in their topics, for aggregates outside the dedup index, by result: published; dead_letter (open, or settled out of order); unpublished (visible late, then published); unproven (read access to the topic denied; counted as published).",
		}, []string{"result"}),
		reads: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_relay_predecessor_proof_reads_total", Help: "Broker requests of lookups of earlier events.",
		}),
	}
	for _, result := range []ProofResult{ProofPublished, ProofDeadLetter, ProofUnpublished, ProofUnproven} {
		m.Results.WithLabelValues(string(result))
	}
	reg.MustRegister(m.Results, m.reads)
	return m
}
