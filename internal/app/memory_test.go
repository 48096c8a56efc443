package app

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"
)

func TestSoftLimit(t *testing.T) {
	t.Parallel()
	for live, want := range map[int64]int64{0: 150 << 20, 60 << 20: 150 << 20, 90 << 20: 168 << 20, 300 << 20: 448 << 20} {
		if got := softLimit(live); got != want {
			t.Errorf("softLimit(%d) = %d, want %d", live, got, want)
		}
	}
}

func TestGCPercent(t *testing.T) {
	t.Parallel()
	for live, want := range map[int64]int64{0: 400, 8 << 20: 400, 16 << 20: 200, 32 << 20: 100, 1 << 30: 100} {
		if got := gcPercent(live); got != want {
			t.Errorf("gcPercent(%d) = %d, want %d", live, got, want)
		}
	}
}

// A service lets this process have more garbage than live memory; the test is not parallel to others.
func TestPermitGarbage_SetsGOGC(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		go permitGarbage(ctx)
		time.Sleep(time.Millisecond)
		stop()
	})
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if got, want := debug.SetGCPercent(100), gcPercent(int64(live[0].Value.Uint64())); got <= 100 || got < int(want/2) {
		t.Errorf("GOGC is %d, want about %d", got, want)
	}
}

// The limit of this process follows its live memory; the test is not parallel to others.
func TestLimitMemory_FollowsTheLiveMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	debug.SetMemoryLimit(math.MaxInt64)
	synctest.Test(t, func(t *testing.T) {
		go limitMemory(t.Context())
		time.Sleep(2 * time.Second)
		small := debug.SetMemoryLimit(-1)
		if small < relayMemory || small > 1<<30 {
			t.Errorf("the limit is %d with little live memory", small)
		}
		held := make([]byte, 256<<20)
		runtime.GC()
		time.Sleep(2 * time.Second)
		if got := debug.SetMemoryLimit(-1); got < small+200<<20 {
			t.Errorf("the limit is %d with 256 MiB more live memory than at %d", got, small)
		}
		runtime.KeepAlive(held)
		held = nil
		runtime.GC()
		time.Sleep(2 * time.Second)
		if got := debug.SetMemoryLimit(-1); got > small*3/2 {
			t.Errorf("the limit is still %d", got)
		}
	})
}
