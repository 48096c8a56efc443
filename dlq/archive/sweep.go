package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

const (
	// minAge is the shortest retention: shorter ones are typing errors.
	minAge = time.Hour
	// objectLetters and objectBytes limit the size of an object.
	objectLetters = 5000
	objectBytes   = 32 << 20
	// batch is the number of dead letters that are listed at a time.
	batch = 500
	// dutyTTL is the time for which a crashed sweeper prevents others from sweeping.
	dutyTTL = 2 * time.Minute
	// dutyName is that of dlq.Duty.
	dutyName = "retention"
)

// Sweeper moves dead letters to the archive after their retention.
//
// It removes a dead letter from the database only after its object was written, read
// back and verified, and only if the dead letter has not changed since it was read. A
// sweep may be interrupted at any point: the next one continues with the rest, and
// copies again a dead letter that was copied and not removed.
type Sweeper struct {
	conf    Config
	limit   *rate.Limiter
	log     *slog.Logger
	metrics *metrics
}

// NewSweeper returns a Sweeper; it starts nothing.
func NewSweeper(conf Config) (*Sweeper, error) {
	conf = conf.withDefaults()
	if err := conf.validate(); err != nil {
		return nil, fmt.Errorf("retention: %w", err)
	}
	return &Sweeper{
		conf: conf, limit: rate.NewLimiter(rate.Limit(conf.Rate), max(1, int(conf.Rate))), log: conf.Logger, metrics: newMetrics(conf.Registerer),
	}, nil
}

// swept is the state of the duty.
type swept struct {
	Finished time.Time `json:"finished"`
}

// Run sweeps at every interval until ctx ends, and then returns nil. Of several
// processes one sweeps. Failures are logged, counted and retried at the next interval.
func (s *Sweeper) Run(ctx context.Context) error {
	duty, err := s.conf.Store.Duty(dutyName, s.conf.Owner, dutyTTL)
	if err != nil {
		return err
	}
	pause := min(s.conf.Interval, time.Minute)
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if err := s.turn(ctx, duty); err != nil && ctx.Err() == nil {
			s.metrics.errors.Inc()
			s.log.Error("retention sweep failed; retrying at the next interval", "wait", pause, "err", err)
		}
		t.Reset(pause)
	}
}

// turn sweeps if it is this process's turn and the last sweep was long enough ago.
func (s *Sweeper) turn(ctx context.Context, duty *dlq.Duty) error {
	return duty.Hold(ctx, func(ctx context.Context) error {
		text, err := duty.State(ctx)
		if err != nil {
			return err
		}
		var last swept
		if text != "" {
			if err := json.Unmarshal([]byte(text), &last); err != nil {
				s.log.Warn("it cannot be read when the last sweep was; sweeping now", "err", err)
			}
		}
		if s.conf.Now().Sub(last.Finished) < s.conf.Interval {
			return nil
		}
		return s.once(ctx, duty)
	})
}

// Once sweeps once. dlq.ErrBusy reports that another process sweeps; an error with
// dlq.ErrArchive in its chain is an error of the archive.
func (s *Sweeper) Once(ctx context.Context) (Report, error) {
	duty, err := s.conf.Store.Duty(dutyName, s.conf.Owner, dutyTTL)
	if err != nil {
		return Report{}, err
	}
	var r Report
	did := false
	err = duty.Hold(ctx, func(ctx context.Context) (err error) {
		did = true
		r, err = s.Sweep(ctx)
		return err
	})
	if err == nil && !did {
		err = dlq.ErrBusy
	}
	return r, err
}

func (s *Sweeper) once(ctx context.Context, duty *dlq.Duty) error {
	r, err := s.Sweep(ctx)
	if err != nil {
		return err
	}
	if len(r.Objects)+len(r.Expired)+r.Forgotten+r.Orphans > 0 {
		s.log.Info("dead letters archived", "resolved", r.Archived[dlq.Resolved], "failed", r.Archived[dlq.Failed],
			"objects", len(r.Objects), "held", r.Held, "expired_objects", len(r.Expired), "forgotten", r.Forgotten)
	}
	b, err := json.Marshal(swept{s.conf.Now().UTC()})
	if err != nil {
		return err
	}
	_, err = duty.Save(ctx, string(b))
	return err
}

// pass is the part of a sweep for one status.
type pass struct {
	status dlq.Status
	before time.Time
	since  func(*dlq.DeadLetter) time.Time
}

func (p *pass) filter() dlq.Filter {
	return dlq.Filter{Status: []dlq.Status{p.status}, Until: p.before}
}

// meant reports whether the retention of a dead letter has ended.
func (p *pass) meant(l *dlq.DeadLetter) bool {
	return l.Status == p.status && p.since(l).Before(p.before)
}

func (s *Sweeper) passes(now time.Time) (out []pass) {
	if s.conf.Resolved >= 0 {
		out = append(out, pass{dlq.Resolved, now.Add(-s.conf.Resolved), func(l *dlq.DeadLetter) time.Time { return l.ResolvedAt }})
	}
	if s.conf.Failed >= 0 {
		out = append(out, pass{dlq.Failed, now.Add(-s.conf.Failed), func(l *dlq.DeadLetter) time.Time { return l.LastFailedAt }})
	}
	return out
}

// Sweep is Once without the check for another process that sweeps.
func (s *Sweeper) Sweep(ctx context.Context) (Report, error) {
	r := Report{Archived: make(map[dlq.Status]int)}
	now := s.conf.Now().UTC()
	for _, p := range s.passes(now) {
		m := mover{s: s, r: &r}
		if err := s.walk(ctx, p.filter(), func(l *dlq.DeadLetter) error { return m.add(ctx, l, p.meant) }); err != nil {
			return r, err
		}
		if err := m.flush(ctx); err != nil {
			return r, err
		}
	}
	if err := s.expire(ctx, now, &r); err != nil {
		return r, err
	}
	s.metrics.success.Set(float64(s.conf.Now().Unix()))
	return r, nil
}

// walk calls f for the dead letters of a list, a batch at a time, at the configured
// rate.
func (s *Sweeper) walk(ctx context.Context, filter dlq.Filter, f func(*dlq.DeadLetter) error) error {
	for {
		deadLetters := make([]dlq.DeadLetter, 0, batch)
		if err := s.conf.Store.List(ctx, filter, func(l *dlq.DeadLetter) error {
			deadLetters = append(deadLetters, *l)
			if len(deadLetters) == batch {
				return dlq.ErrStop
			}
			return nil
		}); err != nil {
			return err
		}
		for i := range deadLetters {
			if err := s.limit.Wait(ctx); err != nil {
				return err
			}
			if err := f(&deadLetters[i]); err != nil {
				return err
			}
		}
		if len(deadLetters) < batch {
			return nil
		}
		filter.After = deadLetters[batch-1].Position()
	}
}
