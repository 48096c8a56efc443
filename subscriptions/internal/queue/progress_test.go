package queue

import (
	"testing"
	"time"
)

// The time before which a forgotten message had ended is never earlier than its end, and the
// remembered times are the times of the acknowledgements.
func TestProgress_ForgetsHonestly(t *testing.T) {
	t.Parallel()
	q := fillQueue(2*maxPast + 10)
	loaded := start
	q.past.before = loaded
	ended := make(map[int64]time.Time)
	now := start
	for range 2 * maxPast {
		now = now.Add(time.Millisecond)
		d := q.Lease(nil, 1, 1, now, now.Add(time.Minute), "")[0]
		if got := q.Progress(d.Offset); got.Kind != InPhase || got.Phase != Leased || !got.At.Equal(d.Until) || got.Attempts != 1 {
			t.Fatalf("%d is leased: %+v", d.Offset, got)
		}
		q.Settle(d.Offset, d.Lease, Ack, now, 0, "", Waiter{})
		q.ConfirmPosition(q.Position())
		ended[d.Offset] = now
	}
	remembered := 0
	for offset, at := range ended {
		switch got := q.Progress(offset); got.Kind {
		case Acknowledged:
			remembered++
			if !got.At.Equal(at) || got.Attempts != 1 {
				t.Fatalf("%d ended at %s: %+v", offset, at, got)
			}
		case Over:
			if got.At.Before(at) {
				t.Fatalf("%d ended at %s, and is shown to have ended before %s", offset, at, got.At)
			}
		default:
			t.Fatalf("%d is acknowledged: %+v", offset, got)
		}
	}
	if remembered != maxPast {
		t.Errorf("%d ends are remembered, want the last %d", remembered, maxPast)
	}
	if got := q.Progress(2*maxPast + 1); got.Kind != InPhase || got.Phase != Waiting {
		t.Errorf("a message that waits: %+v", got)
	}
	if got := q.Progress(2*maxPast + 10); got.Kind != Unread {
		t.Errorf("a record that is not read: %+v", got)
	}
	now = now.Add(time.Second)
	q.Purge(now, now, 2*maxPast+20, false)
	if got := q.Progress(2*maxPast + 1); got.Kind != Purged || !got.At.Equal(now) {
		t.Errorf("a purged message: %+v", got)
	}
	if got := q.Progress(2*maxPast + 15); got.Kind != Purged {
		t.Errorf("a record that a purge will skip: %+v", got)
	}
}
