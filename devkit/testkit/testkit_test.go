package testkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/inbox"
)

// connect returns a session of a service in the keyspace outbox.
func connect(t *testing.T, k *Kit) *gocql.Session {
	t.Helper()
	c := gocql.NewCluster(k.CQL)
	c.Keyspace, c.Timeout, c.ConnectTimeout = "outbox", Patience, Patience
	s, err := c.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// write writes the next event of an aggregate, and repeats it until it is stored.
func write(t *testing.T, s *gocql.Session, aggregate string, sequence int64) outbox.Event {
	t.Helper()
	e := outbox.Event{
		ID: outbox.NewID(), AggregateID: outbox.IDFromText(aggregate), Sequence: sequence, AggregateType: "thing", Type: "ThingHappened",
		Payload: fmt.Appendf(nil, `{"n":%d}`, sequence), CreatedAt: time.Now().UTC(),
	}
	for {
		b := s.Batch(gocql.LoggedBatch)
		if err := outbox.Append(b, e); err != nil {
			t.Fatal(err)
		}
		if b.Exec() == nil {
			return e
		}
	}
}

// recorder is a test whose failures are recorded.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

// errEnded ends what a recorded test does.
var errEnded = errors.New("the test has ended")

// Fatalf records a failure and ends the test.
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(errEnded)
}

// Fatal is Fatalf of a text.
func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// Cleanup records the functions to run at the end.
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// Errorf records a failure.
func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// failing runs a check and returns its failures.
func failing(k *Kit, check func()) string {
	r := &recorder{TB: k.t}
	k.t = r
	defer func() { k.t = r.TB }()
	func() {
		defer func() {
			if p := recover(); p != nil && p != errEnded {
				panic(p)
			}
		}()
		check()
	}()
	for _, f := range r.cleanups {
		f()
	}
	return strings.Join(r.failures, "\n")
}

// Events are published once and in order while connections of the database and of the broker
// end, and while the relay is killed.
func TestKit_NothingIsLostByFaultsAndKills(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2026.1", "5.1"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			k := Start(t, Options{Version: version})
			s := connect(t, k)
			injected := []*Injected{
				k.FaultDatabase(Fault{Effect: LoseAnswer, On: "outbox.outbox_messages", Chance: 0.1}),
				k.FaultDatabase(Fault{Effect: LoseRequest, On: "outbox.outbox_messages", Chance: 0.1}),
				k.FaultDatabase(Fault{Effect: Refuse, Reads: true, Chance: 0.02}),
				k.FaultBroker(Fault{Effect: LoseAnswer, Times: 2}),
				k.FaultBroker(Fault{Effect: LoseRequest, Times: 2}),
				k.FaultBroker(Fault{Effect: Refuse, On: "ThingHappened", Times: 2}),
			}
			var events []outbox.Event
			next := func() {
				const aggregates = 5
				n := len(events)
				events = append(events, write(t, s, fmt.Sprint("thing-", n%aggregates), int64(n/aggregates+1)))
			}
			k.KillDuring(2, next, k.Relay)
			for i, one := range injected {
				k.Until(fmt.Sprintf("a hit of fault %d", i), func() bool { next(); return one.Hits() > 0 })
				one.Remove()
			}
			for i, r := range k.Published(events...) {
				if r.Topic != "ThingHappened" || string(r.Key) != events[i].AggregateID.String() {
					t.Errorf("event %s is in topic %s with the key %s", events[i].ID, r.Topic, r.Key)
				}
			}
			if n := k.NothingLost(); n != len(events) {
				t.Errorf("NothingLost() = %d, want %d", n, len(events))
			}
		})
	}
}

// Each effect on a write is what its documentation contains.
func TestFaultDatabase_Effects(t *testing.T) {
	t.Parallel()
	k := Start(t, Options{NoRelay: true})
	s := connect(t, k)
	if err := s.Query("CREATE TABLE outbox.counts (id int PRIMARY KEY, n int)").Exec(); err != nil {
		t.Fatal(err)
	}
	never := &gocql.SimpleRetryPolicy{}
	for i, tt := range []struct {
		effect           Effect
		failed, executed bool
	}{{Refuse, true, false}, {LoseRequest, true, false}, {LoseAnswer, true, true}, {Delay, false, true}} {
		for j, stmt := range []string{"INSERT INTO counts (id, n) VALUES (?, 1)", "INSERT INTO counts (id, n) VALUES (?, 1) IF NOT EXISTS"} {
			id := 2*i + j
			f := k.FaultDatabase(Fault{Effect: tt.effect, On: "outbox.counts", Times: 1, Delay: time.Millisecond})
			err := s.Query(stmt, id).RetryPolicy(never).Exec()
			var n int
			k.Until("a connection", func() bool { return s.Query("SELECT count(*) FROM counts WHERE id = ?", id).Scan(&n) == nil })
			if (err != nil) != tt.failed || (n == 1) != tt.executed || f.Hits() != 1 {
				t.Errorf("effect %d: %s = %v, %d rows, %d hits", tt.effect, stmt, err, n, f.Hits())
			}
		}
	}
	f := k.FaultDatabase(Fault{Effect: Refuse, Reads: true, On: "outbox.counts"})
	if err := s.Query("SELECT n FROM counts WHERE id = 1").RetryPolicy(never).Exec(); err == nil || f.Hits() == 0 {
		t.Errorf("a refused read = %v, %d hits", err, f.Hits())
	}
	f.Remove()
	if err := s.Query("SELECT n FROM counts WHERE id = 1").Exec(); err != nil {
		t.Errorf("a read after Remove = %v", err)
	}
}

// A fault keeps its count when it is removed. One that cannot hit anything is reported.
func TestFaults_CountsAndNames(t *testing.T) {
	t.Parallel()
	k := Start(t, Options{NoRelay: true})
	s := connect(t, k)
	write(t, s, "thing", 1)
	f := k.FaultDatabase(Fault{Effect: Delay, On: "outbox.outbox_messages", Delay: time.Millisecond})
	write(t, s, "thing", 2)
	if f.Remove(); f.Hits() != 1 {
		t.Errorf("%d hits after Remove, want 1", f.Hits())
	}
	for _, on := range []string{"no.such", "outbox.such", "outbox_messages"} {
		if text := failing(k, func() { k.FaultDatabase(Fault{Effect: Refuse, On: on}) }); !strings.Contains(text, on) {
			t.Errorf("a fault of table %s: %q, want an error that names it", on, text)
		}
	}
	refuse := func() { k.FaultBroker(Fault{Effect: Refuse, On: "Nothing", Times: 1}) }
	if text := failing(k, refuse); !strings.Contains(text, `"Nothing"`) {
		t.Errorf("a fault of a topic that was never made: %q, want an error that names it", text)
	}
	if _, err := k.records.admin.CreateTopic(t.Context(), 1, 1, nil, "Nothing"); err != nil {
		t.Fatal(err)
	}
	if text := failing(k, refuse); text != "" {
		t.Errorf("a fault of a topic: %q", text)
	}
}

// A release that is not emulated is refused with the ones that are.
func TestStart_RefusesAnUnknownRelease(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}
	defer func() {
		if p := recover(); p != errEnded || !strings.Contains(strings.Join(r.failures, ""), `"6.2" is not emulated: use one of 5.1, 2025.4, 2026.1`) {
			t.Errorf("it ended with %v and %q, want the releases", p, r.failures)
		}
	}()
	Start(r, Options{Version: "6.2"})
}

// By the clock of the database rows expire, and writes without a time have theirs; the relay
// publishes events written after it is set.
func TestKit_SetDatabaseClock(t *testing.T) {
	t.Parallel()
	k := Start(t, Options{})
	s := connect(t, k)
	k.Published(write(t, s, "thing", 1))
	rows := func() (n int) {
		if err := s.Query("SELECT COUNT(*) FROM outbox_messages WHERE aggregate_id = 'thing'").Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	const day = 24 * time.Hour
	if n := rows(); n != 1 {
		t.Errorf("%d rows before, want 1", n)
	}
	k.SetDatabaseClock(8 * day)
	if n := rows(); n != 0 {
		t.Errorf("%d rows after 8 days, want 0: their TTL is 7", n)
	}
	k.SetDatabaseClock(time.Hour)
	var written int64
	if err := s.Query("INSERT INTO outbox_sweeps (table_name, aggregate_type, part, swept_at) VALUES ('t', 'a', 1, 0)").DefaultTimestamp(false).Exec(); err != nil {
		t.Fatal(err)
	}
	if err := s.Query("SELECT WRITETIME(swept_at) FROM outbox_sweeps WHERE table_name = 't' AND aggregate_type = 'a' AND part = 1").Scan(&written); err != nil {
		t.Fatal(err)
	}
	if ahead := time.Until(time.UnixMicro(written)); ahead < 50*time.Minute || ahead > time.Hour {
		t.Errorf("the write is dated %s ahead, want an hour", ahead)
	}
	k.Published(write(t, s, "thing", 2))
}

// The effects on a produce request, by the answer that a producer without retries receives.
func TestFaultBroker_Effects(t *testing.T) {
	t.Parallel()
	k := Start(t, Options{NoRelay: true})
	for _, tt := range []struct {
		effect           Effect
		failed, executed bool
	}{{Refuse, true, false}, {LoseRequest, true, false}, {LoseAnswer, true, true}, {Delay, false, true}} {
		topic := fmt.Sprint("topic-", tt.effect)
		if _, err := k.records.admin.CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
		client, err := kgo.NewClient(kgo.SeedBrokers(k.Kafka), kgo.DisableIdempotentWrite(), kgo.RecordRetries(0), kgo.RequestRetries(0))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("first")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		f := k.FaultBroker(Fault{Effect: tt.effect, Times: 1, Delay: time.Millisecond})
		err = client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("second")}).FirstErr()
		if n := len(k.Records(topic)); (err != nil) != tt.failed || (n == 2) != tt.executed || f.Hits() != 1 {
			t.Errorf("effect %d: %v, %d records, %d hits", tt.effect, err, n, f.Hits())
		}
	}
}

// Each check fails for the fault that it has to find.
func TestKit_ChecksFail(t *testing.T) {
	t.Parallel()
	k := Start(t, Options{})
	s := connect(t, k)
	var events []outbox.Event
	for n := range int64(3) {
		events = append(events, write(t, s, "thing", n+1))
	}
	records := k.Published(events...)
	if text := failing(k, func() { k.NothingLost() }); text != "" {
		t.Errorf("NothingLost() without a loss: %s", text)
	}

	// Another record of an event, as of a relay that repeats it, also out of order.
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Kafka))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	again := &kgo.Record{Topic: records[0].Topic, Key: records[0].Key, Value: records[0].Value, Headers: records[0].Headers}
	if err := client.ProduceSync(t.Context(), again).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if text := failing(k, func() { k.NothingLost() }); !strings.Contains(text, "0 are lost, 1 twice") {
		t.Errorf("NothingLost() with an event twice: %q", text)
	}

	// A consumer that applies each delivery, and one that applies each event.
	applied := make(map[outbox.ID]int)
	count := func(_ context.Context, id outbox.ID) (int, error) { return applied[id], nil }
	each := func(_ context.Context, r *kgo.Record) error {
		e, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
		applied[e.ID]++
		return err
	}
	if text := failing(k, func() { k.ConsumedOnce("ThingHappened", each, count) }); strings.Count(text, "want once") < len(events) {
		t.Errorf("ConsumedOnce() of a consumer that applies each delivery: %q", text)
	}
}

// An inbox applies each event once, however often it is delivered.
func TestConsumedOnce_WithAnInbox(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "consumer.cql")
	if err := os.WriteFile(file, []byte(inbox.OnceTable("outbox", "once")+";\n-- effects\nCREATE TABLE outbox.effects (id text PRIMARY KEY, n int);"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := Start(t, Options{Schema: []string{file}})
	s := connect(t, k)
	var events []outbox.Event
	for n := range int64(10) {
		events = append(events, write(t, s, "thing", n+1))
	}
	k.Published(events...)
	once, err := inbox.NewOnce(t.Context(), s, inbox.OnceConfig{Table: "once"})
	if err != nil {
		t.Fatal(err)
	}
	effects := make(map[outbox.ID]int)
	k.ConsumedOnce("ThingHappened", func(ctx context.Context, r *kgo.Record) error {
		e, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
		if err == nil {
			_, _, err = once.Do(ctx, e.ID.String(), func(context.Context) ([]byte, error) { effects[e.ID]++; return nil, nil })
		}
		return err
	}, func(_ context.Context, id outbox.ID) (int, error) { return effects[id], nil })
}
