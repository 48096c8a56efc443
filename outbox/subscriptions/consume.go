package subscriptions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/api"
	"github.com/scylla-outbox/scylla-outbox/outbox/internal/rest"
	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
)

// Handler processes a message. Nil acknowledges it, an error reports a failed delivery. An
// error of Reject makes it a dead letter, one of RetryAfter sets the time of the next
// delivery, and ErrRelease returns the message without counting the delivery. ctx ends when the lease has expired, or StopTimeout after the consumer was
// stopped. Delivery is at least once: a message that was processed may come again.
type Handler func(ctx context.Context, d *Delivery) error

// ConsumeOptions are the options of Consume.
type ConsumeOptions struct {
	// Concurrency is the number of concurrent calls of the handler. Default 10. The server
	// orders the messages of one key.
	Concurrency int
	// MaxPerKey is the maximum number of consecutive messages of one key, a run, that are
	// received together; the handler gets them one after the other. What a run does not
	// acknowledge returns the rest of it to the queue. It raises the rate of one key, and
	// Concurrency times MaxPerKey messages are in progress. Default 1, at most 1,000.
	MaxPerKey int
	// VisibilityTimeout is the duration of a lease, which Consume extends while the
	// handler runs: so long after this process has failed, its messages are delivered
	// again. Default 30 s; at least 1 s.
	VisibilityTimeout time.Duration
	// Timeout bounds a call of the handler: its context ends, and the lease is not extended any
	// more, so that the message is delivered again, also if the handler hangs. Default: the
	// 12 hours after which the server ends a lease.
	Timeout time.Duration
	// Consumer names this consumer in leases and status; see ReceiveOptions.
	Consumer string
	// StopTimeout bounds the time for the messages in progress after ctx has ended.
	// Default 30 s.
	StopTimeout time.Duration
	// Payloads resolves payloads that are stored outside of their events, before the
	// handler is called; see Delivery.Load. A payload that cannot be read is a failed
	// delivery. Default: the handler receives an empty payload and the reference.
	Payloads payload.Store
	// Logger logs failed deliveries and requests. Default slog.Default().
	Logger *slog.Logger
}

// ErrRelease returns the message, which can be delivered immediately; its delivery does not
// count.
var ErrRelease = errors.New("message returned")

// Unavailable returns an error with which a handler reports that it can process no message at
// the moment. The message is returned, and its delivery does not count. The consumer pauses,
// for 1 s and then for up to 30 s, and continues with one message until one is acknowledged.
func Unavailable(err error) error {
	return &outcome{err: cmp.Or(err, errNoReason), action: "release", unavailable: true}
}

// Reject returns an error with which a handler makes the message a dead letter immediately.
func Reject(err error) error { return &outcome{err: cmp.Or(err, errNoReason), action: "reject"} }

// RetryAfter returns an error with which a handler sets the time of the next delivery.
func RetryAfter(err error, delay time.Duration) error {
	return &outcome{err: cmp.Or(err, errNoReason), action: "nack", delay: max(delay, time.Millisecond)}
}

// errNoReason is the reason of a handler that gives none.
var errNoReason = errors.New("the handler has given no reason")

// outcome is an error that selects what happens to the message.
type outcome struct {
	err         error
	action      string
	delay       time.Duration
	unavailable bool
}

// Error returns the handler's error.
func (o *outcome) Error() string { return o.err.Error() }

// Unwrap returns the handler's error.
func (o *outcome) Unwrap() error { return o.err }

// Consume receives messages of a subscription and calls the handler for each, until ctx
// ends. Then it finishes the messages in progress, returns the others, and returns nil. It
// retries while the service cannot be reached; a refusal, such as for a token without the
// right or an unknown subscription, is its error.
func (c *Client) Consume(ctx context.Context, name string, handler Handler, o ConsumeOptions) error {
	o.Concurrency, o.MaxPerKey = cmp.Or(o.Concurrency, 10), cmp.Or(o.MaxPerKey, 1)
	o.VisibilityTimeout = cmp.Or(o.VisibilityTimeout, 30*time.Second)
	o.StopTimeout = cmp.Or(o.StopTimeout, 30*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.MaxPerKey < 1 || o.MaxPerKey > MaxReceipts {
		return fmt.Errorf("consume %s: %d messages per key: use 1 to %d", name, o.MaxPerKey, MaxReceipts)
	}
	if o.Timeout < 0 {
		return fmt.Errorf("consume %s: timeout %s: use 0s or more", name, o.Timeout)
	}
	if o.Concurrency < 1 || o.VisibilityTimeout < time.Second || o.StopTimeout < 0 {
		return fmt.Errorf("consume %s: concurrency %d, visibility timeout %s, stop timeout %s: use at least 1, 1s and 0s", name, o.Concurrency, o.VisibilityTimeout, o.StopTimeout)
	}
	switch {
	case c == nil:
		return fmt.Errorf("consume %s: the client is nil: make one with the URL of the service", name)
	case handler == nil:
		return fmt.Errorf("consume %s: the handler is nil: pass the function that processes a message", name)
	}
	places := o.Concurrency * o.MaxPerKey
	k := &consumer{client: c, name: name, opts: o, handler: handler, free: make(chan struct{}, places), slots: make(chan struct{}, o.Concurrency), ended: make(chan ended, places)}
	k.mu.leases = map[string]lease{}
	return k.run(ctx)
}

// ended is a message whose handler has returned.
type ended struct {
	action string
	Settling
}

// lease is a message in progress.
type lease struct {
	run     *run
	handled bool               // its result may have reached the server
	until   time.Time          // no extension is requested afterwards; zero before the handler
	lost    context.CancelFunc // ends the handler's context
}

// run are consecutive messages of a key, or one message; they have one lease.
type run struct {
	since time.Time // of its last extension, by this clock
	lost  bool
	hung  bool // a handler has not returned after its time
}

type consumer struct {
	client  *Client
	name    string
	opts    ConsumeOptions
	handler Handler
	free    chan struct{} // a value for each message in progress
	slots   chan struct{} // a value for each call of the handler
	ended   chan ended

	mu struct {
		sync.Mutex
		leases map[string]lease // by receipt
		// After failures in a row for which the handler was unavailable, no message is
		// received until resume.
		unavailable int
		resume      time.Time
	}
}

func (k *consumer) run(ctx context.Context) error {
	// The handlers and the requests that settle their messages outlive ctx.
	working, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	defer context.AfterFunc(ctx, func() {
		t := time.AfterFunc(k.opts.StopTimeout, abort)
		context.AfterFunc(working, func() { t.Stop() })
	})()
	var handlers, others sync.WaitGroup
	extending, stopExtending := context.WithCancel(context.WithoutCancel(ctx))
	others.Go(func() { k.extend(extending) })
	others.Go(k.settle)
	err := k.receive(ctx, func(deliveries []Delivery) {
		handlers.Go(func() { k.handleRun(working, deliveries) })
	})
	handlers.Wait()
	close(k.ended)
	stopExtending()
	others.Wait()
	return err
}

// receiveGrace is the time that a request for messages may still take when the consumer
// stops: a response on its way would be lost with its leases.
const receiveGrace = 300 * time.Millisecond

// receive starts handlers until ctx ends.
func (k *consumer) receive(ctx context.Context, start func([]Delivery)) error {
	pause := api.DefaultFirstPause
	receiving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(receiveGrace, cancel) })()
	for {
		n := k.places(ctx)
		if n == 0 {
			return nil
		}
		got, err := k.client.Receive(receiving, k.name, ReceiveOptions{Max: n, MaxPerKey: k.opts.MaxPerKey, Wait: 20 * time.Second, VisibilityTimeout: k.opts.VisibilityTimeout, Consumer: k.opts.Consumer})
		for range n - len(got) {
			<-k.free
		}
		now := time.Now()
		runs := k.runs(got)
		for _, r := range runs {
			k.begin(r, now)
		}
		if ctx.Err() != nil && len(got) > 0 {
			k.giveBack(ctx, got)
			return nil
		}
		for _, r := range runs {
			start(r)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			pause = api.DefaultFirstPause
		case !rest.Retryable(err):
			return err
		default:
			k.opts.Logger.Warn("failed to receive messages; retrying", "subscription", k.name, "err", err)
			select {
			case <-time.After(pause/2 + mrand.N(pause)):
			case <-ctx.Done():
			}
			pause = min(2*pause, rest.MaxPause)
		}
	}
}

// runs returns the runs of messages.
func (k *consumer) runs(got []Delivery) (out [][]Delivery) {
	type place struct {
		topic     string
		partition int32
		key       string
	}
	at := make(map[place]int)
	for _, d := range got {
		p := place{d.Topic, d.Partition, d.group()}
		if i, ok := at[p]; ok && k.opts.MaxPerKey > 1 && p.key != "" {
			out[i] = append(out[i], d)
			continue
		}
		at[p] = len(out)
		out = append(out, []Delivery{d})
	}
	return out
}

// group returns the key by which the server orders the message.
func (d *Delivery) group() string { return cmp.Or(d.Key, d.AggregateID) }

// places takes at least one place for a message, and all that are free; 0 if ctx has ended.
// With runs it takes at least half of the places, so that they are long; it takes one after the
// pause of a handler that is unavailable.
func (k *consumer) places(ctx context.Context) (n int) {
	most, least := min(cap(k.free), MaxReceipts), 1
	if k.opts.MaxPerKey > 1 {
		least = max(1, most/2)
	}
	for n < most {
		if n < least {
			if n = k.place(ctx, n); n == 0 {
				return 0
			}
			if n == 1 && k.isUnavailable() {
				return k.probe(ctx)
			}
			continue
		}
		select {
		case k.free <- struct{}{}:
			n++
		default:
			return n
		}
	}
	return n
}

// place adds a place to n ones; if ctx ends first, it frees them and returns 0.
func (k *consumer) place(ctx context.Context, n int) int {
	select {
	case k.free <- struct{}{}:
		return n + 1
	case <-ctx.Done():
		for range n {
			<-k.free
		}
		return 0
	}
}

func (k *consumer) isUnavailable() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.unavailable > 0
}

// probe waits for the end of the messages in progress and of the pause. It has one place, and
// returns 1, or 0 if ctx has ended.
func (k *consumer) probe(ctx context.Context) int {
	for n := 1; n < cap(k.free); n++ {
		if k.place(ctx, n) == 0 {
			return 0
		}
	}
	k.mu.Lock()
	t := time.NewTimer(time.Until(k.mu.resume))
	k.mu.Unlock()
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	for range cap(k.free) - 1 {
		<-k.free
	}
	if ctx.Err() != nil {
		<-k.free
		return 0
	}
	return 1
}

// available records whether the handler could process a message.
func (k *consumer) available(yes bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	switch {
	case yes:
		k.mu.unavailable, k.mu.resume = 0, time.Time{}
	case !k.mu.resume.After(now): // others of the same time do not count
		k.mu.unavailable++
		k.mu.resume = now.Add(min(maxUnavailable, time.Second<<min(k.mu.unavailable-1, 10)))
	}
}

// maxUnavailable bounds the pause of a consumer whose handler is unavailable.
const maxUnavailable = 30 * time.Second

// giveBack returns messages that no handler has seen.
func (k *consumer) giveBack(ctx context.Context, got []Delivery) {
	receipts := make([]string, len(got))
	for i := range got {
		receipts[i] = got[i].Receipt
		k.end(got[i].Receipt)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.opts.StopTimeout)
	defer cancel()
	if _, err := k.client.Release(ctx, k.name, receipts...); err != nil {
		k.opts.Logger.Warn("failed to return messages", "subscription", k.name, "messages", len(got), "err", err)
	}
}

// handleRun handles messages one after the other. After the first one that is not
// acknowledged, and when the lease is lost, the server has taken the others back.
func (k *consumer) handleRun(ctx context.Context, deliveries []Delivery) {
	k.slots <- struct{}{}
	defer func() { <-k.slots }()
	for i := range deliveries {
		rest := deliveries[i:]
		if k.holds(rest[0].Receipt) {
			if k.handle(ctx, &rest[0]) == "ack" {
				continue
			}
			rest = rest[1:]
		}
		for _, d := range rest {
			k.end(d.Receipt)
		}
		return
	}
}

// maxDelivery is the time after which the server ends a lease.
const maxDelivery = 12 * time.Hour

// handle calls the handler, and reports and returns its result.
func (k *consumer) handle(ctx context.Context, d *Delivery) string {
	ctx, lost := context.WithTimeout(ctx, cmp.Or(k.opts.Timeout, maxDelivery))
	defer lost()
	k.watch(d.Receipt, lost)
	err := d.Load(ctx, k.opts.Payloads)
	if err == nil {
		err = k.handler(ctx, d)
	}
	e := ended{"ack", Settling{Receipt: d.Receipt}}
	switch {
	case err == nil:
		k.available(true)
	case errors.Is(err, ErrRelease):
		e.action = "release"
	default:
		e = ended{"nack", Settling{Receipt: d.Receipt, Reason: err.Error()}}
		var o *outcome
		if errors.As(err, &o) {
			e.action, e.Delay = o.action, o.delay
		}
		if o != nil && o.unavailable {
			k.available(false)
		}
		k.opts.Logger.Warn("failed to process a message", "subscription", k.name, "event_id", d.EventID, "attempt", d.Attempt, "action", e.action, "err", err)
	}
	k.mu.Lock()
	if l, ok := k.mu.leases[d.Receipt]; ok {
		l.handled = true
		k.mu.leases[d.Receipt] = l
	}
	k.mu.Unlock()
	k.ended <- e
	return e.action
}

func (k *consumer) begin(deliveries []Delivery, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := &run{since: now}
	for i := range deliveries {
		k.mu.leases[deliveries[i].Receipt] = lease{run: r, lost: func() {}}
	}
}

// holds reports whether the lease of a message is not lost.
func (k *consumer) holds(receipt string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.mu.leases[receipt]
	return ok && !l.run.lost
}

func (k *consumer) watch(receipt string, lost context.CancelFunc) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l, ok := k.mu.leases[receipt]; ok {
		l.lost, l.until = lost, time.Now().Add(cmp.Or(k.opts.Timeout, maxDelivery))
		k.mu.leases[receipt] = l
	}
}

// end frees the place of a message.
func (k *consumer) end(receipt string) {
	k.mu.Lock()
	delete(k.mu.leases, receipt)
	k.mu.Unlock()
	<-k.free
}

// settle sends the results of handlers, all that are there in one request for each action.
func (k *consumer) settle() {
	for first := range k.ended {
		batch := map[string][]Settling{first.action: {first.Settling}}
		for n := 1; n < MaxReceipts; n++ {
			select {
			case e, ok := <-k.ended:
				if ok {
					batch[e.action] = append(batch[e.action], e.Settling)
					continue
				}
			default:
			}
			break
		}
		for action, items := range batch {
			k.send(action, items)
		}
	}
}

// send settles messages. Messages that cannot be settled are delivered again when their leases
// expire: they are not extended any more.
func (k *consumer) send(action string, items []Settling) {
	ctx, cancel := context.WithTimeout(context.Background(), max(k.opts.VisibilityTimeout, k.opts.StopTimeout))
	defer cancel()
	body := map[string]any{"items": items}
	if action == "ack" || action == "release" {
		receipts := make([]string, len(items))
		for i := range items {
			receipts[i] = items[i].Receipt
		}
		body = map[string]any{"receipts": receipts}
	}
	results, err := k.client.settle(ctx, k.name, action, body)
	if err != nil {
		open := len(items)
		for i := range results {
			if results[i].Code == ResultOK {
				open--
			}
		}
		k.opts.Logger.Warn("failed to settle messages; they may be delivered again", "subscription", k.name, "action", action, "messages", open, "err", err)
	}
	for i := range items {
		k.end(items[i].Receipt)
	}
}

// extend extends the leases of messages in progress after a third of their time.
func (k *consumer) extend(ctx context.Context) {
	t := time.NewTicker(k.opts.VisibilityTimeout / 6)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		var items []Settling
		runs := make(map[*run]string) // a receipt of each, if possible of a message that is not settled
		k.mu.Lock()
		for receipt, l := range k.mu.leases {
			if !l.until.IsZero() && now.After(l.until) && !l.handled {
				l.run.hung = true
			}
			if now.Sub(l.run.since) >= k.opts.VisibilityTimeout/3 && !l.run.hung && (!l.handled || runs[l.run] == "") {
				runs[l.run] = receipt
			}
		}
		k.mu.Unlock()
		for _, receipt := range runs {
			if len(items) < MaxReceipts {
				items = append(items, Settling{Receipt: receipt, Delay: k.opts.VisibilityTimeout})
			}
		}
		if len(items) == 0 {
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, k.opts.VisibilityTimeout/3)
		results, err := k.client.Extend(attempt, k.name, items...)
		cancel()
		if err != nil && ctx.Err() == nil {
			k.opts.Logger.Warn("failed to extend leases", "subscription", k.name, "messages", len(items), "err", err)
		}
		k.recordExtensions(items, results, now)
	}
}

// recordExtensions records the results of extensions, and ends the handlers of lost leases.
func (k *consumer) recordExtensions(items []Settling, results []SettleResult, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range items {
		l, ok := k.mu.leases[items[i].Receipt]
		switch {
		case !ok:
		case i < len(results) && results[i].Code == ResultOK:
			l.run.since = now
		case l.handled: // the lease may have ended with it
		case i < len(results) && (results[i].Code == ResultLeaseExpired || results[i].Code == ResultInvalid), now.Sub(l.run.since) > k.opts.VisibilityTimeout:
			l.run.lost = true
		}
	}
	for _, l := range k.mu.leases {
		if l.run.lost {
			l.lost()
		}
	}
}
