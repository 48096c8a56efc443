package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"
)

// cdcOff and dropLog are statements of an operator; cdcOn returns another one.
const (
	cdcOff  = "ALTER TABLE " + keyspace + "." + events + " WITH cdc = {'enabled': false}"
	dropLog = "DROP TABLE " + eventsLog
)

func cdcOn(ttl time.Duration) string {
	return fmt.Sprintf("ALTER TABLE %s.%s WITH cdc = {'enabled': true, 'delta': 'full', 'preimage': false, 'postimage': false, 'ttl': %d}",
		keyspace, events, int(ttl.Seconds()))
}

// logUnstable contains the kinds during which the CDC log cannot be altered, or during which a
// relay would start, which refuses a table without a log.
var logUnstable = []string{
	"database gone", "database frozen", "new streams", "relay restarts", "relay crashes", "rows late across a restart",
	"no leaders as the relay starts", "ttl of the log changed", "log off", "log dropped",
}

// logKinds contains changes of the CDC log of the outbox table. Events of the time without a
// log, and those that a ttl of less than their age has removed from it, are in the table only.
var logKinds = []*kind{
	{
		name: "ttl of the log changed", when: changesLog, excluding: logUnstable,
		begin: func(r *rand.Rand, w *world) func() {
			// Above the widest confidence window.
			w.alter(cdcOn([...]time.Duration{20 * time.Minute, time.Hour, keep}[r.IntN(3)]))
			return func() {}
		},
	},
	{
		name: "log off", most: 20 * time.Minute, when: changesLog, excluding: logUnstable,
		begin: func(r *rand.Rand, w *world) func() { return w.withoutLog(r, cdcOff) },
	},
	{
		name: "log dropped", most: 20 * time.Minute, when: changesLog, excluding: logUnstable,
		begin: func(r *rand.Rand, w *world) func() { return w.withoutLog(r, cdcOff, dropLog) },
	},
}

func changesLog(p *plan) bool { return p.LogChanges }

// withoutLog ends the CDC log until the returned function is called, while the relay runs or
// while there is none.
func (w *world) withoutLog(r *rand.Rand, statements ...string) (end func()) {
	w.t.Helper()
	ttl := [...]time.Duration{time.Hour, keep}[r.IntN(2)]
	stopped := r.IntN(3) == 0 && w.relayRuns()
	if stopped {
		w.stopRelay()
	}
	set := func(unlogged bool) {
		<-w.database
		w.unlogged = unlogged
		w.database <- struct{}{}
	}
	set(true)
	w.alter(statements...)
	return func() {
		w.alter(cdcOn(ttl))
		set(false)
		if stopped {
			w.launchRelay()
		}
	}
}

// alter executes statements of an operator.
func (w *world) alter(statements ...string) {
	w.t.Helper()
	for _, stmt := range statements {
		if err := w.session.Query(stmt).Exec(); err != nil {
			w.t.Errorf("%s: %v", stmt, err)
		}
	}
}

// makeDescending replaces the outbox table by one with the last event of an aggregate first.
func (w *world) makeDescending(admin *session) {
	w.t.Helper()
	ttl := cmp.Or(w.settings.schema.CDCTTL, keep)
	for _, stmt := range []string{
		"DROP TABLE " + keyspace + "." + events,
		fmt.Sprintf(`CREATE TABLE %s.%s (aggregate_id text, seq bigint, event_id uuid, aggregate_type text, event_type text, payload blob, content_type text,
			headers frozen<map<text, text>>, created_at timestamp, deliver_at timestamp, PRIMARY KEY (aggregate_id, seq))
			WITH CLUSTERING ORDER BY (seq DESC) AND cdc = {'enabled': true, 'ttl': %d}`, keyspace, events, int(ttl.Seconds())),
	} {
		if err := admin.Query(stmt).Exec(); err != nil {
			w.t.Fatalf("%s: %v", stmt, err)
		}
	}
}
