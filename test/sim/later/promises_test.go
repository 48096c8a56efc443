package later

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schedule"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

const logTable = "outbox_messages_scylla_cdc_log"

// seen contains the events that the outbox's log has shown.
type seen struct {
	byNumber map[string]map[gocql.UUID]*sighting // payload and event id
}

// sighting is one event in the log.
type sighting struct {
	// written are the distinct times of its rows, first when the first of them was seen.
	written []time.Time
	first   time.Time
	// soonest is the shortest time from a row's write time until it was seen.
	soonest time.Duration
}

func newSeen() seen { return seen{byNumber: map[string]map[gocql.UUID]*sighting{}} }

// look reads the log. It keeps rows for some days only.
func (w *world) look() {
	var id, at gocql.UUID
	var payload []byte
	iter := w.watcher.Query(`SELECT event_id, "cdc$time", payload FROM ` + logTable).Iter()
	for iter.Scan(&id, &at, &payload) {
		events := w.seen.byNumber[string(payload)]
		if events == nil {
			events = map[gocql.UUID]*sighting{}
			w.seen.byNumber[string(payload)] = events
		}
		s := events[id]
		if s == nil {
			s = &sighting{first: time.Now()}
			events[id] = s
		}
		if t := at.Time().UTC(); !slices.Contains(s.written, t) {
			after := time.Since(t) + w.nodeSkew
			if len(s.written) == 0 || after < s.soonest {
				s.soonest = after
			}
			s.written = append(s.written, t)
		}
	}
	if err := iter.Close(); err != nil {
		w.t.Errorf("read the log: %v", err)
	}
}

// leftovers finds what points to messages that are gone, and messages that are
// neither.
func (w *world) leftovers() {
	var slots int
	if err := w.watcher.Query("SELECT count(*) FROM schedule_slots").Scan(&slots); err != nil || slots > 0 {
		w.t.Errorf("%d slots are left, %v", slots, err)
	}
	iter := w.watcher.Query("SELECT id, state, payload FROM scheduled_messages").Iter()
	var id gocql.UUID
	var state string
	var payload []byte
	for iter.Scan(&id, &state, &payload) {
		if state != string(schedule.Cancelled) {
			w.t.Errorf("message %s, %s, is still %q", payload, id, state)
		}
	}
	if err := iter.Close(); err != nil {
		w.t.Error(err)
	}
}

// judge checks the events seen against the responses to callers.
func (w *world) judge() {
	var accepted, takenBack, out int
	for _, o := range w.orders {
		before := w.failures
		events := w.seen.byNumber[strconv.Itoa(o.number)]
		if o.accepted {
			accepted++
		}
		if o.takenBack {
			takenBack++
		}
		out += len(events)
		switch n := len(events); {
		case n > 1:
			w.errorf("message %d is %d events", o.number, n)
		case n == 1 && o.takenBack:
			w.errorf("message %d was taken back, and went out", o.number)
		case n == 0 && o.accepted && !o.takenBack && !o.unsure:
			w.errorf("message %d for %s was accepted, and never went out", o.number, o.deliverAt)
		}
		for _, s := range events {
			w.judgeTimes(o, s)
		}
		if w.failures > before {
			w.t.Logf("message %d for %s, handed in at %s:\n  %s\n  events %v", o.number, o.deliverAt, o.at, strings.Join(o.told, "\n  "), events)
		}
	}
	w.t.Logf("%s: %d accepted, %d taken back, %d out", w, accepted, takenBack, out)
}

// judgeTimes checks an event against its time, and against the rows that the relay can see: a row
// that turns up after the confidence window is one that its sweep has passed.
func (w *world) judgeTimes(o *order, s *sighting) {
	first := slices.MinFunc(s.written, time.Time.Compare)
	last := slices.MaxFunc(s.written, time.Time.Compare)
	due := o.deliverAt
	// It is then due at once by the clock of the service that was asked.
	if at := o.hastened.Add(-maxSkew); !o.hastened.IsZero() && at.Before(due) {
		due = at
	}
	if early := due.Sub(first); early > w.ahead {
		w.errorf("message %d was for %s, and written %s early", o.number, o.deliverAt, early)
	}
	if late := s.first.Add(w.nodeSkew).Sub(first); late > relay.Defaults().ConfidenceWindow {
		w.errorf("message %d turned up %s after the time of its write, when the relay's sweep had passed", o.number, late)
	}

	if w.tailed > 0 && s.soonest > w.tailed {
		w.errorf("message %d turned up %s after the newest time of its write, too late for the relay's tail reader", o.number, s.soonest)
	}
	// A scheduler that finds an interrupted release that nobody read for as long as the outbox
	// keeps its rows cannot know whether the event is published.
	if apart := last.Sub(first); apart > relay.Defaults().ConfidenceWindow && apart < schema.DefaultRowTTL {
		w.errorf("message %d was written at %s and again %s later", o.number, first, apart)
	}
}

// errorf reports a failure.
func (w *world) errorf(format string, args ...any) {
	w.t.Helper()
	w.failures++
	w.t.Errorf(format, args...)
}
