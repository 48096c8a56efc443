package relay

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// Streams end and begin while events come in, the broker is away and the relay
// is restarted: nothing is lost, and each aggregate's events are in sequence.
func TestRelay_LosesNothingWhenStreamsChange(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		conf   scyllafake.Config
		change []func(n *faults.Node) error
	}{
		{
			name: "vnodes",
			conf: scyllafake.Config{Version: "5.1", Tokens: 4},
			change: []func(*faults.Node) error{
				func(n *faults.Node) error {
					_, err := n.NewGeneration(faults.Generation{In: 12 * time.Second, ExtraTokens: 4})
					return err
				},
				func(n *faults.Node) error {
					_, err := n.NewGeneration(faults.Generation{In: 12 * time.Second})
					return err
				},
			},
		},
		{
			name: "tablets",
			conf: scyllafake.Config{},
			change: []func(*faults.Node) error{
				func(n *faults.Node) error {
					_, err := n.Resize(faults.Resize{Keyspace: "outbox", Table: "outbox_messages", In: 12 * time.Second})
					return err
				},
				func(n *faults.Node) error {
					_, err := n.Resize(faults.Resize{Keyspace: "outbox", Table: "outbox_messages", Merge: true, In: 12 * time.Second})
					return err
				},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, tt.conf, func(c *Config) {
					c.GenerationDelay = 3 * time.Second
					c.DrainTimeout = time.Millisecond // stopped with events under way, it is as good as killed
				})
				defer w.close()
				var gone atomic.Bool
				w.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
					w.cluster.KeepControl()
					return nil, net.ErrClosed, gone.Load()
				})
				_, stop := w.run()
				all := relaytest.Events(20, 12, "OrderUpdated")
				for i, e := range all {
					switch i {
					case 40, 140:
						if err := tt.change[i/100](w.db.Faults().Node()); err != nil {
							t.Fatal(err)
						}
					case 60: // before the first change, back after it
						gone.Store(true)
					case 110:
						gone.Store(false)
					case 70, 90, 160: // in the middle of the outage, and of the second change
						if err := stop(); err != nil {
							t.Fatalf("Run() error = %v", err)
						}
						_, stop = w.run()
					}
					w.write(e)
					time.Sleep(500 * time.Millisecond)
				}
				time.Sleep(2 * time.Minute)
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
				first, repeated := firstSightings(w.consume("OrderUpdated"))
				t.Logf("%d events published twice", repeated)
				relaytest.CheckOrder(t, first, all)
				relaytest.CheckTimes(t, first)
			})
		})
	}
}

// A batch that timed out appears later, twice, with its own timestamp. Its
// event is published once, and those behind it wait for it.
func TestRelay_PublishesALateBatchOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow = Defaults().ConfidenceWindow })
		defer w.close()
		_, stop := w.run()
		all := relaytest.Events(4, 3, "OrderUpdated")
		for i, e := range all {
			if i%5 != 0 {
				w.write(e)
				continue
			}
			w.db.Faults().MustAdd(faults.BatchlogReplay(20*time.Second, 50*time.Second))
			if err := w.attempt(e); err == nil {
				t.Fatal("the batch did not time out")
			}
		}
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		got := w.consume("OrderUpdated")
		relaytest.CheckOrder(t, got, all)
		relaytest.CheckTimes(t, got)
	})
}

// attempt stores the event with a row of another partition, once.
func (w *world) attempt(e outbox.Event) error {
	b := w.session.Batch(gocql.LoggedBatch)
	if err := outbox.Append(b, e); err != nil {
		return err
	}
	b.Query("INSERT INTO relay_checkpoints (relay, table_name, updated_by, generation, stream_id) VALUES ('other', 'row', 'x', 0, 0x00)")
	return b.RetryPolicy(&gocql.SimpleRetryPolicy{NumRetries: 0}).Exec()
}
