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
		want("a rebalance since nobody knows when", 0)
		sent := time.Now()
		time.Sleep(time.Second)
		l.renew(sent, false)
		want("counted from when it was sent", 7*time.Second)
		l.renew(sent.Add(-time.Second), false)
		want("an older answer that comes later", 7*time.Second)
		for range 26 { // the rebalance began after sent, so it ends 30 s after that at the earliest
			time.Sleep(time.Second)
			l.renew(time.Now(), true)
		}
		want("at the end of the rebalance timeout", time.Second)
		time.Sleep(time.Second)
		l.renew(time.Now(), true)
		want("past it, heartbeats or not", 0)
		l.renew(time.Now(), false)
		want("joined again", 8*time.Second)
		l.drop()
		want("dropped", 0)
	})
}

// A rebalance may begin right after a heartbeat was answered, and end without the
// member, which hears nothing of it.
func TestLease_IsNoLongerThanARebalanceThatNobodyToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{session: time.Minute, rebalance: 40 * time.Second, margin: 12 * time.Second}
		l.renew(time.Now(), false)
		if got, want := l.left(), 28*time.Second; got != want {
			t.Errorf("left() = %s, want %s, the rebalance timeout less the margin", got, want)
		}
	})
}

// A clock that stands still while the machine sleeps does not make a lease longer.
func TestPast_BelievesTheFurtherClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	end := now.Add(time.Second)
	if past(now, end) || !past(end, end) || !past(end.Add(time.Minute), end) {
		t.Error("past() is wrong about a time before its end, at its end or behind it")
	}
	if noneLeft(time.Second, time.Second) || !noneLeft(time.Second, -time.Minute) || !noneLeft(-time.Minute, time.Second) {
		t.Error("noneLeft() believes the clock that stood still, or was set")
	}
}
