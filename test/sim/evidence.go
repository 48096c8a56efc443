package sim

import (
	"slices"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// evidence is the final content of the tables, topics and logs.
type evidence struct {
	outbox      map[gocql.UUID]outbox.Event // by event id
	orders      map[gocql.UUID]orderRow     // by order id
	records     []record                    // in the order in which the broker stored them
	streams     map[string]*history         // by stream id
	scans       []scan
	deadLetters map[gocql.UUID]deadLetter // all dead letters, also resolved ones, by event id
}

// scan is a scan of the outbox table that covers the rows written within its bounds.
type scan struct {
	started, from, until time.Time
	done                 time.Time // zero if unfinished
	// replaced reports that a later scan of the relay began before this one was done.
	replaced bool
}

// inherit lets each scan that another one has replaced last until that one is done, if it covers
// the same rows, too. The scans are those of a relay, the newest first.
func inherit(scans []scan) {
	for i := 1; i < len(scans); i++ {
		s, by := &scans[i], &scans[i-1]
		if s.replaced && !by.from.After(s.from) && !by.until.Before(s.until) {
			s.done = by.done
		}
	}
}

// covers reports whether the scan covered, at that time, an event with these write and
// publish times. The database keeps the time of its end in milliseconds.
func (s *scan) covers(at, written, published time.Time) bool {
	return !s.started.After(at) && !written.Before(s.from) && !written.After(s.until) && (s.done.IsZero() || !published.Truncate(time.Millisecond).After(s.done))
}

type orderRow struct {
	version int64
	status  string
	event   gocql.UUID
}

// history contains the log rows and checkpoints of a CDC stream of the outbox table.
type history struct {
	rows  []logRow // in the order of the log
	saves []save   // in order of time
}

// logRow is a log row that adds an event. Replays of a batch cause several rows of one
// event.
type logRow struct {
	time             gocql.UUID
	event, aggregate gocql.UUID
}

// gather reads the evidence.
func (w *world) gather() *evidence {
	w.t.Helper()
	session := w.connect("auditor", keyspace)
	defer session.Close()
	e := &evidence{
		outbox: make(map[gocql.UUID]outbox.Event), orders: make(map[gocql.UUID]orderRow),
		streams: make(map[string]*history), deadLetters: make(map[gocql.UUID]deadLetter), records: w.tap.all(w.kafka),
	}
	scan := func(query string, dest []any, row func()) {
		w.t.Helper()
		iter := session.Query(query).Iter()
		for iter.Scan(dest...) {
			row()
		}
		if err := iter.Close(); err != nil {
			w.t.Fatalf("%s: %v", query, err)
		}
	}
	e.scanTables(w, session, scan)
	e.scanLog(scan)
	e.scanBackfills(scan, w.settings.hostAhead)
	e.scanDeadLetters(w, scan)
	for id, saved := range w.saves.all() {
		e.stream(id).saves = saved
	}
	for _, h := range e.streams {
		slices.SortStableFunc(h.rows, func(a, b logRow) int { return scyllacdc.CompareTimeUUID(a.time, b.time) })
	}
	return e
}

func (e *evidence) stream(id string) *history {
	h := e.streams[id]
	if h == nil {
		h = &history{}
		e.streams[id] = h
	}
	return h
}

type scanner func(query string, dest []any, row func())

func (e *evidence) scanTables(w *world, session *session, scan scanner) {
	iter := session.Query("SELECT " + rows.Columns(outbox.DefaultTable) + " FROM " + events).Iter()
	sc := rows.NewScanner(outbox.DefaultTable)
	for iter.Scan(sc.Dest()...) {
		ev, err := sc.Event()
		if err != nil && w.ledger.garbage[ev.AggregateID.UUID()] {
			continue
		}
		if err != nil {
			w.t.Fatalf("scan the outbox: %v", err)
		}
		e.outbox[ev.ID.UUID()] = ev
	}
	if err := iter.Close(); err != nil {
		w.t.Fatalf("scan the outbox: %v", err)
	}
	var id gocql.UUID
	var o orderRow
	scan("SELECT id, version, status, event_id FROM orders", []any{&id, &o.version, &o.status, &o.event}, func() { e.orders[id] = o })
}

// scanBackfills reads the scans. The relay dates them by the database's clock, ahead of which
// that of its host is.
func (e *evidence) scanBackfills(scanner scanner, ahead time.Duration) {
	var relay, state string
	var s scan
	var updated time.Time
	scans := make(map[string][]scan)
	scanner("SELECT relay, started_at, rows_from, rows_until, state, updated_at FROM relay_backfills",
		[]any{&relay, &s.started, &s.from, &s.until, &state, &updated}, func() {
			s := s
			s.started = s.started.Add(ahead)
			if s.done = updated.Add(ahead); state == "running" {
				s.done = time.Time{}
			}
			if s.replaced = state == "replaced"; state != "not_needed" {
				scans[relay] = append(scans[relay], s)
			}
		})
	for _, of := range scans {
		inherit(of)
		e.scans = append(e.scans, of...)
	}
}

func (e *evidence) scanLog(scan scanner) {
	var id []byte
	var t gocql.UUID
	var aggregate outbox.ID
	var event *gocql.UUID
	scan(`SELECT "cdc$stream_id", "cdc$time", event_id, aggregate_id FROM `+eventsLog, []any{&id, &t, &event, &aggregate}, func() {
		if event != nil {
			h := e.stream(string(id))
			h.rows = append(h.rows, logRow{time: t, event: *event, aggregate: aggregate.UUID()})
		}
	})
}

// countMissed returns the number of events that their stream's checkpoint might have passed
// unseen: a checkpoint that matches no row of the stream was saved after the event was
// written and before the broker had it. The confidence window keeps such a checkpoint
// before the event.
func (e *evidence) countMissed() int {
	first, missed := e.firstSeen(), make(map[gocql.UUID]bool)
	for _, h := range e.streams {
		at := make(map[gocql.UUID]bool, len(h.rows))
		for _, row := range h.rows {
			at[row.time] = true
		}
		for _, row := range h.rows {
			if slices.ContainsFunc(h.saves, func(s save) bool {
				return !at[s.position] && s.at.After(row.time.Time()) && s.at.Before(first[row.event])
			}) {
				missed[row.event] = true
			}
		}
	}
	return len(missed)
}
