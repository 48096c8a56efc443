package engine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// update changes a dead letter if its status is the expected one.
func (m *memory) update(op string, id gocql.UUID, from dlq.Status, f func(*dlq.DeadLetter)) (d dlq.DeadLetter, err error) {
	err = m.do(op, func() error {
		var ok bool
		if d, ok = m.deadLetters[id]; !ok {
			return dlq.ErrNotFound
		}
		if d.Status != from && !(op == "claim dead letter" && d.Status == dlq.Processing) {
			return fmt.Errorf("%s: %s: %w", op, d.Status, dlq.ErrRefused)
		}
		f(&d)
		m.deadLetters[id] = d
		return nil
	})
	return d, err
}

func (m *memory) Requests(_ context.Context, table string, mine func(*dlq.Request) bool) (out []dlq.Request, err error) {
	var all []dlq.Request
	err = m.do("requests", func() error {
		all = slices.Clone(m.requests)
		return nil
	})
	for _, r := range all { // mine may take locks
		if r.Table == table && (mine == nil || mine(&r)) && len(out) < 1000 {
			out = append(out, r)
		}
	}
	if err != nil {
		return nil, err
	}
	err = m.do("requests", func() error {
		for i := range out {
			d := m.deadLetters[out[i].EventID]
			out[i].Entry = d.Entry()
		}
		return nil
	})
	return out, err
}

func (m *memory) Done(_ context.Context, done ...dlq.Request) error {
	return m.do("done", func() error {
		for _, d := range done {
			m.requests = slices.DeleteFunc(m.requests, func(r dlq.Request) bool { return r.ID == d.ID })
		}
		return nil
	})
}

func (m *memory) Claim(_ context.Context, id gocql.UUID, owner string, lease time.Duration) (dlq.DeadLetter, error) {
	return m.update("claim dead letter", id, dlq.Pending, func(d *dlq.DeadLetter) {
		d.Status, d.ClaimedBy, d.ClaimedUntil = dlq.Processing, owner, time.Now().Add(lease)
	})
}

func (m *memory) Resolve(_ context.Context, id gocql.UUID, _ string, how dlq.Outcome) error {
	_, err := m.update("resolve", id, dlq.Processing, func(d *dlq.DeadLetter) { d.Status, d.Outcome = dlq.Resolved, how })
	return err
}

func (m *memory) Fail(_ context.Context, id gocql.UUID, _ string, f dlq.Failure) (dlq.Status, error) {
	d, err := m.update("fail", id, dlq.Processing, func(d *dlq.DeadLetter) {
		d.Status, d.ErrorClass, d.Replays, d.Attempts = dlq.Suspended, f.Class, d.Replays+1, d.Attempts+f.Attempts
		d.ErrorText, d.ErrorChain = f.Text, f.Chain
	})
	return d.Status, err
}

// replay is an operator's request.
func (w *world) replay(id gocql.UUID) {
	w.t.Helper()
	if _, err := w.db.update("replay", id, dlq.Suspended, func(d *dlq.DeadLetter) { d.Status, d.NextAttempt = dlq.Pending, time.Now() }); err != nil {
		w.t.Fatal(err)
	}
	if err := w.db.do("request", func() error {
		w.db.requests = append(w.db.requests, dlq.Request{ID: gocql.TimeUUID(), EventID: id, Table: "subscription.s"})
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
}

// letter returns the only dead letter, which has a status.
func (w *world) letter(want dlq.Status) dlq.DeadLetter {
	w.t.Helper()
	all := w.db.letters()
	if len(all) != 1 || all[0].Status != want {
		w.t.Fatalf("dead letters %+v, want one that is %s", all, want)
	}
	return all[0]
}

// one receives the only message.
func (p *process) one(name string, attempt int) subscriptions.Message {
	p.w.t.Helper()
	got := p.receive(10, 10*time.Second)
	if len(got) != 1 || nameOfMessage(&got[0]) != name || got[0].Attempt != attempt {
		p.w.t.Fatalf("received %+v, want delivery %d of %s", got, attempt, name)
	}
	return got[0]
}

// A dead letter that an operator replays is delivered to the subscription again, by the
// owner of its partition, also by the next one, and resolved with its acknowledgement.
func TestReplay_IsDeliveredUntilItIsAcknowledged(t *testing.T) {
	t.Parallel()
	for _, ordering := range []subscriptions.Ordering{subscriptions.OrderingKey, subscriptions.OrderingStrict, subscriptions.OrderingNone} {
		t.Run(string(ordering), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, MaxReceive: 2, Ordering: ordering})
				p := w.start()
				w.produce("a", "k", "e0")
				p.ok(subscriptions.ActionReject, p.one("e0", 1))
				w.sleep(time.Second)
				id := w.letter(dlq.Suspended).EventID
				if ordering == subscriptions.OrderingStrict {
					w.produce("a", "k", "e1")
				}
				// It fails again.
				w.replay(id)
				for n := range 2 {
					p.ok(subscriptions.ActionNack, p.one("e0", n+1))
				}
				w.sleep(5 * time.Second)
				if l := w.letter(dlq.Suspended); l.Replays != 1 || l.ErrorClass != ClassMaxReceive {
					t.Errorf("%d replays, %s", l.Replays, l.ErrorClass)
				}
				// Its owner fails after the delivery.
				w.replay(id)
				p.one("e0", 1)
				w.letter(dlq.Processing)
				p.kill()
				q := w.start()
				w.sleep(time.Minute)
				m := q.one("e0", 1)
				if m.Topic != "a" || m.Type != "Made" || m.AggregateID != "k" || string(m.Payload()) != `{"name":"e0"}` {
					t.Errorf("the replay is %+v", m)
				}
				q.ok(subscriptions.ActionAck, m)
				if l := w.letter(dlq.Resolved); l.Outcome.Kind != dlq.OutcomeReplayed || l.Outcome.Offset != 0 {
					t.Errorf("outcome %+v", l.Outcome)
				}
				w.sleep(10 * time.Second)
				if ordering == subscriptions.OrderingStrict {
					q.ok(subscriptions.ActionAck, q.one("e1", 1))
				}
				if got := q.receive(10, 10*time.Second); len(got) != 0 || w.db.rowCount() != 0 || len(w.db.requests) != 0 {
					t.Errorf("%v afterwards, %d rows, %d requests; want none", names(got), w.db.rowCount(), len(w.db.requests))
				}
			})
		})
	}
}

// A crash after the dead letter is written, and before its message is settled, delivers
// nothing again: neither a message nor a replay, and after a rejection as after the last
// delivery.
func TestEngine_CrashAfterTheDeadLetter(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many variants")
	}
	for _, ordering := range []subscriptions.Ordering{subscriptions.OrderingKey, subscriptions.OrderingStrict, subscriptions.OrderingNone} {
		for _, action := range []subscriptions.Action{subscriptions.ActionReject, subscriptions.ActionNack} {
			for _, op := range []string{"save", "dead letter", "fail"} {
				t.Run(fmt.Sprintf("%s/%s/%s", ordering, action, op), func(t *testing.T) {
					t.Parallel()
					inBubble(t, func(w *world) { w.crashAfter(ordering, action, op) })
				})
			}
		}
	}
}

// crashAfter gives a message up, ends the owner after an operation of the database, and
// expects one dead letter without another delivery, with the details of the consumer's error.
func (w *world) crashAfter(ordering subscriptions.Ordering, action subscriptions.Action, op string) {
	w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, MaxReceive: 1, Ordering: ordering})
	p := w.start()
	w.produce("a", "k", "e0")
	m, replays := p.one("e0", 1), 0
	if op == "fail" {
		p.ok(action, m)
		w.sleep(time.Second)
		w.replay(w.letter(dlq.Suspended).EventID)
		m, replays = p.one("e0", 1), 1
	}
	w.db.fail(func(now string) (bool, error) {
		if now != op {
			return false, nil
		}
		p.kill()
		return true, errTest
	})
	_, _ = p.Settle(context.Background(), "s", []subscriptions.Settle{{Action: action, Receipt: m.Receipt, Reason: "boom", Details: "at main.go:7\n\nat run.go:9\r\n"}})
	w.db.fail(nil)
	q := w.start()
	w.produce("a", "other", "e1")
	w.sleep(time.Minute)
	q.ok(subscriptions.ActionAck, q.one("e1", 1))
	w.sleep(10 * time.Second)
	l := w.letter(dlq.Suspended)
	class := ClassMaxReceive
	if action == subscriptions.ActionReject {
		class = ClassRejected
	}
	if l.Attempts != 1+replays || l.ErrorClass != class || l.Replays != replays || w.db.rowCount() != 0 {
		w.t.Errorf("dead letter %s after %d deliveries and %d replays, %d rows; want %s", l.ErrorClass, l.Attempts, l.Replays, w.db.rowCount(), class)
	}
	if l.ErrorText != "boom" || !slices.Equal(l.ErrorChain, []string{"at main.go:7", "at run.go:9"}) {
		w.t.Errorf("the error is %q with the details %q", l.ErrorText, l.ErrorChain)
	}
}

// The name of the dead letter queue is a tag of the dead letters that are written from then
// on; the table stays that of the subscription.
func TestEngine_DeadLetterName(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		s := subscriptions.Subscription{Name: "s", Topics: []string{"a"}}
		w.put(s)
		p := w.start()
		for i, name := range []string{"", "my-dlq"} {
			s.DeadLetter.Name = name
			w.put(s)
			w.sleep(5 * time.Second)
			r := w.record("k", "e"+strconv.Itoa(i))
			p.ok(subscriptions.ActionReject, p.one("e"+strconv.Itoa(i), 1))
			l, err := w.db.Read(context.Background(), parseUUID(t, w.is(p, r, subscriptions.ProgressDeadLettered, "").DeadLetter))
			if err != nil || strings.Join(l.Tags, ",") != name || l.Table != "subscription.s" {
				t.Errorf("dead letter of table %s with tags %q, %v; want %q", l.Table, l.Tags, err, name)
			}
		}
	})
}

func parseUUID(t *testing.T, text string) gocql.UUID {
	t.Helper()
	id, err := gocql.ParseUUID(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A replay that a seek or a purge ends is no success: its dead letter can be replayed again.
func TestReplay_EndsWithSeekAndPurge(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(p *process) error{
		"seek": func(p *process) error {
			return p.Seek(context.Background(), "s", subscriptions.Seek{To: subscriptions.StartLatest, Partition: -1}, "ada")
		},
		"purge": func(p *process) error {
			_, err := p.Purge(context.Background(), "s", subscriptions.Purge{}, "ada")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, MaxReceive: 3, Backoff: time.Hour, MaxBackoff: time.Hour})
				p := w.start()
				w.produce("a", "k", "e0")
				p.ok(subscriptions.ActionReject, p.one("e0", 1))
				w.sleep(time.Second)
				id := w.letter(dlq.Suspended).EventID
				w.replay(id)
				p.ok(subscriptions.ActionNack, p.one("e0", 1))
				w.letter(dlq.Processing)
				if err := end(p); err != nil {
					t.Fatal(err)
				}
				w.sleep(10 * time.Second)
				if l := w.letter(dlq.Suspended); l.ErrorClass != ClassMoved || w.db.rowCount() != 0 {
					t.Errorf("%s, %d rows", l.ErrorClass, w.db.rowCount())
				}
				w.replay(id)
				p.ok(subscriptions.ActionAck, p.one("e0", 1))
				w.letter(dlq.Resolved)
			})
		})
	}
}

// Errors of the database delay a replay and its resolution.
func TestReplay_DatabaseAway(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"requests", "read dead letter", "claim dead letter", "save", "done", "resolve", "remove"} {
		for _, applied := range []bool{true, false} {
			t.Run(fmt.Sprint(op, applied), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(w *world) {
					w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
					p := w.start()
					w.produce("a", "k", "e0")
					p.ok(subscriptions.ActionReject, p.one("e0", 1))
					w.sleep(time.Second)
					w.replay(w.letter(dlq.Suspended).EventID)
					n := 0
					w.db.fail(func(o string) (bool, error) {
						if o == op && n < 3 {
							n++
							return applied, errTest
						}
						return false, nil
					})
					p.ok(subscriptions.ActionAck, p.one("e0", 1))
					w.letter(dlq.Resolved)
					w.sleep(10 * time.Second)
					if n == 0 || w.db.rowCount() != 0 || len(w.db.requests) != 0 {
						t.Errorf("%d failures, %d rows, %d requests; want failures only", n, w.db.rowCount(), len(w.db.requests))
					}
				})
			})
		}
	}
}

// Positions and messages of a deleted subscription are removed.
func TestEngine_CleansUpDeletedSubscriptions(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		w.many("a", 0, 10, 10)
		p.ok(subscriptions.ActionNack, p.receive(10, time.Second)...)
		w.sleep(time.Second)
		if w.db.rowCount() == 0 {
			t.Fatal("nothing is stored")
		}
		if err := p.Delete(context.Background(), "s", 0, "ada"); err != nil {
			t.Fatal(err)
		}
		w.sleep(4 * time.Minute)
		groups, err := w.adm.ListGroups(context.Background())
		if err != nil || len(groups) != 0 || w.db.rowCount() != 0 || len(w.db.deleted) != 0 {
			t.Errorf("groups %v, %v, %d rows, %v left; want nothing", groups.Groups(), err, w.db.rowCount(), w.db.deleted)
		}
	})
}
