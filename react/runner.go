package react

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

// runner carries the events of one rule.
type runner struct {
	cfg     *Config
	rule    *compiled
	metrics *ruleMetrics
	log     *slog.Logger
	client  *kgo.Client
	slots   chan struct{} // holds one token for each call of the plugin
	room    chan struct{} // has a token when a job was settled
	work    context.Context
	stop    context.CancelFunc // stops the jobs

	mu         sync.Mutex
	adm        *kadm.Client // set when the first partitions are assigned
	partitions map[topicPartition]*partition
	jobs       map[*job]time.Time // all that wait, and since when
	bytes      int
	repeating  map[gocql.UUID]bool
	lastError  string // that of the attempt that failed last
	lastFailed time.Time
}

type topicPartition struct {
	topic     string
	partition int32
}

// partition is one that this process owns.
type partition struct {
	topicPartition
	// ctx ends when the partition is reassigned or the runner stops: no new
	// attempt starts then.
	ctx     context.Context
	leave   context.CancelFunc
	running sync.WaitGroup

	offsets offsets
	lanes   map[string][]*job // the first job of each is in flight
}

// job is a delivery in flight.
type job struct {
	*delivery.Delivery
	event kafkarecord.Event
	place *place // nil for a repeat
	err   error  // that of the rule, which could not decide
	lane  string
	size  int       // size in bytes
	began time.Time // time of the last call of the plugin
}

func newRunner(cfg *Config, rule *compiled, m *ruleMetrics) *runner {
	r := &runner{
		cfg: cfg, rule: rule, metrics: m, log: cfg.Logger.With("rule", rule.Name),
		slots: make(chan struct{}, rule.Concurrency), room: make(chan struct{}, 1),
		partitions: make(map[topicPartition]*partition), jobs: make(map[*job]time.Time), repeating: make(map[gocql.UUID]bool),
	}
	r.work, r.stop = context.WithCancel(context.Background())
	return r
}

// run delivers until ctx ends.
func (r *runner) run(ctx context.Context) (err error) {
	defer r.stop()
	since, ok := r.since(ctx)
	if !ok {
		return nil
	}
	topics, patterns := r.rule.expressions()
	opts := []kgo.Opt{
		kgo.ConsumerGroup(r.cfg.Group + "." + r.rule.Name), kgo.ConsumeTopics(topics...),
		// Partitions without a committed offset start with the records since the rule
		// began, so later partitions and topics are read from their start.
		kgo.ConsumeStartOffset(kgo.NewOffset().AfterMilli(since.UnixMilli())), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AdjustFetchOffsetsFn(r.begins(since)),
		kgo.SessionTimeout(sessionTimeout), kgo.AutoCommitMarks(), kgo.AutoCommitInterval(time.Second), kgo.BlockRebalanceOnPoll(), kgo.MetadataMaxAge(metadataAge),
		kgo.FetchMaxBytes(fetchBytes), kgo.FetchMaxPartitionBytes(fetchBytes / 4), kgo.OnPartitionsAssigned(r.assigned(ctx)),
		kgo.OnPartitionsRevoked(func(ctx context.Context, cl *kgo.Client, lost map[string][]int32) {
			r.lost(lost, false)
			r.commit(ctx, cl)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { r.lost(lost, false) }),
	}
	if patterns {
		opts = append(opts, kgo.ConsumeRegex(), kgo.ConsumeExcludeTopics("^_"))
	}
	if r.client, err = kgo.NewClient(append(opts, r.cfg.Kafka...)...); err != nil {
		return fmt.Errorf("rule %s: kafka client: %w", r.rule.Name, err)
	}
	var beside sync.WaitGroup
	beside.Go(func() { r.poll(ctx) })
	r.read(ctx)
	beside.Wait()
	r.lost(r.owned(), true)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.DrainTimeout)
	defer cancel()
	r.commit(end, r.client)
	r.client.CloseAllowingRebalance()
	return nil
}

// since returns the time from which the rule receives events. False means that
// ctx has ended.
func (r *runner) since(ctx context.Context) (since time.Time, ok bool) {
	first := time.Now()
	if r.rule.From == FromStart {
		first = time.UnixMilli(0)
	}
	ok = r.patiently(ctx, func() (err error) {
		since, err = r.cfg.Deliveries.Since(ctx, r.rule.Name, first)
		return err
	})
	return since, ok
}

// read fetches records while there is room for them.
func (r *runner) read(ctx context.Context) {
	for {
		room := r.awaitRoom(ctx)
		if room == 0 {
			return
		}
		fetches := r.client.PollRecords(ctx, min(room, takeAtOnce))
		gone := make(map[string]struct{})
		fetches.EachError(func(topic string, partition int32, err error) {
			switch {
			case errors.Is(err, kerr.UnknownTopicID):
				gone[topic] = struct{}{}
			case ctx.Err() == nil && !errors.Is(err, kgo.ErrClientClosed):
				r.log.Warn("failed to read a topic; retrying", "topic", topic, "partition", partition, "err", err)
			}
		})
		if ctx.Err() == nil {
			fetches.EachRecord(r.take)
		}
		r.client.AllowRebalance()
		for topic := range gone {
			r.anew(topic)
		}
	}
}

// anew resets a deleted topic. The client would wait for the old one
// indefinitely; a recreated topic is read like a new one.
func (r *runner) anew(topic string) {
	r.log.Warn("a topic was deleted; if it is made anew, it is read from its start", "topic", topic)
	r.client.PurgeTopicsFromConsuming(topic)
	if _, patterns := r.rule.expressions(); !patterns { // which find it by themselves
		r.client.AddConsumeTopics(topic)
	}
}

// awaitRoom waits until the queue has room, and returns the number of records
// it accepts; 0 if ctx has ended.
func (r *runner) awaitRoom(ctx context.Context) int {
	for ctx.Err() == nil {
		r.mu.Lock()
		room := r.rule.Queue - len(r.jobs)
		if r.bytes >= maxWaitingBytes {
			room = 0
		}
		r.mu.Unlock()
		if room > 0 {
			return room
		}
		select {
		case <-r.room:
		case <-ctx.Done():
		}
	}
	return 0
}

// take starts the delivery of a record, if the rule selects it.
func (r *runner) take(rec *kgo.Record) {
	r.metrics.records.Inc()
	e := kafkarecord.Decode(rec)
	ok, err := r.rule.matches(&e)
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.partitions[topicPartition{rec.Topic, rec.Partition}]
	if p == nil {
		return // the partition was reassigned
	}
	at := p.offsets.take(rec)
	if !ok && err == nil {
		r.settle(p, at)
		return
	}
	if err != nil {
		r.metrics.undecided.Inc()
		err = fmt.Errorf("when: %w", err)
	}
	r.begin(p, &job{Delivery: delivery.New(r.rule.Name, r.rule.To, rec, &e), event: e, place: at, err: err, lane: r.rule.lane(&e)})
}

// begin starts a job, or queues it in its lane. Called with the lock.
func (r *runner) begin(p *partition, j *job) {
	j.size = len(j.Value)
	r.jobs[j] = time.Now()
	r.bytes += j.size
	r.metrics.waiting.Set(float64(len(r.jobs)))
	if j.lane != "" {
		p.lanes[j.lane] = append(p.lanes[j.lane], j)
		if len(p.lanes[j.lane]) > 1 {
			return
		}
	}
	p.running.Go(func() { r.carry(p, j) })
}

// carry delivers a job and then the later ones of its lane.
func (r *runner) carry(p *partition, j *job) {
	for j != nil {
		done := r.deliver(p, j)
		if done && j.place == nil {
			r.patiently(r.work, func() error { return r.cfg.Deliveries.Repeated(r.work, j.Delivery) })
		}
		j = r.ended(p, j, done)
	}
}

// ended removes a job and returns the next of its lane. The next owner of the
// partition delivers unfinished jobs and those queued behind them.
func (r *runner) ended(p *partition, j *job, done bool) (next *job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if done && j.place != nil {
		r.settle(p, j.place)
	}
	r.forget(j)
	behind := p.lanes[j.lane]
	if j.lane == "" || len(behind) == 0 {
		return nil
	}
	behind = behind[1:]
	if !done || len(behind) == 0 {
		for _, other := range behind {
			r.forget(other)
		}
		delete(p.lanes, j.lane)
		return nil
	}
	p.lanes[j.lane] = behind
	return behind[0]
}

// forget removes a job from the counts. Called with the lock.
func (r *runner) forget(j *job) {
	delete(r.jobs, j)
	if j.place == nil {
		delete(r.repeating, j.ID)
	}
	r.bytes -= j.size
	r.metrics.waiting.Set(float64(len(r.jobs)))
	select {
	case r.room <- struct{}{}:
	default:
	}
}

// settle updates the offset to commit. Called with the lock.
func (r *runner) settle(p *partition, at *place) {
	next, moved := p.offsets.settle(at)
	if moved && r.partitions[p.topicPartition] == p {
		r.client.MarkCommitOffsets(map[string]map[int32]kgo.EpochOffset{p.topic: {p.partition: next}})
	}
}

// assigned prepares partitions that are assigned to this process.
func (r *runner) assigned(ctx context.Context) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, cl *kgo.Client, came map[string][]int32) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.adm == nil {
			r.adm = kadm.NewClient(cl) // r.client may not be set yet
		}
		for topic, ps := range came {
			for _, n := range ps {
				p := &partition{topicPartition: topicPartition{topic, n}, lanes: make(map[string][]*job)}
				p.ctx, p.leave = context.WithCancel(ctx)
				r.partitions[p.topicPartition] = p
			}
		}
	}
}

// owned are the partitions of this process.
func (r *runner) owned() map[string][]int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string][]int32)
	for p := range r.partitions {
		out[p.topic] = append(out[p.topic], p.partition)
	}
	return out
}

// lost starts no new attempts of the partitions, waits up to DrainTimeout for
// those in flight, and releases the partitions. Their next owner delivers
// unsettled records, possibly again; with end, running attempts are stopped,
// too.
func (r *runner) lost(lost map[string][]int32, end bool) {
	var leaving []*partition
	r.mu.Lock()
	for topic, ps := range lost {
		for _, n := range ps {
			if p := r.partitions[topicPartition{topic, n}]; p != nil {
				p.leave()
				leaving = append(leaving, p)
			}
		}
	}
	r.mu.Unlock()
	if len(leaving) == 0 {
		return
	}
	idle := make(chan struct{})
	go func() {
		for _, p := range leaving {
			p.running.Wait()
		}
		close(idle)
	}()
	t := time.NewTimer(r.cfg.DrainTimeout)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
		if end {
			r.stop()
			<-idle
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range leaving {
		if r.partitions[p.topicPartition] == p {
			delete(r.partitions, p.topicPartition)
		}
	}
}

func (r *runner) commit(ctx context.Context, cl *kgo.Client) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.DrainTimeout)
	defer cancel()
	if err := cl.CommitMarkedOffsets(ctx); err != nil && !errors.Is(err, kgo.ErrClientClosed) {
		r.log.Warn("failed to commit offsets; events may be delivered again", "err", err)
	}
}
