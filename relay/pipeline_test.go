package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	scyllacdc "github.com/scylladb/scylla-cdc-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/capture"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// change is one event's change in the log of a stream.
type change struct {
	time  gocql.UUID
	event outbox.Event
}

// model is a database: the outbox table and its log.
type model struct {
	generation time.Time
	streams    [][]change // in log order
	table      map[gocql.UUID][]cdclog.StoredEvent
}

// newModel writes an outbox as writers with several clocks do: now and then a
// later event has an earlier time, and rows come twice.
func newModel(rnd *rand.Rand, streams, aggregates, length int) *model {
	m := &model{generation: time.Now().UTC().Add(-time.Hour), streams: make([][]change, streams), table: make(map[gocql.UUID][]cdclog.StoredEvent)}
	types := []string{"OrderCreated", "OrderUpdated", "OrderCancelled"}
	for a := range aggregates {
		at := m.generation.Add(time.Duration(1+rnd.IntN(600_000)) * time.Millisecond)
		for seq := range length {
			e := relaytest.Event(a, int64(seq+1), types[min(seq, rnd.IntN(3))])
			written := at
			if seq > 0 && rnd.IntN(5) == 0 {
				written = at.Add(-time.Duration(rnd.IntN(200)) * time.Millisecond)
			}
			m.table[e.AggregateID.UUID()] = append(m.table[e.AggregateID.UUID()], cdclog.StoredEvent{Event: e, Written: written.UnixMicro(), Err: nil})
			copies := 1
			if rnd.IntN(10) == 0 {
				copies += 1 + rnd.IntN(3) // replayed from the batchlog
			}
			for range copies {
				m.streams[a%streams] = append(m.streams[a%streams], change{timeUUID(rnd, written), e})
			}
			at = at.Add(time.Duration(1+rnd.IntN(2000)) * time.Millisecond)
		}
	}
	for _, s := range m.streams {
		slices.SortFunc(s, func(a, b change) int { return scyllacdc.CompareTimeUUID(a.time, b.time) })
	}
	return m
}

// timeUUID is a cdc$time: the write time, and low bits at random.
func timeUUID(rnd *rand.Rand, t time.Time) gocql.UUID {
	u := gocql.MinTimeUUID(t)
	for i := 8; i < 16; i++ {
		u[i] = byte(rnd.Uint32())
	}
	return u
}

func (m *model) lookup(_ context.Context, of *outbox.Event, from, to int64, each func(cdclog.StoredEvent) error) error {
	for _, e := range m.table[of.AggregateID.UUID()] {
		if from <= e.Sequence && e.Sequence < to {
			if err := each(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *model) streamID(i int) scyllacdc.StreamID {
	return scyllacdc.StreamID(fmt.Sprint("stream", i))
}

// modelSource is the model's only generation.
type modelSource struct{ m *model }

func (s modelSource) Times(context.Context) ([]time.Time, error) {
	return []time.Time{s.m.generation}, nil
}

func (s modelSource) Generation(context.Context, time.Time) (*cdclog.Generation, error) {
	g := &cdclog.Generation{Start: s.m.generation}
	for i := range s.m.streams {
		g.Streams = append(g.Streams, s.m.streamID(i))
	}
	return g, nil
}

func (m *model) events() []outbox.Event {
	var out []outbox.Event
	for _, rows := range m.table {
		for _, e := range rows {
			out = append(out, e.Event)
		}
	}
	return out
}

// process is one life of a relay over the model.
type process struct {
	publisher *publish.Publisher
	streams   *checkpoint.Streams
	readback  *readback.Reader
	done      chan struct{}
	stop      context.CancelFunc
}

// start reads the topics back and then every stream from its checkpoint to the
// end, as the library does.
func start(b *fixture, m *model, store checkpoint.Store, pace time.Duration) *process {
	ms := newMetrics(prometheus.NewRegistry())
	p, err := publish.New(b.cfg.publish(), ms.Metrics, func(err error) { b.t.Errorf("fatal: %v", err) })
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.t.Context())
	pr := &process{publisher: p, streams: checkpoint.NewStreams(store, b.cfg.MaxStreamBacklog, b.cfg.Logger, prometheus.NewRegistry()), done: make(chan struct{}), stop: stop}
	reading := b.cfg.capture()
	reading.GapWait, reading.RetryMin = time.Second, time.Millisecond
	seq := capture.NewSequencer(ctx, reading, ms.capture, p, m.lookup)
	pr.readback = readback.New(b.cfg.readback(), ms.readBack, store, modelSource{m}, p)
	manager := checkpoint.NewManager(store, pr.streams, b.cfg.Logger, nil)
	var wg sync.WaitGroup
	wg.Go(func() { _ = pr.streams.Run(ctx, 500*time.Millisecond, 5*time.Second) })
	var readers sync.WaitGroup
	ready := make(chan struct{})
	readers.Go(func() {
		if err := pr.readback.Run(ctx); err == nil {
			close(ready)
		} else if ctx.Err() == nil {
			b.t.Errorf("read-back: %v", err)
		}
	})
	for i, rows := range m.streams {
		id := m.streamID(i)
		from, err := manager.GetProgress(ctx, m.generation, "t", id)
		if err != nil {
			b.t.Fatal(err)
		}
		progress := pr.streams.Begin(id)
		pages := capture.NewSweptPages(seq, progress, nil)
		readers.Go(func() {
			select {
			case <-ready:
			case <-ctx.Done():
				return
			}
			for _, row := range rows {
				if scyllacdc.CompareTimeUUID(row.time, from.LastProcessedRecordTime) <= 0 {
					continue
				}
				if err := pages.Add(ctx, row.time, []cdclog.StoredEvent{{Event: row.event, Written: cdclog.WriteTime(row.time), Err: nil}}); err != nil {
					return
				}
				if retry.Wait(ctx, pace) != nil {
					return
				}
			}
			_ = pages.Idle(ctx, gocql.MinTimeUUID(m.generation.Add(time.Hour))) // an error means that ctx has ended
		})
	}
	go func() {
		readers.Wait()
		close(pr.done)
		wg.Wait()
	}()
	return pr
}

// kill ends the process without a word: nothing is drained, nothing saved.
func (p *process) kill() {
	p.stop()
	p.publisher.Close()
	<-p.done
}

// However the broker behaves and whenever the relay dies, no event is lost, no checkpoint is ahead
// of the events in the topics, and each aggregate's events first appear in sequence.
func TestPipeline_SurvivesCrashes(t *testing.T) {
	t.Parallel()
	for seed := range seeds.Range(t, relaytest.Fewer(30)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testCrashes(t, seed) })
		})
	}
}

func testCrashes(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	b := setup(t, func(c *Config) {
		c.MaxInFlightRecords = 20 + rnd.IntN(200)
		c.MaxStreamBacklog = 10 + rnd.IntN(200)
		c.MaxAggregates = 5 + rnd.IntN(100)
	})
	defer b.close()
	topics := []string{"OrderCreated", "OrderUpdated", "OrderCancelled"}
	for _, topic := range topics {
		if err := b.publisher.EnsureTopic(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
	}
	var calm atomic.Bool
	unruly(b, rand.New(rand.NewPCG(seed, 2)), &calm)
	m := newModel(rnd, 4, 60, 8)
	store := relaytest.NewCheckpoints()
	store.Generation, store.First = m.generation, m.generation
	crashes := 3 + rnd.IntN(5)
	for range crashes {
		p := start(b, m, store, 20*time.Millisecond)
		time.Sleep(time.Duration(rnd.IntN(8000)) * time.Millisecond)
		p.kill()
		checkCheckpoints(t, m, store, b.consume(topics...))
	}
	p := start(b, m, store, 0)
	<-p.done
	b.publisher, p.publisher = p.publisher, b.publisher
	b.drain(24 * time.Hour)
	b.publisher, p.publisher = p.publisher, b.publisher
	calm.Store(true)
	time.Sleep(10 * time.Second)
	p.publisher.Close()
	p.stop()

	got := b.consume(topics...)
	checkCheckpoints(t, m, store, got)
	for i := range m.streams {
		pos, _ := store.Position(t.Context(), m.generation, fmt.Append(nil, "stream", i))
		if want := gocql.MinTimeUUID(m.generation.Add(time.Hour)); pos != want {
			t.Errorf("stream %d: checkpoint %s at the end, want %s", i, pos.Time(), want.Time())
		}
	}
	first, repeated := firstSightings(got)
	relaytest.CheckOrder(t, first, m.events())
	relaytest.CheckTimes(t, first)
	if repeated > 0 {
		t.Errorf("%d events are there twice", repeated)
	}
	t.Logf("seed %d: %d events, %d crashes", seed, len(m.events()), crashes)
}

// unruly makes the broker misbehave in ways that lose nothing, until it is
// calm. rnd is the broker's own.
func unruly(b *fixture, rnd *rand.Rand, calm *atomic.Bool) {
	errs := []*kerr.Error{kerr.NotLeaderForPartition, kerr.NotEnoughReplicas, kerr.RequestTimedOut}
	b.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.cluster.KeepControl()
		if calm.Load() {
			return nil, nil, false
		}
		switch rnd.IntN(20) {
		case 0:
			return nil, errors.New("the connection is cut"), true
		case 1:
			d := time.Duration(rnd.IntN(5000)) * time.Millisecond
			b.cluster.SleepControl(func() { time.Sleep(d) })
		case 2:
			b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: errs[rnd.IntN(len(errs))]})
		}
		return nil, nil, false
	})
}

// checkCheckpoints fails the test if a checkpoint is past an event that no
// topic holds.
func checkCheckpoints(t *testing.T, m *model, store *relaytest.Checkpoints, got []relaytest.Delivered) {
	t.Helper()
	there := make(map[gocql.UUID]bool, len(got))
	for _, d := range got {
		there[d.ID.UUID()] = true
	}
	for i, rows := range m.streams {
		pos, _ := store.Position(t.Context(), m.generation, fmt.Append(nil, "stream", i))
		for _, row := range rows {
			if scyllacdc.CompareTimeUUID(row.time, pos) <= 0 && !there[row.event.ID.UUID()] {
				t.Errorf("stream %d: the checkpoint passed event %s (seq %d), which is in no topic", i, row.event.ID, row.event.Sequence)
			}
		}
	}
}

// firstSightings leaves out all but the first record of each event.
func firstSightings(got []relaytest.Delivered) (first []relaytest.Delivered, repeated int) {
	seen := make(map[gocql.UUID]bool, len(got))
	for _, d := range got {
		if seen[d.ID.UUID()] {
			repeated++
			continue
		}
		seen[d.ID.UUID()] = true
		first = append(first, d)
	}
	return first, repeated
}
