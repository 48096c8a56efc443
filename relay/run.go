package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/thejerf/suture/v4"

	"github.com/scylla-outbox/scylla-outbox/internal/epochs"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/capture"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/hints"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/layouts"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
)

// pass is one run of the relay: from a start until it is stopped, a fatal error, an altered
// table, or the CDC log is about to lose unpublished events.
type pass struct {
	*Relay
	p    *publish.Publisher
	back *readback.Reader
	dead *publish.OpenDeadLetters
	fill *backfill.Backfill
	// epochs are the epochs that the pass began with.
	epochs epochs.Epochs
	// fail ends the pass with a cause.
	fail context.CancelCauseFunc
}

// run is Run until backfill.ErrOutrun.
func (r *Relay) run(ctx context.Context) error {
	tail, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	r.streams.Forget()
	p, err := publish.New(r.cfg.publish(), r.metrics.Metrics, func(err error) { fail(err) })
	if err != nil {
		return err
	}
	r.publisher.Store(p)
	defer p.Close()
	back := readback.New(r.cfg.readback(), r.metrics.readBack, r.store, r.generations(), p)
	back.Own, back.Ticket = &r.own, r.cfg.Process.announce()
	defer back.Ticket.Withdraw()
	r.readback.Store(back)
	r.mu.Lock()
	r.started = time.Now()
	r.mu.Unlock()
	p.EnsureTopics(r.cfg.Topics)
	one := pass{Relay: r, p: p, back: back, fail: fail}
	if err := one.learn(tail); err != nil {
		err = one.blameTable(tail, err)
		if ctx.Err() != nil {
			err = nil // stop requested
		}
		return r.finish(ctx, p, err)
	}
	sup, err := one.services()
	if err != nil {
		return err
	}
	_ = sup.Serve(tail) // it ends with tail; the cause of tail is the reason

	fatal := context.Cause(tail)
	if ctx.Err() != nil {
		fatal = nil // stop requested
	}
	return r.finish(ctx, p, fatal)
}

// learn loads the state that a pass needs before it publishes: its right to run, its
// position, the dead letters, and the events in the topics.
func (x *pass) learn(ctx context.Context) error {
	var since time.Time
	for _, step := range []func(context.Context) error{
		x.measureClock,
		x.findTable,
		x.standBy,
		x.readEpochs,
		x.refuseDeadLetters,
		func(ctx context.Context) error {
			return x.untilRead(ctx, "cannot read how far the relay was with another number of shards; nothing is published before that", func() (err error) {
				since, err = layouts.TakeOver(ctx, x.layouts())
				return err
			})
		},
		func(ctx context.Context) error { return x.followAnother(ctx, since) },
		func(ctx context.Context) (err error) {
			if x.dead, err = publish.LoadDeadLetters(ctx, x.p, &x.own, x.untilRead); err != nil {
				return err
			}
			x.back.AlsoSince = checkpoint.Earliest(since, x.dead.Since)
			conf := x.cfg.backfill()
			conf.Report, conf.Open = x.reportGap, &x.openGap
			x.fill = backfill.New(conf, x.table, &x.own, x.streams, x.p, x.back)
			x.backfill.Store(x.fill)
			return x.fill.Decide(ctx)
		},
		x.back.Run,
		func(ctx context.Context) error {
			return publish.LoadSettled(ctx, x.p, &x.own, x.fill.Since(x.back.Position), x.untilRead)
		},
		func(ctx context.Context) error { return x.fill.Prepare(ctx) },
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readEpochs reads the epochs of the table, before anything is published.
func (x *pass) readEpochs(ctx context.Context) error {
	return x.untilRead(ctx, "cannot read the epochs of the outbox table; nothing is published before that", func() (err error) {
		if x.epochs, err = epochs.Read(ctx, x.cfg.Session, x.cfg.Keyspace, x.cfg.TableKeyspace+"."+x.cfg.Table); err == nil {
			x.p.SetEpochs(x.epochs)
			x.back.Epoch = x.epochs.Current()
		}
		return err
	})
}

// layouts returns the configuration of the shard that takes over from other layouts.
func (r *Relay) layouts() *layouts.Config {
	return &layouts.Config{
		Session: r.cfg.Session, Keyspace: r.cfg.Keyspace, Relay: r.cfg.Name, TableKeyspace: r.cfg.TableKeyspace, Table: r.cfg.Table,
		Columns: r.table, Shard: r.cfg.Shard, Window: r.cfg.ConfidenceWindow, Fence: r.cfg.Fence, Logger: r.log,
	}
}

// services returns the parts that run concurrently. The supervisor restarts a part that
// ends, unless its error is fatal.
func (x *pass) services() (*suture.Supervisor, error) {
	sup := suture.New("relay", suture.Spec{
		EventHook:         x.logSupervision,
		FailureThreshold:  1,
		FailureBackoff:    x.cfg.RestartDelay,
		Timeout:           x.cfg.DrainTimeout,
		PassThroughPanics: true,
	})
	add := func(name string, run func(context.Context) error) {
		sup.Add(&service{name: name, run: run, pass: x})
	}
	replays := publish.NewReplayer(x.p, x.lookup)
	replays.Own = &x.own
	x.dead.Know(x.p)
	proofs := readback.NewProofs(x.cfg.readback(), x.p, x.store, x.metrics.proof)
	proofs.Gap = x.openGap.Since
	proofs.UseClock(x.back)
	x.p.SetProver(proofs)
	add("proofs", proofs.Run)
	add("reader", x.read)
	add("quiet streams", capture.NewQuiet(x.cfg.capture(), &x.table, x.generations(), x.streams).Run)
	add("checkpoints", func(ctx context.Context) error {
		return x.streams.Run(ctx, x.cfg.CheckpointInterval, x.cfg.IdleCheckpoint)
	})
	add("clock", x.watchClock)
	add("table", x.watchTable)
	add("backfill", func(ctx context.Context) error {
		err := x.fill.Run(ctx)
		if errors.Is(err, backfill.ErrOutrun) {
			x.fail(err)
			err = suture.ErrDoNotRestart
		}
		return err
	})
	if x.table.Numbered() {
		add("repairs", backfill.NewRepairer(x.cfg.backfill(), &x.own, x.lookup, x.p, x.back).Run)
	}
	add("memory", func(ctx context.Context) error { return x.forget(ctx, x.p) })
	gated := len(x.back.UnreadPartitions().Parts) > 0
	if gated {
		add("unread partitions", x.awaitUnread)
	}
	if x.p.WritesDeadLetters() && !gated {
		add("replays", func(ctx context.Context) error {
			if err := x.dead.Settle(ctx, replays); err != nil {
				return err
			}
			return replays.Run(ctx)
		})
	}
	if x.cfg.Tail != TailOn {
		return sup, nil
	}
	t := capture.NewTail(x.cfg.capture(), x.metrics.capture, x.input(), cdclog.NewReader(x.cfg.Session, x.table, &x.own), x.streams, x.p)
	x.tail.Store(t)
	add("tail", t.Run)
	if x.cfg.Hints == nil {
		return sup, nil
	}
	if err := x.listen(); err != nil {
		return nil, err
	}
	add("hints", func(ctx context.Context) error { return x.hints.Run(ctx, x.cfg.Hints) })
	return sup, nil
}

// listen prepares the relay for hints; the current tail reader receives them.
func (r *Relay) listen() (err error) {
	if r.hints == nil {
		take := func(tokens []int64) { r.tail.Load().Hint(tokens) }
		if r.hints, err = hints.NewReceiver(r.cfg.HintKey, r.cfg.Registerer, take); err != nil {
			return err
		}
	}
	if err := r.cfg.Hints.SetReadDeadline(time.Time{}); err != nil { // the previous run has set a deadline
		return fmt.Errorf("listen for hints: %w", err)
	}
	return nil
}

// awaitUnread ends the pass once the partitions that its start could not read are
// readable.
func (x *pass) awaitUnread(ctx context.Context) error {
	unread := x.back.UnreadPartitions()
	for attempt := 1; ; attempt++ {
		if err := retry.Wait(ctx, retry.Required(x.cfg.RetryMin, x.cfg.RetryMax, attempt)); err != nil {
			return err
		}
		n, err := x.back.Readable(ctx, &unread)
		if err != nil {
			x.log.Debug("partitions still cannot be read back", "partitions", unread.Names(), "err", err)
			continue
		}
		if n == len(unread.Parts) || n > 0 && time.Since(unread.Since) >= readback.Together {
			x.log.Info("partitions can be read back", "partitions", n, "of", len(unread.Parts), "after", time.Since(unread.Since))
			x.fail(readback.ErrReadable)
			return suture.ErrDoNotRestart
		}
	}
}
