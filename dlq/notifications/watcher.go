package notifications

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/notify"
)

const (
	// dutyName is that of dlq.Duty.
	dutyName = "watch"
	// overlap is how late a letter may be stored after its FirstFailedAt and still
	// be noticed.
	overlap = 10 * time.Minute
	// maxListed is how many letters one look reads.
	maxListed = 20_000
	// maxNotices is of how many groups one look tells; the others go together.
	maxNotices = 10
	// resolution is looked at over this window, which ends an hour ago: who died just
	// now cannot have been resolved.
	resolutionWindow, resolutionGrace = 24 * time.Hour, time.Hour
	// minResolution is how many letters a rate needs to mean something.
	minResolution = 20
	// clear is how far below a limit a value must be for it to be over.
	clearShare = 0.8
	// clearRate is how far above its limit the resolution rate must be.
	clearRate = 0.05
)

// Watcher tells what there is to know of dead letters.
type Watcher struct {
	conf     Config
	log      *slog.Logger
	metrics  *metrics
	dispatch *notify.Dispatcher
	duty     *dlq.Duty

	state  *state // nil: not on duty
	looked time.Time
	recent []counted // the last looks, which cover a minute, oldest first
}

// counted is how many letters a look found that died after the one before, at since.
type counted struct {
	since time.Time
	died  int
}

// New returns a Watcher that starts nothing.
func New(conf Config) (*Watcher, error) {
	conf = conf.withDefaults()
	if err := conf.validate(); err != nil {
		return nil, fmt.Errorf("notifications: %w", err)
	}
	w := &Watcher{conf: conf, log: conf.Logger}
	delivery := conf.Delivery
	delivery.Targets = make(map[string]notify.Target)
	for name, t := range conf.Targets {
		delivery.Targets[name] = t
	}
	for name, n := range conf.Notifiers {
		delivery.Targets[name] = notify.TargetFunc(func(ctx context.Context, m notify.Message) error {
			return n.Notify(ctx, m.Data.(dlq.Notice))
		})
	}
	or(&delivery.Logger, conf.Logger)
	or(&delivery.Registerer, conf.Registerer)
	var err error
	if w.dispatch, err = notify.New(delivery); err != nil {
		return nil, err
	}
	// Two looks may fail before another process takes over.
	if w.duty, err = conf.Store.Duty(dutyName, conf.Owner, max(3*conf.Interval, 5*time.Second).Truncate(time.Second)); err != nil {
		return nil, fmt.Errorf("notifications: %w", err)
	}
	w.metrics = newMetrics(conf.Registerer)
	w.metrics.backlogLimit.Set(float64(conf.Backlog))
	w.metrics.rateLimit.Set(conf.RatePerMinute)
	w.metrics.resolutionLimit.Set(conf.ResolutionRate)
	parked := conf.ParkedAge.Seconds()
	if conf.ParkedAge == -1 {
		parked = -1
	}
	w.metrics.parkedLimit.Set(parked)
	return w, nil
}

// Run looks at every interval and delivers until ctx ends, and returns nil then.
// What fails is logged, counted and tried again at the next look.
func (w *Watcher) Run(ctx context.Context) error {
	delivered := make(chan error, 1)
	go func() { delivered <- w.dispatch.Run(ctx) }()
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			w.leave(ctx)
			return <-delivered
		case <-t.C:
		}
		if err := w.Look(ctx); err != nil && ctx.Err() == nil {
			w.metrics.errors.Inc()
			w.log.Warn("cannot look at the dead letters; trying again", "wait", w.conf.Interval, "err", err)
		}
		t.Reset(w.conf.Interval)
	}
}

// leave lets another process take over at once. A look that was cut short may have
// the claim too.
func (w *Watcher) leave(ctx context.Context) {
	if err := w.duty.Leave(context.WithoutCancel(ctx)); err != nil {
		w.log.Debug("the claim of the notifications runs out by itself", "err", err)
	}
}

// Look looks once, if this process is on duty, and queues what is to be told. Run
// calls it; calls must not overlap.
func (w *Watcher) Look(ctx context.Context) error {
	mine, err := w.duty.Take(ctx)
	if err != nil || !mine {
		w.off() // after an error nobody knows who has it
		return err
	}
	if w.state == nil {
		if err := w.load(ctx); err != nil {
			return err
		}
	}
	w.metrics.onDuty.Set(1)
	began := time.Now()
	notices, err := w.look(ctx)
	if err != nil {
		w.off() // what was counted is not kept: begin again from what is
		return err
	}
	w.metrics.took.Set(time.Since(began).Seconds())
	for i := range notices {
		n := &notices[i]
		w.dispatch.Notify(messageOf(n))
		w.metrics.notices.WithLabelValues(string(n.Rule)).Inc()
		w.log.Info("notice", "rule", n.Rule, "title", n.Title, "resolved", n.Resolved)
	}
	// After the queues have it: a crash in between tells it twice rather than never.
	text, err := w.state.text()
	if err != nil {
		return fmt.Errorf("keep what was told: %w", err)
	}
	kept, err := w.duty.Save(ctx, text)
	if err != nil || !kept {
		w.off()
	}
	return err
}

// off forgets what only the process on duty may know.
func (w *Watcher) off() {
	w.state, w.looked, w.recent = nil, time.Time{}, nil
	w.metrics.off()
}

// load goes on where the process before ended, or begins now.
func (w *Watcher) load(ctx context.Context) error {
	text, err := w.duty.State(ctx)
	if err != nil {
		return err
	}
	w.state = newState(w.conf.Now().UTC())
	if text == "" {
		return nil // what died before is the backlog's
	}
	st, err := parseState(text)
	if err != nil {
		w.log.Warn("what was told cannot be read; it may be told again", "err", err)
		return nil
	}
	w.state = st
	return nil
}

func (w *Watcher) look(ctx context.Context) ([]dlq.Notice, error) {
	now := w.conf.Now().UTC()
	died, full, err := w.ingest(ctx, now)
	if err != nil {
		return nil, err
	}
	var out []dlq.Notice
	if w.conf.GroupWindow != -1 {
		out = w.groups(now, full)
	} else {
		clear(w.state.Groups)
	}
	rate := w.rate(now, died)
	if !math.IsNaN(rate) {
		w.metrics.rate.Set(rate)
	}
	if w.conf.RatePerMinute != -1 && !math.IsNaN(rate) {
		limit := w.conf.RatePerMinute
		out = w.limit(out, dlq.RuleRate, now, rate, limit, rate > limit, rate <= clearShare*limit, func(n *dlq.Notice) {
			n.AtLeast = full
			n.Title = fmt.Sprintf("%.0f events a minute become dead letters, more than %.0f", rate, limit)
			if n.Resolved {
				n.Title = fmt.Sprintf("%.0f events a minute become dead letters, the limit is %.0f", rate, limit)
			}
		})
	}
	for _, check := range []func(context.Context, time.Time, []dlq.Notice) ([]dlq.Notice, error){w.backlog, w.resolved, w.parked} {
		if out, err = check(ctx, now, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// rate is how many died per minute, over as few looks as cover a minute, so that a
// burst is not taken for what a whole minute brings; NaN at the first look, which
// finds what died before it.
func (w *Watcher) rate(now time.Time, died int) float64 {
	before := w.looked
	w.looked = now
	if before.IsZero() || !now.After(before) {
		return math.NaN()
	}
	w.recent = append(w.recent, counted{before, died})
	for len(w.recent) > 1 && now.Sub(w.recent[1].since) >= time.Minute {
		w.recent = slices.Delete(w.recent, 0, 1)
	}
	sum := 0
	for _, c := range w.recent {
		sum += c.died
	}
	return float64(sum) / max(now.Sub(w.recent[0].since), time.Minute).Minutes()
}

// ingest counts letters that are new, into their groups; full says that there may
// be more.
func (w *Watcher) ingest(ctx context.Context, now time.Time) (died int, full bool, err error) {
	st := w.state
	since := st.Mark.Add(-overlap)
	listed := 0
	err = w.conf.Store.List(ctx, dlq.Filter{Since: since}, func(l *dlq.DeadLetter) error {
		if listed++; listed > maxListed {
			full = true
			return dlq.ErrStop
		}
		if !st.isNew(l) {
			return nil
		}
		died++
		if l.Status != dlq.Parked && l.ErrorClass != classBehind { // it follows from another
			s := w.sample(l)
			st.add(l, &s, max(w.conf.Samples, 0))
		}
		return nil
	})
	if err != nil {
		return 0, false, err
	}
	if now.After(st.Mark) {
		st.Mark = now
	}
	st.settle(st.Mark.Add(-overlap))
	w.metrics.died.Add(float64(died))
	return died, full, nil
}

// classBehind is the error class of letters that died of another's death.
const classBehind = "behind"

func (w *Watcher) sample(l *dlq.DeadLetter) dlq.Sample {
	return dlq.Sample{EventID: l.EventID, AggregateID: l.AggregateID, Status: l.Status, FirstFailedAt: l.FirstFailedAt, URL: w.page("letters", l.EventID.String())}
}

// page is a page of the console.
func (w *Watcher) page(parts ...string) string {
	if w.conf.ConsoleURL == "" {
		return ""
	}
	u := strings.TrimRight(w.conf.ConsoleURL, "/")
	for _, p := range parts {
		u += "/" + url.PathEscape(p)
	}
	return u
}

// groups are the notices of new letters.
func (w *Watcher) groups(now time.Time, full bool) (out []dlq.Notice) {
	due := w.state.due(now, w.conf.GroupWindow)
	for i, g := range due {
		if i == maxNotices {
			rest := &group{Class: "others"}
			for _, o := range due[i:] {
				rest.Count += o.Count
				o.Count, o.Samples, o.Told = 0, nil, now
			}
			out = append(out, w.groupNotice(now, rest, full, fmt.Sprintf(" in %d more groups", len(due)-i)))
			break
		}
		out = append(out, w.groupNotice(now, g, full, ""))
		g.Count, g.Samples, g.Told = 0, nil, now
	}
	return out
}

func (w *Watcher) groupNotice(now time.Time, g *group, full bool, more string) dlq.Notice {
	n := dlq.Notice{
		Rule: dlq.RuleNew, Key: "new/" + g.Class + "/" + g.Type, At: now, Value: float64(g.Count), ErrorClass: g.Class, EventType: g.Type,
		Count: g.Count, AtLeast: full, Samples: g.Samples, URL: w.page("letters"),
	}
	what := g.Class
	if g.Type != "" {
		what = g.Type + ": " + g.Class
	}
	least := ""
	if full {
		least = "at least "
	}
	letters := "new dead letters"
	if g.Count == 1 {
		letters = "new dead letter"
	}
	n.Title = fmt.Sprintf("%s%d %s, %s%s", least, g.Count, letters, what, more)
	var b strings.Builder
	for _, s := range g.Samples {
		fmt.Fprintf(&b, "event %s of %s, %s, died %s", s.EventID, s.AggregateID, s.Status, s.FirstFailedAt.UTC().Format(time.RFC3339))
		if s.URL != "" {
			b.WriteString(" " + s.URL)
		}
		b.WriteByte('\n')
	}
	if g.Type != "" {
		fmt.Fprintf(&b, "outbox dlq list --error-type %s --event-type %s", word(g.Class), word(g.Type))
	} else {
		b.WriteString("outbox dlq stats")
	}
	n.Text = b.String()
	n.ID = noticeID(&n)
	return n
}

// limit looks at a rule with a limit and adds its notice, if there is one.
func (w *Watcher) limit(out []dlq.Notice, rule dlq.Rule, now time.Time, value, limit float64, bad, good bool, say func(*dlq.Notice)) []dlq.Notice {
	a := w.state.Alerts[rule]
	if a == nil {
		a = &alert{}
		w.state.Alerts[rule] = a
	}
	tell, resolved := a.step(now, bad, good, w.conf.Repeat)
	if !tell {
		return out
	}
	n := dlq.Notice{
		Rule: rule, Key: string(rule), At: now, Since: a.Since, Resolved: resolved, Value: value, Limit: limit, URL: w.page("letters"),
		Critical: rule == dlq.RuleBacklog || rule == dlq.RuleParked,
	}
	say(&n)
	since := fmt.Sprintf("Since %s.", a.Since.Format(time.RFC3339))
	if resolved {
		since = fmt.Sprintf("It is over after %s.", now.Sub(a.Since).Round(time.Second))
	}
	n.Text = strings.TrimSpace(n.Text + "\n" + since + "\noutbox dlq stats shows the totals; docs/operators/runbook.md describes what to do.")
	n.ID = noticeID(&n)
	return append(out, n)
}

func (w *Watcher) backlog(ctx context.Context, now time.Time, out []dlq.Notice) ([]dlq.Notice, error) {
	counts, err := w.conf.Store.Tally(ctx, dlq.OpenStatuses, time.Time{}, time.Time{})
	if err != nil {
		return nil, err
	}
	var open int64
	var by []string
	oldest := 0.0
	for _, st := range dlq.OpenStatuses {
		open += counts[st]
		w.metrics.letters.WithLabelValues(string(st)).Set(float64(counts[st]))
		if counts[st] == 0 {
			continue
		}
		by = append(by, fmt.Sprintf("%d %s", counts[st], st))
		l, err := w.conf.Store.Oldest(ctx, st)
		if errors.Is(err, dlq.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		oldest = max(oldest, now.Sub(l.FirstFailedAt).Seconds())
	}
	w.metrics.oldest.Set(oldest)
	if w.conf.Backlog == -1 {
		return out, nil
	}
	limit, value := float64(w.conf.Backlog), float64(open)
	return w.limit(out, dlq.RuleBacklog, now, value, limit, value > limit, value <= clearShare*limit, func(n *dlq.Notice) {
		n.Title = fmt.Sprintf("%d dead letters are open, more than %d", open, w.conf.Backlog)
		if n.Resolved {
			n.Title = fmt.Sprintf("%d dead letters are open, the limit is %d", open, w.conf.Backlog)
		}
		n.Text = strings.Join(by, ", ")
	}), nil
}

func (w *Watcher) resolved(ctx context.Context, now time.Time, out []dlq.Notice) ([]dlq.Notice, error) {
	until := now.Add(-resolutionGrace).Truncate(time.Hour)
	counts, err := w.conf.Store.Tally(ctx, dlq.Statuses, until.Add(-resolutionWindow), until)
	if err != nil {
		return nil, err
	}
	var all int64
	for _, n := range counts {
		all += n
	}
	settled := counts[dlq.Resolved] + counts[dlq.Archived]
	share := 1.0
	if all > 0 {
		share = float64(settled) / float64(all)
	}
	few := all < minResolution
	w.metrics.resolution.Set(share)
	if few {
		w.metrics.resolution.Set(math.NaN())
	}
	limit := w.conf.ResolutionRate
	if limit == -1 {
		return out, nil
	}
	return w.limit(out, dlq.RuleResolution, now, share, limit, !few && share < limit, few || share >= min(limit+clearRate, 1), func(n *dlq.Notice) {
		n.Title = fmt.Sprintf("only %.0f %% of a day's dead letters are resolved, less than %.0f %%", 100*share, 100*limit)
		switch {
		case n.Resolved && few:
			n.Title = fmt.Sprintf("fewer than %d events of a day became dead letters, so how many are resolved is not looked at", minResolution)
		case n.Resolved:
			n.Title = fmt.Sprintf("%.0f %% of a day's dead letters are resolved", 100*share)
		}
		n.Text = fmt.Sprintf("%d of %d that died from %s to %s", settled, all, until.Add(-resolutionWindow).Format(time.RFC3339), until.Format(time.RFC3339))
	}), nil
}

func (w *Watcher) parked(ctx context.Context, now time.Time, out []dlq.Notice) ([]dlq.Notice, error) {
	l, err := w.conf.Store.Oldest(ctx, dlq.Parked)
	if err != nil && !errors.Is(err, dlq.ErrNotFound) {
		return nil, err
	}
	none := err != nil
	age := time.Duration(0)
	if !none {
		age = now.Sub(l.FirstFailedAt)
	}
	w.metrics.parked.Set(age.Seconds())
	limit := w.conf.ParkedAge
	if limit == -1 {
		return out, nil
	}
	return w.limit(out, dlq.RuleParked, now, age.Seconds(), limit.Seconds(), age > limit, age <= time.Duration(clearShare*float64(limit)), func(n *dlq.Notice) {
		n.Title = fmt.Sprintf("events have been parked behind a dead letter for %s, longer than %s", age.Round(time.Second), limit)
		if n.Resolved {
			n.Title = fmt.Sprintf("no event is parked for longer than %s", limit)
		}
		if !none {
			n.Samples = []dlq.Sample{w.sample(&l)}
			n.Text = fmt.Sprintf("The first is event %s, seq %d of %s. outbox dlq list --aggregate %s shows what is before it.", l.EventID, l.Sequence, l.AggregateID, word(l.AggregateID))
		}
	}), nil
}

// plainWord is what a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:/@-]*$`)

// word is s as one word of a command that somebody may paste into a shell: whoever
// writes events chooses their types and aggregates.
func word(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// noticeID is the same for a notice that is told twice after a crash within the
// same look.
func noticeID(n *dlq.Notice) string {
	return fmt.Sprintf("dlq_%s_%d_%08x", n.Rule, n.At.UnixMilli(), hash(n.Key+fmt.Sprint(n.Resolved)))
}

func hash(s string) uint32 {
	h := uint32(2166136261)
	for _, b := range []byte(s) {
		h = (h ^ uint32(b)) * 16777619
	}
	return h
}

// messageOf is a notice for package notify.
func messageOf(n *dlq.Notice) notify.Message {
	m := notify.Message{
		ID: n.ID, Type: "dead_letters." + string(n.Rule), Key: "outbox/" + n.Key, Severity: notify.Warning, Resolved: n.Resolved,
		Title: n.Title, Text: n.Text, URL: n.URL, At: n.At, Data: *n,
	}
	if n.Critical {
		m.Severity = notify.Critical
	}
	return m
}
