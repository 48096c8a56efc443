package readback

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// fetched counts what clients are sent when they fetch.
type fetched struct{ bytes atomic.Int64 }

// OnBrokerRead implements kgo.HookBrokerRead.
func (f *fetched) OnBrokerRead(_ kgo.BrokerMetadata, key int16, n int, _, _ time.Duration, _ error) {
	if key == kmsg.Fetch.Int16() {
		f.bytes.Add(int64(n))
	}
}

// backShards are the read-backs of the shards of one process.
type backShards struct {
	t       testing.TB
	fetched fetched
	readers []*Reader
}

// newBackShards makes them; backs is nil if each reads for itself.
func newBackShards(t testing.TB, settings settings, count int, backs *Group) *backShards {
	t.Helper()
	s := &backShards{t: t}
	for i := range count {
		c := settings
		c.publish.Kafka = append(append([]kgo.Opt(nil), c.publish.Kafka...), kgo.WithHooks(&s.fetched))
		p, err := publish.New(&c.publish, publish.NewMetrics(prometheus.NewRegistry()), func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		store := relaytest.NewCheckpoints()
		store.First = time.Now().Add(-time.Hour)
		r := New(&c.read, NewMetrics(prometheus.NewRegistry()), store, fixedGenerations{}, p)
		own := cdclog.NewPortion(cdclog.Shard{Index: i, Count: count}, outbox.DefaultTable)
		r.Own, r.Ticket = &own, backs.Announce()
		s.readers = append(s.readers, r)
	}
	return s
}

func (s *backShards) close() {
	for _, r := range s.readers {
		r.publisher.Close()
	}
}

// run lets all of them read, and returns when they have.
func (s *backShards) run() {
	s.t.Helper()
	var wg sync.WaitGroup
	for _, r := range s.readers {
		wg.Go(func() {
			if err := r.Run(s.t.Context()); err != nil {
				s.t.Errorf("run() error = %v", err)
			}
		})
	}
	wg.Wait()
}

// check checks that shard i knows its own events, and no others.
func (s *backShards) check(i int, all []outbox.Event) {
	s.t.Helper()
	r, n := s.readers[i], 0
	for _, e := range all {
		own := r.Own.HasAggregate(e.AggregateID)
		if known, _ := r.publisher.Indexed(e.ID.UUID()); known != own {
			s.t.Errorf("shard %d: event %s known = %t, want %t", i, e.ID, known, own)
		}
		if own {
			n++
		}
	}
	if fresh := r.publisher.State().Fresh; fresh != n || n == 0 {
		s.t.Errorf("shard %d remembers %d events, want %d", i, fresh, n)
	}
}

// Shards that begin together read the topics once, and each knows the same events as if it had read
// them alone.
func TestReadBacks_OnceForAllShards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t)
		defer b.cluster.Close()
		all := relaytest.Events(400, 4, "a", "b")
		b.publishAll(all)
		var bytes []int64
		for _, x := range []struct {
			count int
			backs *Group
		}{{1, nil}, {8, nil}, {8, new(Group)}} {
			s := newBackShards(t, b.settings, x.count, x.backs)
			s.run()
			for i := range s.readers {
				s.check(i, all)
			}
			s.close()
			bytes = append(bytes, s.fetched.bytes.Load())
		}
		if one, each, together := bytes[0], bytes[1], bytes[2]; together > one*3/2 || each < one*7 {
			t.Errorf("one relay fetches %d bytes, eight shards %d each for itself and %d together", one, each, together)
		}
	})
}

// A shard that is far behind reads its own backlog, and the others do not read it too.
func TestReadBacks_OneThatIsFarBehind(t *testing.T) {
	t.Parallel()
	for _, behind := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			b := newFixture(t)
			defer b.cluster.Close()
			all := relaytest.Events(400, 4, "a", "b")
			older, newer := all[:len(all)/2], all[len(all)/2:]
			b.publishAll(older)
			time.Sleep(5 * time.Hour)
			b.publishAll(newer)
			s := newBackShards(t, b.settings, 4, new(Group))
			defer s.close()
			s.readers[behind].Store.(*relaytest.Checkpoints).First = time.Now().Add(-6 * time.Hour)
			s.run()
			for i := range s.readers {
				if i == behind {
					s.check(i, all)
					continue
				}
				s.check(i, newer)
			}
		})
	}
}

// The memory of a start is bounded by the part that the other shards of its process leave, at least
// by its share, whether it reads alone or with others; its memory counts for shards that begin
// after it.
func TestReadBacks_BoundedByTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const whole, share = 24_000, 7_500 // three quarters of dedup.LeastEvents
		b := newFixture(t)
		defer b.cluster.Close()
		all := relaytest.Events(2000, 10, "a", "b")
		for some := range slices.Chunk(all, 500) {
			b.publishAll(some) // batches are small, because a batch is read as a whole
		}
		for _, x := range []struct {
			name       string
			shards     int
			backs      *Group
			held       int // by another shard
			most, left int // of each, and for one that begins after them
		}{
			{"alone", 1, nil, 0, 18_000, 18_000},
			{"alone, little room", 1, nil, whole, 18_000, share},
			{"alone, no room", 1, nil, 2 * whole, 9000, share},
			{"together, little room", 2, new(Group), whole, 18_000, share},
			{"together, no room", 2, new(Group), 2 * whole, share, share},
		} {
			pool := new(dedup.Pool)
			s := newBackShards(t, b.settings, x.shards, x.backs)
			another, next := pool.Share(whole, 0), pool.Share(whole, 0)
			another.Join()
			another.Hold(x.held)
			for _, r := range s.readers {
				cfg := *r.cfg
				r.cfg = &cfg
				cfg.Share = pool.Share(whole, 0)
				cfg.Share.Join()
			}
			s.run()
			for i, r := range s.readers {
				n := 0
				for _, e := range all {
					if r.Own.HasAggregate(e.AggregateID) {
						n++
					}
				}
				if got, want := r.publisher.State().Fresh, min(n, x.most); got > want+1000 || got < want*9/10 {
					t.Errorf("%s: shard %d remembers %d of %d events, want %d", x.name, i, got, n, want)
				}
			}
			next.Join()
			if got := next.ReadBack(); got != x.left {
				t.Errorf("%s: the next one may remember %d events, want %d", x.name, got, x.left)
			}
			s.close()
		}
	})
}

// The one that reads for the others may end in the middle; one that has begun may never
// come, and another one may have more to remember than it may.
func TestReadBacks_WhoeverDoesNotGoAlong(t *testing.T) {
	t.Parallel()
	all := relaytest.Events(400, 4, "a", "b")
	for _, what := range []string{"the reader ends", "one never comes", "one has too much", "all end"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newFixture(t)
				defer b.cluster.Close()
				b.publishAll(all)
				backs := new(Group)
				s := newBackShards(t, b.settings, 4, backs)
				defer s.close()
				var held atomic.Bool
				if what == "the reader ends" || what == "all end" {
					held.Store(true)
					b.cluster.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
						b.cluster.KeepControl()
						return nil, errors.New("the connection is cut"), held.Load()
					})
				}
				last := 4
				var said strings.Builder
				switch what {
				case "one never comes":
					last = 3
				case "one has too much":
					s.readers[2].cfg.Share = new(dedup.Pool).Share(40, 0) // 30 of some 400
					s.readers[2].log = slog.New(slog.NewTextHandler(&said, nil))
				}
				ctxs, ends := make([]context.Context, last), make([]context.CancelFunc, last)
				ended := make([]chan error, last)
				for i := range last {
					ctxs[i], ends[i] = context.WithCancel(t.Context())
					defer ends[i]()
					ended[i] = make(chan error, 1)
					go func() { ended[i] <- s.readers[i].Run(ctxs[i]) }()
					synctest.Wait()
				}
				gone := -1
				switch what {
				case "the reader ends":
					time.Sleep(time.Hour)
					backs.mu.Lock()
					for i, r := range s.readers {
						if r.leader == r {
							gone = i
						}
					}
					backs.mu.Unlock()
					if gone < 0 {
						t.Fatal("nobody reads for the others")
					}
					if running, err := s.readers[(gone+1)%4].State(); !running || err == nil {
						t.Errorf("state() of one that waits = %t, %v, want it running, and why it does not get on", running, err)
					}
					ends[gone]()
					time.Sleep(time.Minute)
					held.Store(false)
				case "all end":
					time.Sleep(10 * time.Second)
					for _, end := range ends {
						end()
					}
				}
				for i := range last {
					err := <-ended[i]
					switch {
					case what == "all end" || i == gone:
						if err == nil {
							t.Errorf("shard %d: run() error = nil, want that it ended", i)
						}
					case err != nil:
						t.Errorf("shard %d: run() error = %v", i, err)
					case what == "one has too much" && i == 2:
						fresh := s.readers[i].publisher.State().Fresh
						if text := said.String(); fresh == 0 || !strings.Contains(text, "more events were published since the last checkpoint than the dedup index holds") {
							t.Errorf("the one with little room remembers %d events, and says %q; want that it lets go of the oldest", fresh, text)
						}
					default:
						s.check(i, all)
					}
				}
				if len(backs.waiting) > 0 || backs.asked {
					t.Errorf("%d wait still, one asked = %t", len(backs.waiting), backs.asked)
				}
			})
		})
	}
}

// BenchmarkReadBacks is a start of eight shards of a process after 200,000 events, on a broker on
// loopback: each for itself, and together. The wait for quiet is included.
func BenchmarkReadBacks(b *testing.B) {
	const n, shards = 200_000, 8
	cluster := world.StartBroker(b, kfake.SeedTopics(6, "OrderCreated", "OrderUpdated"))
	settings := newSettings(slog.New(slog.DiscardHandler), map[string]string{"a": "OrderCreated", "b": "OrderUpdated"},
		cluster.ListenAddrs(), kgo.Dialer(new(net.Dialer).DialContext))
	p, err := publish.New(&settings.publish, publish.NewMetrics(prometheus.NewRegistry()), func(err error) { b.Error(err) })
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	for _, e := range relaytest.Events(n/2, 2, "OrderCreated", "OrderUpdated") {
		if err := p.Submit(b.Context(), cdclog.StoredEvent{Event: e}, publish.BySweep, publish.Settlement{}); err != nil {
			b.Fatal(err)
		}
	}
	p.Drain(b.Context())
	settings.read.Share = new(dedup.Pool).Share(1_000_000/shards, 0)
	took := make(map[bool]time.Duration)
	bytes := make(map[bool]int64)
	for b.Loop() {
		for _, together := range []bool{false, true} {
			var backs *Group
			if together {
				backs = new(Group)
			}
			s := newBackShards(b, settings, shards, backs)
			began := time.Now()
			s.run()
			took[together] += time.Since(began)
			known := 0
			for _, r := range s.readers {
				known += r.publisher.State().Fresh
			}
			if known != n {
				b.Fatalf("%d events are known, want %d", known, n)
			}
			bytes[together] += s.fetched.bytes.Load()
			s.close()
		}
	}
	runs := float64(b.N)
	b.ReportMetric(took[false].Seconds()/runs, "s-each")
	b.ReportMetric(took[true].Seconds()/runs, "s-together")
	b.ReportMetric(float64(bytes[false])/runs/1e6, "MB-each")
	b.ReportMetric(float64(bytes[true])/runs/1e6, "MB-together")
	b.ReportMetric(float64(took[false])/float64(took[true]), "times-quicker")
}
