package relay

import (
	"fmt"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A service that finds the last change of an aggregate unfinished writes its event again:
// the row has the same id and a later write time. The relay published it hours ago.
func TestRewritten(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	for _, tt := range []struct {
		name       string
		remembered int64         // 0 is the default
		delay      time.Duration // the broker is away for so long after the first write
		before     bool          // the relay is restarted before the row is written again
		restart    bool          // and after that, before the next event of the aggregate
		first      bool          // the row of the first event of the aggregate is written again
		soon       time.Duration // it is written again so soon after the first write; 0 is an hour later
		ahead      time.Duration // the clock of the service, of the broker's
		others     bool          // an event that was published late is written again many times
	}{
		{name: "others were published late, and the relay is restarted before", before: true, others: true},
		{name: "the service's clock is ahead, and the relay is restarted before", before: true, first: true, ahead: 8 * time.Second},
		{name: "written again soon, and the relay is restarted later", soon: 31 * time.Second, restart: true},
		{name: "the id is forgotten", remembered: 40},
		{name: "the relay is restarted before", before: true},
		{name: "the relay is restarted later", restart: true},
		{name: "forgotten and restarted", remembered: 40, restart: true},
		{name: "the first event, the id and the aggregate are forgotten", remembered: 40, first: true},
		{name: "the first event, the relay is restarted before", before: true, first: true},
		{name: "published late, and the relay is restarted later", delay: 10 * time.Minute, restart: true},
	} {
		for _, tail := range []string{TailOff, TailOn} {
			t.Run(fmt.Sprint(tt.name, "/tail ", tail), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
						wideWindow(c)
						c.Tail, c.TailMaxInterval, c.WhenOpen = tail, 2*time.Second, WhenOpenHold
						if tt.first {
							c.MaxAggregates = 20
						}
						if tt.remembered > 0 {
							c.DedupMemory = tt.remembered * dedup.BytesPerEvent
						}
					})
					defer w.close()
					_, stop := w.run()
					time.Sleep(time.Minute)
					var all []outbox.Event
					write := func(aggregate int, seq int64) outbox.Event {
						e := relaytest.Event(aggregate, seq, "OrderUpdated")
						e.CreatedAt = e.CreatedAt.Add(tt.ahead)
						w.write(e)
						all = append(all, e)
						return e
					}
					var late outbox.Event
					if tt.others {
						back := w.brokerOutage()
						late = write(99, 1)
						time.Sleep(2 * time.Minute)
						back()
					}
					first := write(0, 1)
					time.Sleep(10 * time.Minute)
					if tt.delay > 0 {
						back := w.brokerOutage()
						time.AfterFunc(tt.delay, back)
					}
					e := first
					if !tt.first {
						e = write(0, 2)
					}
					if tt.soon > 0 {
						time.Sleep(tt.soon)
						w.write(e)
					}
					time.Sleep(tt.delay + 10*time.Minute)
					for i := range 60 {
						write(1+i, 1)
						time.Sleep(time.Minute)
					}
					time.Sleep(10 * time.Minute)
					restart := func() {
						if err := stop(); err != nil {
							t.Error(err)
						}
						time.Sleep(time.Hour)
						_, stop = w.run()
						time.Sleep(10 * time.Minute)
					}
					if tt.before {
						restart()
					}
					for i := 0; tt.others && i < 12; i++ {
						w.write(late)
						time.Sleep(5 * time.Minute)
					}
					if tt.soon == 0 {
						w.write(e)
					}
					time.Sleep(10 * time.Minute)
					if tt.restart {
						restart()
					}
					write(0, e.Sequence+1)
					time.Sleep(10 * time.Minute)
					if err := stop(); err != nil {
						t.Error(err)
					}
					w.once(all, "OrderUpdated")
				})
			})
		}
	}
}

// A row is written again less than a minute after its event was created and published, and
// the checkpoint of a restart lies in between: the start does not read the event's record
// back.
func TestRewritten_AcrossACheckpoint(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for _, behind := range []time.Duration{0, time.Hour} { // the clock that dates records
		for _, tail := range []string{TailOff, TailOn} { // of the second run
			t.Run(fmt.Sprintf("clock behind by %s, tail %s", behind, tail), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.IdleCheckpoint = 5 * time.Second })
					defer w.close()
					clock := w.db.Faults().Clock()
					clock.SetSkew(behind)
					_, stop := w.run()
					time.Sleep(5 * time.Minute) // beyond the generations of the start
					e := relaytest.Event(1, 1, "OrderUpdated")
					e.CreatedAt = clock.Now()
					w.writeAt(e, clock.Now())
					time.Sleep(5 * time.Second)
					if err := stop(); err != nil {
						t.Error(err)
					}
					time.Sleep(35 * time.Second)
					w.skipLog()
					time.Sleep(10 * time.Second)
					w.writeAt(e, clock.Now())
					w.cfg.Tail = tail
					_, stop = w.run()
					time.Sleep(10 * time.Minute)
					if err := stop(); err != nil {
						t.Error(err)
					}
					w.once([]outbox.Event{e}, "OrderUpdated")
				})
			})
		}
	}
}
