package admin

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
)

// titleTime is the format of times in titles.
const titleTime = "2006-01-02 15:04:05Z"

// finding is something that keeps relays from publishing, or events from their topics.
type finding struct {
	what    string
	waits   bool // events wait because of it
	details []string
}

// judge sets the outage, and the most urgent problem in words with its cause and its
// consequences. What only follows from a problem is not named: without a broker nobody owns a
// shard. All other problems of relays are details, in the order of their urgency.
func (b *StatusBody) judge() {
	b.Outage = findOutage(b.Relays)
	b.Details = []string{}
	off := b.shard(func(s *heartbeatBody, r *relayState) bool {
		return s.State == heartbeat.Stopped && len(r.Instances) == 0
	})
	held := b.mostSuspended()
	yours := b.DeadLetters.ByStatus[dlq.Failed] + b.DeadLetters.ByStatus[dlq.Suspended]
	open := b.DeadLetters.Open
	findings := b.findings()
	switch {
	case len(findings) > 0:
		title := findings[0].what
		if findings[0].waits {
			title += "; " + b.Waiting.phrase()
		}
		b.say(LevelCritical, title+".", findings[0].details...)
		for _, f := range findings[1:] {
			b.say(LevelCritical, b.Title, append([]string{f.what + "."}, f.details...)...)
		}
		if held != nil {
			b.say(LevelCritical, b.Title, deliversNothing(held))
		}
	case off != nil && b.Waiting.some():
		b.say(LevelWarning, stoppedTitle(off, &b.Waiting), decide(yours))
	case held != nil:
		b.say(LevelWarning, deliversNothing(held), sentence(held.Suspended), decide(yours))
	case yours > 0:
		b.say(LevelWarning, decide(yours))
	case open > 0 && len(b.Relays) == 0:
		b.say(LevelCritical, fmt.Sprintf("%s open, and no relay has sent a heartbeat.", plural(open, "dead letter is", "dead letters are")), "Without a relay nothing is replayed.")
	case open > 0:
		b.say(LevelInfo, fmt.Sprintf("%s open; the relay replays automatically.", plural(open, "dead letter is", "dead letters are")))
	case off != nil:
		b.say(LevelInfo, stoppedTitle(off, &b.Waiting))
	case len(b.Relays) == 0 && b.Waiting.Events > 0:
		b.say(LevelCritical, fmt.Sprintf("No relay has sent a heartbeat; %s.", b.Waiting.phrase()))
	default:
		b.say(LevelOK, "No dead letters are open.")
	}
	b.consequences(yours, off)
}

// findings returns the critical problems, the most urgent first: an outage of the broker, silent processes, shards
// without an owner, relays without a shard, problems that relays report, and missing events.
func (b *StatusBody) findings() (out []finding) {
	if o := b.Outage; o != nil {
		how := "The broker accepts no events"
		if o.Unreachable {
			how = "Broker unreachable"
		}
		out = append(out, finding{
			fmt.Sprintf("%s since %s; events are accepted", how, o.Since.Format(titleTime)), true,
			[]string{sentence(o.Cause), "The relays publish everything when it is back."},
		})
	}
	var unowned, idle, ill []finding
	for i := range b.Relays {
		r := &b.Relays[i]
		var silent, without []*heartbeatBody
		reported := make(map[string][]*heartbeatBody) // by the problems
		for j := range r.Shards {
			switch s := &r.Shards[j]; {
			case s.Silent:
				silent = append(silent, s)
			case s.State == heartbeat.Stopped && len(r.Instances) > 0:
				without = append(without, s)
			case s.alive() && len(s.Problems) > 0 && (b.Outage == nil || !slices.Contains(b.Outage.Of, s.displayName())):
				text := strings.Join(s.Problems, "; ")
				reported[text] = append(reported[text], s)
			}
		}
		if len(silent) > 0 {
			out = append(out, finding{fmt.Sprintf("Relay %s has sent no heartbeat since %s", nameShards(silent), silent[0].At.Format(titleTime)), true, nil})
		}
		if b.Outage == nil && len(without) > 0 {
			unowned = append(unowned, finding{fmt.Sprintf("No instance owns %s of relay %s", listShards(without), without[0].relay()), true, []string{r.problem()}})
		}
		if m := r.idle(); b.Outage == nil && m != nil {
			idle = append(idle, finding{fmt.Sprintf("No instance of relay %s owns a shard", m.relay()), true, []string{sentence(strings.Join(m.Problems, "; "))}})
		}
		for _, text := range slices.Sorted(maps.Keys(reported)) {
			ill = append(ill, finding{fmt.Sprintf("Relay %s has a problem", nameShards(reported[text])), false, []string{sentence(text)}})
		}
	}
	out = slices.Concat(out, unowned, idle, ill)
	if n := b.missing(); n > 0 && len(out) == 0 { // otherwise a consequence names each table
		out = append(out, finding{fmt.Sprintf("The verification misses %s in the topics", plural(int64(n), "event", "events")), false, nil})
	}
	return out
}

// nameShards returns the name of a relay with some of its shards.
func nameShards(some []*heartbeatBody) string {
	if len(some) == 1 || some[0].Shard == nil {
		return some[0].displayName()
	}
	return fmt.Sprintf("%s (%s of %d)", some[0].relay(), listShards(some), some[0].Shard.Count)
}

// listShards returns the numbers of shards.
func listShards(some []*heartbeatBody) string {
	numbers := make([]string, len(some))
	for i, s := range some {
		numbers[i] = strconv.Itoa(s.index())
	}
	if len(numbers) == 1 {
		return "shard " + numbers[0]
	}
	return "shards " + strings.Join(numbers, ", ")
}

// deliversNothing returns the sentence about a subscription whose push delivery is suspended.
func deliversNothing(s *SubscriptionState) string {
	return fmt.Sprintf("Subscription %s delivers nothing; %s.", s.Name, plural(s.Lag, "message waits", "messages wait"))
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

// stoppedTitle says since when a relay is stopped.
func stoppedTitle(off *heartbeatBody, waiting *WaitingBody) string {
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

// idle returns an instance of the relay if no shard is listed, nil for none. One that is starting is not
// reported.
func (r *relayState) idle() *heartbeatBody {
	if len(r.Shards) == 0 && len(r.Instances) > 0 && r.Instances[0].State == heartbeat.Running {
		return &r.Instances[0]
	}
	return nil
}

// problem returns the first problem of the instances that could own a shard.
func (r *relayState) problem() string {
	for i := range r.Instances {
		if p := r.Instances[i].Problems; len(p) > 0 {
			return sentence(p[0])
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
				add(fmt.Sprintf("%s at %s", r.Name, heartbeat.ProcessName(m.Instance)), m.Sharing.Since, m.At, m.Sharing.Error, m.Sharing.Unreachable)
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
