package relay

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// inBubble runs a test with a database under virtual time.
var inBubble = scyllatest.Bubble

// eachVersion runs f in a bubble for each of scyllatest.Versions.
func eachVersion(t *testing.T, f func(t *testing.T, conf scyllafake.Config)) {
	t.Helper()
	scyllatest.EachVersion(t, func(t *testing.T, conf scyllafake.Config) {
		inBubble(t, func(t *testing.T) { f(t, conf) })
	})
}

// world is a database, a broker and a relay between them, in one bubble.
type world struct {
	*fixture
	db      *scyllafake.Server
	session *gocql.Session
	// prefetched is for tests whose reads have several pages: a prefetch holds a lock while it
	// waits, and virtual time does not advance unless the driver writes immediately.
	prefetched bool
	// unreached refuses connections to the broker; kafkaConns are those there are.
	unreached  atomic.Bool
	mu         sync.Mutex
	kafkaConns []net.Conn
}

// connect connects to the database over memory. Outages of the database are
// simulated in test/sim: the driver sleeps with a lock held when it loses connections, and virtual
// time does not advance unless queries are gated.
func (w *world) connect(keyspace string) *gocql.Session {
	w.t.Helper()
	return relaytest.Connect(w.t, w.db, keyspace, w.prefetched)
}

func newWorld(t *testing.T, conf scyllafake.Config, change func(*Config), opts ...kfake.Opt) *world {
	t.Helper()
	conf.Seed = seeds.Of(t)
	db, err := scyllafake.Start(conf)
	if err != nil {
		t.Fatalf("Start() error = %v", err)
	}
	w := &world{db: db, prefetched: conf.Costs != nil}
	w.fixture = setup(t, func(c *Config) {
		c.Keyspace = "outbox"
		c.ConfidenceWindow, c.BusyDelay, c.IdleDelay = 2*time.Second, 500*time.Millisecond, 2*time.Second
		c.RestartDelay = time.Second
		c.TailMaxInterval = time.Second // hours of virtual time have few polls
		c.Kafka = append(c.Kafka, kgo.Dialer(w.dialKafka))
		if change != nil {
			change(c)
		}
	}, opts...)
	w.publisher.Close() // the relay makes its own
	relaytest.Migrate(t, db)
	w.session = w.connect("outbox")
	return w
}

func (w *world) close() {
	w.session.Close()
	w.cluster.Close()
	if err := w.db.Close(); err != nil {
		w.t.Errorf("Close() error = %v", err)
	}
	time.Sleep(time.Minute) // timers of the clients
}

// run runs a relay until stop, which waits for its end and returns its error.
func (w *world) run() (r *Relay, stop func() error) {
	w.t.Helper()
	cfg := w.cfg
	cfg.Session, cfg.Registerer = w.session, nil
	r, err := New(cfg)
	if err != nil {
		w.t.Fatalf("New() error = %v", err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return r, func() error {
		cancel()
		return <-done
	}
}

// write stores the event as a service does.
func (w *world) write(e outbox.Event) {
	w.t.Helper()
	w.writeAt(e, time.Time{})
}

// writeAt is write with a write time, unless that is zero.
func (w *world) writeAt(e outbox.Event, at time.Time) {
	w.t.Helper()
	b := w.session.Batch(gocql.LoggedBatch)
	if !at.IsZero() {
		b.WithTimestamp(at.UnixMicro())
	}
	if err := outbox.Append(b, e); err != nil {
		w.t.Fatal(err)
	}
	if err := b.Exec(); err != nil {
		w.t.Fatalf("write %s: %v", e.ID, err)
	}
}

func TestRelay_CarriesEventsAndResumes(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, conf scyllafake.Config) {
		w := newWorld(t, conf, nil)
		defer w.close()
		all := relaytest.Events(10, 3, "OrderCreated", "OrderUpdated", "OrderCancelled")
		for _, e := range all[:15] {
			w.write(e)
		}
		r, stop := w.run()
		for _, e := range all[15:] {
			w.write(e)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		streams := 4 // one for each vnode
		if conf.Version == "" && !conf.Vnodes {
			streams = 16 // one for each tablet
		}
		if s := r.Status(); len(s.Problems) > 0 || s.Streams != streams || s.InFlight != 0 {
			t.Errorf("Status() = %+v, want %d streams, nothing in flight, no problems", s, streams)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		topics := []string{"OrderCreated", "OrderUpdated", "OrderCancelled"}
		relaytest.CheckOrder(t, w.consume(topics...), all)

		// The next one begins where this one ended.
		_, stop = w.run()
		more := relaytest.Event(3, 4, "OrderUpdated")
		w.write(more)
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		got := w.consume(topics...)
		relaytest.CheckOrder(t, got, append(all, more))
		relaytest.CheckTimes(t, got)
	})
}

// Orders come in while the broker is gone for two hours; all of them arrive afterwards; in the
// meantime memory stays bounded and the relay reports the problem.
func TestRelay_SurvivesTwoHoursWithoutABroker(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.MaxInFlightRecords = 100
			c.BusyDelay, c.IdleDelay = 5*time.Second, 20*time.Second
		})
		defer w.close()
		topics := []string{"OrderCreated", "OrderUpdated"}
		w.cfg.Topics = map[string]string{"OrderCreated": topics[0], "OrderUpdated": topics[1]}
		var gone atomic.Bool
		r, stop := w.run()
		all := relaytest.Events(20, 30, topics...)
		for i, e := range all {
			w.write(e)
			switch i {
			case 10:
				gone.Store(true)
				w.cluster.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
					w.cluster.KeepControl()
					return nil, net.ErrClosed, gone.Load()
				})
			case 500:
				if s := r.Status(); s.InFlight > 100 || len(s.Problems) == 0 {
					t.Errorf("Status() during the outage = %+v, want at most 100 in flight, and problems", s)
				}
			}
			time.Sleep(12 * time.Second)
		}
		gone.Store(false)
		time.Sleep(10 * time.Minute)
		if s := r.Status(); len(s.Problems) > 0 {
			t.Errorf("Status() after the outage: %v", s.Problems)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		got := w.consume(topics...)
		relaytest.CheckOrder(t, got, all)
		relaytest.CheckTimes(t, got)
	})
}
