package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// pushes is the number of concurrent calls of the webhook.
const pushes = 32

// subscriptionBatch is the number of messages of one request.
const subscriptionBatch = 100

// subscriptionBench measures subscriptions.
type subscriptionBench struct {
	*benchmark
	messages, waiting int64
	concurrency       int
	result            bench.SubscriptionReport
}

func newBenchSubscriptionsCommand() *cobra.Command {
	var (
		f benchFlags
		s subscriptionBench
	)
	cmd := &cobra.Command{
		Use:   "subscriptions",
		Short: "Measure subscriptions over HTTP beside a consumer group",
		Long: `Measure subscriptions over HTTP and, in the same run, a consumer group of
franz-go that reads the same records: with a commit for each batch of 100, and
without commits.

  consume   --messages messages are received and acknowledged in batches of 100,
            as fast as --concurrency callers get responses
  push      a quarter of --messages messages are pushed to a local webhook
  deliver   messages are published at --rate; each is timed from when it was to
            be published until a long poll returns it
  waiting   memory of the service while --waiting messages wait, and before

Load, service, database and broker share the machine; each is a process of its
own. --scylla-hosts and --kafka-seeds replace the embedded database and broker.
Exit status 1 if a message was lost, or delivered again.`,
		Args: cobra.NoArgs,
		RunE: measuring(&f, s.validate, s.measure),
	}
	fl := cmd.Flags()
	fl.Int64Var(&s.messages, "messages", 200_000, "messages to consume; 0 skips it")
	fl.IntVar(&s.concurrency, "concurrency", 32, "callers that receive and acknowledge")
	fl.Int64Var(&s.waiting, "waiting", 1_000_000, "messages that wait; 0 skips it")
	fl.Float64Var(&f.rate, "rate", 1000, "messages per second for long polls")
	fl.DurationVar(&f.duration, "duration", 10*time.Second, "duration of the load for long polls; 0 skips it")
	f.addSizeFlags(fl)
	f.addFlags(cmd, "the service")
	return cmd
}

func (s *subscriptionBench) validate(f *benchFlags) error {
	var errs problems
	bad := errs.bad
	bad(s.messages < 0, "--messages %d: must not be negative", s.messages)
	bad(s.waiting < 0, "--waiting %d: must not be negative", s.waiting)
	bad(s.concurrency < 1 || s.concurrency > callers, "--concurrency %d: use 1 to %d", s.concurrency, callers)
	bad(f.rate <= 0 || f.rate > 1e5, "--rate %g: use messages per second, up to 100,000", f.rate)
	bad(f.duration < 0, "--duration %s: must not be negative", f.duration)
	bad(f.payload < 32 || f.payload > 200_000, "--payload %d: use 32 to 200000 bytes", f.payload)
	bad(f.runs < 1, "--runs %d: use 1 or more", f.runs)
	return errs.with(f.output)
}

func (s *subscriptionBench) measure(ctx context.Context, b *benchmark) error {
	s.benchmark = b
	r := &s.result
	*r = bench.SubscriptionReport{Head: s.head()}
	var runs []bench.SubscriptionRun
	for i := range s.runs {
		one, err := s.one(ctx)
		if err != nil {
			return err
		}
		s.progress("run %d of %d: group %.0f/s, over HTTP %.0f/s, pushed %.0f/s, long poll p95 %.1f ms, memory %.0f MB, with messages %.0f MB; others kept %.1f cores busy",
			i+1, s.runs, one.Group.PerSecond, one.Consumed.PerSecond, one.Pushed.PerSecond, one.Delivered.P95, one.EmptyMB, one.WaitingMB, one.Others)
		runs = append(runs, one)
	}
	r.Median = bench.Median(runs)
	if r.Wrong > 0 {
		s.progress("%d messages were lost or delivered again", r.Wrong)
	}
	return s.print(r, r.Wrong == 0)
}

// one measures once, in a keyspace and with a service of its own.
func (s *subscriptionBench) one(ctx context.Context) (got bench.SubscriptionRun, err error) {
	p, err := s.newPlace(ctx)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, p.remove(ctx)) }()
	hook := newWebhook()
	defer hook.Close()
	program := s.program
	program.Env = append(slices.Clone(program.Env), "OUTBOX_SUBSCRIPTIONS_TARGETS=hook=webhook+"+hook.URL,
		"OUTBOX_SUBSCRIPTIONS_WEBHOOK_SECRETS=whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
	child, err := program.Start("subscriptions", serving, append(append([]string{"bench", "subscribed"}, s.forward...),
		"--scylla-keyspace", p.keyspace, "--subscriptions-addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0",
		"--ops-profiles="+strconv.FormatBool(s.profiles != ""), "--log-format", "json")...)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, child.Stop()) }()
	before := s.usages(ctx, child)
	// Memory first: what a process has allocated for other parts, it keeps.
	for _, part := range []func(context.Context, *place, *bench.Child, *bench.SubscriptionRun) error{s.wait, s.consume, s.pushTo(hook), s.deliver} {
		if err := part(ctx, p, child, &got); err != nil {
			return got, err
		}
	}
	got.Others = s.usages(ctx, child).others(before)
	return got, nil
}

// subscribe creates a topic and a subscription, and waits until it runs.
func (s *subscriptionBench) subscribe(ctx context.Context, p *place, child *bench.Child, of client.Subscription, publish func(topic string) error) error {
	topic, err := p.topic(ctx)
	if err != nil {
		return err
	}
	if err := publish(topic); err != nil {
		return err
	}
	c := &client.Client{URL: "http://" + child.Attr("addr")}
	of.Topics, of.Start = []string{topic}, "earliest"
	if _, err := c.Put(ctx, of); err != nil {
		return err
	}
	for end := time.Now().Add(benchPatience); ; {
		st, err := c.Status(ctx, of.Name)
		owned := 0
		for _, p := range st.Partitions {
			if p.Owner != "" {
				owned++
			}
		}
		switch {
		case err == nil && owned == int(relay.Defaults().Partitions):
			return nil
		case time.Now().After(end):
			return fmt.Errorf("subscription %s does not run after %s: %w", of.Name, benchPatience, err)
		}
		if err := stoppable(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// produce returns a function that publishes n messages.
func (s *subscriptionBench) produce(ctx context.Context, n int64) func(topic string) error {
	return func(topic string) error {
		_, err := bench.RawProduce(ctx, s.client, bench.NewMessages(topic, s.payload), topic, n)
		return err
	}
}

// wait measures the memory of messages that wait.
func (s *subscriptionBench) wait(ctx context.Context, p *place, child *bench.Child, got *bench.SubscriptionRun) error {
	if s.waiting == 0 {
		return nil
	}
	settled := func() (float64, error) {
		err := stoppable(ctx, benchSettle)
		return float64(child.Usage().Resident) / 1e6, err
	}
	err := s.subscribe(ctx, p, child, client.Subscription{Name: "empty"}, s.produce(ctx, 0))
	if err != nil {
		return err
	}
	if got.EmptyMB, err = settled(); err != nil {
		return err
	}
	if err := s.subscribe(ctx, p, child, client.Subscription{Name: "waiting"}, s.produce(ctx, s.waiting)); err != nil {
		return err
	}
	got.Waiting = s.waiting
	got.WaitingMB, err = settled()
	return err
}

// consume measures the group and the subscription, which read the same records.
func (s *subscriptionBench) consume(ctx context.Context, p *place, child *bench.Child, got *bench.SubscriptionRun) error {
	if s.messages == 0 {
		return nil
	}
	var topic string
	err := s.subscribe(ctx, p, child, client.Subscription{Name: "consume"}, func(t string) error {
		topic = t
		return s.produce(ctx, s.messages)(t)
	})
	if err != nil {
		return err
	}
	if got.Alone, err = s.group(ctx, topic, false); err != nil {
		return err
	}
	if got.Group, err = s.group(ctx, topic, true); err != nil {
		return err
	}
	profiled := s.profile(ctx, child, "consume", 5*time.Second)
	before := child.Usage()
	began := time.Now()
	var seen atomic.Int64
	last := make([]time.Time, s.concurrency) // acknowledgements; without the polls for messages that never come
	work, working := errgroup.WithContext(ctx)
	for i := range s.concurrency {
		work.Go(func() (err error) {
			last[i], err = s.caller(working, child, "consume", func(messages int, _ []byte) bool { return seen.Add(int64(messages)) < s.messages })
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	got.Consumed = bench.NewRate(seen.Load(), slices.MaxFunc(last, time.Time.Compare).Sub(began))
	got.Consumer = bench.CostBetween(before, child.Usage())
	s.result.Wrong += max(seen.Load()-s.messages, s.messages-seen.Load())
	return profiled()
}

// group reads all records with a consumer group of franz-go. With commits it does the work
// of a caller: it commits each batch before it reads the next one.
func (s *subscriptionBench) group(ctx context.Context, topic string, commits bool) (bench.Rate, error) {
	opts, err := s.conf.Kafka.Options()
	if err != nil {
		return bench.Rate{}, err
	}
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(s.conf.Kafka.Seeds...), kgo.ConsumerGroup(fmt.Sprintf("%s.%t", topic, commits)), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return bench.Rate{}, err
	}
	defer c.Close()
	var began time.Time
	n := int64(0)
	for n < s.messages {
		batch := 0 // all that the client has
		if commits {
			batch = subscriptionBatch
		}
		fetches := c.PollRecords(ctx, batch)
		if err := fetches.Err0(); err != nil {
			return bench.Rate{}, err
		}
		if n == 0 {
			began = time.Now() // without the time until the group has its partitions
		}
		n += int64(fetches.NumRecords())
		if commits {
			if err := c.CommitUncommittedOffsets(ctx); err != nil {
				return bench.Rate{}, err
			}
		}
	}
	return bench.NewRate(n, time.Since(began)), nil
}

// webhook accepts and counts requests.
type webhook struct {
	*httptest.Server
	mu struct {
		sync.Mutex
		n           int64
		first, last time.Time
	}
}

func newWebhook() *webhook {
	h := &webhook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a broken request is repeated
		h.mu.Lock()
		defer h.mu.Unlock()
		h.mu.last = time.Now()
		if h.mu.n++; h.mu.n == 1 {
			h.mu.first = h.mu.last
		}
	}))
	return h
}

// callRate returns the number of calls, and their rate.
func (h *webhook) callRate() (int64, bench.Rate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.n, bench.NewRate(h.mu.n, h.mu.last.Sub(h.mu.first))
}

// pushTo measures push delivery to a webhook.
func (s *subscriptionBench) pushTo(hook *webhook) func(context.Context, *place, *bench.Child, *bench.SubscriptionRun) error {
	return func(ctx context.Context, p *place, child *bench.Child, got *bench.SubscriptionRun) error {
		n := s.messages / 4
		if n == 0 {
			return nil
		}
		before := child.Usage()
		err := s.subscribe(ctx, p, child, client.Subscription{Name: "push", Push: &client.Push{To: "hook", Concurrency: pushes}}, s.produce(ctx, n))
		if err != nil {
			return err
		}
		profiled := s.profile(ctx, child, "push", 5*time.Second)
		for end := time.Now().Add(benchPatience); ; {
			calls, rate := hook.callRate()
			if calls >= n {
				got.Pushed, got.Pusher = rate, bench.CostBetween(before, child.Usage())
				s.result.Wrong += calls - n
				return profiled()
			}
			if time.Now().After(end) {
				return fmt.Errorf("the webhook was called %d times after %s, want %d", calls, benchPatience, n)
			}
			if err := stoppable(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
	}
}

// receiptsIn returns the receipts of a response. It decodes nothing else, as the group does
// not decode its records: the rate is the service's, not that of a JSON decoder.
func receiptsIn(body []byte) [][]byte {
	receipts := make([][]byte, 0, subscriptionBatch)
	for {
		_, rest, found := bytes.Cut(body, []byte(`"receipt":"`))
		if !found {
			return receipts
		}
		var receipt []byte
		receipt, body, _ = bytes.Cut(rest, []byte{'"'})
		receipts = append(receipts, receipt)
	}
}

// duesIn returns the times at which the messages of a response were to be published.
func duesIn(body []byte) (dues []time.Time) {
	for {
		_, rest, found := bytes.Cut(body, []byte(`"due":`))
		if !found {
			return dues
		}
		digits, _, _ := bytes.Cut(rest, []byte{','})
		ns, _ := strconv.ParseInt(string(digits), 10, 64) // publish writes a number
		dues, body = append(dues, time.Unix(0, ns)), rest
	}
}

// caller receives and acknowledges batches until next returns false, or no message comes for
// benchPatience. It returns the time of its last acknowledgement.
func (s *subscriptionBench) caller(ctx context.Context, child *bench.Child, name string, next func(messages int, body []byte) bool) (acknowledged time.Time, err error) {
	var body bytes.Buffer
	var ack []byte
	c := bench.Caller{Addr: child.Attr("addr"), Timeout: callerTimeout, Body: &body}
	defer c.Close()
	path := "/v1/subscriptions/" + name
	receive := fmt.Appendf(nil, `{"max":%d,"wait":"1s"}`, subscriptionBatch)
	for last := time.Now(); ctx.Err() == nil; {
		status, err := c.Post(ctx, path+"/receive", "", receive)
		if err != nil || status != http.StatusOK {
			return acknowledged, fmt.Errorf("receive: status %d: %w", status, errors.Join(err, errors.New(body.String())))
		}
		receipts := receiptsIn(body.Bytes())
		more := next(len(receipts), body.Bytes())
		if len(receipts) == 0 {
			if !more || time.Since(last) > benchPatience {
				return acknowledged, nil
			}
			continue
		}
		last = time.Now()
		ack = append(ack[:0], `{"receipts":[`...)
		for i, receipt := range receipts {
			if i > 0 {
				ack = append(ack, ',')
			}
			ack = append(append(append(ack, '"'), receipt...), '"')
		}
		ack = append(ack, "]}"...)
		if status, err := c.Post(ctx, path+"/ack", "", ack); err != nil || status != http.StatusOK {
			return acknowledged, fmt.Errorf("ack: status %d: %w", status, errors.Join(err, errors.New(body.String())))
		}
		acknowledged = time.Now()
		if !more {
			return acknowledged, nil
		}
	}
	return acknowledged, ctx.Err()
}

// deliver measures the time from publication to a long poll.
func (s *subscriptionBench) deliver(ctx context.Context, p *place, child *bench.Child, got *bench.SubscriptionRun) error {
	if s.duration == 0 {
		return nil
	}
	var topic string
	if err := s.subscribe(ctx, p, child, client.Subscription{Name: "deliver"}, func(t string) error { topic = t; return nil }); err != nil {
		return err
	}
	n := int64(s.rate * s.duration.Seconds())
	var mu sync.Mutex
	seen, all := int64(0), bench.NewLatencies()
	work, working := errgroup.WithContext(ctx)
	for range s.concurrency {
		work.Go(func() error {
			_, err := s.caller(working, child, "deliver", func(messages int, body []byte) bool {
				now := time.Now()
				mu.Lock()
				defer mu.Unlock()
				for _, due := range duesIn(body) {
					all.Add(now.Sub(due))
				}
				seen += int64(messages)
				return seen < n
			})
			return err
		})
	}
	work.Go(func() error { return s.publish(working, topic, n) })
	if err := work.Wait(); err != nil {
		return err
	}
	s.result.Wrong += max(seen-n, n-seen)
	got.Delivered = all.Latency()
	return nil
}

// publish publishes n messages at the rate, each with the time at which it was due.
func (s *subscriptionBench) publish(ctx context.Context, topic string, n int64) error {
	c, err := s.conf.Kafka.Client(kgo.ProducerLinger(0)) // as the relay
	if err != nil {
		return err
	}
	defer c.Close()
	events, began := bench.NewMessages(topic, s.payload), time.Now()
	var failed atomic.Pointer[error]
	for i := range n {
		due := began.Add(time.Duration(float64(i) / s.rate * float64(time.Second)))
		if err := stoppable(ctx, time.Until(due)); err != nil {
			return err
		}
		e := events.At(i)
		e.Payload = fmt.Appendf(nil, `{"due":%d,"text":%q}`, due.UnixNano(), e.Payload[:max(0, s.payload-40)])
		c.Produce(ctx, bench.NewRecord(&e, topic), func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	err = c.Flush(ctx)
	if bad := failed.Load(); bad != nil {
		err = errors.Join(err, *bad)
	}
	return err
}
