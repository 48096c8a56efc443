package relay

import (
	"fmt"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

// Status is the state of a relay.
type Status struct {
	// Reading is true while the CDC reader runs.
	Reading bool
	// Streams is the number of CDC streams being read.
	Streams int
	// LastWindow is the time of the last read of the log, zero before the first.
	LastWindow time.Time
	// InFlight is the number of events that are read and not yet acknowledged.
	InFlight int
	// OldestUnacknowledged is the age of the oldest unacknowledged change, since the
	// sweep reader read it or, if earlier, since the producer has it. The tail reader
	// may find it first.
	OldestUnacknowledged time.Duration
	// Behind is the lag of the stream that is furthest behind, including the confidence
	// window.
	Behind time.Duration
	// ClockAhead is how far the clock of this host is ahead of the database's.
	ClockAhead time.Duration
	// Waiting are the aggregates that wait for an earlier event.
	Waiting WaitingAggregates
	// Held are the aggregates with an event that cannot be published.
	Held []publish.Hold
	// Breaker is the state of the circuit breaker for the broker.
	Breaker publish.BreakerStatus
	// DeadLetters counts open dead letters, Spilled the ones that were written
	// while the breaker was open, and BlockedAggregates the aggregates with an event that
	// waits behind a dead letter.
	DeadLetters, Spilled, BlockedAggregates int
	// Unstored counts the dead letters that could not be stored yet; OldestUnstored is
	// the oldest of them.
	Unstored       int
	OldestUnstored publish.UnstoredDeadLetter
	// Holding is true if the breaker is open, or a topic stalled, and the relay spills
	// no more events.
	Holding bool
	// Stalled are the partitions that acknowledge nothing while others do.
	Stalled []publish.StalledTopic
	// UnsavedSince is the time since when checkpoints cannot be saved, zero if they can,
	// and SaveErr the error. Publishing continues; a restart would read back further.
	UnsavedSince time.Time
	SaveErr      error
	// HeldStreams contains the streams with an unreadable row, and the errors.
	HeldStreams map[string]error
	// Restarts counts restarts of the reader; LastError is the error that ended it last.
	Restarts  int
	LastError error
	// Tail is the state of the tail reader. Its errors do not affect readiness, because
	// the sweep reader publishes the events later. Nearing its limit does, because
	// otherwise nothing would indicate it before the tail reader stops.
	Tail TailStatus
	// DataLoss is the last loss of acknowledged records by the broker within the last
	// hour, nil if none.
	DataLoss *publish.DataLoss
	// Conflict is the last contradiction between events of the table within the last hour:
	// a number or an id that two events have. Nil if there is none.
	Conflict *publish.Conflict
	// TableErr is the reason why new events are not written to the CDC log, nil if they
	// are: the table was altered while the relay ran. A start rejects such a table.
	TableErr error
	// Gap is the last time in which the CDC log may lack events, nil if there is none;
	// it is found again by a scan or reported for an hour.
	Gap *backfill.Gap
	// StartErr is the error that delays the start, nil if none.
	StartErr error
	// ReadingBack is true while the topics are read back, before anything is published.
	// ReadBackErr is the error that delays it.
	ReadingBack bool
	ReadBackErr error
	// Unread names the first of the partitions that the start could not read back, and
	// UnreadSince is the time since when nothing is published to them. Unread is empty
	// if there are none.
	Unread      string
	UnreadSince time.Time
	// RecordClockBehind is by how much the clock that dates records was behind the clocks
	// of the writers at the start, by the topics; 0 if it was not.
	RecordClockBehind time.Duration
	// Backfill is the state of the scan of the outbox table.
	Backfill backfill.Status
	// Idle is true if the shard has no work, because shard 0 processes the whole table.
	Idle bool
	// Problems are the reasons why the relay is not ready; empty if it is ready.
	Problems []string
}

// Status returns the current state of the relay.
func (r *Relay) Status() Status {
	now := time.Now()
	r.mu.Lock()
	s := Status{Reading: r.reading, Restarts: r.restarts, LastError: r.lastErr}
	started := r.started
	s.StartErr, s.Idle, s.TableErr = r.stuck, r.idle, r.tableErr
	if r.gap != nil && now.Sub(r.gapAt) < gapReported {
		s.Gap = r.gap
	}
	fix := r.gapFix
	r.mu.Unlock()
	s.Streams = r.streams.Count()
	s.LastWindow = r.streams.LastWindow()
	s.OldestUnacknowledged = r.oldestAge(now)
	s.Behind, s.ClockAhead = r.streams.PositionAge(r.cfg.clock.Now()), r.cfg.clock.Ahead()
	s.HeldStreams = r.streams.Holds()
	s.UnsavedSince, s.SaveErr = r.streams.Unsaved()
	if b := r.readback.Load(); b != nil {
		s.ReadingBack, s.ReadBackErr = b.State()
		unread := b.UnreadPartitions()
		s.Unread, s.UnreadSince = unread.Names(), unread.Since
		s.RecordClockBehind = b.RecordClockBehind()
	}
	if p := r.publisher.Load(); p != nil {
		st := p.State()
		s.InFlight, s.Breaker = st.Open, st.Breaker
		s.DeadLetters, s.Spilled, s.BlockedAggregates = st.DeadLetters, st.Spilled, st.Blocked
		s.Holding = st.Breaker.State != publish.BreakerClosed && (!p.WritesDeadLetters() || r.cfg.WhenOpen != WhenOpenSpill || st.Spilled >= r.cfg.SpillLimit)
		s.Stalled, s.Unstored, s.OldestUnstored = st.Stalled, st.Unstored, st.OldestUnstored
		s.Holding = s.Holding || slices.ContainsFunc(st.Stalled, func(t publish.StalledTopic) bool { return t.Holding })
		s.Held = p.Holds()
		s.DataLoss, s.Conflict = p.DataLoss(now), p.Conflict(now)
	}
	s.Tail = r.tail.Load().Status()
	s.Waiting = r.sweep.Load().Waiting()
	s.Backfill = r.backfill.Load().Status()
	s.Problems = s.problems(&r.cfg, started, now)
	if s.Gap != nil && !s.Gap.Scanned && !s.Gap.Possible {
		s.Problems = append(s.Problems, fmt.Sprintf("the CDC log may lack events written from %s until %s: %s",
			s.Gap.From.UTC().Format(time.RFC3339), s.Gap.Until.UTC().Format(time.RFC3339), fix))
	}
	return s
}

// oldestAge returns the age of the oldest unacknowledged change.
func (r *Relay) oldestAge(now time.Time) time.Duration {
	age := r.streams.OldestAge(now)
	if sent := r.publisher.Load().OldestSent(); !sent.IsZero() {
		age = max(age, now.Sub(sent))
	}
	return age
}

func (s *Status) problems(cfg *Config, started, now time.Time) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	// A window may arrive slowly: readers start one after the other, and idle streams
	// are read seldom.
	patience := cfg.StallAfter + cfg.IdleDelay + cfg.BusyDelay
	switch {
	case started.IsZero():
		add("not started")
	case s.StartErr != nil:
		add("starting: %v", s.StartErr)
	case s.Idle:
	case s.ReadBackErr != nil:
		add("cannot read the topics back, publishing is paused: %v", s.ReadBackErr)
	case s.ReadingBack:
		add("starting: reading the topics back")
	case s.Backfill.Alone:
		add("publishing is paused for the scan of a part of the outbox table: %d of %d ranges done", s.Backfill.Done, s.Backfill.Ranges)
	case !s.Reading && s.LastError != nil:
		add("the CDC reader failed and waits for its restart: %v", s.LastError)
	case !s.Reading:
		add("the CDC reader is not running")
	case s.Tail.Err != nil && now.Sub(checkpoint.Later(s.Tail.LastRead, started)) >= cfg.StallAfter:
		// The tail reader reads continuously, so it detects this before the sweep reader.
		add("failed to read the CDC log since %s: %v", checkpoint.Later(s.Tail.LastRead, started).UTC().Format(time.RFC3339), s.Tail.Err)
	case s.LastWindow.IsZero() && now.Sub(s.Tail.LastRead) < patience && now.Sub(started) < cfg.ConfidenceWindow+patience:
		// In a new table no window is old enough yet; the tail reader reads concurrently.
	case s.LastWindow.IsZero() && now.Sub(started) < patience:
		add("starting: no window of the CDC log read yet")
	case now.Sub(s.LastWindow) >= patience:
		add("no window of the CDC log read since %s", checkpoint.Later(s.LastWindow, started).UTC().Format(time.RFC3339))
	}
	if s.ClockAhead.Abs() > dbclock.SkewTolerated {
		add("the clock of this host is %s ahead of the database's: synchronize them", s.ClockAhead.Round(time.Millisecond))
	}
	if l := s.DataLoss; l != nil {
		add("partition %d of topic %q lost records that it had acknowledged, detected at %s: publish the missing events with outbox verify --repair, and set unclean.leader.election.enable to false",
			l.Partition, l.Topic, l.At.UTC().Format(time.RFC3339))
	}
	if c := s.Conflict; c != nil {
		add("events contradict each other, at %s: %s; find the writer, and see the limits of order in docs/promises.md", c.At.UTC().Format(time.RFC3339), c.What)
	}
	if t := s.Tail; t.NearLimit {
		add("%d events are published and not yet read by the sweep reader; at %d the tail reader stops and events are delayed by the confidence window: set relay.dedup_memory_bytes to at least %.0f bytes per event and second",
			t.Unswept, t.UnsweptLimit, 1.25*dedup.BytesPerEvent*cfg.ConfidenceWindow.Seconds())
	}
	if s.Unread != "" {
		add("cannot read partitions back since %s; their events wait and dead letters are not replayed: %s", s.UnreadSince.UTC().Format(time.RFC3339), s.Unread)
	}
	if b := s.RecordClockBehind; b > max(cfg.ReadBackMargin, 0) {
		add("records are dated %s before their events were created: synchronize the clocks of brokers, relays and writers, then restart the relay; until then starts read the topics further back", b.Round(time.Second))
	}
	if s.TableErr != nil {
		add("new events are not published: %v", s.TableErr)
	}
	if b := s.Breaker; b.State != publish.BreakerClosed {
		now := "events become dead letters and are replayed when it closes"
		if s.Holding {
			now = "events wait in the CDC log until it closes"
		}
		add("the breaker is %s since %s; %s: %v", b.State, b.Since.UTC().Format(time.RFC3339), now, b.Cause)
	}
	for _, t := range s.Stalled {
		if now.Sub(t.Since) < publish.UsedUpAfter(cfg.RetryDelays, cfg.AttemptTimeout) {
			continue
		}
		then := "they become dead letters"
		switch {
		case t.Holding && s.Spilled >= cfg.SpillLimit:
			then = fmt.Sprintf("the spill limit is reached (%d dead letters); they wait in the CDC log, others are published", s.Spilled)
		case t.Holding:
			then = "they wait in the CDC log, others are published"
		case cfg.DeadLetters != DeadLettersOn:
			then = "they wait, and reading stops when memory is full"
		}
		add("partition %d of topic %q acknowledges nothing since %s; %d records are in flight to it, and events of %d aggregates wait for them: %s",
			t.Partition, t.Topic, t.Since.UTC().Format(time.RFC3339), t.Records, t.Aggregates, then)
	}
	if s.OldestUnacknowledged >= cfg.StallAfter {
		add("the oldest event waits for its acknowledgement for %s", s.OldestUnacknowledged.Round(time.Second))
	}
	if !s.UnsavedSince.IsZero() && now.Sub(s.UnsavedSince) >= cfg.StallAfter {
		add("checkpoints cannot be saved since %s, and a restart would read back that far; check that the database accepts writes: %v", s.UnsavedSince.UTC().Format(time.RFC3339), s.SaveErr)
	}
	if w := s.Waiting; w.Count > 0 && now.Sub(w.Since) >= cfg.StallAfter {
		add("%d aggregate(s) wait for a missing earlier event or for the proof that it is published, such as aggregate %s before seq %d since %s%s",
			w.Count, w.Oldest.AggregateID.String(), w.Oldest.Sequence, w.Since.UTC().Format(time.RFC3339), because(w.Err))
	}
	if u := s.OldestUnstored; s.Unstored > 0 {
		add("failed to store %d dead letter(s), and their aggregates wait, such as that of event %s since %s: %v",
			s.Unstored, u.EventID, u.Since.UTC().Format(time.RFC3339), u.Err)
	}
	if n := len(s.Held); n > 0 {
		add("%d aggregate(s) are held by an event that cannot be published, such as event %s to topic %q: %v",
			n, s.Held[0].EventID, s.Held[0].Topic, s.Held[0].Err)
	}
	if s.Backfill.Err != nil {
		add("failed to scan the outbox table: %v", s.Backfill.Err)
	}
	for stream, err := range s.HeldStreams {
		add("stream %s is held by an unreadable row: %v", stream, err)
	}
	return out
}

// because returns a suffix with the error; empty for nil.
func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}
