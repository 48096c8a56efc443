package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// kinds are instances of the two kinds, on one table.
type kinds struct {
	*world
}

// alone is a relay that carries the table whole, or one for each of the tables. It gives
// way, and passed is closed when it may begin. Its heartbeat begins at once, or is late.
func (k kinds) alone(late bool, tables ...string) (r *Relay, passed chan struct{}, stop func()) {
	k.t.Helper()
	passed = make(chan struct{})
	begun := make(chan struct{})
	if !late {
		close(begun)
	}
	var all []*Relay
	var parts []func(context.Context)
	for _, table := range k.tables(tables) {
		cfg := k.cfg
		cfg.Session, cfg.Registerer, cfg.Table = k.session, nil, table
		r, err := New(cfg)
		if err != nil {
			k.t.Fatal(err)
		}
		all = append(all, r)
		parts = append(parts, func(ctx context.Context) {
			select {
			case <-begun:
			case <-passed:
			case <-ctx.Done():
			}
			r.Heartbeat(ctx, "v1", 0)
		})
	}
	return all[0], passed, k.background(append(parts, func(ctx context.Context) {
		if GiveWay(ctx, "v1", all...) == nil {
			close(passed)
		}
	})...)
}

// tables are those, or the one that there is.
func (k kinds) tables(names []string) []string {
	if len(names) == 0 {
		return []string{"outbox_messages"}
	}
	return names
}

// sharer is an instance that shares the table, or the tables.
func (k kinds) sharer(instance string, tables ...string) (passed chan struct{}, stop func()) {
	k.t.Helper()
	var names []string
	for _, table := range k.tables(tables) {
		names = append(names, "outbox."+table)
	}
	m := &Membership{
		Session: k.session, Keyspace: k.cfg.Keyspace, Name: DefaultName, Version: "v1", Tables: names, Logger: relaytest.Logger(k.t),
		instance: instance,
		Status:   func() (Sharing, []string) { return Sharing{Shards: 2, Owned: []int{}}, nil },
	}
	passed = make(chan struct{})
	return passed, k.background(m.Beat, func(ctx context.Context) {
		if m.AwaitSharers(ctx) == nil {
			close(passed)
		}
	})
}

// background runs functions until stop is called, which waits for their end.
func (k kinds) background(all ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(k.t.Context())
	done := make(chan struct{})
	for _, f := range all {
		go func() {
			f(ctx)
			done <- struct{}{}
		}()
	}
	return func() {
		cancel()
		for range all {
			<-done
		}
	}
}

// states are the ones of the rows under the relay's own name.
func (k kinds) states() map[string]int {
	k.t.Helper()
	out := make(map[string]int)
	iter := k.session.Query("SELECT status FROM relay_instances WHERE scope = 'keyspace' AND relay = ? AND table_name = 'outbox.outbox_messages'", DefaultName).Iter()
	for status := ""; iter.Scan(&status); {
		var h heartbeat
		if err := json.Unmarshal([]byte(status), &h); err != nil {
			k.t.Fatal(err)
		}
		out[h.State]++
	}
	if err := iter.Close(); err != nil {
		k.t.Fatal(err)
	}
	return out
}

// other writes the row of another process, which has its own name.
func (k kinds) other(instance, status string) {
	k.t.Helper()
	if err := k.session.Query("INSERT INTO relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', ?, 'outbox.outbox_messages', ?, ?, ?)",
		DefaultName, instance, time.Now(), status).Exec(); err != nil {
		k.t.Fatal(err)
	}
}

func is(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

const sharingRow = `{"state":"running","ready":true,"sharing":{"shards":2,"owned":[0,1],"joined":true}}`

// A relay that carries the table whole waits beside relays that share it, reports that, and
// goes on when they are gone: stopped, or silent for too long.
func TestGiveWay_BesideThoseThatShare(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]string{"stopped": `{"state":"stopped","sharing":{"shards":2,"owned":[]}}`, "killed": ""} {
		inBubble(t, func(t *testing.T) {
			k := kinds{newWorld(t, scyllafake.Config{Tokens: 4}, nil)}
			defer k.close()
			k.other("pod-b/1", sharingRow)
			r, passed, stop := k.alone(false)
			defer stop()
			for range 10 {
				time.Sleep(DefaultHeartbeat)
				k.other("pod-b/1", sharingRow)
			}
			s := r.Status()
			if is(passed) || len(s.GivesWay) != 1 || s.GivesWay[0] != "pod-b/1" || len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "share the table (pod-b/1)") {
				t.Errorf("%s: beside one that shares it gives way to %q, with problems %q, begun %v", name, s.GivesWay, s.Problems, is(passed))
			}
			if len(s.Others) != 0 {
				t.Errorf("%s: it says that %+v publishes everything beside it", name, s.Others)
			}
			if states := k.states(); states[stateWaiting] != 1 {
				t.Errorf("%s: the rows say %v, want one that waits", name, states)
			}
			if row != "" {
				k.other("pod-b/1", row)
				time.Sleep(2 * DefaultHeartbeat)
			} else {
				time.Sleep(otherSilent + 2*DefaultHeartbeat)
			}
			if !is(passed) || len(r.Status().GivesWay) != 0 {
				t.Errorf("%s: it waits still, for %q", name, r.Status().GivesWay)
			}
		})
	}
}

// A row of one that died long ago costs a start some seconds, and no more; one of
// another relay, or of another kind that waits itself, nothing.
func TestGiveWay_WaitsForNobodyWhoIsGone(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		k := kinds{newWorld(t, scyllafake.Config{Tokens: 4}, nil)}
		defer k.close()
		k.other("pod-b/1", `{"state":"running"}`)
		_, passed, stop := k.alone(false)
		time.Sleep(time.Second)
		if !is(passed) {
			t.Error("it waits for one of its own kind")
		}
		stop()
		k.other("pod-c/1", sharingRow)
		_, passed, stop = k.alone(false)
		time.Sleep(otherSilent + 2*DefaultHeartbeat)
		if !is(passed) {
			t.Error("it waits for one that is dead")
		}
		stop()
		k.other("pod-b/1", `{"state":"waiting"}`)
		shared, stop := k.sharer("pod-s/1")
		time.Sleep(time.Second)
		if !is(shared) {
			t.Error("one that shares waits for one that waits for it")
		}
		stop()
	})
}

// Of both kinds, however they start, one goes on and never both: where they start at
// once it is the one that shares. When that is gone, the other one follows.
func TestGiveWay_NeverBoth(t *testing.T) {
	t.Parallel()
	neverBoth(t)
}

// So it is where each of them has several tables: none is stuck with one of them, for
// which the other one waits, while it waits for the other one at the next.
func TestGiveWay_NeverBothOfSeveralTables(t *testing.T) {
	t.Parallel()
	neverBoth(t, "outbox_messages", "parcels", "letters")
}

func neverBoth(t *testing.T, tables ...string) {
	inBubble(t, func(t *testing.T) {
		k := kinds{newWorld(t, scyllafake.Config{Tokens: 4}, nil)}
		defer k.close()
		k.db.Faults().MustAdd(faults.Rule{Match: faults.Match{Table: "relay_instances"}, Effect: faults.Effect{Delay: 20 * time.Millisecond}})
		random := rand.New(rand.NewPCG(7, 9))
		for i := range 30 {
			if err := k.session.Query("TRUNCATE relay_instances").Exec(); err != nil {
				t.Error(err)
				return
			}
			offset := time.Duration(random.IntN(100)) * time.Millisecond
			time.Sleep(time.Duration(i%2) * offset)
			_, whole, stopWhole := k.alone(i%3 == 0, tables...)
			time.Sleep(time.Duration((i+1)%2) * offset)
			shared, stopShared := k.sharer(fmt.Sprintf("pod-%d/1", i), tables...)
			time.Sleep(3 * otherSilent)
			if is(whole) == is(shared) {
				t.Errorf("start %d, %s apart: the one that is alone goes on: %v, the one that shares: %v", i, offset, is(whole), is(shared))
				stopWhole()
				stopShared()
				return
			}
			if is(whole) {
				stopWhole()
				time.Sleep(3 * DefaultHeartbeat)
				if !is(shared) {
					t.Errorf("start %d: the one that shares waits for one that stopped", i)
				}
				stopShared()
				continue
			}
			stopShared()
			time.Sleep(3 * DefaultHeartbeat)
			if !is(whole) {
				t.Errorf("start %d: the one that is alone waits for one that stopped", i)
			}
			stopWhole()
		}
	})
}
