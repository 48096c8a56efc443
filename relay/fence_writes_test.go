package relay

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// A dead letter that could not be written before the shard was lost is not written
// afterwards: the next owner may have published the event.
func TestFence_NoLateDeadLetter(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		f := new(fence)
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.MaxRecordBytes, c.Fence = 2<<10, f.check })
		defer w.close()
		r, stop := w.runShard(Shard{0, 1})
		time.Sleep(5 * time.Second)
		written := w.lettersFail()
		e := events(1, 1, "OrderUpdated")[0]
		e.Payload = make([]byte, 4<<10)
		w.write(e)
		for p := r.publisher.Load(); ; time.Sleep(100 * time.Millisecond) {
			p.mu.Lock()
			writing := p.letters.writing
			p.mu.Unlock()
			if writing > 0 {
				break
			}
		}
		time.Sleep(10 * time.Second) // it is tried again and again
		f.closed.Store(true)
		written()
		time.Sleep(time.Minute)
		stop()
		store, err := dlq.Open(w.session, "outbox")
		if err != nil {
			t.Fatal(err)
		}
		if l, err := store.Read(t.Context(), e.ID); !errors.Is(err, dlq.ErrNotFound) {
			t.Errorf("Read() = %+v, %v, want no letter", l, err)
		}
	})
}

// What the relay keeps in the database of its work is not written behind the fence.
func TestFence_NoLateCheckpointsScansAndAnswers(t *testing.T) {
	t.Parallel()
	f := new(fence)
	f.closed.Store(true)
	ctx := t.Context()
	c := newCQLCheckpoints(nil, "k", "r", "t") // without a session: what is written would panic
	scans := newCQLBackfills(nil, "k", "r", "t")
	answers := NewRepairs(nil, "k", "r", "t")
	c.fence, scans.fence, answers.fence = f.check, f.check, f.check
	for what, err := range map[string]error{
		"position":   c.SavePosition(ctx, time.Now(), nil, gocql.UUID{}),
		"generation": c.SaveGeneration(ctx, time.Now()),
		"first":      c.SaveFirst(ctx, time.Now()),
		"scan":       scans.begin(ctx, &backfillRow{}, nil),
		"ranges":     scans.advance(ctx, &backfillRow{}, nil),
		"answer":     answerOf(answers.answer(ctx, gocql.UUID{}, RepairAsked, RepairTaken, "")),
	} {
		if !errors.Is(err, errFencedWrite) || failure.Classify(err) != failure.Stopped {
			t.Errorf("%s: %v, want %v of class stopped", what, err, errFencedWrite)
		}
	}
}

// Of two scans that run the newer one goes on: it has taken the other one's rows over.
func TestBackfill_AScanThatWasReplacedStaysSo(t *testing.T) {
	t.Parallel()
	now := time.Now()
	all := []backfillRow{
		{started: now, state: backfillNone},
		{started: now.Add(-time.Hour), state: backfillRunning},
		{started: now.Add(-2 * time.Hour), state: backfillRunning}, // written once more by who had lost the shard
	}
	if got := unfinished(all); got != &all[1] {
		t.Errorf("unfinished() = %+v, want the newer one", got)
	}
	if got := unfinished(all[:1]); got != nil {
		t.Errorf("unfinished() = %+v, want none", got)
	}
}

// Checkpoints do not go back in the life of a relay, whatever others write.
func TestSteadyCheckpoints(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	at := func(n int) time.Time { return time.Date(2026, 11, 22, 12, n, 0, 0, time.UTC) }
	pos := func(n int) gocql.UUID { return gocql.MinTimeUUID(at(n)) }
	table := &memoryCheckpoints{positions: make(map[string]gocql.UUID)}
	s := newSteadyCheckpoints(table)
	check := func(what string, gen time.Time, want int) {
		t.Helper()
		one, err := s.Position(ctx, gen, []byte("s"))
		all, allErr := s.Positions(ctx, gen)
		if err != nil || allErr != nil || one != pos(want) || all["s"] != one {
			t.Errorf("%s: Position() = %s, %v, Positions() = %v, %v, want %s", what, one.Time(), err, all, allErr, at(want))
		}
	}
	table.generation, table.positions["s"] = at(0), pos(2)
	if gen, _, err := s.Start(ctx); err != nil || !gen.Equal(at(0)) {
		t.Errorf("Start() = %s, %v", gen, err)
	}
	check("as it stands", at(0), 2)
	table.positions["s"] = pos(1)
	check("an older one", at(0), 2)
	if err := s.SavePosition(ctx, at(0), []byte("s"), pos(4)); err != nil {
		t.Fatal(err)
	}
	table.positions["s"] = pos(3)
	check("older than what was saved", at(0), 4)
	table.positions["s"] = pos(5)
	check("a newer one", at(0), 5)
	if err := s.SaveGeneration(ctx, at(6)); err != nil {
		t.Fatal(err)
	}
	table.generation, table.positions["s"] = at(0), pos(7)
	if gen, _, err := s.Start(ctx); err != nil || !gen.Equal(at(6)) {
		t.Errorf("Start() after an older generation was written = %s, %v, want %s", gen, err, at(6))
	}
	check("of the new generation", at(6), 7)
	if len(s.positions) != 1 {
		t.Errorf("%d positions are remembered, want the new generation's", len(s.positions))
	}
}

// memoryCheckpoints are those of one stream.
type memoryCheckpoints struct {
	checkpointStore
	generation time.Time
	positions  map[string]gocql.UUID
}

func (m *memoryCheckpoints) Position(_ context.Context, _ time.Time, stream []byte) (gocql.UUID, error) {
	return m.positions[string(stream)], nil
}

func (m *memoryCheckpoints) Positions(context.Context, time.Time) (map[string]gocql.UUID, error) {
	return map[string]gocql.UUID{"s": m.positions["s"]}, nil
}

func (m *memoryCheckpoints) SavePosition(_ context.Context, _ time.Time, stream []byte, pos gocql.UUID) error {
	m.positions[string(stream)] = pos
	return nil
}

func (m *memoryCheckpoints) Start(context.Context) (generation, first time.Time, err error) {
	return m.generation, time.Time{}, nil
}

func (m *memoryCheckpoints) SaveGeneration(_ context.Context, generation time.Time) error {
	m.generation = generation
	return nil
}

func answerOf(_ bool, err error) error { return err }
