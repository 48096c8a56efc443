package relay

import (
	"fmt"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/capture"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A backlog is read in queries that return most of the rows that the database reads for them;
// without a backlog all streams of a group share a query.
func TestTail_ReadsABacklogForLittleMoreThanItReturns(t *testing.T) {
	t.Parallel()
	for streams, events := range map[int]int{2: 2500, 32: 3000, 256: 1500} {
		t.Run(fmt.Sprintf("%d events in %d streams", events, streams), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				costs := new(engine.ReadCosts)
				w := newWorld(t, scyllafake.Config{Version: "5.1", Tokens: streams, Costs: costs}, func(c *Config) {
					wideWindow(c)
					c.TailMaxInterval = time.Second
				})
				defer w.close()
				time.Sleep(time.Minute) // the CDC generation has begun
				for i := 0; i < events; {
					b := w.session.Batch(gocql.LoggedBatch)
					for range 100 {
						if err := outbox.Append(b, relaytest.Event(i, 1, "OrderCreated")); err != nil {
							t.Fatal(err)
						}
						i++
					}
					if err := b.Exec(); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(10 * time.Second) // beyond what readings read again
				readBefore, _ := costs.Rows()
				r, stop := w.run()
				found, queries := r.metrics.Found[publish.ByTail], r.metrics.capture.TailQueries.WithLabelValues("regular")
				for end := time.Now().Add(time.Minute); relaytest.Count(found) < float64(events) && time.Now().Before(end); {
					time.Sleep(100 * time.Millisecond)
				}
				read, _ := costs.Rows()
				read -= readBefore
				if got := int(relaytest.Count(found)); got != events {
					t.Errorf("the tail found %d of %d events", got, events)
				}
				if ratio := float64(read) / float64(events); ratio > 1.5 {
					t.Errorf("the database read %d rows for %d events: %.2f per event, want at most 1.5", read, events, ratio)
				}
				time.Sleep(10 * time.Second) // no row is read again from now on
				before := relaytest.Count(queries)
				time.Sleep(10 * time.Second)
				groups := (streams + capture.GroupStreams - 1) / capture.GroupStreams
				if n := int(relaytest.Count(queries) - before); n > 11*groups {
					t.Errorf("%d queries of %d groups in 10 s without rows", n, groups)
				}
				t.Logf("%d rows read, %v queries", read, relaytest.Count(queries))
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
			})
		})
	}
}
