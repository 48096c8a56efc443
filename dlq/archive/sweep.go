package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// Defaults of Config.
const (
	DefaultResolved = 30 * 24 * time.Hour
	DefaultFailed   = 90 * 24 * time.Hour
	DefaultKeep     = 365 * 24 * time.Hour
	DefaultInterval = time.Hour
	DefaultRate     = 200
)

const (
	// minAge is the shortest retention: shorter ones are typing errors.
	minAge = time.Hour
	// objectLetters and objectBytes are when an object is closed.
	objectLetters = 5000
	objectBytes   = 32 << 20
	// batch is how many letters are listed at a time.
	batch = 500
	// dutyTTL is how long a sweeper that died keeps others from sweeping.
	dutyTTL = 2 * time.Minute
	// dutyName is that of dlq.Duty.
	dutyName = "retention"
)

// Config of a Sweeper. Zero means default.
type Config struct {
	// Store and Archive are required.
	Store   *dlq.Store
	Archive *Archive
	// Resolved is how long a resolved letter stays in the database, from its
	// resolution on; Failed the same of a failed one, from its last failure on. -1
	// leaves them there for good. Letters with another status always stay, and so
	// does a failed one as long as others are parked behind it.
	Resolved, Failed time.Duration
	// Keep is how long objects stay in the archive, and outlines in the database;
	// -1 is for good.
	Keep time.Duration
	// Interval is how often the database is swept; Rate how many letters a second
	// are read at most.
	Interval time.Duration
	Rate     float64
	// Owner names the process; required.
	Owner string
	// RowTTL is how long an outbox table, "keyspace.table", keeps its rows; 0 is for
	// good. The outline of a letter stays for as long as the event's row may. nil
	// means for good.
	RowTTL func(ctx context.Context, table string) (time.Duration, error)
	// Logger and Registerer may be nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	or(&c.Resolved, DefaultResolved)
	or(&c.Failed, DefaultFailed)
	or(&c.Keep, DefaultKeep)
	or(&c.Interval, DefaultInterval)
	if c.Rate == 0 {
		c.Rate = DefaultRate
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c *Config) validate() error {
	var errs []error
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"resolved", c.Resolved}, {"failed", c.Failed}, {"keep", c.Keep}} {
		if d.v != -1 && d.v < minAge {
			errs = append(errs, fmt.Errorf("%s %s: must be at least %s, or -1 for good", d.name, d.v, minAge))
		}
	}
	if c.Interval < time.Second {
		errs = append(errs, fmt.Errorf("interval %s: must be at least a second", c.Interval))
	}
	if c.Rate < 1 {
		errs = append(errs, fmt.Errorf("rate %v: must be at least 1 letter a second", c.Rate))
	}
	if c.Store == nil || c.Archive == nil || c.Owner == "" {
		errs = append(errs, errors.New("a store, an archive and an owner are required"))
	}
	return errors.Join(errs...)
}

// Report is what a sweep did.
type Report struct {
	// Archived counts letters by what they were before they were moved.
	Archived map[dlq.Status]int `json:"archived"`
	// Objects were written.
	Objects []string `json:"objects"`
	// Held are failed letters that stay because others are parked behind them.
	Held int `json:"held"`
	// Changed are letters that somebody changed meanwhile; they stay.
	Changed int `json:"changed"`
	// Expired are objects removed because their time was over, Forgotten outlines.
	Expired   []string `json:"expired"`
	Forgotten int      `json:"forgotten"`
	// Orphans are objects removed that a sweep before had not finished.
	Orphans int `json:"orphans"`
}

// Sweeper moves letters to the archive when their time has come.
//
// A letter is removed from the database only after its object was written, read
// back and found whole, and only if nobody has changed it since it was read. A
// sweep may be interrupted at any point: the next one goes on with what is left,
// and a letter that was written and not yet removed is written again.
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

// Run sweeps at every interval until ctx ends, and returns nil then. Of several
// processes one sweeps. What fails is logged, counted and tried again.
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
			s.log.Error("a sweep of old dead letters failed; it goes on later", "wait", pause, "err", err)
		}
		t.Reset(pause)
	}
}

// turn sweeps if it is this process's turn and the last sweep was long enough ago.
func (s *Sweeper) turn(ctx context.Context, duty *dlq.Duty) error {
	return s.onDuty(ctx, duty, func(ctx context.Context) error {
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

// Once sweeps now. dlq.ErrBusy says that another process does so, and an error
// with dlq.ErrArchive in its chain that it is the archive which failed.
func (s *Sweeper) Once(ctx context.Context) (Report, error) {
	duty, err := s.conf.Store.Duty(dutyName, s.conf.Owner, dutyTTL)
	if err != nil {
		return Report{}, err
	}
	var r Report
	did := false
	err = s.onDuty(ctx, duty, func(ctx context.Context) (err error) {
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
		s.log.Info("old dead letters were moved to the archive", "resolved", r.Archived[dlq.Resolved], "failed", r.Archived[dlq.Failed],
			"objects", len(r.Objects), "held", r.Held, "expired_objects", len(r.Expired), "forgotten", r.Forgotten)
	}
	b, err := json.Marshal(swept{s.conf.Now().UTC()})
	if err != nil {
		return err
	}
	_, err = duty.Save(ctx, string(b))
	return err
}

// onDuty calls f if the duty can be had, keeps it meanwhile, and ends f's context
// if it is lost.
func (s *Sweeper) onDuty(ctx context.Context, duty *dlq.Duty, f func(context.Context) error) error {
	mine, err := duty.Take(ctx)
	if err != nil || !mine {
		return err
	}
	work, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(dutyTTL / 4)
		defer t.Stop()
		for last := time.Now(); ; {
			select {
			case <-work.Done():
				return
			case <-t.C:
			}
			mine, err := duty.Take(work)
			switch {
			case err == nil && mine:
				last = time.Now()
			case err == nil || time.Since(last) > dutyTTL*3/4:
				cancel(errors.New("another process may sweep by now"))
				return
			}
		}
	}()
	err = f(work)
	if cause := context.Cause(work); err != nil && cause != nil && ctx.Err() == nil {
		err = errors.Join(cause, err)
	}
	cancel(nil)
	<-done
	if leave := duty.Leave(context.WithoutCancel(ctx)); leave != nil {
		s.log.Debug("the claim of the retention runs out by itself", "err", leave)
	}
	return err
}

// pass is what a sweep does about the letters of a status.
type pass struct {
	status dlq.Status
	before time.Time
	since  func(*dlq.Letter) time.Time
}

func (p *pass) filter() dlq.Filter {
	return dlq.Filter{Status: []dlq.Status{p.status}, Until: p.before}
}

// meant tells whether the time of a letter has come.
func (p *pass) meant(l *dlq.Letter) bool { return l.Status == p.status && p.since(l).Before(p.before) }

func (s *Sweeper) passes(now time.Time) (out []pass) {
	if s.conf.Resolved >= 0 {
		out = append(out, pass{dlq.Resolved, now.Add(-s.conf.Resolved), func(l *dlq.Letter) time.Time { return l.ResolvedAt }})
	}
	if s.conf.Failed >= 0 {
		out = append(out, pass{dlq.Failed, now.Add(-s.conf.Failed), func(l *dlq.Letter) time.Time { return l.LastFailedAt }})
	}
	return out
}

// Sweep does what Once does without asking whether another process does so too.
func (s *Sweeper) Sweep(ctx context.Context) (Report, error) {
	r := Report{Archived: make(map[dlq.Status]int)}
	now := s.conf.Now().UTC()
	for _, p := range s.passes(now) {
		m := mover{s: s, r: &r}
		if err := s.walk(ctx, p.filter(), func(l *dlq.Letter) error { return m.add(ctx, l, p.meant) }); err != nil {
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

// walk calls f for the letters of a list, a batch at a time, at the rate allowed.
func (s *Sweeper) walk(ctx context.Context, filter dlq.Filter, f func(*dlq.Letter) error) error {
	for {
		letters := make([]dlq.Letter, 0, batch)
		if err := s.conf.Store.List(ctx, filter, func(l *dlq.Letter) error {
			letters = append(letters, *l)
			if len(letters) == batch {
				return dlq.ErrStop
			}
			return nil
		}); err != nil {
			return err
		}
		for i := range letters {
			if err := s.limit.Wait(ctx); err != nil {
				return err
			}
			if err := f(&letters[i]); err != nil {
				return err
			}
		}
		if len(letters) < batch {
			return nil
		}
		filter.After = letters[batch-1].Position()
	}
}

// mover gathers letters for an object.
type mover struct {
	s       *Sweeper
	r       *Report
	records []Record
	letters []dlq.Letter // without payloads
	bytes   int
}

// add reads the whole letter and takes it if it is still meant.
func (m *mover) add(ctx context.Context, seen *dlq.Letter, meant func(*dlq.Letter) bool) error {
	store := m.s.conf.Store
	c, err := store.Copy(ctx, seen.EventID)
	if errors.Is(err, dlq.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	l := c.Letter
	if !meant(&l) {
		return nil
	}
	held, err := m.s.holdsOthers(ctx, &l)
	if err != nil {
		return err
	}
	if held {
		m.r.Held++
		m.s.metrics.of("held").Inc()
		return nil
	}
	m.records = append(m.records, recordOf(&c))
	m.bytes += len(l.Payload) + 1024
	l.Payload, l.Headers, l.Metadata, l.Raw = nil, nil, nil, nil
	m.letters = append(m.letters, l)
	if len(m.records) >= objectLetters || m.bytes >= objectBytes {
		return m.flush(ctx)
	}
	return nil
}

// holdsOthers tells whether a letter of the aggregate is parked behind l, which
// failed.
func (s *Sweeper) holdsOthers(ctx context.Context, l *dlq.Letter) (bool, error) {
	if l.Status != dlq.Failed || l.Released {
		return false, nil
	}
	chain, err := s.conf.Store.Chain(ctx, l.Table, l.AggregateID)
	if err != nil {
		return false, err
	}
	behind := false
	for _, e := range chain {
		switch {
		case e.EventID == l.EventID:
			behind = true
		case behind && e.Status == dlq.Parked:
			return true, nil
		}
	}
	return false, nil
}

// flush writes the object, and then removes its letters but for their outlines.
func (m *mover) flush(ctx context.Context) error {
	if len(m.records) == 0 {
		return nil
	}
	man, err := m.s.conf.Archive.Write(ctx, m.records, m.s.conf.Owner)
	if err != nil {
		return ofArchive(err)
	}
	m.r.Objects = append(m.r.Objects, man.Object)
	for i := range m.letters {
		if err := m.s.limit.Wait(ctx); err != nil {
			return err
		}
		l := &m.letters[i]
		err := m.s.conf.Store.Purge(ctx, l.EventID, dlq.Purge{Archive: man.Object, Force: true}, dlq.Actor{
			Name: "retention", Reason: fmt.Sprintf("%s for longer than its retention", l.Status), Version: l.Version,
		})
		switch {
		case errors.Is(err, dlq.ErrRefused), errors.Is(err, dlq.ErrNotFound):
			m.r.Changed++
			m.s.metrics.of("changed").Inc()
		case err != nil:
			return err
		default:
			m.r.Archived[l.Status]++
			m.s.metrics.of("archived").Inc()
		}
	}
	m.records, m.letters, m.bytes = nil, nil, 0
	return nil
}

// expire removes what has been in the archive for long enough.
func (s *Sweeper) expire(ctx context.Context, now time.Time, r *Report) (err error) {
	if r.Orphans, err = s.conf.Archive.RemoveOrphans(ctx); err != nil {
		return ofArchive(err)
	}
	if s.conf.Keep < 0 {
		return nil
	}
	before := now.Add(-s.conf.Keep)
	old, err := s.expired(ctx, before)
	if err != nil {
		return err
	}
	for _, object := range old {
		if err := s.conf.Archive.Remove(ctx, object); err != nil {
			return ofArchive(err)
		}
		r.Expired = append(r.Expired, object)
		s.metrics.expired.Inc()
	}
	ttl := make(map[string]time.Duration)
	return s.walk(ctx, dlq.Filter{Status: []dlq.Status{dlq.Archived}, Until: before}, func(l *dlq.Letter) error {
		if l.PurgedAt.IsZero() || !l.PurgedAt.Before(before) {
			return nil
		}
		gone, err := s.rowsGone(ctx, ttl, l.Table, now.Sub(l.PurgedAt))
		if err != nil || !gone {
			return err
		}
		switch err := s.conf.Store.Forget(ctx, l.EventID); {
		case errors.Is(err, dlq.ErrNotFound), errors.Is(err, dlq.ErrRefused):
		case err != nil:
			return err
		default:
			r.Forgotten++
			s.metrics.of("forgotten").Inc()
		}
		return nil
	})
}

// expired are the objects that were written before a time.
func (s *Sweeper) expired(ctx context.Context, before time.Time) (old []string, err error) {
	if err := s.conf.Archive.List(ctx, time.Time{}, func(m Manifest) error {
		if !m.CreatedAt.Before(before) {
			return dlq.ErrStop // they come by day, and by time within it
		}
		old = append(old, m.Object)
		return nil
	}); err != nil {
		return nil, ofArchive(err)
	}
	return old, nil
}

// maxPlanned is how many letters Plan looks at.
const maxPlanned = 10_000

// Plan is what a sweep would do now, as far as it is told from lists: the letters
// that it would move, those that would stay because others wait behind them, and
// the objects that have expired. more says that there are more letters than it
// looked at. It changes nothing.
func (s *Sweeper) Plan(ctx context.Context) (r Report, more bool, err error) {
	r.Archived = make(map[dlq.Status]int)
	now := s.conf.Now().UTC()
	seen := 0
	for _, p := range s.passes(now) {
		if err := s.conf.Store.List(ctx, p.filter(), func(l *dlq.Letter) error {
			if seen++; seen > maxPlanned {
				more = true
				return dlq.ErrStop
			}
			if !p.meant(l) {
				return nil
			}
			held, err := s.holdsOthers(ctx, l)
			if held {
				r.Held++
			} else if err == nil {
				r.Archived[l.Status]++
			}
			return err
		}); err != nil {
			return r, more, err
		}
	}
	if s.conf.Keep >= 0 {
		r.Expired, err = s.expired(ctx, now.Add(-s.conf.Keep))
	}
	return r, more, err
}

// rowsGone tells whether a table has no rows of that age any more, so that no
// scan of it can find the event of a letter again.
func (s *Sweeper) rowsGone(ctx context.Context, known map[string]time.Duration, table string, age time.Duration) (bool, error) {
	if s.conf.RowTTL == nil {
		return false, nil
	}
	ttl, ok := known[table]
	if !ok {
		var err error
		if ttl, err = s.conf.RowTTL(ctx, table); err != nil {
			return false, fmt.Errorf("how long %s keeps its rows: %w", strings.TrimSpace(table), err)
		}
		known[table] = ttl
	}
	return ttl > 0 && age > ttl, nil
}
