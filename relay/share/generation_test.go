package share

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A coordinator that forms a generation for a session timeout, and then loses the member, gives
// its shards to another one. It has answered the heartbeats of the new generation with
// REBALANCE_IN_PROGRESS and not prolonged the session, as Redpanda does: they renew no lease.
func TestMember_GenerationIsFormedSlowly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		a := w.join("a", nil)
		w.until(20*time.Second, "a owns all", func() bool { return w.number("a") == 4 })
		id, generation := a.member.client.GroupMetadata()
		var synced atomic.Int64 // when the SyncGroup of a arrived
		w.cluster.ControlKey(kmsg.SyncGroup.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			if r := req.(*kmsg.SyncGroupRequest); r.MemberID == id && r.Generation > generation && synced.CompareAndSwap(0, time.Now().UnixNano()) {
				w.cluster.SleepControl(func() { time.Sleep(40 * time.Second) }) // as if the generation were replicated slowly
			}
			return nil, nil, false
		})
		beats := 0
		w.cluster.ControlKey(kmsg.Heartbeat.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			r := req.(*kmsg.HeartbeatRequest)
			if r.MemberID != id || r.Generation <= generation {
				return nil, nil, false
			}
			beats++
			resp := r.ResponseKind().(*kmsg.HeartbeatResponse)
			resp.ErrorCode = kerr.RebalanceInProgress.Code
			return resp, nil, true
		})
		w.join("b", nil)
		w.until(time.Minute, "the SyncGroup of a", func() bool { return synced.Load() != 0 })
		at := time.Unix(0, synced.Load())
		time.Sleep(time.Until(at.Add(9500 * time.Millisecond)))
		a.link.cut() // just before the session of a ends, which began with its JoinGroup
		for range 3000 {
			time.Sleep(10 * time.Millisecond)
			if n := w.number("b"); n > 0 {
				if left := a.member.lease.left(); left > 0 || w.number("a") > 0 {
					t.Errorf("b owns %d shards %s after a joined; a still owns %d, and its lease lasts %s more, after %d heartbeats", n, time.Since(at), w.number("a"), left, beats)
				}
				break
			}
		}
		time.Sleep(time.Minute) // the world reports two owners
	})
}
