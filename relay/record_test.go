package relay

import (
	"strconv"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// Each record shows how its event came to its topic, also of dead letters that a restart lies
// between.
func TestRecord_OfEventsOfAnOutage(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		_, stop := w.run()
		time.Sleep(10 * time.Second)
		all := relaytest.Events(10, 4, "OrderUpdated")
		for _, e := range all[:20] {
			w.write(e)
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		back := w.unreachable()
		for _, e := range all[20:] {
			w.write(e)
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		attempts := make(map[string]int)
		for id, e := range w.open() {
			attempts[id.String()] = e.Attempts
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		back()
		_, stop = w.run()
		time.Sleep(2 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		got := w.consume("OrderUpdated")
		relaytest.CheckOrder(t, got, all)
		replayed := 0
		for _, d := range got {
			before, deadLetter := attempts[d.ID.String()]
			n, _ := strconv.Atoi(d.Header(outbox.HeaderAttempts))
			switch {
			case d.Header(outbox.HeaderCaptured) == "":
				t.Errorf("event %s (seq %d) has %q, which do not say who found it", d.ID, d.Sequence, d.RecordHeaders)
			case d.Sequence <= 2 && (d.Header(outbox.HeaderCaptured) != rows.CapturedTail || n != 0 || d.Header(outbox.HeaderBreaker) != ""):
				t.Errorf("event %s (seq %d), of before the outage, has %q, want that it came by the tail and nothing else", d.ID, d.Sequence, d.RecordHeaders)
			case deadLetter && before > 0:
				if replayed++; n != before+1 {
					t.Errorf("event %s, of %d attempts before its replay, says %d", d.ID, before, n)
				}
			}
		}
		t.Logf("%d dead letters, %d of them tried before", len(attempts), replayed)
		if len(attempts) == 0 {
			t.Error("no event became a dead letter")
		}
	})
}
