package relay

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// logToBuffer makes the relay log to a buffer.
func (w *world) logToBuffer() *logtest.Buffer {
	out := new(logtest.Buffer)
	w.cfg.Logger = slog.New(slog.NewTextHandler(out, nil))
	return out
}

// exec executes a statement that must succeed.
func (w *world) exec(stmt string, args ...any) {
	w.t.Helper()
	if err := w.session.Query(stmt, args...).Exec(); err != nil {
		w.t.Fatalf("%s: %v", stmt, err)
	}
}

// The log of a table whose CDC is disabled stays where it is, and a relay that only checked whether
// there is one would wait for rows for ever.
func TestRelay_ReportsThatNewEventsAreNotLogged(t *testing.T) {
	t.Parallel()
	for option, broken := range map[string]string{
		"'enabled': false":                 "CDC is disabled",
		"'enabled': true, 'delta': 'keys'": "only the key columns",
	} {
		t.Run(option, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 1}, debezium)
				defer w.close()
				w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
				said := w.logToBuffer()
				r, stop := w.run()
				time.Sleep(10 * time.Second)
				if p := r.Status().Problems; len(p) != 0 {
					t.Errorf("problems = %q, want none", p)
				}
				w.exec("ALTER TABLE shop.events WITH cdc = {" + option + "}")
				time.Sleep(time.Minute)
				const fix = "ALTER TABLE shop.events WITH cdc = {'enabled': true, 'delta': 'full'"
				if p := strings.Join(r.Status().Problems, "; "); !strings.Contains(p, broken) || !strings.Contains(p, fix) {
					t.Errorf("problems = %q, want %q and the statement that mends it", p, broken)
				}
				if n := strings.Count(said.String(), "the CDC log receives no new events"); n != 1 {
					t.Errorf("said %d times, want once:\n%s", n, said)
				}
				err := w.runRefused()
				if err == nil || failure.Classify(err) != failure.Fatal || !strings.Contains(err.Error(), broken) || !strings.Contains(err.Error(), fix) {
					t.Errorf("Run() error = %v, want a fatal one with %q and %q", err, broken, fix)
				}

				w.exec("ALTER TABLE shop.events WITH cdc = {'enabled': true}")
				time.Sleep(time.Minute)
				if p := strings.Join(r.Status().Problems, "; "); strings.Contains(p, broken) || !strings.Contains(p, "may lack events written from") {
					t.Errorf("problems = %q, want the time of the lost events once it is mended", p)
				}
				if !strings.Contains(said.String(), "the CDC log receives new events again") || !strings.Contains(said.String(), "written_from=") {
					t.Errorf("nothing says from when to when events are missing:\n%s", said)
				}
				w.exec("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES ('a', ?, 'order', 'Placed', '{}')", gocql.TimeUUID())
				time.Sleep(10 * time.Second)
				if got := w.consume("outbox.event.order"); len(got) != 1 {
					t.Errorf("%d events in the topic, want the one that was written last", len(got))
				}
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
			})
		})
	}
}

// A table without numbers cannot be scanned, so a relay that was away for longer than its log keeps
// rows reports that events may be missing.
func TestRelay_ReportsLossesOfATableThatCannotBeScanned(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 1}, debezium)
		defer w.close()
		w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true, 'ttl': 3600}")
		said := w.logToBuffer()
		const lost = "cannot be scanned: events may be missing"
		for _, away := range []time.Duration{0, 30 * time.Minute, 2 * time.Hour} {
			time.Sleep(away)
			r, stop := w.run()
			time.Sleep(time.Minute)
			fill := r.backfill.Load()
			ttl := fill.LogTTL()
			if ttl != time.Hour {
				t.Errorf("outbox_relay_cdc_log_ttl_seconds is that of %s, want 1h", ttl)
			}
			if left := fill.Left(time.Now()); left < 55*time.Minute {
				t.Errorf("outbox_relay_cdc_log_left_seconds is that of %s, want nearly 1h", left)
			}
			if err := stop(); err != nil {
				t.Errorf("Run() error = %v", err)
			}
			want := 0
			if away > time.Hour {
				want = 1
			}
			if n := strings.Count(said.String(), lost); n != want {
				t.Errorf("after %s away it is said %d times, want %d:\n%s", away, n, want, said)
			}
		}
	})
}

// The sweep reads rows older than the confidence window; a log that keeps its rows no longer has
// nothing for it.
func TestRelay_WarnsOfALogThatIsShorterThanTheWindow(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 1}, debezium)
		defer w.close()
		for _, ttl := range []string{"0", "3600", "2"} { // 0 is for ever
			w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true, 'ttl': "+ttl+"}")
			said := w.logToBuffer()
			_, stop := w.run()
			time.Sleep(time.Second)
			if err := stop(); err != nil {
				t.Errorf("Run() error = %v", err)
			}
			if warned := strings.Contains(said.String(), "no longer than the confidence window"); warned != (ttl == "2") {
				t.Errorf("ttl %s: warned = %v:\n%s", ttl, warned, said)
			}
			w.exec("DROP TABLE shop.events")
		}
	})
}

// runRefused runs a relay that is to end by itself, and returns why it did;
// nil if it did not within a minute.
func (w *world) runRefused() error {
	w.t.Helper()
	cfg := w.cfg
	cfg.Session, cfg.Registerer = w.session, nil
	r, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	return r.Run(ctx)
}
