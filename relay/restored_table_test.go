package relay

import (
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// createOutbox returns the statement that creates the outbox table with its log.
func createOutbox(t *testing.T) string {
	t.Helper()
	all, err := os.ReadFile("../schema/testdata/print_default.cql")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)CREATE TABLE IF NOT EXISTS (outbox\.outbox_messages \(.*?);`).FindSubmatch(all)
	if m == nil {
		t.Fatal("the schema does not create the outbox table")
	}
	return "CREATE TABLE " + string(m[1])
}

// The outbox table is created again with its log, and its rows are restored from a backup, with
// their write times and past the log, as nodetool refresh does. Rows that the relay had not
// published are found in the table, while it runs or at its next start; the others are not repeated.
func TestRelay_RestoredTable(t *testing.T) {
	t.Parallel()
	for _, tablets := range []bool{false, true} {
		for _, running := range []bool{false, true} {
			t.Run(map[bool]string{false: "vnodes", true: "tablets"}[tablets]+map[bool]string{false: "/stopped", true: "/running"}[running], func(t *testing.T) {
				t.Parallel()
				create := createOutbox(t)
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, logEngine(tablets), func(c *Config) {
						c.ConfidenceWindow, c.IdleCheckpoint, c.Tail = 30*time.Second, 5*time.Second, TailOff
					})
					defer w.close()
					topics := []string{"OrderCreated", "OrderUpdated"}
					all := relaytest.Events(40, 1, topics...) // no later event leads to one that is missing
					var written []time.Time
					write := func(n int) {
						for range n {
							written = append(written, time.Now())
							w.writeAt(all[len(written)-1], time.Now())
							time.Sleep(10 * time.Millisecond)
						}
					}
					time.Sleep(time.Minute)
					_, stop := w.run()
					write(20)
					time.Sleep(time.Minute)
					if !running {
						if err := stop(); err != nil {
							t.Error(err)
						}
					}
					write(10)
					time.Sleep(5 * time.Second)
					w.exec("DROP TABLE outbox.outbox_messages")
					w.exec(create)
					for i, at := range written {
						switch {
						case !tablets:
							w.writeAt(all[i], at)
						case i >= 20: // the log of a table with tablets has no streams for its former rows
							w.write(all[i])
						}
					}
					w.exec("TRUNCATE outbox.outbox_messages_scylla_cdc_log")
					time.Sleep(time.Minute)
					if !running {
						_, stop = w.run()
					}
					time.Sleep(3 * time.Minute)
					write(10)
					time.Sleep(3 * time.Minute)
					for range 2 { // a start repeats nothing, and scans nothing again
						if err := stop(); err != nil {
							t.Error(err)
						}
						_, stop = w.run()
						time.Sleep(time.Minute)
					}
					if err := stop(); err != nil {
						t.Error(err)
					}
					w.once(all, topics...)
					if n := len(w.backfills()); n != 2 {
						t.Errorf("%d scans, want one beside that of the first start", n)
					}
				})
			})
		}
	}
}

// The CDC log is dropped and created again under a relay that has not read all of its rows: it reads
// after the confidence window alone, and the broker is away for longer than that. No later event
// leads to the missing events.
func TestRelay_LogDroppedBeforeItIsRead(t *testing.T) {
	t.Parallel()
	for _, tablets := range []bool{false, true} {
		for _, away := range []time.Duration{0, 5 * time.Minute} {
			t.Run(fmt.Sprintf("tablets %t, broker away for %s", tablets, away), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, logEngine(tablets), func(c *Config) {
						c.ConfidenceWindow, c.IdleCheckpoint, c.Tail = 30*time.Second, 5*time.Second, TailOff
						c.MaxInFlightRecords, c.DeadLetters = 5, DeadLettersOff
					})
					defer w.close()
					const topic = "OrderCreated"
					all := relaytest.Events(40, 1, topic)
					write := func(events []outbox.Event) {
						for _, e := range events {
							w.write(e)
							time.Sleep(2 * time.Second)
						}
					}
					time.Sleep(time.Minute)
					_, stop := w.run()
					write(all[:10])
					time.Sleep(time.Minute)
					end := func() {}
					if away > 0 {
						end = w.unreachable()
					}
					write(all[10:30])
					time.Sleep(away)
					for _, stmt := range []string{cdcOff, dropLog, cdcOn} {
						w.exec(stmt)
					}
					end()
					time.Sleep(5 * time.Minute)
					write(all[30:])
					time.Sleep(3 * time.Minute)
					if err := stop(); err != nil {
						t.Error(err)
					}
					w.once(all, topic)
				})
			})
		}
	}
}
