package relay

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/schema"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

const (
	liveRate    = 1000 // events per second
	liveType    = "Live"
	liveTimeout = 5 * time.Minute // for whatever is waited for
)

// liveWorld is a database in memory, a broker on loopback and, once it is
// started, a relay between them, in real time.
type liveWorld struct {
	b       *testing.B
	db      *scyllafake.Server
	session *gocql.Session
	store   *dlq.Store // of another process than the relay
	brokers []string
	relay   *Relay
}

func newLiveWorld(b *testing.B) *liveWorld {
	b.Helper()
	// The driver's pools may hold channels of the tests' bubbles; see scyllatest.Bubble.
	runtime.GC()
	runtime.GC()
	db, err := scyllafake.Start(scyllafake.Config{Tokens: 4})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	w := &liveWorld{b: b, db: db, brokers: startBenchBroker(b, liveType, replayedType)}
	if err := schema.Migrate(b.Context(), w.connect(""), schema.Options{}); err != nil {
		b.Fatal(err)
	}
	w.session = w.connect(schema.DefaultKeyspace)
	if w.store, err = dlq.Open(w.session, schema.DefaultKeyspace); err != nil {
		b.Fatal(err)
	}
	return w
}

func (w *liveWorld) connect(keyspace string) *gocql.Session {
	w.b.Helper()
	cluster := gocql.NewCluster("127.0.0.1")
	cluster.Dialer, cluster.Keyspace, cluster.Timeout = w.db, keyspace, time.Minute
	cluster.Logger = log.New(io.Discard, "", 0)
	s, err := cluster.CreateSession()
	if err != nil {
		w.b.Fatal(err)
	}
	w.b.Cleanup(s.Close)
	return s
}

// start runs a relay with its defaults, but for what change changes, until the
// benchmark ends.
func (w *liveWorld) start(change func(*Config)) {
	w.b.Helper()
	cfg := Config{
		Session: w.connect(schema.DefaultKeyspace), Keyspace: schema.DefaultKeyspace, Brokers: w.brokers,
		LoadMeter: testworld.Idle{},
	}
	change(&cfg)
	r, err := New(cfg)
	if err != nil {
		w.b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	w.b.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			w.b.Errorf("Run() error = %v", err)
		}
	})
	w.relay = r
	w.until("the relay reads", func() bool { return r.Status().Reading })
}

// until waits for something that comes by itself.
func (w *liveWorld) until(what string, ok func() bool) {
	w.b.Helper()
	for end := time.Now().Add(liveTimeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.b.Fatalf("not within %s: %s", liveTimeout, what)
		}
	}
}

// openLoop begins f(i) at a fixed rate, whatever the ones before take, until ctx
// ends, and waits for all. at is when it was to begin.
func openLoop(ctx context.Context, rate int, f func(i int, at time.Time)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	began := time.Now()
	for i := 0; ; i++ {
		at := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
		if retry.Wait(ctx, time.Until(at)) != nil || ctx.Err() != nil {
			return
		}
		wg.Go(func() { f(i, at) })
	}
}

// liveLoad writes events at liveRate and notes when a consumer has them.
type liveLoad struct {
	w    *liveWorld
	stop func() // ends the load and waits until all of it arrived

	mu   sync.Mutex
	came map[int]liveEvent
	seen atomic.Int64
}

// liveEvent is when an event was to be written, and when a consumer had it.
type liveEvent struct{ intended, came time.Time }

// load begins a load, and returns when the first of it has arrived.
func (w *liveWorld) load() *liveLoad {
	w.b.Helper()
	l := &liveLoad{w: w, came: make(map[int]liveEvent)}
	client, err := kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.ConsumeTopics(liveType), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		w.b.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	var consuming, writing sync.WaitGroup
	consuming.Go(func() { l.consume(client) })
	var written atomic.Int64
	writing.Go(func() {
		openLoop(ctx, liveRate, func(i int, at time.Time) {
			if err := l.write(i, at); err != nil {
				w.b.Errorf("write event %d: %v", i, err)
				return
			}
			written.Add(1)
		})
	})
	l.stop = sync.OnceFunc(func() {
		end()
		writing.Wait()
		w.until("all events of the load arrive", func() bool { return l.seen.Load() >= written.Load() })
		client.Close()
		consuming.Wait()
		if n := int64(len(l.came)); n != written.Load() || n != l.seen.Load() {
			w.b.Errorf("%d events were written, %d arrived, %d records", written.Load(), n, l.seen.Load())
		}
	})
	w.b.Cleanup(func() { // of a benchmark that failed
		end()
		writing.Wait()
		client.Close()
		consuming.Wait()
	})
	w.until("the first second of the load arrives", func() bool { return l.seen.Load() >= liveRate })
	return l
}

func (l *liveLoad) write(i int, at time.Time) error {
	e := relaytest.BenchEvent(i)
	e.Type, e.CreatedAt = liveType, at
	e.Payload = binary.BigEndian.AppendUint64(nil, uint64(i))
	e.Payload = binary.BigEndian.AppendUint64(e.Payload, uint64(at.UnixNano()))
	e.Payload = append(e.Payload, relaytest.BenchPayload...)
	b := l.w.session.Batch(gocql.LoggedBatch)
	if err := outbox.Append(b, e); err != nil {
		return err
	}
	return b.Exec()
}

func (l *liveLoad) consume(client *kgo.Client) {
	for {
		fetches := client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		now := time.Now()
		l.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			i := binary.BigEndian.Uint64(r.Value)
			l.came[int(i)] = liveEvent{time.Unix(0, int64(binary.BigEndian.Uint64(r.Value[8:]))), now}
			l.seen.Add(1)
		})
		l.mu.Unlock()
	}
}

// window is a stretch of time.
type window struct{ from, to time.Time }

func (w window) has(t time.Time) bool { return !t.Before(w.from) && t.Before(w.to) }

// during is how many events per second arrived in the windows, and how long
// those took that were to be written in them. It is called after stop.
func (l *liveLoad) during(windows []window) (rate float64, took []time.Duration) {
	var length time.Duration
	arrived := 0
	for _, w := range windows {
		length += w.to.Sub(w.from)
		for _, e := range l.came {
			if w.has(e.came) {
				arrived++
			}
			if w.has(e.intended) {
				took = append(took, e.came.Sub(e.intended))
			}
		}
	}
	slices.Sort(took)
	return float64(arrived) / length.Seconds(), took
}

// percentile of sorted times, in milliseconds.
func percentile(sorted []time.Duration, p int) float64 {
	return float64(sorted[(len(sorted)-1)*p/100].Microseconds()) / 1000
}

// benchDeadLetters are n dead letters in chains of four: the first of each waits for its
// next attempt in an hour, the others behind it. The first has the number first.
func (w *liveWorld) benchDeadLetters(first, n int) []*dlq.DeadLetter {
	const chain = 4
	now := time.Now().UTC()
	out := make([]*dlq.DeadLetter, n)
	for i := range out {
		k := first + i
		agg := relaytest.BenchID(9, k/chain)
		l := &dlq.DeadLetter{
			Table: schema.DefaultKeyspace + "." + Defaults().Table, EventID: relaytest.BenchID(8, k), AggregateID: agg.String(), AggregateType: "bench",
			EventType: replayedType, Sequence: int64(k%chain + 1), Payload: relaytest.BenchPayload, Headers: relaytest.BenchHeaders, CreatedAt: now,
			WrittenAt: now.UnixMicro(), Topic: replayedType, Metadata: map[string]string{"relay": Defaults().Name, "host": "bench"},
			Status: dlq.Pending, Attempts: 5, ErrorClass: chains.ClassAttemptsUsed, ErrorText: "not acknowledged in 5 attempts",
			Strategy: dlq.StrategyImmediate, Rule: "transient", NextAttempt: now.Add(time.Hour),
		}
		if k%chain > 0 {
			l.Status, l.ErrorClass, l.ErrorText, l.Attempts = dlq.Blocked, chains.ClassBehind, publish.ErrBehind.Error(), 0
			l.Strategy, l.Rule, l.NextAttempt = dlq.StrategyFollow, "", time.Time{}
		}
		out[i] = l
	}
	return out
}

// storeDeadLetters stores dead letters, 32 at a time.
func (w *liveWorld) storeDeadLetters(ls []*dlq.DeadLetter) {
	w.b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for range 32 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(ls) && failed.Load() == nil; i = int(next.Add(1)) - 1 {
				if _, err := w.store.Write(context.Background(), ls[i]); err != nil {
					err = fmt.Errorf("store dead letter %d: %w", i, err)
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		w.b.Fatal(*err)
	}
}
