package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

const (
	// minAge is the shortest retention: shorter ones are typing errors.
	minAge = time.Hour
	// objectDeadLetters and objectBytes limit the size of an object.
	objectDeadLetters = 5000
	objectBytes       = 32 << 20
	// batch is the number of dead letters that are listed at a time.
	batch = 500
	// dutyTTL is the time for which a crashed sweeper prevents others from sweeping.
	dutyTTL = 2 * time.Minute
	// dutyName is that of dlq.Duty.
	dutyName = "retention"
)

// Sweeper moves dead letters to the archive after their retention, or deletes them if
// there is no archive. Their outlines remain, so that the relay publishes nothing again.
// It also purges dead letters into the archive and restores them: it is the jobs.Archive of
// runners. It is safe for concurrent use.
//
// It removes a dead letter from the database only if it has not changed since it was
// read, and with an archive only after its object was written, read back and verified. A
// sweep may be interrupted at any point: the next one continues with the rest, and
// copies again a dead letter that was copied and not removed.
type Sweeper struct {
	conf    Config
	limit   *rate.Limiter
	log     *slog.Logger
	metrics *metrics
	warned  bool // of a missing archive; used by Run alone
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

// archiveGrace is the time after the last sweep with an archive began in which a process
// without one deletes nothing: its configuration may be incomplete.
const archiveGrace = 7 * 24 * time.Hour

// swept is the state of the duty. Archived is the time when the last sweep with an
// archive began, also if it failed: an archive that is broken is not a removed one.
type swept struct {
	Finished time.Time `json:"finished"`
	Archived time.Time `json:"archived,omitzero"`
}

// due reports whether a sweep is due. Without an archive the first one is an interval
// after the first process began, so that one with an archive comes first.
func (s *Sweeper) due(last *swept, now time.Time) bool {
	if s.conf.Archive != nil && last.Archived.IsZero() {
		return true
	}
	return now.Sub(last.Finished) >= s.conf.Interval
}

// mayDelete reports whether this process may sweep: without an archive only if no other
// process uses one.
func (s *Sweeper) mayDelete(last *swept, now time.Time) bool {
	return s.conf.Archive != nil || last.Archived.IsZero() || now.Sub(last.Archived) > archiveGrace
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
		last, err := s.last(ctx, duty)
		if err != nil {
			return err
		}
		now := s.conf.Store.Now().UTC()
		switch {
		case !s.due(&last, now):
			return nil
		case !s.mayDelete(&last, now):
			if !s.warned {
				s.warned = true
				s.log.Warn("another process archives dead letters; set archive.url in this process too", "archived_at", last.Archived, "deletes_after", archiveGrace)
			}
			return nil
		case s.conf.Archive == nil && last.Finished.IsZero():
			last.Finished = now
			return s.save(ctx, duty, last)
		}
		return s.once(ctx, duty, last)
	})
}

// Sweep sweeps once. dlq.ErrBusy reports that another process sweeps; an error with
// dlq.ErrArchive in its chain is an error of the archive.
func (s *Sweeper) Sweep(ctx context.Context) (dlq.Swept, error) {
	duty, err := s.conf.Store.Duty(dutyName, s.conf.Owner, dutyTTL)
	if err != nil {
		return dlq.Swept{}, err
	}
	var r dlq.Swept
	did := false
	err = duty.Hold(ctx, func(ctx context.Context) (err error) {
		did = true
		last, err := s.last(ctx, duty)
		if err != nil {
			return err
		}
		if err := s.begin(ctx, duty, &last); err != nil {
			return err
		}
		r, err = s.sweep(ctx)
		return err
	})
	if err == nil && !did {
		err = dlq.ErrBusy
	}
	return r, err
}

// last reads the state of the duty.
func (s *Sweeper) last(ctx context.Context, duty *dlq.Duty) (last swept, err error) {
	text, err := duty.State(ctx)
	if err != nil || text == "" {
		return last, err
	}
	if err := json.Unmarshal([]byte(text), &last); err != nil {
		s.log.Warn("the time of the last sweep cannot be read; sweeping now", "err", err)
	}
	return last, nil
}

// save stores the state of the duty.
func (s *Sweeper) save(ctx context.Context, duty *dlq.Duty, last swept) error {
	b, err := json.Marshal(last)
	if err != nil {
		return err
	}
	_, err = duty.Save(ctx, string(b))
	return err
}

// begin saves that a sweep with an archive begins.
func (s *Sweeper) begin(ctx context.Context, duty *dlq.Duty, last *swept) error {
	if s.conf.Archive == nil {
		return nil
	}
	last.Archived = s.conf.Store.Now().UTC()
	return s.save(ctx, duty, *last)
}

func (s *Sweeper) once(ctx context.Context, duty *dlq.Duty, last swept) error {
	if err := s.begin(ctx, duty, &last); err != nil {
		return err
	}
	r, err := s.sweep(ctx)
	if err != nil {
		return err
	}
	if len(r.Archived)+len(r.Expired)+r.Forgotten+r.Orphans+r.Payloads > 0 {
		s.log.Info("retention sweep finished", "archive", s.conf.Archive != nil, "resolved", r.Archived[dlq.Resolved], "failed", r.Archived[dlq.Failed],
			"objects", len(r.Objects), "held", r.Held, "expired_objects", len(r.Expired), "forgotten", r.Forgotten, "expired_payloads", r.Payloads)
	}
	last.Finished = s.conf.Store.Now().UTC()
	return s.save(ctx, duty, last)
}

// pass is the part of a sweep for one status: of one table or, without table, of all that
// have no pass of their own.
type pass struct {
	status dlq.Status
	table  string
	own    map[string]time.Duration // the tables with passes of their own
	before time.Time
}

// since returns the start of the retention of a dead letter.
func (p *pass) since(l *dlq.DeadLetter) time.Time {
	if p.status == dlq.Resolved {
		return l.ResolvedAt
	}
	return l.LastFailedAt
}

func (p *pass) filter() dlq.Filter {
	return dlq.Filter{Status: []dlq.Status{p.status}, Table: p.table, Until: p.before}
}

// meant reports whether the retention of a dead letter has ended.
func (p *pass) meant(l *dlq.DeadLetter) bool {
	_, own := p.own[l.Table]
	return l.Status == p.status && own == (p.table != "") && p.since(l).Before(p.before)
}

func (s *Sweeper) passes(ctx context.Context, now time.Time) (out []pass, err error) {
	var own map[string]time.Duration
	if s.conf.Tables != nil {
		if own, err = s.conf.Tables.Retentions(ctx); err != nil {
			return nil, fmt.Errorf("read the retention of tables: %w", err)
		}
	}
	for _, of := range []struct {
		status dlq.Status
		all    time.Duration
	}{{dlq.Resolved, s.conf.Resolved}, {dlq.Failed, s.conf.Failed}} {
		if of.all >= 0 {
			out = append(out, pass{of.status, "", own, now.Add(-of.all)})
		}
		for _, table := range slices.Sorted(maps.Keys(own)) {
			out = append(out, pass{of.status, table, own, now.Add(-max(own[table], minAge))})
		}
	}
	return out, nil
}

// sweep is Sweep without the check for another process that sweeps.
func (s *Sweeper) sweep(ctx context.Context) (dlq.Swept, error) {
	r := dlq.Swept{Archived: make(map[dlq.Status]int)}
	now := s.conf.Store.Now().UTC()
	passes, err := s.passes(ctx, now)
	if err != nil {
		return r, err
	}
	for _, p := range passes {
		if err := s.move(ctx, &p, &r); err != nil {
			return r, err
		}
	}
	if err := s.expire(ctx, now, &r); err != nil {
		return r, err
	}
	s.metrics.success.Set(float64(s.conf.Store.Now().Unix()))
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
