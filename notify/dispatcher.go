package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// Defaults of Config.
const (
	DefaultQueueSize    = 100
	DefaultAttempts     = 8
	DefaultTimeout      = 10 * time.Second
	DefaultBackoff      = time.Second
	DefaultMaxBackoff   = 5 * time.Minute
	DefaultDrainTimeout = 5 * time.Second
)

// Config of a Dispatcher. Zero values mean defaults.
type Config struct {
	// Targets by name. A name is a metric's label and in the log: no secret, and
	// few of them.
	Targets map[string]Target
	// QueueSize bounds the waiting messages of one target; further messages are
	// dropped. At least 1.
	QueueSize int
	// Attempts is the maximum number of attempts per message and target.
	Attempts int
	// Timeout bounds one attempt.
	Timeout time.Duration
	// Backoff is the wait after the first attempt; it doubles up to MaxBackoff.
	// Half of each is by chance.
	Backoff, MaxBackoff time.Duration
	// DrainTimeout bounds the delivery of queued messages when Run stops; each
	// message has one more attempt.
	DrainTimeout time.Duration
	// Logger receives dropped and failed messages. Default discards.
	Logger *slog.Logger
	// Registerer receives the metrics; nil means none.
	Registerer prometheus.Registerer
}

func (c Config) withDefaults() Config {
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	if c.QueueSize == 0 {
		c.QueueSize = DefaultQueueSize
	}
	if c.Attempts == 0 {
		c.Attempts = DefaultAttempts
	}
	or(&c.Timeout, DefaultTimeout)
	or(&c.Backoff, DefaultBackoff)
	or(&c.MaxBackoff, DefaultMaxBackoff)
	or(&c.DrainTimeout, DefaultDrainTimeout)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c *Config) validate() error {
	var errs []error
	if c.QueueSize < 1 {
		errs = append(errs, fmt.Errorf("queue size %d: must be at least 1", c.QueueSize))
	}
	if c.Attempts < 1 {
		errs = append(errs, fmt.Errorf("attempts %d: must be at least 1", c.Attempts))
	}
	if c.Timeout < 0 || c.Backoff < 0 || c.DrainTimeout < 0 || c.MaxBackoff < c.Backoff {
		errs = append(errs, fmt.Errorf("timeout %s, backoff %s to %s, drain timeout %s: must not be negative; the maximum backoff must be at least the first",
			c.Timeout, c.Backoff, c.MaxBackoff, c.DrainTimeout))
	}
	for name, t := range c.Targets {
		if name == "" || t == nil {
			errs = append(errs, fmt.Errorf("target %q has no name or is nil", name))
		}
	}
	return errors.Join(errs...)
}

// Dispatcher delivers messages to targets. It is safe for concurrent use.
type Dispatcher struct {
	conf    Config
	workers map[string]*worker
}

// New returns a Dispatcher that delivers once Run is called. Earlier messages
// wait in the queues.
func New(conf Config) (*Dispatcher, error) {
	conf = conf.withDefaults()
	if err := conf.validate(); err != nil {
		return nil, fmt.Errorf("notifications: %w", err)
	}
	d := &Dispatcher{conf: conf, workers: make(map[string]*worker)}
	m := newMetrics(conf.Registerer)
	for name, t := range conf.Targets {
		d.workers[name] = &worker{
			conf: &d.conf, target: t, queue: make(chan Message, conf.QueueSize), log: conf.Logger.With("target", name), metrics: m.of(name),
		}
	}
	return d, nil
}

// Notify queues m for every target, or for the named ones, and returns the
// number of queues that accepted m. It never blocks: a full queue drops m,
// which is counted and logged once until the target accepts a message again.
func (d *Dispatcher) Notify(m Message, targets ...string) int {
	m = m.Plain()
	n := 0
	for name, w := range d.workers {
		if len(targets) == 0 || slices.Contains(targets, name) {
			if w.offer(m) {
				n++
			}
		}
	}
	return n
}

// Run delivers until ctx ends, and then queued messages for at most
// DrainTimeout. It returns nil; a target that hangs does not delay it.
func (d *Dispatcher) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var wg sync.WaitGroup
		for _, w := range d.workers {
			wg.Go(func() { w.run(ctx, work) })
		}
		wg.Wait()
	}()
	select {
	case <-done: // without targets
		return nil
	case <-ctx.Done():
	}
	t := time.NewTimer(d.conf.DrainTimeout)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		cancel()
		<-done
	}
	return nil
}

// worker delivers to one target.
type worker struct {
	conf    *Config
	target  Target
	queue   chan Message
	log     *slog.Logger
	metrics targetMetrics

	mu   sync.Mutex
	full bool // full was logged, and no message was accepted since
}

func (w *worker) offer(m Message) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.queue <- m:
		w.metrics.queued.Set(float64(len(w.queue)))
		return true
	default:
	}
	w.metrics.dropped.Inc()
	if !w.full {
		w.full = true
		w.log.Error("notifications dropped: the queue of the target is full", "queue", cap(w.queue), "type", m.Type)
	}
	return false
}

// run delivers until stop ends, then queued messages until work ends.
func (w *worker) run(stop, work context.Context) {
	for {
		var m Message
		select {
		case m = <-w.queue:
		case <-stop.Done():
			select {
			case m = <-w.queue:
			default:
				return
			}
		}
		w.mu.Lock() // so that a concurrent Notify is counted
		w.metrics.queued.Set(float64(len(w.queue)))
		w.mu.Unlock()
		if work.Err() != nil {
			w.metrics.dropped.Inc()
			continue // only to count
		}
		w.deliver(stop, work, m)
	}
}

// deliver sends m until it is accepted, the attempts are used up or the error
// is permanent. After the end of stop there is no further attempt.
func (w *worker) deliver(stop, work context.Context, m Message) {
	for attempt := 1; ; attempt++ {
		err := w.attempt(work, m)
		if err == nil {
			w.metrics.sent.Inc()
			w.mu.Lock()
			w.full = false
			w.mu.Unlock()
			return
		}
		w.metrics.errors.Inc()
		if IsPermanent(err) || attempt == w.conf.Attempts || stop.Err() != nil {
			w.metrics.failed.Inc()
			w.log.Error("a notification was not delivered", "type", m.Type, "id", m.ID, "attempt", attempt, "err", err)
			return
		}
		d := retry.Backoff(w.conf.Backoff, w.conf.MaxBackoff, attempt)
		if asked := RequestedWait(err); asked > 0 {
			asked = min(asked, w.conf.MaxBackoff)
			d = min(asked+rand.N(asked/10+1), w.conf.MaxBackoff)
		}
		w.log.Debug("notification failed; retrying", "type", m.Type, "attempt", attempt, "wait", d, "err", err)
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-stop.Done(): // one more attempt, immediately
		}
		t.Stop()
	}
}

// attempt calls Send. It returns when Send does, or when work ends. The target
// receives no other message until then, so one that hangs costs one goroutine.
func (w *worker) attempt(work context.Context, m Message) error {
	ctx, cancel := context.WithTimeout(work, w.conf.Timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- Permanent(fmt.Errorf("the target panicked: %v", p))
			}
		}()
		done <- w.target.Send(ctx, m)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	if work.Err() == nil {
		w.metrics.stuck.Set(1)
		defer w.metrics.stuck.Set(0)
	}
	select {
	case err := <-done:
		return err
	case <-work.Done():
		return fmt.Errorf("the target hangs: %w", context.Cause(work))
	}
}
