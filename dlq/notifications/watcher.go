package notifications

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/notify"
)

const (
	// dutyName is that of dlq.Duty.
	dutyName = "watch"
	// overlap is the time after its FirstFailedAt within which a dead letter may be
	// stored and still be noticed.
	overlap = 10 * time.Minute
	// maxListed limits the dead letters that one poll reads.
	maxListed = 20_000
	// maxNotices limits the groups of one poll with a notice of their own; the others
	// share one.
	maxNotices = 10
	// The resolution rate covers this window, which ends an hour ago: recent dead
	// letters cannot have been resolved.
	resolutionWindow, resolutionGrace = 24 * time.Hour, time.Hour
	// minResolution is the least number of dead letters for a resolution rate.
	minResolution = 20
	// clear is how far below a limit a value must be for it to be over.
	clearShare = 0.8
	// clearRate is how far above its limit the resolution rate must be.
	clearRate = 0.05
)

// Watcher polls the store of dead letters and sends notices.
type Watcher struct {
	conf     Config
	log      *slog.Logger
	metrics  *metrics
	dispatch *notify.Dispatcher
	duty     *dlq.Duty

	state  *state // nil: not on duty
	looked time.Time
	recent []counted // the last polls, which cover a minute, oldest first

	failed atomic.Pointer[error] // of the last poll of Run
}

// counted is the number of new dead letters that a poll found since the previous one,
// at since.
type counted struct {
	since time.Time
	added int
}

// New returns a Watcher that starts nothing.
func New(conf Config) (*Watcher, error) {
	conf = conf.withDefaults()
	if err := conf.validate(); err != nil {
		return nil, fmt.Errorf("notifications: %w", err)
	}
	w := &Watcher{conf: conf, log: conf.Logger}
	delivery := conf.Delivery
	or(&delivery.Logger, conf.Logger)
	or(&delivery.Registerer, conf.Registerer)
	var err error
	if w.dispatch, err = notify.New(delivery); err != nil {
		return nil, err
	}
	// Two polls may fail before another process takes over.
	if w.duty, err = conf.Store.Duty(dutyName, conf.Owner, max(3*conf.Interval, 5*time.Second).Truncate(time.Second)); err != nil {
		return nil, fmt.Errorf("notifications: %w", err)
	}
	w.metrics = newMetrics(conf.Registerer)
	w.metrics.backlogLimit.Set(float64(conf.Backlog))
	w.metrics.rateLimit.Set(conf.RatePerMinute / 60)
	w.metrics.resolutionLimit.Set(conf.ResolutionRate)
	blocked := conf.BlockedAge.Seconds()
	if conf.BlockedAge == -1 {
		blocked = -1
	}
	w.metrics.blockedLimit.Set(blocked)
	return w, nil
}

// Run polls at every interval and delivers until ctx ends, and then returns nil.
// Failures are logged, counted and retried at the next poll.
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
		err := w.Poll(ctx)
		w.failed.Store(&err)
		if err != nil && ctx.Err() == nil {
			w.metrics.errors.Inc()
			w.log.Warn("failed to poll the dead letters; retrying", "wait", w.conf.Interval, "err", err)
		}
		t.Reset(w.conf.Interval)
	}
}

// Readiness reports whether the last poll of Run could read the dead letters, for /readyz: true
// before the first.
func (w *Watcher) Readiness() (bool, any) {
	problems := []string{}
	if err := w.failed.Load(); err != nil && *err != nil {
		problems = append(problems, "failed to poll the dead letters: "+(*err).Error())
	}
	return len(problems) == 0, struct {
		Ready    bool     `json:"ready"`
		Problems []string `json:"problems"`
	}{len(problems) == 0, problems}
}

// leave lets another process take over immediately. An interrupted poll may have the
// claim too.
func (w *Watcher) leave(ctx context.Context) {
	if err := w.duty.Leave(context.WithoutCancel(ctx)); err != nil {
		w.log.Debug("failed to release the claim of the notifications; it expires", "err", err)
	}
}

// Poll polls once, if this process is on duty, and queues the notices. Run calls it;
// calls must not overlap.
func (w *Watcher) Poll(ctx context.Context) error {
	mine, err := w.duty.Take(ctx)
	if err != nil || !mine {
		w.off() // after an error the owner is unknown
		return err
	}
	if w.state == nil {
		if err := w.load(ctx); err != nil {
			return err
		}
	}
	w.metrics.onDuty.Set(1)
	began := time.Now()
	notices, err := w.poll(ctx)
	if err != nil {
		w.off() // the counts are not saved: start again from the stored state
		return err
	}
	w.metrics.took.Set(time.Since(began).Seconds())
	for i := range notices {
		n := &notices[i]
		w.dispatch.Notify(newMessage(n))
		w.metrics.notices.WithLabelValues(string(n.Rule)).Inc()
		w.log.Info("notice", "rule", n.Rule, "title", n.Title, "resolved", n.Resolved)
	}
	// The state is saved after the queues have the notices: a crash in between repeats
	// them rather than losing them.
	text, err := w.state.text()
	if err != nil {
		return fmt.Errorf("save the state of the notifications: %w", err)
	}
	kept, err := w.duty.Save(ctx, text)
	if err != nil || !kept {
		w.off()
	}
	return err
}

// off clears the state that only the process on duty may use.
func (w *Watcher) off() {
	w.state, w.looked, w.recent = nil, time.Time{}, nil
	w.metrics.off()
}

// load continues from the state of the previous process, or starts anew.
func (w *Watcher) load(ctx context.Context) error {
	text, err := w.duty.State(ctx)
	if err != nil {
		return err
	}
	w.state = newState(w.conf.Store.Now().UTC())
	if text == "" {
		return nil // earlier dead letters belong to the backlog
	}
	st, err := parseState(text)
	if err != nil {
		w.log.Warn("failed to read the state of the notifications; notices may be repeated", "err", err)
		return nil
	}
	w.state = st
	return nil
}

func (w *Watcher) poll(ctx context.Context) ([]dlq.Notice, error) {
	now := w.conf.Store.Now().UTC()
	added, full, err := w.ingest(ctx, now)
	if err != nil {
		return nil, err
	}
	var out []dlq.Notice
	if w.conf.GroupWindow != -1 {
		if out, err = w.groups(ctx, now, full); err != nil {
			return nil, err
		}
	} else {
		clear(w.state.Groups)
	}
	rate := w.rate(now, added)
	if w.conf.RatePerMinute != -1 && !math.IsNaN(rate) {
		limit := w.conf.RatePerMinute
		out = w.limit(out, dlq.RuleRate, now, now, rate, limit, rate > limit, rate <= clearShare*limit, func(n *dlq.Notice) {
			n.AtLeast = full
			n.Title = fmt.Sprintf("%.0f events a minute become dead letters, more than %.0f", rate, limit)
			if n.Resolved {
				n.Title = fmt.Sprintf("%.0f events a minute become dead letters, the limit is %.0f", rate, limit)
			}
		})
	}
	for _, check := range []func(context.Context, time.Time, []dlq.Notice) ([]dlq.Notice, error){w.backlog, w.addResolved, w.addBlocked, w.outages} {
		if out, err = check(ctx, now, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// rate returns the number of new dead letters per minute, over the fewest polls that
// cover a minute, so that a burst does not count as the rate of a whole minute; NaN at
// the first poll, which finds earlier ones.
func (w *Watcher) rate(now time.Time, added int) float64 {
	before := w.looked
	w.looked = now
	if before.IsZero() || !now.After(before) {
		return math.NaN()
	}
	w.recent = append(w.recent, counted{before, added})
	for len(w.recent) > 1 && now.Sub(w.recent[1].since) >= time.Minute {
		w.recent = slices.Delete(w.recent, 0, 1)
	}
	sum := 0
	for _, c := range w.recent {
		sum += c.added
	}
	return float64(sum) / max(now.Sub(w.recent[0].since), time.Minute).Minutes()
}

// ingest adds new dead letters to their groups; full reports that there may be more.
func (w *Watcher) ingest(ctx context.Context, now time.Time) (added int, full bool, err error) {
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
		added++
		// A blocked one follows from another, and nobody has to act on a closed one.
		if l.Status != dlq.Blocked && l.ErrorClass != classBehind && l.ErrorClass != dlq.ClassRedelivery && isOpen(l.Status) {
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
	w.metrics.added.Add(float64(added))
	return added, full, nil
}

func isOpen(status dlq.Status) bool { return slices.Contains(dlq.OpenStatuses, status) }

// classBehind is the error class of blocked events.
const classBehind = "behind"

func (w *Watcher) sample(l *dlq.DeadLetter) dlq.Sample {
	return dlq.Sample{EventID: l.EventID, AggregateID: l.AggregateID, Status: l.Status, FirstFailedAt: l.FirstFailedAt, URL: w.page("dead-letters", l.EventID.String())}
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

// open is the console's list of the open dead letters that a filter selects.
func (w *Watcher) open(filter url.Values) string {
	page := w.page("dead-letters")
	if page == "" {
		return ""
	}
	query := url.Values{"status": {"open"}}
	for name, v := range filter {
		if v[0] != "" {
			query[name] = v
		}
	}
	return page + "?" + query.Encode()
}

// runbookPage describes what to do, with a section for each alert.
const runbookPage = "https://github.com/scylla-outbox/scylla-outbox/blob/main/docs/operators/runbook.md#"

// runbook returns the section of a rule: that of the alert for the same condition.
func runbook(rule dlq.Rule) string {
	return runbookPage + map[dlq.Rule]string{
		dlq.RuleNew: "outboxdeadletters", dlq.RuleBacklog: "outboxdeadletterbacklog", dlq.RuleRate: "outboxdeadletterrate",
		dlq.RuleResolution: "outboxdeadletterresolution", dlq.RuleBlocked: "outboxblockedtoolong", dlq.RuleOutage: "outboxbreakeropen",
	}[rule]
}

// maxError bounds the text of an error in a notice, in characters.
const maxError = 200

// excerpt returns the beginning of the last error of a dead letter.
func excerpt(l *dlq.DeadLetter) string {
	text := l.ErrorText
	if l.ErrorCode != "" && !strings.Contains(text, l.ErrorCode) {
		text = strings.TrimSuffix(l.ErrorCode+": "+text, ": ")
	}
	r := []rune(text)
	return string(r[:min(len(r), maxError)])
}

// groups returns the notices of new dead letters.
func (w *Watcher) groups(ctx context.Context, now time.Time, full bool) (out []dlq.Notice, err error) {
	due := w.state.due(now, w.conf.GroupWindow)
	for _, g := range due {
		if err := w.removeClosed(ctx, g); err != nil {
			return nil, err
		}
	}
	due = slices.DeleteFunc(due, func(g *group) bool { return g.Count == 0 })
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
	return out, nil
}

// removeClosed removes the samples that were closed since they were counted, and sets the
// status of the others.
func (w *Watcher) removeClosed(ctx context.Context, g *group) error {
	samples := g.Samples[:0:0]
	for _, s := range g.Samples {
		l, err := w.conf.Store.Read(ctx, s.EventID)
		switch {
		case errors.Is(err, dlq.ErrNotFound) || err == nil && !isOpen(l.Status):
			g.Count--
		case err != nil:
			return err
		default:
			s.Status, s.Error = l.Status, excerpt(&l)
			samples = append(samples, s)
		}
	}
	g.Samples = samples
	return nil
}

func (w *Watcher) groupNotice(now time.Time, g *group, full bool, more string) dlq.Notice {
	n := dlq.Notice{
		Rule: dlq.RuleNew, Key: strings.TrimSuffix("new/"+g.Class+"/"+g.Type+"/"+g.Table, "/"), At: now, Value: float64(g.Count), ErrorClass: g.Class, EventType: g.Type,
		Count: g.Count, AtLeast: full, Samples: g.Samples, URL: w.open(nil), Runbook: runbook(dlq.RuleNew),
	}
	if g.Table != "" {
		n.URL = w.open(url.Values{"error_class": {g.Class}, "event_type": {g.Type}, "table": {g.Table}})
	}
	what := g.Class
	if g.Type != "" {
		what = g.Type + ": " + g.Class
	}
	if name, ok := dlq.ParseSubscription(g.Table); ok {
		n.Subscription = name
		what += " in subscription " + name
	} else if g.Table != "" {
		what += " in " + g.Table
	}
	least := ""
	if full {
		least = "at least "
	}
	deadLetters := "new dead letters"
	if g.Count == 1 {
		deadLetters = "new dead letter"
	}
	n.Title = fmt.Sprintf("%s%d %s, %s%s", least, g.Count, deadLetters, what, more)
	var b strings.Builder
	if len(g.Samples) > 0 && g.Samples[0].Error != "" {
		fmt.Fprintf(&b, "For example: %s\n", g.Samples[0].Error)
	}
	for _, s := range g.Samples {
		fmt.Fprintf(&b, "event %s of %s, %s, failed first %s", s.EventID, s.AggregateID, s.Status, s.FirstFailedAt.UTC().Format(time.RFC3339))
		if s.URL != "" {
			b.WriteString(" " + s.URL)
		}
		b.WriteByte('\n')
	}
	if g.Table != "" {
		b.WriteString("outbox dlq list --error-class " + word(g.Class))
		if g.Type != "" {
			b.WriteString(" --event-type " + word(g.Type))
		}
		b.WriteString(" --table " + word(g.Table))
	} else {
		b.WriteString("outbox dlq stats")
	}
	b.WriteString("\nWhat to do: " + n.Runbook)
	n.Text = b.String()
	n.ID = noticeID(&n)
	return n
}

// limit evaluates a rule with a limit, of a condition that began at since if it holds, and
// appends its notice, if there is one.
func (w *Watcher) limit(out []dlq.Notice, rule dlq.Rule, now, since time.Time, value, limit float64, bad, good bool, say func(*dlq.Notice)) []dlq.Notice {
	a := w.state.Alerts[rule]
	if a == nil {
		a = &alert{}
		w.state.Alerts[rule] = a
	}
	tell, resolved := a.step(now, since, bad, good, w.conf.Repeat)
	if !tell {
		return out
	}
	n := dlq.Notice{
		Rule: rule, Key: string(rule), At: now, Since: a.Since, Resolved: resolved, Value: value, Limit: limit, URL: w.open(nil), Runbook: runbook(rule),
		Critical: rule == dlq.RuleBacklog || rule == dlq.RuleBlocked || rule == dlq.RuleOutage,
	}
	say(&n)
	when := fmt.Sprintf("Since %s.", a.Since.UTC().Format(time.RFC3339))
	if resolved {
		when = fmt.Sprintf("It is over after %s, since %s.", now.Sub(a.Since).Round(time.Second), a.Since.UTC().Format(time.RFC3339))
	}
	n.Text = strings.TrimSpace(n.Text + "\n" + when + "\nWhat to do: " + n.Runbook)
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
		w.metrics.deadLetters.WithLabelValues(string(st)).Set(float64(counts[st]))
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
	return w.limit(out, dlq.RuleBacklog, now, now, value, limit, value > limit, value <= clearShare*limit, func(n *dlq.Notice) {
		n.Title = fmt.Sprintf("%d dead letters are open, more than %d", open, w.conf.Backlog)
		if n.Resolved {
			n.Title = fmt.Sprintf("%d dead letters are open, the limit is %d", open, w.conf.Backlog)
		}
		n.Text = strings.Join(by, ", ")
	}), nil
}

func (w *Watcher) addResolved(ctx context.Context, now time.Time, out []dlq.Notice) ([]dlq.Notice, error) {
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
	return w.limit(out, dlq.RuleResolution, now, now, share, limit, !few && share < limit, few || share >= min(limit+clearRate, 1), func(n *dlq.Notice) {
		n.Title = fmt.Sprintf("only %.0f %% of a day's dead letters are resolved, less than %.0f %%", 100*share, 100*limit)
		switch {
		case n.Resolved && few:
			n.Title = fmt.Sprintf("fewer than %d events of a day became dead letters: the resolution rate is not evaluated", minResolution)
		case n.Resolved:
			n.Title = fmt.Sprintf("%.0f %% of a day's dead letters are resolved", 100*share)
		}
		n.Text = fmt.Sprintf("%d of %d that failed first from %s to %s", settled, all, until.Add(-resolutionWindow).Format(time.RFC3339), until.Format(time.RFC3339))
	}), nil
}

func (w *Watcher) addBlocked(ctx context.Context, now time.Time, out []dlq.Notice) ([]dlq.Notice, error) {
	l, err := w.conf.Store.Oldest(ctx, dlq.Blocked)
	if err != nil && !errors.Is(err, dlq.ErrNotFound) {
		return nil, err
	}
	none := err != nil
	age := time.Duration(0)
	if !none {
		age = now.Sub(l.FirstFailedAt)
	}
	w.metrics.blocked.Set(age.Seconds())
	limit := w.conf.BlockedAge
	if limit == -1 {
		return out, nil
	}
	return w.limit(out, dlq.RuleBlocked, now, now.Add(-age), age.Seconds(), limit.Seconds(), age > limit, age <= time.Duration(clearShare*float64(limit)), func(n *dlq.Notice) {
		n.Title = fmt.Sprintf("events have been blocked behind a dead letter for %s, longer than %s", age.Round(time.Second), limit)
		if n.Resolved {
			n.Title = fmt.Sprintf("no event is blocked for longer than %s", limit)
		}
		if !none {
			n.Samples = []dlq.Sample{w.sample(&l)}
			n.URL = w.open(url.Values{"aggregate_id": {l.AggregateID}})
			n.Text = fmt.Sprintf("The first is event %s, seq %d of %s. outbox dlq list --aggregate-id %s shows the dead letters before it.", l.EventID, l.Sequence, l.AggregateID, word(l.AggregateID))
		}
	}), nil
}

// outages evaluates the outages of the broker; the rule is over once no relay reports one.
func (w *Watcher) outages(ctx context.Context, now time.Time, out []dlq.Notice) ([]dlq.Notice, error) {
	if w.conf.Outages == nil || w.conf.OutageAge == -1 {
		return out, nil
	}
	all, err := w.conf.Outages.Current(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Outage) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Of, b.Of)) })
	began, limit := now, w.conf.OutageAge
	if len(all) > 0 {
		began = all[0].Since
	}
	age := now.Sub(began)
	return w.limit(out, dlq.RuleOutage, now, began, age.Seconds(), limit.Seconds(), age > limit, len(all) == 0, func(n *dlq.Notice) {
		n.URL = w.page()
		if n.Resolved {
			n.Title = "the broker accepts events again"
			return
		}
		how := "broker unreachable"
		if slices.ContainsFunc(all, func(o Outage) bool { return !o.Unreachable }) {
			how = "the broker accepts no events"
		}
		// A process reports it for each of its tables.
		seen := make(map[string]bool)
		all = slices.DeleteFunc(all, func(o Outage) bool { again := seen[o.Of]; seen[o.Of] = true; return again })
		n.Count = len(all)
		n.Title = fmt.Sprintf("%s since %s, as %s reports", how, began.UTC().Format(time.RFC3339), all[0].Of)
		lines := make([]string, 0, maxNotices)
		for _, o := range all[:min(len(all), maxNotices)] {
			lines = append(lines, fmt.Sprintf("%s, since %s: %s", o.Of, o.Since.UTC().Format(time.RFC3339), o.Cause))
		}
		n.Text = strings.Join(lines, "\n") + "\nEvents are accepted and wait. Nothing is lost, and everything is published when the broker is back. outbox status counts them."
	}), nil
}

// plainWord matches words that need no quotes in a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:/@-]*$`)

// word quotes s as one word of a shell command, because the types and aggregates come
// from the writers of events.
func word(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// noticeID is the same for a notice that is repeated after a crash within a poll.
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

// newMessage is a notice for package notify.
func newMessage(n *dlq.Notice) notify.Message {
	m := notify.Message{
		ID: n.ID, Type: "dead_letters." + string(n.Rule), Key: "outbox/" + n.Key, Severity: notify.Warning, Resolved: n.Resolved,
		Title: n.Title, Text: n.Text, URL: n.URL, At: n.At, Data: *n,
	}
	if n.Rule == dlq.RuleOutage {
		m.Type = "relay." + string(n.Rule)
	}
	if n.Critical {
		m.Severity = notify.Critical
	}
	return m
}
