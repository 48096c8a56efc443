package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox/inbox"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/sim/line"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

var onceTable = inbox.OnceTable(schema.DefaultKeyspace, "mails")

func newOnce(t *testing.T, s *gocql.Session, cfg inbox.OnceConfig) *inbox.Once {
	t.Helper()
	cfg.Table = "mails"
	o, err := inbox.NewOnce(t.Context(), s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// mail is an effect that counts its runs.
type mail struct {
	mu struct {
		sync.Mutex
		runs int
	}
}

func (m *mail) send(context.Context) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.runs++
	return fmt.Append(nil, "result ", m.mu.runs), nil
}

// do calls Do and checks its result.
func do(t *testing.T, o *inbox.Once, m *mail, want string, wantFirst bool) {
	t.Helper()
	got, first, err := o.Do(t.Context(), "id", m.send)
	if string(got) != want || first != wantFirst || err != nil {
		t.Errorf("Do() = %q, %t, %v; want %q, %t", got, first, err, want, wantFirst)
	}
}

// A result is returned to every later call, for as long as it is kept, also after its
// lease would have expired.
func TestOnce_KeepsResults(t *testing.T) {
	bubble(t, []string{onceTable}, func(t *testing.T, w world.World) {
		var m mail
		o := newOnce(t, w.Session, inbox.OnceConfig{Lease: 10 * time.Second, Keep: time.Hour})
		do(t, o, &m, "result 1", true)
		do(t, o, &m, "result 1", false)
		time.Sleep(59 * time.Minute)
		do(t, o, &m, "result 1", false)
		time.Sleep(2 * time.Minute)
		do(t, o, &m, "result 2", true)
		if got, first, err := o.Do(t.Context(), "other", func(context.Context) ([]byte, error) { return nil, nil }); got != nil || !first || err != nil {
			t.Errorf("an effect without a result = %q, %t, %v", got, first, err)
		}
		if got, first, err := o.Do(t.Context(), "other", m.send); len(got) != 0 || first || err != nil {
			t.Errorf("after it = %q, %t, %v", got, first, err)
		}
	})
}

// While an effect runs a duplicate is busy, with the time left, or waits for the result.
func TestOnce_ADuplicateIsBusyOrWaits(t *testing.T) {
	bubble(t, []string{onceTable}, func(t *testing.T, w world.World) {
		var m mail
		quick := newOnce(t, w.Session, inbox.OnceConfig{Lease: 30 * time.Second})
		patient := newOnce(t, w.Session, inbox.OnceConfig{Lease: 30 * time.Second, Wait: 20 * time.Second})
		var all sync.WaitGroup
		all.Go(func() {
			_, _, err := quick.Do(t.Context(), "id", func(ctx context.Context) ([]byte, error) {
				time.Sleep(15 * time.Second)
				return m.send(ctx)
			})
			if err != nil {
				t.Error(err)
			}
		})
		time.Sleep(5 * time.Second)
		_, first, err := quick.Do(t.Context(), "id", m.send)
		busy, ok := errors.AsType[*inbox.BusyError](err)
		if !ok || first || busy.ID != "id" || busy.Left < 24*time.Second || busy.Left > 25*time.Second {
			t.Errorf("a duplicate: %t, %v; want busy for 25s", first, err)
		}
		began := time.Now()
		do(t, patient, &m, "result 1", false)
		if waited := time.Since(began); waited < 10*time.Second || waited > 12*time.Second {
			t.Errorf("waited %s for an effect of 10s", waited)
		}
		all.Wait()
	})
}

// An effect that fails is released: the next delivery runs it immediately.
func TestOnce_ReleasesAfterAnError(t *testing.T) {
	bubble(t, []string{onceTable}, func(t *testing.T, w world.World) {
		var m mail
		o := newOnce(t, w.Session, inbox.OnceConfig{})
		for _, fate := range []engine.Fate{engine.FateApply, engine.FateNormal, engine.FateDecided} {
			refused := errors.New("mail refused")
			ctx, cancel := context.WithCancel(t.Context())
			_, first, err := o.Do(ctx, "id", func(context.Context) ([]byte, error) {
				cancel() // it is released all the same
				casTimeout(w, fate)
				return nil, refused
			})
			if !first || err != refused {
				t.Errorf("Do() = %t, %v; want the effect's error", first, err)
			}
		}
		do(t, o, &m, "result 1", true)
	})
}

// An expired lease is taken over. The effect's context ends before that; an effect that
// ignores this is reported, and does not replace the result of its successor.
func TestOnce_AnExpiredLeaseIsTakenOver(t *testing.T) {
	bubble(t, []string{onceTable}, func(t *testing.T, w world.World) {
		var m mail
		o := newOnce(t, w.Session, inbox.OnceConfig{Lease: 10 * time.Second})
		began := time.Now()
		_, _, err := o.Do(t.Context(), "id", func(ctx context.Context) ([]byte, error) {
			<-ctx.Done()
			if took := time.Since(began); took > 8*time.Second || took < 7*time.Second {
				t.Errorf("the context ended after %s, want two seconds before the end of its lease of 10s", took)
			}
			return nil, ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "increase OnceConfig.Lease") {
			t.Errorf("a slow effect: %v", err)
		}
		late, first, err := o.Do(t.Context(), "id", func(context.Context) ([]byte, error) {
			time.Sleep(11 * time.Second)
			do(t, o, &m, "result 1", true)
			return []byte("late"), nil
		})
		if string(late) != "late" || !first || err == nil || !strings.Contains(err.Error(), "its result is not stored") {
			t.Errorf("a late effect: %q, %t, %v; want its result and an error", late, first, err)
		}
		do(t, o, &m, "result 1", false)
	})
}

// A lost response of any statement neither repeats the effect nor loses its result.
func TestOnce_LostResponses(t *testing.T) {
	for name, fate := range map[string]engine.Fate{"applied": engine.FateApply, "lost": engine.FateNormal, "decided": engine.FateDecided} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{onceTable}, func(t *testing.T, w world.World) {
				var m mail
				o := newOnce(t, w.Session, inbox.OnceConfig{})
				casTimeout(w, fate)
				got, first, err := o.Do(t.Context(), "id", func(ctx context.Context) ([]byte, error) {
					casTimeout(w, fate)
					return m.send(ctx)
				})
				if string(got) != "result 1" || !first || err != nil {
					t.Errorf("Do() = %q, %t, %v", got, first, err)
				}
				do(t, o, &m, "result 1", false)
			})
		})
	}
}

// The result of an effect is stored after an outage, if its lease has not ended. A
// consumer that stops waits for ten seconds.
func TestOnce_StoresAfterAnOutage(t *testing.T) {
	for name, c := range map[string]struct {
		outage, most time.Duration
		stop         bool
	}{
		"within the lease": {outage: 40 * time.Second, most: 50 * time.Second},
		"past the lease":   {outage: 2 * time.Minute, most: time.Minute},
		"while stopping":   {outage: 40 * time.Second, most: 11 * time.Second, stop: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{onceTable}, func(t *testing.T, w world.World) {
				var m mail
				o := newOnce(t, w.Session, inbox.OnceConfig{Lease: time.Minute})
				ctx, cancel := context.WithCancel(t.Context())
				began := time.Now()
				got, first, err := o.Do(ctx, "id", func(ctx context.Context) ([]byte, error) {
					w.Fault(0, faults.Effect{Failure: faults.Unavailable(0, 1)}, engine.OpCAS, engine.OpSerialRead)
					time.AfterFunc(c.outage, w.Node.Faults().Clear)
					if c.stop {
						cancel()
					}
					return m.send(ctx)
				})
				cancel()
				stored := c.most > c.outage
				if took := time.Since(began); string(got) != "result 1" || !first || (err == nil) != stored || took > c.most {
					t.Errorf("Do() = %q, %t, %v after %s", got, first, err, took)
				}
				time.Sleep(3 * time.Minute)
				if stored {
					do(t, o, &m, "result 1", false)
				} else {
					do(t, o, &m, "result 2", true)
				}
			})
		})
	}
}

// A consumer dies at each message that it sends. The effect has run before its result is
// stored, runs again only if the consumer died in between, and never while another runs.
func TestOnce_ConsumerDiesAtEachMessage(t *testing.T) {
	for _, carried := range []bool{false, true} {
		t.Run(fmt.Sprint("carried out ", carried), func(t *testing.T) {
			bubble(t, []string{onceTable}, func(t *testing.T, w world.World) {
				survivor := newOnce(t, w.Session, inbox.OnceConfig{Lease: 10 * time.Second, Wait: time.Minute})
				for n := 1; ; n++ {
					id := fmt.Sprint("id ", n)
					var m, after mail
					l := &line.Line{}
					session := connect(t, w.Node, l)
					mortal := newOnce(t, session, inbox.OnceConfig{Lease: 10 * time.Second})
					ctx, died := context.WithCancel(t.Context())
					l.Arm(n, carried, died)
					_, first, err := mortal.Do(ctx, id, m.send)
					alive := !l.Dead()
					got, again, err2 := survivor.Do(t.Context(), id, after.send)
					if err2 != nil || m.mu.runs+after.mu.runs == 0 || string(got) != "result 1" || again != (after.mu.runs == 1) {
						t.Errorf("message %d: %d and %d runs, %q, %t, %v", n, m.mu.runs, after.mu.runs, got, again, err2)
					}
					died()
					session.Close()
					if alive {
						if !first || err != nil || again || n < 3 {
							t.Errorf("it survived its message %d: %t, %v, and the effect ran again: %t", n, first, err, again)
						}
						return
					}
				}
			})
		})
	}
}

func TestNewOnce_NamesTheFix(t *testing.T) {
	bubble(t, []string{onceTable, "CREATE TABLE other (id text PRIMARY KEY, owner uuid, done int, result blob)"}, func(t *testing.T, w world.World) {
		for _, c := range []struct {
			cfg  inbox.OnceConfig
			want string
		}{
			{inbox.OnceConfig{}, "OnceConfig.Table is empty"},
			{inbox.OnceConfig{Table: "nosuch"}, "OnceConfig.Table: outbox.nosuch does not exist or has other columns; create a table with\nCREATE TABLE IF NOT EXISTS outbox.nosuch ("},
			{inbox.OnceConfig{Table: "other"}, "OnceConfig.Table: outbox.other does not exist or has other columns"},
			{inbox.OnceConfig{Table: "mails", Lease: 3 * time.Second}, "OnceConfig.Lease 3s: use whole seconds from 4s"},
			{inbox.OnceConfig{Table: "mails", Keep: time.Millisecond}, "OnceConfig.Keep 1ms: use whole seconds"},
			{inbox.OnceConfig{Table: "mails", Wait: -1}, "OnceConfig.Wait -1ns"},
		} {
			if _, err := inbox.NewOnce(t.Context(), w.Session, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("NewOnce(%+v) error = %v, want %q", c.cfg, err, c.want)
			}
		}
		o := newOnce(t, w.Session, inbox.OnceConfig{LocalSerial: true})
		if _, _, err := o.Do(t.Context(), "", nil); err == nil || !strings.Contains(err.Error(), "the id is empty") {
			t.Errorf("an empty id: %v", err)
		}
	})
}
