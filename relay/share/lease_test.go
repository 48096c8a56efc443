package share

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{session: 10 * time.Second, rebalance: 30 * time.Second, margin: 2 * time.Second}
		want := func(what string, left time.Duration) {
			t.Helper()
			if got := l.left(); got != left || l.over() != (left == 0) {
				t.Errorf("%s: left() = %s, over() = %t, want %s", what, got, l.over(), left)
			}
		}
		want("before the first answer", 0)
		l.renew(time.Now(), true)
		want("a rebalance with an unknown start", 0)
		sent := time.Now()
		time.Sleep(time.Second)
		l.renew(sent, false)
		want("counted from the sending", 7*time.Second)
		l.renew(sent.Add(-time.Second), false)
		want("a delayed older answer", 7*time.Second)
		for range 26 { // the rebalance began after sent, so it ends at least 30 s later
			time.Sleep(time.Second)
			l.renew(time.Now(), true)
		}
		want("at the end of the rebalance timeout", time.Second)
		time.Sleep(time.Second)
		l.renew(time.Now(), true)
		want("after it, regardless of heartbeats", 0)
		l.renew(time.Now(), false)
		want("joined again", 8*time.Second)
		l.drop()
		want("dropped", 0)
	})
}

// A rebalance may begin right after the answer to a heartbeat and end without the member,
// which receives no notice of it.
func TestLease_IsNoLongerThanAnUnreportedRebalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{session: time.Minute, rebalance: 40 * time.Second, margin: 12 * time.Second}
		l.renew(time.Now(), false)
		if got, want := l.left(), 28*time.Second; got != want {
			t.Errorf("left() = %s, want %s, the rebalance timeout minus the margin", got, want)
		}
	})
}

// A clock that stops while the machine sleeps does not extend a lease.
func TestPast_BelievesTheFurtherClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	end := now.Add(time.Second)
	if past(now, end) || !past(end, end) || !past(end.Add(time.Minute), end) {
		t.Error("past() is wrong before, at or after the end")
	}
	if noneLeft(time.Second, time.Second) || !noneLeft(time.Second, -time.Minute) || !noneLeft(-time.Minute, time.Second) {
		t.Error("noneLeft() uses the clock that stopped or was set back")
	}
}
