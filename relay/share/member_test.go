package share

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// One instance owns every shard; a second one receives half of them once the first has
// finished its work in progress.
func TestMember_SharesWithWhoJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		a := w.join("a", func(_ *Config, i *instance) { i.drain = 3 * time.Second })
		w.until(10*time.Second, "a owns all", func() bool { return w.number("a") == 4 })
		b := w.join("b", nil)
		took := w.until(20*time.Second, "b owns half", func() bool { return w.number("b") == 2 && w.number("a") == 2 })
		if took < 3*time.Second {
			t.Errorf("b owned shards after %s, before a had drained them for 3 s", took)
		}
		for _, i := range []*instance{a, b} {
			if s := i.member.Status(); len(s.Owned) != 2 || !s.Joined || s.Shards != 4 || s.Lease < 6*time.Second || s.Lease > 8*time.Second {
				t.Errorf("%s: Status() = %+v", i.name, s)
			}
		}
		if n, err := testutil.GatherAndCount(b.reg, "outbox_relay_shard_owned"); n != 4 || err != nil {
			t.Errorf("outbox_relay_shard_owned has %d series, %v, want 4", n, err)
		}
	})
}

// Shards that an instance keeps during a rebalance continue without a pause.
func TestMember_KeepsWhatDoesNotMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		a := w.join("a", nil)
		w.until(10*time.Second, "a owns all", func() bool { return w.number("a") == 4 })
		b := w.join("b", nil)
		w.until(20*time.Second, "b owns half", func() bool { return w.number("b") == 2 && w.number("a") == 2 })
		before := a.since()
		b.leave()
		w.until(5*time.Second, "a owns all again", func() bool { return w.number("a") == 4 })
		kept := 0
		for shard, since := range a.since() {
			if before[shard].Equal(since) {
				kept++
			}
		}
		if kept != 2 {
			t.Errorf("%d shards continued without a pause, want 2", kept)
		}
	})
}

// since returns the start time of the work on each shard.
func (i *instance) since() map[int]time.Time {
	i.member.mu.Lock()
	defer i.member.mu.Unlock()
	out := make(map[int]time.Time)
	for shard, h := range i.member.holds {
		out[shard] = h.since
	}
	return out
}

// An instance that stops drains its shards and hands them over immediately.
func TestMember_LeavesWithoutTheSessionTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		// Longer than the session timeout: heartbeats must continue.
		a := w.join("a", func(_ *Config, i *instance) { i.drain = 25 * time.Second })
		w.until(10*time.Second, "a owns all", func() bool { return w.number("a") == 4 })
		b := w.join("b", func(c *Config, _ *instance) { c.Shards = 4 })
		w.until(60*time.Second, "b owns half", func() bool { return w.number("b") == 2 && w.number("a") == 2 })
		begin := time.Now()
		a.leave()
		if d := time.Since(begin); d < 25*time.Second || d > 27*time.Second {
			t.Errorf("leaving took %s, want the 25 s of the drain", d)
		}
		if took := w.until(20*time.Second, "b owns all", func() bool { return w.number("b") == 4 }); took > 2*time.Second {
			t.Errorf("b owned all %s after a had left", took)
		}
		if n := testutil.ToFloat64(a.member.metrics.fences) + testutil.ToFloat64(a.member.metrics.lost); n != 0 {
			t.Errorf("a lost shards while it drained: %g", n)
		}
		_ = b
	})
}

// A killed member is replaced after the session timeout.
func TestMember_IsReplacedWhenItIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		a := w.join("a", nil)
		w.join("b", nil)
		w.until(20*time.Second, "both own half", func() bool { return w.number("b") == 2 && w.number("a") == 2 })
		a.kill()
		if took := w.until(30*time.Second, "b owns all", func() bool { return w.number("b") == 4 }); took > 12*time.Second {
			t.Errorf("took %s, want little more than the session timeout of 10 s", took)
		}
	})
}

// An instance that cannot reach the broker stops before the broker reassigns its shards.
func TestMember_FencesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		a := w.join("a", nil)
		w.join("b", nil)
		w.until(20*time.Second, "both own half", func() bool { return w.number("b") == 2 && w.number("a") == 2 })
		a.link.cut()
		fenced := w.until(10*time.Second, "a owns nothing", func() bool { return w.number("a") == 0 })
		if fenced < 6*time.Second || fenced > 8100*time.Millisecond {
			t.Errorf("a stopped after %s, want the session timeout of 10 s minus a fifth, from the last heartbeat", fenced)
		}
		if n := w.number("b"); n != 2 {
			t.Errorf("b owns %d shards right after a stopped", n)
		}
		if s := a.member.Status(); s.Joined || len(s.Owned) != 0 || s.Lease != 0 {
			t.Errorf("Status() = %+v", s)
		}
		time.Sleep(500 * time.Millisecond)
		if n := testutil.ToFloat64(a.member.metrics.fences); n != 1 {
			t.Errorf("outbox_relay_shard_fences_total = %g, want 1", n)
		}
		w.until(10*time.Second, "b owns all", func() bool { return w.number("b") == 4 })
		a.link.heal()
		w.until(30*time.Second, "both own half again", func() bool { return w.number("b") == 2 && w.number("a") == 2 })
	})
}

// A lease counts from the sending of the heartbeat: the broker counts from its receipt,
// which is before the answer.
func TestMember_CountsFromWhenItSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		a := w.join("a", nil)
		w.until(10*time.Second, "a owns all", func() bool { return w.number("a") == 4 })
		a.link.mu.Lock()
		a.link.slow = 300 * time.Millisecond
		a.link.mu.Unlock()
		time.Sleep(10 * time.Second)
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			if s := a.member.Status(); s.Lease > 7700*time.Millisecond || s.Lease < time.Second {
				t.Errorf("the lease is %s with answers delayed by 300 ms, want at most 7.7 s", s.Lease)
				break
			}
		}
		a.link.mu.Lock()
		a.link.slow = 0
		a.link.mu.Unlock()
	})
}

// A lost hold stays lost: a process that was paused for longer than its lease writes
// nothing, whichever goroutine resumes first.
func TestHold_StaysLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		held := make(chan *Hold, 9)
		a := w.join("a", func(c *Config, i *instance) {
			c.Shards = 1
			i.work = func(ctx context.Context, h *Hold) error {
				held <- h
				<-ctx.Done()
				return nil
			}
		})
		w.until(10*time.Second, "a owns it", func() bool { return len(a.member.Status().Owned) == 1 })
		first := <-held
		if err := first.Check(); err != nil {
			t.Fatalf("Check() error = %v", err)
		}
		gone := time.Now().Add(-time.Millisecond) // simulates a pause until now
		a.member.lease.end.Store(&gone)
		if err := first.Check(); !errors.Is(err, ErrLost) {
			t.Fatalf("Check() error = %v, want ErrLost", err)
		}
		a.member.lease.renew(time.Now(), false)
		if err := first.Check(); !errors.Is(err, ErrLost) {
			t.Errorf("Check() error = %v after the broker answered again, want ErrLost", err)
		}
		w.until(5*time.Second, "a works on it again", func() bool {
			s := a.member.Status()
			return len(s.Owned) == 1 && a.since()[0].After(first.since)
		})
	})
}

// Without a broker no instance works; all shards continue once it returns.
func TestMember_OutlastsTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		a, b := w.join("a", nil), w.join("b", nil)
		w.until(20*time.Second, "both own half", func() bool { return w.number("b") == 2 && w.number("a") == 2 })
		a.link.cut()
		b.link.cut()
		time.Sleep(8100 * time.Millisecond)
		for begin := time.Now(); time.Since(begin) < 3*time.Hour; time.Sleep(time.Minute) {
			if n := w.number("a") + w.number("b"); n != 0 {
				t.Fatalf("%d shards are worked on without a broker", n)
			}
		}
		a.link.heal()
		b.link.heal()
		w.until(30*time.Second, "both own half again", func() bool { return w.number("b") == 2 && w.number("a") == 2 })
	})
}

// Work that does not end in time loses its shard, and all shards of its instance, before
// the broker reassigns them.
func TestMember_LosesWhatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		a := w.join("a", func(_ *Config, i *instance) { i.stuck = true })
		w.until(10*time.Second, "a owns all", func() bool { return w.number("a") == 4 })
		w.join("b", nil)
		w.until(2*time.Minute, "b owns some", func() bool { return w.number("b") > 0 })
		if n := testutil.ToFloat64(a.member.metrics.lost); n == 0 {
			t.Error("outbox_relay_shard_losses_total = 0")
		}
	})
}

// The member restarts work after an error, with a delay; a Fatal error stops the member.
func TestMember_StartsWorkAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		runs := 0
		wrong := errors.New("wrong configuration")
		a := w.join("a", func(c *Config, i *instance) {
			c.Shards = 1
			c.Fatal = func(err error) bool { return errors.Is(err, wrong) }
			i.work = func(context.Context, *Hold) error {
				if runs++; runs < 4 {
					return errors.New("database unavailable")
				}
				return wrong
			}
		})
		if err := <-a.ended; !errors.Is(err, wrong) || runs != 4 {
			t.Errorf("Run() error = %v after %d runs, want the Fatal one of the 4th", err, runs)
		}
		close(a.ended)
		if n := testutil.ToFloat64(a.member.metrics.restarts); n < 3 {
			t.Errorf("outbox_relay_shard_restarts_total = %g, want 3", n)
		}
	})
}

// Instances with different numbers of shards never share.
func TestMember_RefusesAnotherNumberOfShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		w.join("a", nil)
		w.until(10*time.Second, "a owns all", func() bool { return w.number("a") == 4 })
		b := w.join("b", func(c *Config, i *instance) { c.Shards, i.work = 6, i.checkOwnership })
		err := <-b.ended
		close(b.ended)
		var count *CountError
		if !errors.As(err, &count) || count.Partitions != 4 || count.Shards != 6 || !strings.Contains(err.Error(), "configure 4") {
			t.Errorf("Run() error = %v, want a CountError with 4 partitions", err)
		}
	})
}

// The protocol name contains the number of shards: the broker rejects a member that found
// the topic in another state.
func TestMember_IsRefusedWithAnotherNumberOfShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		w.join("a", nil)
		w.until(10*time.Second, "a owns all", func() bool { return w.number("a") == 4 })
		admin := w.admin()
		if _, err := admin.CreatePartitions(t.Context(), 2, "outbox.relay.test.shards"); err != nil {
			t.Fatal(err)
		}
		b := w.join("b", func(c *Config, i *instance) { c.Shards, i.work = 6, i.checkOwnership })
		err := <-b.ended
		close(b.ended)
		if err == nil || !strings.Contains(err.Error(), "another number of shards than 6") {
			t.Errorf("Run() error = %v, want that of another number of shards", err)
		}
	})
}

// An instance of another database under the same name would be a standby for ever, or take a part
// of the shards, whose events the others then do not see: the broker rejects it.
func TestMember_IsRefusedWithAnotherDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		w.join("a", nil)
		w.until(10*time.Second, "a owns all", func() bool { return w.number("a") == 4 })
		b := w.join("b", func(_ *Config, i *instance) { i.divided, i.work = "another database", i.checkOwnership })
		err := <-b.ended
		close(b.ended)
		if err == nil || !strings.Contains(err.Error(), "on another database") {
			t.Errorf("Run() error = %v, want that of another database", err)
		}
		w.until(10*time.Second, "a owns all still", func() bool { return w.number("a") == 4 })
	})
}

// New reports all invalid settings together.
func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Name: "a b", Shards: 257, SessionTimeout: time.Hour, StopTimeout: time.Minute, RebalanceTimeout: time.Minute})
	if err == nil {
		t.Fatal("New() error = nil")
	}
	for _, field := range []string{"Brokers", `Name "a b"`, "Shards 257", "SessionTimeout 1h0m0s", "RebalanceTimeout 1m0s must be longer than StopTimeout", "RebalanceTimeout 1m0s must be at least half of SessionTimeout, 30m0s"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("New() error = %v, want it to name %s", err, field)
		}
	}
}

// The error of a value that the broker rejects contains the setting to change.
func TestMember_NamesMissingRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, kfake.GroupMinSessionTimeout(6*time.Second))
		defer w.close()
		a := w.join("a", func(c *Config, i *instance) { c.SessionTimeout, i.work = 2*time.Second, i.checkOwnership })
		err := <-a.ended
		close(a.ended)
		if err == nil || !strings.Contains(err.Error(), "does not allow a session timeout of 2s") {
			t.Errorf("Run() error = %v", err)
		}
	})
}

// A member that may not create the missing control topic ends with the error and the fix.
func TestMember_ReportsThatItMayNotCreateTheTopic(t *testing.T) {
	for err, want := range map[*kerr.Error]string{
		kerr.TopicAuthorizationFailed:   "grant the Kafka user CREATE on it, or create it with --partitions 4",
		kerr.ClusterAuthorizationFailed: "grant the Kafka user CREATE on it, or create it with --partitions 4",
		kerr.InvalidReplicationFactor:   "too few brokers for a replication factor of -1",
		kerr.PolicyViolation:            "create topic outbox.relay.test.shards: POLICY_VIOLATION",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			defer w.close()
			w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: err, Count: -1})
			a := w.join("a", func(_ *Config, i *instance) { i.work = i.checkOwnership })
			got := <-a.ended
			close(a.ended)
			if !errors.Is(got, err) || !strings.Contains(got.Error(), "create topic ") || !strings.Contains(got.Error(), want) {
				t.Errorf("Run() error = %v, want %q", got, want)
			}
		})
	}
}
