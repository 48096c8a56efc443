package admin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// titleTime is the format of times in titles.
const titleTime = "2006-01-02 15:04:05Z"

// judge sets the outage, and the most urgent problem in words with its cause and its
// consequences. What only follows from a problem is no title: without a broker nobody owns a
// shard.
func (b *StatusBody) judge() {
	b.Outage = findOutage(b.Relays)
	b.Details = []string{}
	quiet := b.shard(func(s *heartbeatBody, _ *relayState) bool { return s.Silent })
	unowned := b.shard(func(s *heartbeatBody, r *relayState) bool { return s.State == stateStopped && len(r.Instances) > 0 })
	ill := b.shard(func(s *heartbeatBody, _ *relayState) bool { return s.alive() && len(s.Problems) > 0 })
	off := b.shard(func(s *heartbeatBody, r *relayState) bool { return s.State == stateStopped && len(r.Instances) == 0 })
	idle := b.instance()
	held, missing := b.mostSuspended(), b.missing()
	yours := b.DeadLetters.ByStatus[dlq.Failed] + b.DeadLetters.ByStatus[dlq.Suspended]
	open := b.DeadLetters.Open
	switch {
	case b.Outage != nil:
		how := "The broker accepts no events"
		if b.Outage.Unreachable {
			how = "Broker unreachable"
		}
		b.say(LevelCritical, fmt.Sprintf("%s since %s; events are accepted; %s.", how, b.Outage.Since.Format(titleTime), b.Waiting.phrase()), sentence(b.Outage.Cause),
			"The relays publish everything when it is back.")
	case quiet != nil:
		b.say(LevelCritical, fmt.Sprintf("Relay %s has sent no heartbeat since %s; %s.", quiet.displayName(), quiet.At.Format(titleTime), b.Waiting.phrase()))
	case unowned != nil:
		b.say(LevelCritical, fmt.Sprintf("No instance owns shard %d of relay %s; %s.", unowned.index(), unowned.relay(), b.Waiting.phrase()), b.problem(unowned))
	case idle != nil:
		b.say(LevelCritical, fmt.Sprintf("No instance of relay %s owns a shard; %s.", idle.relay(), b.Waiting.phrase()), strings.Join(idle.Problems, "; "))
	case ill != nil:
		b.say(LevelCritical, fmt.Sprintf("Relay %s has a problem.", ill.displayName()), sentence(ill.Problems[0]))
	case missing > 0:
		b.say(LevelCritical, fmt.Sprintf("The verification misses %s in the topics.", plural(int64(missing), "event", "events")))
	case off != nil && b.Waiting.some():
		b.say(LevelWarning, stopped(off, &b.Waiting), decide(yours))
	case held != nil:
		b.say(LevelWarning, fmt.Sprintf("Subscription %s delivers nothing; %s.", held.Name, plural(held.Lag, "message waits", "messages wait")), sentence(held.Suspended), decide(yours))
	case yours > 0:
		b.say(LevelWarning, decide(yours))
	case open > 0 && len(b.Relays) == 0:
		b.say(LevelCritical, fmt.Sprintf("%s open, and no relay has sent a heartbeat.", plural(open, "dead letter is", "dead letters are")), "Without a relay nothing is replayed.")
	case open > 0:
		b.say(LevelInfo, fmt.Sprintf("%s open; the relay replays automatically.", plural(open, "dead letter is", "dead letters are")))
	case off != nil:
		b.say(LevelInfo, stopped(off, &b.Waiting))
	case len(b.Relays) == 0 && b.Waiting.Events > 0:
		b.say(LevelCritical, fmt.Sprintf("No relay has sent a heartbeat; %s.", b.Waiting.phrase()))
	default:
		b.say(LevelOK, "No dead letters are open.")
	}
	b.consequences(yours, off)
}

// consequences adds what a title does not contain yet.
func (b *StatusBody) consequences(yours int64, off *heartbeatBody) {
	open := b.DeadLetters.Open
	if off != nil && !strings.Contains(b.Title, " was stopped at ") {
		b.Details = append(b.Details, fmt.Sprintf("Relay %s was stopped; its events wait until it is started.", off.relay()))
	}
	switch b.Level {
	case LevelCritical:
		if open > 0 && len(b.Relays) > 0 {
			b.Details = append(b.Details, fmt.Sprintf("%s open.", plural(open, "dead letter is", "dead letters are")))
		}
	case LevelWarning:
		blocked := b.DeadLetters.ByStatus[dlq.Blocked]
		if blocked > 0 {
			b.Details = append(b.Details, fmt.Sprintf("%s blocked behind other dead letters.", plural(blocked, "event is", "events are")))
		}
		switch others := open - yours - blocked; {
		case len(b.Relays) == 0:
			b.Details = append(b.Details, "No relay has sent a heartbeat.")
		case others > 0 && off == nil:
			b.Details = append(b.Details, fmt.Sprintf("The relay replays %s automatically.", plural(others, "other", "others")))
		}
	case LevelOK:
		if len(b.Relays) == 0 {
			b.Details = append(b.Details, "No relay has sent a heartbeat.")
		} else {
			b.Details = append(b.Details, "All stored events are published or being published.")
		}
	}
	for i := range b.Verification {
		if v := &b.Verification[i]; v.Missing > 0 {
			b.Details = append(b.Details, fmt.Sprintf("The verification of %s misses %s in the topics.", v.Table, plural(int64(v.Missing), "event", "events")))
		}
	}
}

// say sets level and title, and adds details.
func (b *StatusBody) say(level Level, title string, details ...string) {
	b.Level, b.Title = level, title
	for _, d := range details {
		if d != "" {
			b.Details = append(b.Details, d)
		}
	}
}

// stopped says since when a relay is stopped.
func stopped(off *heartbeatBody, waiting *WaitingBody) string {
	return fmt.Sprintf("Relay %s was stopped at %s; %s.", off.relay(), off.At.Format(titleTime), waiting.phrase())
}

// missing is the number of events that the verification misses.
func (b *StatusBody) missing() (n int) {
	for i := range b.Verification {
		n += b.Verification[i].Missing
	}
	return n
}

// shard returns the first shard for which is holds, nil for none.
func (b *StatusBody) shard(is func(s *heartbeatBody, of *relayState) bool) *heartbeatBody {
	for i := range b.Relays {
		for j := range b.Relays[i].Shards {
			if s := &b.Relays[i].Shards[j]; is(s, &b.Relays[i]) {
				return s
			}
		}
	}
	return nil
}

// mostSuspended returns the subscription without deliveries for which most messages wait, nil for
// none.
func (b *StatusBody) mostSuspended() (most *SubscriptionState) {
	for i := range b.Subscriptions {
		if s := &b.Subscriptions[i]; s.Suspended != "" && !s.Paused && (most == nil || s.Lag > most.Lag) {
			most = s
		}
	}
	return most
}

// instance returns an instance of a relay of which no shard is listed, nil for none. One that
// is starting is not reported.
func (b *StatusBody) instance() *heartbeatBody {
	for i := range b.Relays {
		if r := &b.Relays[i]; len(r.Shards) == 0 && len(r.Instances) > 0 && r.Instances[0].State == stateRunning {
			return &r.Instances[0]
		}
	}
	return nil
}

// problem returns the first problem of the instances that could own a shard.
func (b *StatusBody) problem(of *heartbeatBody) string {
	for i := range b.Relays {
		if r := &b.Relays[i]; r.Name == of.relay() && r.Table == of.Table {
			for j := range r.Instances {
				if p := r.Instances[j].Problems; len(p) > 0 {
					return sentence(p[0])
				}
			}
		}
	}
	return ""
}

// findOutage returns the outage of the broker that relays report, nil for none.
func findOutage(relays []relayState) *OutageBody {
	var out *OutageBody
	add := func(of string, since *time.Time, at time.Time, cause string, unreachable bool) {
		if since == nil {
			since = &at // of an earlier version
		}
		if out == nil {
			out = &OutageBody{Since: *since, Cause: cause, Unreachable: unreachable}
		}
		if since.Before(out.Since) {
			out.Since, out.Cause = *since, cause
		}
		out.Unreachable = out.Unreachable && unreachable
		if !slices.Contains(out.Of, of) {
			out.Of = append(out.Of, of)
		}
	}
	for i := range relays {
		r := &relays[i]
		for j := range r.Instances {
			if m := &r.Instances[j]; m.Sharing.Error != "" {
				add(fmt.Sprintf("%s at %s", r.Name, m.process()), m.Sharing.Since, m.At, m.Sharing.Error, m.Sharing.Unreachable)
			}
		}
		for j := range r.Shards {
			if s := &r.Shards[j]; s.alive() && s.Breaker.State != "" && s.Breaker.State != breakerClosed {
				add(s.displayName(), s.Breaker.Opened, s.At, s.Breaker.Cause, s.Breaker.Unreachable)
			}
		}
	}
	return out
}

// breakerClosed is the state of a breaker that permits calls.
const breakerClosed = "closed"

// relay is the name of the relay of a heartbeat, without its shard.
func (r *heartbeatBody) relay() string {
	if end := strings.LastIndexByte(r.Name, '/'); r.Shard != nil && end > 0 {
		return r.Name[:end]
	}
	return r.Name
}

// displayName is the name of what a heartbeat is of, for people.
func (r *heartbeatBody) displayName() string {
	if r.Shard == nil || r.Shard.Count <= 1 {
		return r.relay()
	}
	return fmt.Sprintf("%s (shard %d of %d)", r.relay(), r.Shard.Index, r.Shard.Count)
}

// process is the host and process of an instance, as its shards have it.
func (r *heartbeatBody) process() string { return strings.TrimSuffix(r.Instance, "/shards") }

// some reports whether events wait.
func (w *WaitingBody) some() bool { return w.Events+w.Spilled > 0 || w.AtLeast }

// phrase says how many events wait.
func (w *WaitingBody) phrase() string {
	n := w.Events + w.Spilled
	switch {
	case !w.some():
		return "no event waits"
	case w.AtLeast:
		return fmt.Sprintf("at least %s", plural(n, "event waits", "events wait"))
	}
	return plural(n, "event waits", "events wait")
}

// decide says how many dead letters need a decision; nothing for none.
func decide(n int64) string {
	if n == 0 {
		return ""
	}
	return plural(n, "dead letter needs", "dead letters need") + " your decision."
}

// plural returns a number with a noun.
func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return message.NewPrinter(language.English).Sprint(n) + " " + many
}
