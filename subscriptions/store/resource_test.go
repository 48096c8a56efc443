package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

func subscription(name string) subscriptions.Subscription {
	s := subscriptions.Subscription{Name: name, Topics: []string{"Order*"}, Types: []string{"OrderCreated"}, Filter: "event.total > 3", Transform: `{"payload": data}`}
	return s.WithDefaults()
}

func (b *fixture) put(t *testing.T, s subscriptions.Subscription) Resource {
	t.Helper()
	r, err := b.Put(t.Context(), s, "ada")
	must(t, err)
	return r
}

func TestPut_IsReadAsItWasStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := subscription("orders")
	want.Push = &subscriptions.Push{To: "ops", Title: "{{.event_type}}", Text: "\x00é", Severity: "warning", Concurrency: 7}
	want.DeadLetter = subscriptions.DeadLetter{Name: "mail-failures", RetentionDays: 4}
	want.MaxExtension = 90 * time.Second
	got := b.put(t, want)
	want.Version, want.CreatedAt, want.ChangedAt, want.ChangedBy, want.Created = 1, b.now, b.now, "ada", true
	if !reflect.DeepEqual(got, Resource{Subscription: want}) {
		t.Errorf("Put() = %+v\nwant %+v", got, want)
	}
	want.Created = false // which is not stored
	b.now = b.now.Add(time.Hour)
	want.Types, want.Filter, want.Transform, want.Paused, want.Push = nil, "", "", true, nil
	want.DeadLetter, want.BackoffMultiplier = subscriptions.DeadLetter{}, 7
	b.put(t, want)
	want.Version, want.ChangedAt = 2, b.now
	got, err := b.Get(t.Context(), "orders")
	if err != nil || !reflect.DeepEqual(got, Resource{Subscription: want}) {
		t.Errorf("Get() = %+v, %v\nwant %+v", got, err, want)
	}
	b.put(t, subscription("a"))
	all, err := b.List(t.Context())
	if err != nil || len(all) != 2 || all[0].Name != "a" || !reflect.DeepEqual(all[1], got) {
		t.Errorf("List() = %+v, %v", all, err)
	}
	if _, err := b.Put(t.Context(), subscriptions.Subscription{Name: "none"}, "ada"); err == nil {
		t.Error("Put() without topics succeeded")
	}
}

// Put reports whether it has created the subscription, and does no more than that if it must.
func TestPut_CreatesOrReplaces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := subscription("orders")
	s.Version = subscriptions.Absent
	if r := b.put(t, s); !r.Created {
		t.Error("Put() of a missing one has replaced one")
	}
	if _, err := b.Put(t.Context(), s, "ada"); !errors.Is(err, subscriptions.ErrVersion) {
		t.Errorf("Put() of an existing one, which must be absent: %v, want ErrVersion", err)
	}
	s.Version = 0
	if r := b.put(t, s); r.Created {
		t.Error("Put() of an existing one has created one")
	}
	must(t, b.Delete(t.Context(), "orders", 0, "ada"))
	if r := b.put(t, s); !r.Created {
		t.Error("Put() after Delete() has replaced one")
	}
}

func TestVersions_OfConcurrentChanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := subscription("orders")
	s.Version = 1
	if _, err := b.Put(t.Context(), s, "ada"); !errors.Is(err, subscriptions.ErrVersion) {
		t.Errorf("Put() of version 1 of a missing one: %v, want ErrVersion", err)
	}
	s.Version = 0
	s = b.put(t, s).Subscription

	// Of changes of one version one succeeds.
	var wg sync.WaitGroup
	var done, refused [8]bool
	for i := range done {
		other := b.another(t)
		wg.Go(func() {
			_, err := other.Put(t.Context(), s, fmt.Sprint("p-", i))
			done[i], refused[i] = err == nil, errors.Is(err, subscriptions.ErrVersion)
		})
	}
	wg.Wait()
	n := 0
	for i := range done {
		if done[i] {
			n++
		} else if !refused[i] {
			t.Errorf("change %d failed otherwise than with ErrVersion", i)
		}
	}
	got, err := b.Get(t.Context(), "orders")
	if err != nil || n != 1 || got.Version != 2 {
		t.Errorf("%d changes of version 1 succeeded: %+v, %v", n, got, err)
	}
	if err := b.Delete(t.Context(), "orders", 1, "ada"); !errors.Is(err, subscriptions.ErrVersion) {
		t.Errorf("Delete() of version 1: %v, want ErrVersion", err)
	}
	// Changes without a version are all applied.
	for i := range done {
		other := b.another(t)
		wg.Go(func() {
			if _, err := other.Seek(t.Context(), "orders", subscriptions.Seek{To: "offset", Topic: "t", Partition: int32(i), Offset: 3}, "ada"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got, err = b.Get(t.Context(), "orders"); err != nil || len(got.Seeks) != len(done) || got.Version != int64(2+len(done)) {
		t.Errorf("Get() = %+v, %v, want all seeks", got, err)
	}
}

// A change is applied once when its answers are lost.
func TestChange_UnknownOutcomesAreDetermined(t *testing.T) {
	t.Parallel()
	for name, effect := range lost {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			fault := func(f func() error) {
				t.Helper()
				hits := b.Fault(2, effect, engine.OpCAS)
				if err := f(); err != nil || hits() == 0 {
					t.Fatalf("%v after %d faults", err, hits())
				}
				b.Node.Faults().Clear()
			}
			fault(func() error { _, err := b.Put(t.Context(), subscription("orders"), "ada"); return err })
			fault(func() error { _, err := b.Pause(t.Context(), "orders", "eve"); return err })
			got, err := b.Get(t.Context(), "orders")
			if err != nil || got.Version != 2 || !got.Paused || got.ChangedBy != "eve" {
				t.Errorf("Get() = %+v, %v, want version 2", got, err)
			}
			fault(func() error { return b.Delete(t.Context(), "orders", 2, "ada") })
			fault(func() error { return b.Clean(t.Context(), got.Incarnation()) })
			if rows, err := b.rows(t.Context()); err != nil || len(rows) != 0 {
				t.Errorf("rows %+v, %v, want none", rows, err)
			}
			var key []byte
			fault(func() (err error) { key, err = b.ReceiptKey(t.Context()); return err })
			again, err := b.another(t).ReceiptKey(t.Context())
			if err != nil || len(key) != receiptKeySize || !bytes.Equal(key, again) {
				t.Errorf("ReceiptKey() = %x, then %x, %v", key, again, err)
			}
		})
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.Pause(t.Context(), "orders", "ada"); !errors.Is(err, subscriptions.ErrNotFound) {
		t.Errorf("Pause() of a missing one: %v, want ErrNotFound", err)
	}
	b.put(t, subscription("orders"))
	for i, step := range []struct {
		f       func(*Store) (Resource, error)
		paused  bool
		version int64
	}{
		{func(s *Store) (Resource, error) { return s.Pause(t.Context(), "orders", "eve") }, true, 2},
		{func(s *Store) (Resource, error) { return s.Pause(t.Context(), "orders", "eve") }, true, 3},
		{func(s *Store) (Resource, error) { return s.Resume(t.Context(), "orders", "eve") }, false, 4},
	} {
		if got, err := step.f(b.Store); err != nil || got.Paused != step.paused || got.Version != step.version {
			t.Errorf("step %d: %+v, %v, want version %d", i, got, err, step.version)
		}
	}
	// A declaration without paused keeps the state, one with it sets it.
	for i, paused := range []bool{false, true} {
		declared := subscription("orders")
		declared.Paused, declared.KeepPaused, declared.MaxReceive = paused, false, i+1
		b.put(t, declared)
		declared.Paused, declared.KeepPaused, declared.MaxReceive = !paused, true, i+7
		if got := b.put(t, declared); got.Paused != paused || got.KeepPaused || got.MaxReceive != i+7 {
			t.Errorf("Put() without paused = %+v, want paused %v", got, paused)
		}
	}
}

// The later command of an operator wins: one without an answer, which the database begins to
// execute afterwards, changes nothing, also if the later one found nothing to change.
func TestChange_TheLaterCommandWins(t *testing.T) {
	pause := func(s *Store) error { _, err := s.Pause(context.Background(), "orders", "ada"); return err }
	resume := func(s *Store) error { _, err := s.Resume(context.Background(), "orders", "eve"); return err }
	seek := func(to string) func(*Store) error {
		return func(s *Store) error {
			_, err := s.Seek(context.Background(), "orders", subscriptions.Seek{To: to}, "eve")
			return err
		}
	}
	state := func(r Resource) string {
		out := fmt.Sprint(r.Paused)
		for _, k := range r.Seeks {
			out += " " + k.To
		}
		return out
	}
	for name, tt := range map[string]struct {
		before, late, later func(*Store) error
		want                string
	}{
		"pause, resume": {nil, pause, resume, "false"},
		"resume, pause": {pause, resume, pause, "true"},
		"seek, seek":    {nil, seek("latest"), seek("earliest"), "false earliest"},
		"seek, resume":  {nil, seek("latest"), resume, "false"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *fixture) {
				b.put(t, subscription("orders"))
				if tt.before != nil {
					must(t, tt.before(b.Store))
				}
				b.Fault(0, faults.Effect{Delay: time.Minute}, engine.OpCAS)
				if err := tt.late(b.Store); !errors.Is(err, ErrUnknown) {
					t.Fatalf("without an answer: %v, want ErrUnknown", err)
				}
				b.Node.Faults().Clear()
				must(t, tt.later(b.another(t, defaultTimes)))
				time.Sleep(3 * time.Minute)
				if r, err := b.Get(t.Context(), "orders"); err != nil || state(r) != tt.want {
					t.Errorf("after the late request: %s, %v; want %s", state(r), err, tt.want)
				}
			})
		})
	}
}

func TestSeek_ReplacesTheSeeksOfItsPartitions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.put(t, subscription("orders"))
	if _, ok := r.FindSeek("a", 1); ok {
		t.Error("a new subscription has a seek")
	}
	seek := func(to, topic string, partition int32, want int) {
		t.Helper()
		var err error
		r, err = b.Seek(t.Context(), "orders", subscriptions.Seek{To: to, Topic: topic, Partition: partition, Offset: 1}, "ada")
		if err != nil || len(r.Seeks) != want {
			t.Fatalf("Seek() = %+v, %v, want %d seeks", r.Seeks, err, want)
		}
	}
	seek(subscriptions.StartLatest, "a", 1, 1)
	seek("offset", "a", 2, 2)
	seek("2026-01-01T00:00:00Z", "b", -1, 3)
	seek(subscriptions.StartEarliest, "a", 1, 3)
	for _, want := range []struct {
		topic     string
		partition int32
		to        string
		before    int64
	}{{"a", 1, subscriptions.StartEarliest, 3}, {"a", 2, "offset", 1}, {"b", 7, "2026-01-01T00:00:00Z", 2}, {"a", 3, "", 0}} {
		if got, ok := r.FindSeek(want.topic, want.partition); got.To != want.to || ok && got.Version != b.now.UnixMilli()+want.before || ok != (want.to != "") {
			t.Errorf("SeekOf(%s, %d) = %+v, want %+v", want.topic, want.partition, got, want)
		}
	}
	b.now = b.now.Add(time.Hour)
	seek(subscriptions.StartLatest, "a", -1, 2)
	if got, _ := r.FindSeek("a", 1); got.To != subscriptions.StartLatest || !got.At.Equal(b.now) {
		t.Errorf("SeekOf(a, 1) = %+v, want the latest one, at %s", got, b.now)
	}
	seek(subscriptions.StartLatest, "", 0, 1)
	stored, err := b.Get(t.Context(), "orders")
	if err != nil || !reflect.DeepEqual(stored, r) {
		t.Errorf("Get() = %+v, %v\nwant %+v", stored, err, r)
	}
	for _, bad := range []subscriptions.Seek{{To: "yesterday"}, {To: "offset"}, {To: "offset", Topic: "a", Partition: -1}, {To: "offset", Topic: "a", Offset: -1}} {
		if _, err := b.Seek(t.Context(), "orders", bad, "ada"); err == nil {
			t.Errorf("Seek(%+v) succeeded", bad)
		}
	}
	if _, err := b.Seek(t.Context(), "none", subscriptions.Seek{To: subscriptions.StartLatest}, "ada"); !errors.Is(err, subscriptions.ErrNotFound) {
		t.Errorf("Seek() of a missing one: %v, want ErrNotFound", err)
	}
}

// A subscription that is created again has nothing of the deleted one, whose messages are
// removed.
// A purge is noted once by all instances, and survives other changes.
func TestNotePurge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if err := b.NotePurge(t.Context(), "orders", b.now, "ada"); !errors.Is(err, subscriptions.ErrNotFound) {
		t.Errorf("NotePurge() of a missing one = %v", err)
	}
	b.put(t, subscription("orders"))
	before := b.now.Add(-time.Hour)
	for _, limit := range []time.Time{before, before, before.Add(-time.Second)} {
		must(t, b.NotePurge(t.Context(), "orders", limit, "ada"))
	}
	b.put(t, subscription("orders"))
	r, err := b.Get(t.Context(), "orders")
	if want := (Purge{before, b.now}); err != nil || r.Purge != want || r.Version != 3 {
		t.Errorf("Get() = %+v, %v, want version 3 with %+v", r, err, want)
	}
	must(t, b.Delete(t.Context(), "orders", 0, "ada"))
	if r := b.put(t, subscription("orders")); r.Purge != (Purge{}) {
		t.Errorf("a new subscription has the purge %+v", r.Purge)
	}
}

func TestDelete_LeavesNothingForTheNextOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.put(t, subscription("orders"))
	old := Partition{first.Incarnation(), "OrderCreated", 1}
	epoch, err := b.ClaimPartition(t.Context(), old, "i-1")
	must(t, err)
	must(t, b.Save(t.Context(), old, epoch, messages(1, 3)))
	_, err = b.Seek(t.Context(), "orders", subscriptions.Seek{To: subscriptions.StartLatest}, "ada")
	must(t, err)
	must(t, b.Delete(t.Context(), "orders", 0, "ada"))
	if _, err := b.Get(t.Context(), "orders"); !errors.Is(err, subscriptions.ErrNotFound) {
		t.Errorf("Get() after Delete: %v, want ErrNotFound", err)
	}
	if all, err := b.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("List() after Delete = %+v, %v, want none", all, err)
	}
	if err := b.Delete(t.Context(), "orders", 0, "ada"); !errors.Is(err, subscriptions.ErrNotFound) {
		t.Errorf("second Delete(): %v, want ErrNotFound", err)
	}

	// The clock has not moved since.
	second := b.put(t, subscription("orders"))
	if second.Incarnation() == first.Incarnation() || len(second.Seeks) != 0 {
		t.Errorf("created again: %+v, first %+v", second, first)
	}
	deleted, err := b.ListDeleted(t.Context())
	if err != nil || len(deleted) != 1 || deleted[0] != (Deleted{first.Incarnation(), b.now}) {
		t.Fatalf("Deleted() = %+v, %v", deleted, err)
	}
	must(t, b.Clean(t.Context(), first.Incarnation()))
	must(t, b.Clean(t.Context(), first.Incarnation()))
	if deleted, err = b.ListDeleted(t.Context()); err != nil || len(deleted) != 0 {
		t.Errorf("Deleted() after Clean = %+v, %v", deleted, err)
	}
	if stored, err := b.Messages(t.Context(), old); err != nil || len(stored) != 0 {
		t.Errorf("Messages() after Clean = %+v, %v", stored, err)
	}
	if err := b.another(t).Save(t.Context(), old, epoch, messages(1, 2)); !errors.Is(err, ErrFenced) {
		t.Errorf("Save() of the deleted one's owner: %v, want ErrFenced", err)
	}
	second.Created = false // which is not stored
	got, err := b.Get(t.Context(), "orders")
	if err != nil || !reflect.DeepEqual(got, second) {
		t.Errorf("Get() after Clean = %+v, %v, want %+v", got, err, second)
	}
	n := 0
	must(t, b.Session.Query("SELECT COUNT(*) FROM subscription_partitions").Scan(&n))
	if n != 0 {
		t.Errorf("%d partitions are listed after Clean, want none", n)
	}
}

func TestInstances_ExpireAfterAnHour(t *testing.T) {
	inBubble(t, func(t *testing.T, b *fixture) {
		report := func(i subscriptions.InstanceStatus) {
			t.Helper()
			must(t, b.Report(t.Context(), "orders", i))
		}
		check := func(want ...subscriptions.InstanceStatus) {
			t.Helper()
			got, err := b.Instances(t.Context(), "orders")
			if err != nil || len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
				t.Errorf("Instances() = %+v, %v\nwant %+v", got, err, want)
			}
		}
		one := subscriptions.InstanceStatus{Instance: "i-1", Address: "10.0.0.1:80", At: b.now, Partitions: 3, LastError: "a\xff", Breaker: &subscriptions.BreakerStatus{State: "open", Since: b.now, NextProbe: b.now.Add(time.Second), Cause: "503"}}
		report(one)
		one.LastError = "a\uFFFD"
		two := subscriptions.InstanceStatus{Instance: "i-2", At: b.now}
		time.Sleep(50 * time.Minute)
		report(two)
		check(one, two)
		time.Sleep(11 * time.Minute)
		check(two)
		time.Sleep(50 * time.Minute)
		check()
	})
}

func TestReceiptKey_IsOneForAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var keys [8][]byte
	var wg sync.WaitGroup
	for i := range keys {
		s := b.another(t)
		wg.Go(func() {
			var err error
			if keys[i], err = s.ReceiptKey(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, k := range keys {
		if len(k) != receiptKeySize || !bytes.Equal(k, keys[0]) || bytes.Equal(k, make([]byte, receiptKeySize)) {
			t.Errorf("key %x, the first one is %x", k, keys[0])
		}
	}
}
