package relay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

// Status is what a relay is doing.
type Status struct {
	// Reading says that the CDC reader runs.
	Reading bool
	// Streams is the number of CDC streams being read.
	Streams int
	// LastWindow is when the log was last read, zero if it was not yet.
	LastWindow time.Time
	// InFlight is the number of events read and not yet acknowledged.
	InFlight int
	// OldestUnacknowledged is how long ago the sweep read the oldest such change, or how
	// long the producer has one, which the tail may have found first.
	OldestUnacknowledged time.Duration
	// Behind is how far the stream that is furthest behind is behind now, the
	// confidence window included.
	Behind time.Duration
	// Waiting are the aggregates that wait for an earlier event of theirs.
	Waiting WaitingAggregates
	// Held are the aggregates with an event that cannot be published.
	Held []publish.Hold
	// Breaker is the breaker before the broker.
	Breaker publish.BreakerStatus
	// DeadLetters are those that are not settled, Spilled those of them that an
	// open breaker made, and ParkedAggregates the aggregates that wait behind one.
	DeadLetters, Spilled, ParkedAggregates int
	// Unstored is how many dead letters could not be stored so far, and OldestUnstored
	// the one that has waited for longest.
	Unstored       int
	OldestUnstored publish.UnstoredDeadLetter
	// Holding says that the breaker is open, or a topic stalled, and nothing more
	// is spilled.
	Holding bool
	// Stalled are the partitions that acknowledge nothing while others do.
	Stalled []publish.StalledTopic
	// UnsavedSince is since when positions cannot be saved, zero if they can, and
	// SaveErr why. Events go out meanwhile; a start would read back further.
	UnsavedSince time.Time
	SaveErr      error
	// HeldStreams are the streams with a row that cannot be read, and why.
	HeldStreams map[string]error
	// Restarts counts how often the reader was started again, and LastError is
	// why it ended last.
	Restarts  int
	LastError error
	// Tail is what the tail is doing. Its errors are no reason not to be ready:
	// events come by the sweep then, later. A tail that comes near its limit is one,
	// because nobody would notice before it stops.
	Tail TailStatus
	// DataLoss is the last loss of acknowledged records by the broker within the last
	// hour, nil without one.
	DataLoss *publish.DataLoss
	// TableErr is why new events do not come to the CDC log, nil if they do: somebody
	// altered the table while the relay ran. A start refuses such a table.
	TableErr error
	// StartErr is why a start does not get on, nil if it does.
	StartErr error
	// ReadingBack says that the topics are being read back, before anything is
	// published, and ReadBackErr why that does not get on.
	ReadingBack bool
	ReadBackErr error
	// Unread are the first of the partitions that the start could not read back, and
	// UnreadSince since when nothing is published to them; empty if there are none.
	Unread      string
	UnreadSince time.Time
	// Backfill is what a scan of the outbox table is doing.
	Backfill backfill.BackfillStatus
	// Others are other processes that run a relay of this name on this table, as far
	// as Heartbeat has seen them. They are no reason not to be ready: a process that
	// takes over from another one would wait for it for ever.
	Others []OtherInstance
	// GivesWay are instances that share the table, for whose end this relay waits
	// before it publishes anything (GiveWay).
	GivesWay []string
	// Idle says that the shard has nothing to carry, because shard 0 carries the
	// table whole.
	Idle bool
	// Problems say in one sentence each why the relay is not ready; none means
	// that it is.
	Problems []string
}

// Status returns what the relay is doing now.
func (r *Relay) Status() Status {
	now := time.Now()
	r.mu.Lock()
	s := Status{Reading: r.reading, Restarts: r.restarts, LastError: r.lastErr}
	started := r.started
	s.StartErr, s.Idle, s.TableErr = r.stuck, r.idle, r.tableErr
	r.mu.Unlock()
	s.Streams = r.streams.Count()
	s.LastWindow = r.streams.LastWindow()
	s.OldestUnacknowledged = r.oldestAge(now)
	s.Behind = r.streams.PositionAge(now)
	s.HeldStreams = r.streams.Holds()
	s.UnsavedSince, s.SaveErr = r.streams.Unsaved()
	if b := r.readback.Load(); b != nil {
		s.ReadingBack, s.ReadBackErr = b.State()
		unread := b.Awaited()
		s.Unread, s.UnreadSince = unread.Names(), unread.Since
	}
	if p := r.publisher.Load(); p != nil {
		st := p.State()
		s.InFlight, s.Breaker = st.Open, st.Breaker
		s.DeadLetters, s.Spilled, s.ParkedAggregates = st.DeadLetters, st.Spilled, st.Parked
		s.Holding = st.Breaker.State != publish.BreakerClosed && (!p.WritesDeadLetters() || r.cfg.WhenOpen != WhenOpenSpill || st.Spilled >= r.cfg.SpillLimit)
		s.Stalled, s.Unstored, s.OldestUnstored = st.Stalled, st.Unstored, st.OldestUnstored
		s.Holding = s.Holding || slices.ContainsFunc(st.Stalled, func(t publish.StalledTopic) bool { return t.Holding })
		s.Held = p.Holds()
		s.DataLoss = p.DataLoss(now)
	}
	s.Tail = r.tail.Load().status()
	s.Waiting = r.aside.Load().state()
	s.Backfill = r.backfill.Load().Status()
	s.Others, s.GivesWay = r.others.alive(), r.giving.to()
	s.Problems = s.problems(&r.cfg, started, now)
	return s
}

// oldestAge is for how long the oldest change has waited for its acknowledgement.
func (r *Relay) oldestAge(now time.Time) time.Duration {
	age := r.streams.OldestAge(now)
	if sent := r.publisher.Load().OldestSent(); !sent.IsZero() {
		age = max(age, now.Sub(sent))
	}
	return age
}

func (s *Status) problems(cfg *Config, started, now time.Time) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	// A window may be slow to come by: readers start one after the other, and
	// idle streams are read seldom.
	patience := cfg.StallAfter + cfg.IdleDelay + cfg.BusyDelay
	switch {
	case len(s.GivesWay) > 0:
		say("it waits and publishes nothing, because instances of this name share the table (%s) and everything would be published twice: stop them, or set relay.shards here as there", strings.Join(s.GivesWay, ", "))
	case started.IsZero():
		say("not started")
	case s.StartErr != nil:
		say("starting: %v", s.StartErr)
	case s.Idle:
	case s.ReadBackErr != nil:
		say("the topics cannot be read back, and nothing is published before that: %v", s.ReadBackErr)
	case s.ReadingBack:
		say("starting: the topics are being read back")
	case s.Backfill.Alone:
		say("a part of the outbox table is scanned before anything else is published: %d of %d ranges are done", s.Backfill.Done, s.Backfill.Ranges)
	case !s.Reading && s.LastError != nil:
		say("the CDC reader is waiting to be started again: %v", s.LastError)
	case !s.Reading:
		say("the CDC reader is not running")
	case s.Tail.Err != nil && now.Sub(checkpoint.Later(s.Tail.LastRead, started)) >= cfg.StallAfter:
		// It reads all the time, so it knows before the sweep, and why.
		say("the CDC log could not be read since %s: %v", checkpoint.Later(s.Tail.LastRead, started).UTC().Format(time.RFC3339), s.Tail.Err)
	case s.LastWindow.IsZero() && now.Sub(s.Tail.LastRead) < patience && now.Sub(started) < cfg.ConfidenceWindow+patience:
		// In a new table no window is old enough yet; the tail reads meanwhile.
	case s.LastWindow.IsZero() && now.Sub(started) < patience:
		say("starting: no window of the CDC log was read yet")
	case now.Sub(s.LastWindow) >= patience:
		say("no window of the CDC log could be read since %s", checkpoint.Later(s.LastWindow, started).UTC().Format(time.RFC3339))
	}
	if l := s.DataLoss; l != nil {
		say("partition %d of topic %q lost records that it had acknowledged, detected at %s: publish the missing events with outbox verify --repair, and set unclean.leader.election.enable to false",
			l.Partition, l.Topic, l.At.UTC().Format(time.RFC3339))
	}
	if t := s.Tail; t.NearLimit {
		say("%d events are published and not yet read by the sweep, and at %d the tail stops, so that events arrive after the confidence window: set relay.max_remembered to at least 1.25 times the events of %s",
			t.Unswept, t.UnsweptLimit, cfg.ConfidenceWindow)
	}
	if s.Unread != "" {
		say("partitions cannot be read back since %s, so their events wait and dead letters are not replayed: %s", s.UnreadSince.UTC().Format(time.RFC3339), s.Unread)
	}
	if s.TableErr != nil {
		say("new events are not published: %v", s.TableErr)
	}
	if b := s.Breaker; b.State != publish.BreakerClosed {
		now := "events become dead letters and go out when it closes"
		if s.Holding {
			now = "events wait in the CDC log until it closes"
		}
		say("the breaker is %s since %s, %s: %v", b.State, b.Since.UTC().Format(time.RFC3339), now, b.Cause)
	}
	for _, t := range s.Stalled {
		if now.Sub(t.Since) < cfg.engine().UsedUpAfter() {
			continue
		}
		then := "they become dead letters"
		switch {
		case t.Holding:
			then = fmt.Sprintf("there are %d dead letters, the limit: they wait, and reading stops when memory is full", s.Spilled)
		case cfg.DeadLetters != DeadLettersOn:
			then = "they wait, and reading stops when memory is full"
		}
		say("partition %d of topic %q acknowledges nothing since %s, %d records are on their way to it, and events of %d aggregates behind them: %s",
			t.Partition, t.Topic, t.Since.UTC().Format(time.RFC3339), t.Records, t.Aggregates, then)
	}
	if s.OldestUnacknowledged >= cfg.StallAfter {
		say("the oldest event has waited for the broker's acknowledgement for %s", s.OldestUnacknowledged.Round(time.Second))
	}
	if !s.UnsavedSince.IsZero() && now.Sub(s.UnsavedSince) >= cfg.StallAfter {
		say("checkpoints cannot be saved since %s, so a start would read back that far; does the database take writes? %v", s.UnsavedSince.UTC().Format(time.RFC3339), s.SaveErr)
	}
	if w := s.Waiting; w.Count > 0 && now.Sub(w.Since) >= cfg.StallAfter {
		say("%d aggregate(s) wait for an earlier event that is missing, or for the proof that it is published, such as aggregate %s before seq %d since %s%s",
			w.Count, w.Oldest.AggregateString(), w.Oldest.Sequence, w.Since.UTC().Format(time.RFC3339), because(w.Err))
	}
	if u := s.OldestUnstored; s.Unstored > 0 {
		say("%d dead letter(s) cannot be stored, and their aggregates wait, such as that of event %s since %s: %v",
			s.Unstored, u.EventID, u.Since.UTC().Format(time.RFC3339), u.Err)
	}
	if n := len(s.Held); n > 0 {
		say("%d aggregate(s) are held because an event cannot be published, such as event %s to topic %q: %v",
			n, s.Held[0].EventID, s.Held[0].Topic, s.Held[0].Err)
	}
	if s.Backfill.Err != nil {
		say("the outbox table cannot be scanned: %v", s.Backfill.Err)
	}
	for stream, err := range s.HeldStreams {
		say("stream %s is held because a row cannot be read: %v", stream, err)
	}
	return out
}

// because is the end of a sentence that names an error; empty without one.
func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}
