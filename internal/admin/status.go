package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/cached"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

const (
	// waitingKept, subscriptionsKept and verificationKept are for how long a part of the
	// status is not read again: the first reads the CDC log, the second asks other processes.
	waitingKept       = 3 * time.Second
	subscriptionsKept = 5 * time.Second
	verificationKept  = 5 * time.Second
	// statusPatience bounds the wait for a part, and livePartPatience that of the event stream,
	// which has the part a second later; then the status contains the last one.
	statusPatience   = 5 * time.Second
	livePartPatience = time.Second
	// maxUnread bounds the events that are counted in the CDC log.
	maxUnread = 10_000
	// maxSubscriptions bounds the subscriptions of a status, and atOnce those asked
	// concurrently.
	maxSubscriptions, atOnce = 200, 8
	// instanceSilent is the age of a report from which on its process counts as ended: it reports every five seconds.
	instanceSilent = 30 * time.Second
	// partTimeout bounds the read of a part.
	partTimeout = 20 * time.Second
)

// StatusBody is the state of the system.
type StatusBody struct {
	At      time.Time `json:"at"`
	Level   Level     `json:"level" enum:"ok,info,warning,critical" doc:"critical: events are not published; warning: dead letters need a decision, or a subscription delivers nothing"`
	Title   string    `json:"title" doc:"The most urgent problem, in words"`
	Details []string  `json:"details" nullable:"false" doc:"Its cause and its consequences"`

	Outage        *OutageBody         `json:"outage,omitempty" doc:"Set while a relay reports that the broker accepts no events"`
	Waiting       WaitingBody         `json:"waiting"`
	Published     float64             `json:"published_per_second" doc:"Events per second, of all relays"`
	Relays        []relayState        `json:"relays" nullable:"false"`
	DeadLetters   StatsBody           `json:"dead_letters"`
	Subscriptions []SubscriptionState `json:"subscriptions" nullable:"false" doc:"By name, at most 200"`
	Verification  []VerificationState `json:"verification" nullable:"false" doc:"Of each outbox table that the continuous verification has begun"`
	Unknown       []string            `json:"unknown" nullable:"false" doc:"Parts that could not be read, with the reasons. They contain the last result, or nothing."`
}

// Level is how urgent a status is.
type Level string

// The levels.
const (
	LevelOK       Level = "ok"
	LevelInfo     Level = "info"
	LevelWarning  Level = "warning"
	LevelCritical Level = "critical"
)

// OutageBody is an outage of the broker, as the relays report it.
type OutageBody struct {
	Since       time.Time `json:"since" doc:"Time of the first failure"`
	Unreachable bool      `json:"unreachable" doc:"No broker answers; otherwise it answers with errors"`
	Cause       string    `json:"cause"`
	Of          []string  `json:"of" doc:"The relays, shards and instances that report it"`
}

// WaitingBody is the number of events that wait to be published.
type WaitingBody struct {
	Events  int64 `json:"events" doc:"Events that are stored and neither published nor dead letters: those that relays have read, and those in the CDC log while no relay reads it"`
	AtLeast bool  `json:"at_least" doc:"There may be more: the CDC log is counted up to 10,000"`
	Spilled int64 `json:"spilled" doc:"Dead letters that were written because the breaker was open; they are published when it closes"`
}

// SubscriptionState is a subscription in a status.
type SubscriptionState struct {
	Name        string     `json:"name"`
	Paused      bool       `json:"paused"`
	Lag         int64      `json:"lag" doc:"Messages that are not settled"`
	Waiting     int64      `json:"waiting"`
	Leased      int64      `json:"leased"`
	Deferred    int64      `json:"deferred"`
	Oldest      *time.Time `json:"oldest,omitempty" doc:"Write time of the oldest message that is not settled"`
	DeadLetters int        `json:"dead_letters" doc:"Open dead letters, at most 10,000"`
	Partitions  int        `json:"partitions"`
	Unowned     int        `json:"unowned_partitions" doc:"Partitions without an owner"`
	Instances   int        `json:"instances" doc:"Processes that run it and have reported in the last 30 s"`
	Suspended   string     `json:"suspended,omitempty" doc:"Why push delivery is suspended: the last error of its destination"`
	Error       string     `json:"error,omitempty" doc:"Why its state is not known"`
}

// VerificationState is the continuous verification of an outbox table.
type VerificationState struct {
	Table    string     `json:"table"`
	LastPass *time.Time `json:"last_pass,omitempty" doc:"End of the last full pass"`
	Verified *time.Time `json:"verified,omitempty" doc:"Write time up to which that pass checked all events"`
	Began    time.Time  `json:"began" doc:"Start of the current or last pass"`
	Done     int        `json:"ranges_done" doc:"Token ranges that the current pass has verified; 0 between two passes"`
	Ranges   int        `json:"ranges"`
	Missing  int        `json:"missing" doc:"Events that are not in their topic"`
}

// statusEndpoints return the state of the system.
type statusEndpoints struct {
	*operations
	cfg         *Config
	deadLetters *deadLetterEndpoints
	relays      *relayEndpoints

	waiting       *cached.Value[WaitingBody] // that no relay has read
	subscriptions *cached.Value[[]SubscriptionState]
	verification  *cached.Value[[]VerificationState]
}

func newStatusEndpoints(ops *operations, cfg *Config, deadLetters *deadLetterEndpoints, relays *relayEndpoints) *statusEndpoints {
	ep := &statusEndpoints{operations: ops, cfg: cfg, deadLetters: deadLetters, relays: relays}
	ep.waiting = cached.New(waitingKept, ep.readUnread)
	ep.subscriptions = cached.New(subscriptionsKept, ep.readSubscriptions)
	ep.verification = cached.New(verificationKept, ep.readVerification)
	return ep
}

func (ep *statusEndpoints) register() {
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "get-status", Method: http.MethodGet, Path: "/v1/status", Summary: "Get the state of the system",
		Description: "The most urgent problem in words, the relays with their shards, waiting events, dead letters by cause, subscriptions, and the last verification.",
	}), ep.get)
}

type getStatusOutput struct{ Body StatusBody }

func (ep *statusEndpoints) get(ctx context.Context, _ *struct{}) (*getStatusOutput, error) {
	b, err := ep.read(ctx, cmp.Or(ep.cfg.StatusPatience, statusPatience))
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	return &getStatusOutput{b}, nil
}

// read reads all parts concurrently, and waits so long for optional ones. Without the dead letters or the relays it returns the
// error; other parts are optional.
func (ep *statusEndpoints) read(ctx context.Context, patience time.Duration) (b StatusBody, err error) {
	b.At = time.Now().UTC()
	var heartbeats []heartbeatBody
	var unknown [3]string
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		b.DeadLetters, err = ep.deadLetters.stats.Get(gctx)
		return err
	})
	g.Go(func() (err error) {
		heartbeats, err = ep.relays.read(gctx)
		return err
	})
	g.Go(func() error { b.Waiting, unknown[0] = part(gctx, patience, ep.waiting, "waiting"); return nil })
	g.Go(func() error {
		b.Subscriptions, unknown[1] = part(gctx, patience, ep.subscriptions, "subscriptions")
		return nil
	})
	g.Go(func() error {
		b.Verification, unknown[2] = part(gctx, patience, ep.verification, "verification")
		return nil
	})
	if err := g.Wait(); err != nil {
		return b, err
	}
	b.Unknown = slices.DeleteFunc(unknown[:], func(s string) bool { return s == "" })
	b.Waiting.Spilled = b.DeadLetters.OpenByClass[classBreakerOpen]
	b.Relays = currentRelays(heartbeats)
	for i := range b.Relays {
		for j := range b.Relays[i].Shards {
			s := &b.Relays[i].Shards[j]
			b.Waiting.Events += int64(s.InFlight) // of now, as spilled ones are: an event is one of them
			if s.alive() {
				b.Published += s.Rates.Published
				b.Waiting.AtLeast = b.Waiting.AtLeast || s.Holding
			}
		}
	}
	b.Subscriptions, b.Verification = append([]SubscriptionState{}, b.Subscriptions...), append([]VerificationState{}, b.Verification...)
	b.judge()
	return b, nil
}

// classBreakerOpen is the error class of the dead letters that were written because the
// breaker was open.
const classBreakerOpen = "breaker_open"

// part returns a part of the status, or the last one and the reason why it is not newer.
func part[T any](ctx context.Context, patience time.Duration, v *cached.Value[T], name string) (out T, unknown string) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("it takes long"))
	defer cancel()
	out, err := v.Get(ctx)
	if err != nil {
		return out, fmt.Sprintf("%s: %v", name, cmp.Or(context.Cause(ctx), err))
	}
	return out, ""
}

// readUnread counts the waiting events that no relay has read: for shards without a running one,
// those in the CDC log since their last heartbeat.
func (ep *statusEndpoints) readUnread(ctx context.Context) (w WaitingBody, err error) {
	if ep.cfg.Unread == nil {
		return w, nil
	}
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	heartbeats, err := ep.relays.read(ctx)
	if err != nil {
		return w, err
	}
	parts := ep.unread(currentRelays(heartbeats))
	counts := make([]int, len(parts))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, of := range parts {
		g.Go(func() (err error) { counts[i], err = ep.cfg.Unread(gctx, of, maxUnread); return err })
	}
	if err := g.Wait(); err != nil {
		return w, err
	}
	for _, n := range counts {
		left := maxUnread - int(w.Events)
		w.AtLeast = w.AtLeast || n >= left
		w.Events += int64(min(n, left))
	}
	return w, nil
}

// unread returns the parts of the configured tables whose log no relay reads.
func (ep *statusEndpoints) unread(relays []relayState) (out []UnreadOf) {
	for _, t := range ep.cfg.Tables {
		i := slices.IndexFunc(relays, func(r relayState) bool { return r.Name == ep.cfg.Relay && r.Table == t.String() })
		if i < 0 {
			out = append(out, UnreadOf{Table: t.String()})
			continue
		}
		for _, of := range relays[i].unread() {
			of.Table = t.String()
			out = append(out, of)
		}
	}
	return out
}

// readSubscriptions asks for the state of each subscription.
func (ep *statusEndpoints) readSubscriptions(ctx context.Context) ([]SubscriptionState, error) {
	if ep.cfg.Subscriptions == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	all, err := ep.cfg.Subscriptions.List(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b subscriptions.Subscription) int { return cmp.Compare(a.Name, b.Name) })
	all = all[:min(len(all), maxSubscriptions)]
	out := make([]SubscriptionState, len(all))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i := range all {
		g.Go(func() error {
			s, err := ep.cfg.Subscriptions.Status(ctx, all[i].Name)
			out[i] = newSubscriptionState(&s)
			out[i].Name, out[i].Paused = all[i].Name, all[i].Paused
			if err != nil {
				out[i].Error = err.Error()
			}
			return nil
		})
	}
	return out, g.Wait()
}

func newSubscriptionState(s *subscriptions.Status) SubscriptionState {
	out := SubscriptionState{
		Lag: s.Lag, Waiting: s.Waiting, Leased: s.Leased, Deferred: s.Deferred, Oldest: when(s.Oldest),
		DeadLetters: s.DeadLetters, Partitions: len(s.Partitions),
	}
	running := slices.DeleteFunc(slices.Clone(s.Instances), func(i subscriptions.InstanceStatus) bool { return time.Since(i.At) > instanceSilent })
	out.Instances = len(running)
	for i := range s.Partitions {
		if s.Partitions[i].Owner == "" {
			out.Unowned++
		}
	}
	out.Suspended = suspensionCause(running)
	return out
}

// suspensionCause returns why no instance calls the destination; empty if one does.
func suspensionCause(instances []subscriptions.InstanceStatus) (cause string) {
	for i := range instances {
		switch b := instances[i].Breaker; {
		case instances[i].Partitions == 0:
		case b == nil || b.State == breakerClosed:
			return ""
		default:
			cause = cmp.Or(b.Cause, "its destination fails")
		}
	}
	return cause
}

func (ep *statusEndpoints) readVerification(ctx context.Context) ([]VerificationState, error) {
	if ep.cfg.Verification == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	return ep.cfg.Verification(ctx)
}
