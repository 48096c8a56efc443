package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
	relayhint "github.com/scylla-outbox/scylla-outbox/outbox/hint"
)

const (
	// longestInterval and fewestIntervals divide the load into the rows of the report.
	longestInterval = time.Minute
	fewestIntervals = 5
	// samplesOfInterval is the number of measurements of the processes in an interval.
	samplesOfInterval = 4
	// keptRecords is the minimum age of records that are deleted from the embedded broker,
	// and keptMargin how much older than the relay's oldest checkpoint they are, because a
	// start reads back from there.
	keptRecords = 3 * time.Minute
	keptMargin  = time.Minute
	// batchBytes limits the payloads of one write: the database refuses batches of a
	// megabyte.
	batchBytes = 900_000
	// loadAfterKill is how long the load continues after the kill, in session timeouts:
	// one until the others have the shards, and time to publish what waited.
	loadAfterKill = 3
	// profileOfSustained is how long the relay is profiled.
	profileOfSustained = 30 * time.Second
)

// sustainedBench measures a load that lasts.
type sustainedBench struct {
	*benchmark
	batch, processes, shards int
	result                   bench.SustainedReport
}

func newBenchSustainedCommand() *cobra.Command {
	var (
		f = benchFlags{onDisk: true}
		s sustainedBench
	)
	cmd := &cobra.Command{
		Use:   "sustained",
		Short: "Measure the relay under a load that lasts, and the kill of a relay",
		Long: `Measure relays with default settings and with hints under a load that lasts for
many confidence windows. For each minute the report contains latencies, processor
time, memory, queries, and the ids in the dedup index.

Then, still under load, a relay is killed. One relay alone is started again; the
shards of one of several are taken over by the others. The load continues for
three session timeouts.

With --write-batch N one logged batch stores N events of different aggregates,
which are all to be sent at the same time. On a small machine the writers
otherwise take the processors from the relay.

The relays are processes of their own, and so are the embedded database and
broker, which keep their data in a temporary folder: about 2 kB for each event,
removed in the end. Writes that fail because the database is too slow are
repeated and counted. Records that were consumed more than 3 minutes ago are
deleted from the embedded broker. --scylla-hosts and --kafka-seeds replace both;
nothing is deleted there before the end. The load itself takes 20 bytes of
memory for each event.

With --config the relays have other settings. Exit status 1 if an event was
lost, came twice, or came out of order.`,
		Args: cobra.NoArgs,
		RunE: measuring(&f, s.validate, s.measure),
	}
	fl := cmd.Flags()
	fl.Float64Var(&f.rate, "rate", 20_000, "events per second")
	fl.DurationVar(&f.duration, "duration", 15*time.Minute, "duration of the measured load, after a second of warm-up")
	fl.IntVar(&f.payload, "payload", 512, "bytes of a payload")
	fl.IntVar(&s.batch, "write-batch", 1, "events of one write, each of another aggregate")
	fl.IntVar(&s.processes, "processes", 1, "number of relay processes")
	fl.IntVar(&s.shards, "shards", 0, "number of shards that the processes share; 0 is one for each")
	f.addFlags(cmd, "a relay")
	return cmd
}

func (s *sustainedBench) validate(f *benchFlags) error {
	s.shards = cmp.Or(s.shards, s.processes)
	var errs problems
	bad := errs.bad
	bad(f.rate < 1 || f.rate > 1e6, "--rate %g: use events per second, 1 to a million", f.rate)
	bad(f.duration < time.Second, "--duration %s: use a second or more", f.duration)
	bad(f.payload < 32 || f.payload > batchBytes, "--payload %d: use 32 to %d bytes", f.payload, batchBytes)
	bad(s.batch < 1 || float64(s.batch) > f.rate || s.batch > batchBytes/max(f.payload, 1), "--write-batch %d: use 1 or more, at most --rate, and at most %d bytes of payloads", s.batch, batchBytes)
	bad(s.processes < 1, "--processes %d: use 1 or more", s.processes)
	bad(s.shards < s.processes, "--shards %d: use one or more for each of --processes %d", s.shards, s.processes)
	return errs.with(f.output)
}

func (s *sustainedBench) measure(ctx context.Context, b *benchmark) error {
	s.benchmark = b
	s.result = bench.SustainedReport{
		Head: s.head(), Batch: s.batch, Processes: s.processes, Shards: s.shards,
	}
	failed, err := s.sustain(ctx)
	if err != nil {
		return err
	}
	if err := s.print(&s.result, failed != nil || s.result.Counts.OK()); err != nil {
		return err
	}
	return failed
}

// sustained is a load with its relays.
type sustained struct {
	*underLoad
	bench   *sustainedBench
	key     string // of hints
	relays  []*bench.Child
	samples []sample
	trimmer trimmer
}

// sustain runs the load and fills the result. failed is the error of events that were not
// stored; the result is about the others.
func (s *sustainedBench) sustain(ctx context.Context) (failed, err error) {
	u, err := s.underLoad(ctx, s.rate, s.duration+s.settle()+loadAfterKill*s.conf.Relay.SessionTimeout, apart(int(s.rate)))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, u.remove(ctx)) }()
	r := &sustained{underLoad: u, bench: s, key: rand.Text(), trimmer: trimmer{admin: kadm.NewClient(s.client), topic: u.name}}
	defer func() { err = errors.Join(err, r.stopRelays()) }()
	if err := r.startRelays(ctx); err != nil {
		return nil, err
	}
	u.load.Batch, u.load.Patience = s.batch, benchPatience
	u.load.Hints, err = relayhint.NewSender(relayhint.SenderConfig{Addrs: r.hintAddrs(), Key: []byte(r.key), Logger: s.log})
	if err != nil {
		return nil, err
	}
	defer u.load.Hints.Close() //nolint:errcheck // hints that wait are of no use any more

	loading, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var written int64
	ended := make(chan error, 1)
	began := time.Now()
	go func() {
		var err error
		written, err = u.load.Run(loading)
		ended <- err
	}()
	killed, before, err := r.followAndKill(ctx, began)
	if err != nil {
		cancel(err)
		<-ended
		return nil, err
	}
	if failed = <-ended; ctx.Err() != nil {
		return nil, failed
	}
	if err := u.arrivals.Wait(ctx, written, benchPatience+s.conf.Relay.SessionTimeout); err != nil {
		return nil, err
	}
	after, err := r.scrape(ctx, r.relays)
	if err != nil {
		return nil, err
	}
	s.result.Counts = u.arrivals.Counts(written)
	if n, one := u.load.Repeated(); n > 0 {
		s.result.Repeated, s.result.RepeatedBecause = n, one.Error()
	}
	s.result.Takeover = u.load.Takeover(u.arrivals, killed)
	s.result.Takeover.ReadBack, s.result.Takeover.Received = int64(after.readBack-before.readBack), int64(after.received-before.received)
	n, length := s.intervals()
	s.result.Intervals = u.load.Intervals(u.arrivals, length, n)
	for i := range s.result.Intervals {
		of := r.samples[i*samplesOfInterval:]
		fillInterval(&s.result.Intervals[i], of[:samplesOfInterval+1])
	}
	s.result.Others = r.samples[len(r.samples)-1].others(r.samples[0].usages)
	return failed, nil
}

// intervals returns the number and the length of the intervals.
func (s *sustainedBench) intervals() (n int, length time.Duration) {
	n = max(fewestIntervals, int((s.duration+longestInterval-1)/longestInterval))
	return n, s.duration / time.Duration(n)
}

// settle returns the time before the load for the relays to reach a steady state, and
// before the kill for the events of the last interval to come.
func (s *sustainedBench) settle() time.Duration { return min(benchSettle, s.duration) }

// startRelays starts the processes and waits until each reads.
func (r *sustained) startRelays(ctx context.Context) error {
	for range r.bench.processes {
		if err := r.startRelay("127.0.0.1:0"); err != nil {
			return err
		}
	}
	for _, relay := range r.relays {
		if err := r.awaitTail(ctx, relay); err != nil {
			return err
		}
	}
	return stoppable(ctx, r.bench.settle())
}

// startRelay starts another process.
func (r *sustained) startRelay(hints string) error {
	relay, err := r.place.startRelay(r.name, r.key, "--hints-addr", hints, "--relay-shards", fmt.Sprint(r.bench.shards))
	if err == nil {
		r.relays = append(r.relays, relay)
	}
	return err
}

// stopRelays stops all processes concurrently, so that none takes over shards of another.
func (r *sustained) stopRelays() error {
	errs := make([]error, len(r.relays))
	var stopping sync.WaitGroup
	for i, relay := range r.relays {
		stopping.Go(func() { errs[i] = relay.Stop() })
	}
	stopping.Wait()
	return errors.Join(errs...)
}

func (r *sustained) hintAddrs() []string {
	var addrs []string
	for _, relay := range r.relays {
		addrs = append(addrs, relay.Attr("hints"))
	}
	return addrs
}

// followAndKill takes samples until the end of the last interval. Then it kills the first
// relay, and starts it again if it was the only one. It returns the time of the kill, and
// the totals of the others at that time.
func (r *sustained) followAndKill(ctx context.Context, began time.Time) (killed time.Time, before totals, err error) {
	n, length := r.bench.intervals()
	at := began.Add(r.load.Length() - r.load.Duration) // the end of the warm-up
	profiled := func() error { return nil }
	for i := range n*samplesOfInterval + 1 {
		if err := stoppable(ctx, time.Until(at)); err != nil {
			return killed, before, err
		}
		if i == 0 {
			profiled = r.bench.profile(ctx, r.relays[0], "sustained", min(profileOfSustained, r.bench.duration))
		}
		if err := r.sample(ctx); err != nil {
			return killed, before, err
		}
		if last := &r.samples[i]; i > 0 && i%samplesOfInterval == 0 {
			r.bench.progress("after %s: %d events consumed, the relays take %.0f MB, %.0f of %.0f ids in the dedup index",
				time.Duration(i/samplesOfInterval)*length, r.arrivals.Counts(0).Consumed, float64(last.process.Resident)/1e6, last.fresh, last.limit)
		}
		at = at.Add(length / samplesOfInterval)
	}
	if err := errors.Join(profiled(), stoppable(ctx, r.bench.settle())); err != nil {
		return killed, before, err
	}
	victim := r.relays[0]
	r.relays = r.relays[1:]
	if before, err = r.scrape(ctx, r.relays); err != nil {
		return killed, before, err
	}
	killed = time.Now()
	victim.Kill()
	if len(r.relays) == 0 {
		err = r.startRelay(victim.Attr("hints"))
	}
	return killed, before, err
}

// totals are metrics of several relays.
type totals struct {
	queries, fresh, limit, readBack, received float64
	oldest                                    time.Duration // age of the oldest checkpoint, or more
}

func (r *sustained) scrape(ctx context.Context, relays []*bench.Child) (t totals, err error) {
	for _, relay := range relays {
		m, err := bench.ScrapeAll(ctx, relay.Attr("ops"))
		if err != nil {
			return t, err
		}
		t.queries += m.Sum(bench.QueriesMetric)
		t.fresh += m.Sum("outbox_relay_dedup_fresh_events")
		t.limit += m.Sum("outbox_relay_dedup_fresh_limit")
		t.readBack += m.Sum("outbox_relay_readback_events")
		t.received += m.Sum("outbox_kafka_read_bytes_total")
		// The sum over the shards of a process is not less than the age of the oldest.
		t.oldest = max(t.oldest, time.Duration(m.Sum("outbox_relay_checkpoint_age_seconds")*float64(time.Second)))
	}
	return t, nil
}

// sample is a measurement of all processes.
type sample struct {
	usages
	totals
	largest int64 // memory of the largest relay
}

// sample takes a sample, and deletes records that the embedded broker need not keep.
func (r *sustained) sample(ctx context.Context) (err error) {
	s := sample{usages: r.bench.usages(ctx, r.relays...)}
	for _, relay := range r.relays {
		s.largest = max(s.largest, relay.Usage().Resident)
	}
	if s.totals, err = r.scrape(ctx, r.relays); err != nil {
		return err
	}
	r.samples = append(r.samples, s)
	if !r.bench.embedded {
		return nil
	}
	return r.trimmer.trim(ctx, r.arrivals.Positions(), max(keptRecords, s.oldest+keptMargin))
}

// fillInterval completes an interval by the samples from its start to its end.
func fillInterval(v *bench.Interval, of []sample) {
	first, last := of[0], of[len(of)-1]
	v.Relay, v.Load = bench.CostBetween(first.process, last.process), bench.CostBetween(first.self, last.self)
	v.Database, v.Broker = bench.CostBetween(first.database, last.database), bench.CostBetween(first.broker, last.broker)
	v.Queries = (last.queries - first.queries) / last.process.At.Sub(first.process.At).Seconds()
	v.FreshLimit = int64(last.limit)
	for _, s := range of[1:] {
		v.ResidentMB = max(v.ResidentMB, float64(s.process.Resident)/1e6)
		v.LargestMB = max(v.LargestMB, float64(s.largest)/1e6)
		v.Fresh = max(v.Fresh, int64(s.fresh))
	}
}

// trimmer deletes consumed records from a topic.
type trimmer struct {
	admin *kadm.Client
	topic string
	marks []mark
}

// mark is the positions of the consumer at a time.
type mark struct {
	at        time.Time
	positions map[int32]int64
}

// trim deletes the records that had been consumed at a call that was kept ago or earlier.
// positions are the current ones.
func (t *trimmer) trim(ctx context.Context, positions map[int32]int64, kept time.Duration) error {
	t.marks = append(t.marks, mark{time.Now(), positions})
	n := 0
	for n < len(t.marks) && time.Since(t.marks[n].at) >= kept {
		n++
	}
	if n == 0 {
		return nil
	}
	var offsets kadm.Offsets
	for partition, offset := range t.marks[n-1].positions {
		offsets.AddOffset(t.topic, partition, offset, -1)
	}
	t.marks = t.marks[n:]
	deleted, err := t.admin.DeleteRecords(ctx, offsets)
	if err = errors.Join(err, deleted.Error()); err != nil {
		return fmt.Errorf("delete consumed records of %s: %w", t.topic, err)
	}
	return nil
}
