package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/earlier"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// recordClock dates records like a host (CreateTime) or a broker (LogAppendTime) whose clock
// differs from the clocks of the writers.
type recordClock struct{ ahead time.Duration }

func (c *recordClock) OnProduceRecordBuffered(r *kgo.Record) {
	r.Timestamp = time.Now().Add(c.ahead).Truncate(time.Millisecond)
}

// Clean restarts publish nothing twice, whatever the clock that dates records shows, also if
// only some of the relays have the wrong one. The relay reports one that is behind.
func TestReadback_RecordClockDiffers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		clocks []time.Duration // of one relay after the other
		report bool            // by the last relay
		turns  bool            // each relay has the clock of the next one for the second half of its life
	}{
		{"20s behind", []time.Duration{-20 * time.Second}, false, false},
		{"90s behind", []time.Duration{-90 * time.Second}, true, false},
		{"an hour behind", []time.Duration{-time.Hour}, true, false},
		{"an hour ahead", []time.Duration{time.Hour}, false, false},
		{"an hour behind, then right", []time.Duration{-time.Hour, 0, 0, 0}, true, false}, // its records are still near
		{"right, then an hour behind", []time.Duration{0, -time.Hour, 0, -time.Hour}, true, false},
		{"an hour ahead, then behind", []time.Duration{time.Hour, -time.Hour, time.Hour}, true, false},
		// As where message.timestamp.type of the topic is changed, and the clock of its brokers is off.
		{"an hour behind from the midst of a life on", []time.Duration{0, -time.Hour}, true, true},
		{"an hour ahead from the midst of a life on", []time.Duration{0, time.Hour}, false, true},
		{"an hour behind, and ahead from the midst of a life on", []time.Duration{-time.Hour, time.Hour}, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				clock := new(recordClock)
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.ConfidenceWindow = 2 * time.Minute
					c.Kafka = append(c.Kafka, kgo.WithHooks(clock))
				})
				defer w.close()
				const topic = "OrderCreated"
				n, reported := 0, false
				for i := range 4 {
					clock.ahead = tt.clocks[i%len(tt.clocks)]
					r, stop := w.run()
					for j := range 100 {
						if j == 50 && tt.turns {
							clock.ahead = tt.clocks[(i+1)%len(tt.clocks)]
						}
						n++
						w.write(relaytest.Event(n/3, int64(n%3+1), topic))
						time.Sleep(time.Second)
					}
					reported = strings.Contains(strings.Join(r.Status().Problems, " "), "before their events were created")
					if err := stop(); err != nil {
						t.Fatal(err)
					}
				}
				seen, twice := make(map[gocql.UUID]int), 0
				for _, d := range w.consume(topic) {
					if seen[d.ID.UUID()]++; seen[d.ID.UUID()] == 2 {
						twice++
					}
				}
				if twice > 0 || len(seen) != n {
					t.Errorf("%d of %d events are in the topic, %d twice after clean restarts", len(seen), n, twice)
				}
				if reported != tt.report {
					t.Errorf("the last relay reports the clock: %t, want %t", reported, tt.report)
				}
			})
		})
	}
}

// An event whose record has a time long before its row is found.
func TestProofs_RecordClockBehind(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		clock := &recordClock{ahead: -time.Hour}
		b := setup(t, func(c *Config) { c.Kafka = append(c.Kafka, kgo.WithHooks(clock)) })
		defer b.close()
		row := cdclog.StoredEvent{Event: relaytest.Event(1, 1, "OrderUpdated"), Written: time.Now().UnixMicro()}
		for i := range 20 {
			b.submit(relaytest.Event(100+i, 1, "OrderUpdated"), nil)
		}
		b.submit(row.Event, nil)
		b.drain(time.Minute)
		clock.ahead = 0
		time.Sleep(3 * time.Hour)
		var later []outbox.Event
		for i := range 20 {
			later = append(later, relaytest.Event(200+i, 1, "OrderUpdated"))
			b.submit(later[i], nil)
		}
		b.drain(time.Minute)
		d, end := b.later(t)
		defer end()
		if got, err := d.Prove(t.Context(), &row, false); got != earlier.Published || err != nil {
			t.Errorf("Prove() = %v, %v, want it published", got, err)
		}
	})
}
