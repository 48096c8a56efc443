package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
)

// refusedRows are rows that are no events, with the aggregate and the id as parameters.
var refusedRows = []string{
	"(?, 1, ?, 'order', null)",
	"(?, 0, ?, 'order', 'OrderUpdated')",
	"(?, -7, ?, 'order', 'OrderUpdated')",
	"(?, 1, ?, 'order', 'Order\nUpdated')",
	"(?, 1, ?, 'or\tder', 'OrderUpdated')",
}

// Each row that is no event is a dead letter, also where a scan of the table alone finds it. Dead
// letters of one problem form one group: their class and text do not depend on the reader.
func TestRelay_RefusedRowSaysTheSameByEachReader(t *testing.T) {
	t.Parallel()
	texts := make(map[string]int)
	for _, by := range []string{"tail", "sweep", "scan"} {
		inBubble(t, func(t *testing.T) {
			w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
				c.ConfidenceWindow, c.IdleCheckpoint = 10*time.Second, 5*time.Second
				if by == "sweep" {
					c.Tail = TailOff
				}
			})
			defer w.close()
			_, stop := w.run()
			time.Sleep(30 * time.Second)
			if by == "scan" {
				if err := stop(); err != nil {
					t.Error(err)
				}
			}
			for i, row := range refusedRows {
				w.exec("INSERT INTO outbox_messages (aggregate_id, seq, event_id, aggregate_type, event_type) VALUES "+row, gocql.UUID{1, byte(i)}.String(), gocql.UUID{2, byte(i)})
			}
			for i := range 2 { // rows without an id
				w.exec("INSERT INTO outbox_messages (aggregate_id, seq, aggregate_type, event_type) VALUES (?, ?, 'order', 'OrderUpdated')", gocql.UUID{3}.String(), i+1)
			}
			w.exec("INSERT INTO outbox_messages (aggregate_id, seq, aggregate_type, event_type) VALUES (?, 1, 'order', 'OrderUpdated')", gocql.UUID{4}.String())
			time.Sleep(30 * time.Second)
			if by == "scan" {
				w.skipLog()
				scanAll(0)(&w.cfg)
				_, stop = w.run()
				time.Sleep(time.Minute)
			}
			if by != "scan" { // which finds the rows again
				if err := stop(); err != nil {
					t.Error(err)
				}
				scanAll(0)(&w.cfg)
				_, stop = w.run()
				time.Sleep(time.Minute)
			}
			letters := w.open()
			if n := len(refusedRows) + 3; len(letters) != n {
				t.Errorf("%s: %d dead letters of %d refused rows", by, len(letters), n)
			}
			for id := range letters {
				l, err := w.deadLetters().Read(t.Context(), id)
				if err != nil || l.ErrorClass != chains.ClassUndecodable && l.Status != dlq.Blocked {
					t.Errorf("%s: dead letter %s, %v, want class %s", by, l.ErrorClass, err, chains.ClassUndecodable)
				}
				texts[l.ErrorText]++
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
	for text, n := range texts {
		if n%3 != 0 || strings.Contains(text, "log row") {
			t.Errorf("%d dead letters of three readers say %q", n, text)
		}
	}
}
