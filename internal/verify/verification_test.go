package verify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// fixture is a database with an outbox and a broker, over TCP.
type fixture struct {
	db      *scyllafake.Server
	broker  *kfake.Cluster
	t       *testing.T
	session *gocql.Session
	seeds   []string
	client  *kgo.Client
}

func setup(t *testing.T) *fixture {
	t.Helper()
	return setupOn(t, scyllatest.Config())
}

// setupOn is setup with the configuration of the database and options of the broker.
func setupOn(t *testing.T, conf scyllafake.Config, opts ...kfake.Opt) *fixture {
	t.Helper()
	conf.Addr = "127.0.0.1:0"
	srv, err := scyllafake.Start(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	connect := func(keyspace string) *gocql.Session {
		host, port, err := net.SplitHostPort(srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		cluster := gocql.NewCluster(host)
		cluster.Port, _ = strconv.Atoi(port)
		cluster.Keyspace = keyspace
		s, err := cluster.CreateSession()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	if err := schema.Migrate(t.Context(), connect(""), schema.Options{}); err != nil {
		t.Fatal(err)
	}
	broker := world.StartBroker(t, append(opts, kfake.SeedTopics(3, "A", "B"))...)
	b := &fixture{t: t, db: srv, session: connect("outbox"), broker: broker, seeds: broker.ListenAddrs()}
	if b.client, err = kgo.NewClient(kgo.SeedBrokers(b.seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.client.Close)
	return b
}

// event is the seq-th event of an aggregate; odd aggregates' go to topic A,
// others' to B.
func event(aggregate, seq int) outbox.Event {
	typ := "B"
	if aggregate%2 == 1 {
		typ = "A"
	}
	return outbox.Event{
		ID: outbox.IDFromUUID(id(aggregate, seq)), AggregateID: aggregateID(aggregate), Sequence: int64(seq), AggregateType: "thing", Type: typ,
		Payload: []byte("{}"), CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
}

func (b *fixture) write(events ...outbox.Event) {
	b.t.Helper()
	batch := b.session.Batch(gocql.LoggedBatch)
	for _, e := range events {
		if err := outbox.Append(batch, e); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := batch.Exec(); err != nil {
		b.t.Fatal(err)
	}
}

// source is the ce_source of the fixture's records.
const source = "test"

// publish produces to a partition; each record is acknowledged before the next.
func (b *fixture) publish(partition int32, events ...outbox.Event) {
	b.t.Helper()
	for _, e := range events {
		b.publishFrom(origin{source: source}, partition, outbox.Record{Event: e})
	}
}

// publishFrom is publish with the ce_source and, unless it is empty, the ce_table of the records.
func (b *fixture) publishFrom(from origin, partition int32, records ...outbox.Record) {
	b.t.Helper()
	for _, e := range records {
		r := &kgo.Record{Topic: e.Type, Partition: partition, Key: []byte(e.AggregateID.String()), Value: e.Payload}
		r.Headers = outbox.AppendHeaders(r.Headers, &e.Event, from.source)
		if !e.OriginalID.IsZero() {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: outbox.HeaderOriginalID, Value: []byte(e.OriginalID.String())})
		}
		if from.table != "" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: outbox.HeaderTable, Value: []byte(from.table)})
		}
		if err := b.client.ProduceSync(b.t.Context(), r).FirstErr(); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *fixture) verification(change ...func(*Verification)) *Verification {
	v := &Verification{
		Scan: &Scan{
			Session: b.session, Table: "outbox_messages", Ranges: 16,
			Topic: func(e *outbox.Event) (string, error) { return e.Type, nil },
		},
		Keyspace: "outbox", Table: "outbox_messages", Source: source,
		Kafka:  world.Kafka{kgo.SeedBrokers(b.seeds...)},
		Window: Window{Until: time.Now().Add(time.Hour)},
	}
	for _, f := range change {
		f(v)
	}
	return v
}

// run runs a verification and returns its findings, sorted.
func (b *fixture) run(v *Verification) (Counts, []string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Minute)
	defer cancel()
	if err := v.Run(ctx); err != nil {
		b.t.Fatal(err)
	}
	var found []string
	c := v.Ledger().Check(v.Window, func(f Finding) {
		found = append(found, fmt.Sprintf("%s %d/%d", f.Kind, aggregateNumber(f.Aggregate), f.Seq))
	})
	slices.Sort(found)
	return c, found
}

// plant writes and publishes 300 valid events, and one of each kind of finding.
func (b *fixture) plant() (want []string) {
	for a := 1; a <= 100; a++ {
		events := []outbox.Event{event(a, 1), event(a, 2), event(a, 3)}
		b.write(events...)
		b.publish(int32(a%3), events...)
	}
	missing := []outbox.Event{event(201, 1), event(201, 2), event(201, 3)}
	b.write(missing...)
	b.publish(0, missing[0], missing[2])
	double := []outbox.Event{event(202, 1), event(202, 2)}
	b.write(double...)
	b.publish(0, double...)
	b.publish(0, double[0])
	disorder := []outbox.Event{event(203, 1), event(203, 2)}
	b.write(disorder...)
	b.publish(0, disorder[1], disorder[0])
	gap := []outbox.Event{event(204, 1), event(204, 3)}
	b.write(gap...)
	b.publish(0, gap...)
	b.publish(0, event(205, 1)) // written nowhere
	// A row that a change of one column left behind.
	if err := b.session.Query("UPDATE outbox_messages SET payload = 0x00 WHERE aggregate_id = ? AND seq = 9", aggregateID(206)).Exec(); err != nil {
		b.t.Fatal(err)
	}
	// Two topics, the later event a second ahead in time.
	first, second := event(207, 1), event(207, 2)
	second.Type = "B"
	b.write(first, second)
	b.publish(0, second)
	time.Sleep(5 * time.Millisecond)
	b.publish(0, first)
	if err := b.client.ProduceSync(b.t.Context(), &kgo.Record{Topic: "A", Value: []byte("somebody else's")}).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
	return []string{"disorder 203/2", "disorder 207/2", "double 202/1", "gap 204/3", "missing 201/2", "unknown 205/1", "unreadable 206/9"}
}

var plantedCounts = Counts{
	Rows: 311, Published: 310, Missing: 1, Doubles: 1, Disorder: 2, Gaps: 1, Unreadable: 1, Unknown: 1, Foreign: 1,
}

func TestVerification_FindsEverythingPlanted(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, conf scyllafake.Config, opts ...kfake.Opt) {
		b := setupOn(t, conf, opts...)
		want := b.plant()
		c, found := b.run(b.verification())
		if !slices.Equal(found, want) || c != plantedCounts {
			t.Errorf("found %q %+v\nwant %q %+v", found, c, want, plantedCounts)
		}
		if c.OK() {
			t.Error("OK() with everything wrong")
		}
	}
	scyllatest.EachVersion(t, func(t *testing.T, conf scyllafake.Config) { test(t, conf) })
	world.EachBroker(t, func(t *testing.T, v *world.BrokerVersion) { test(t, scyllatest.Config(), v.Options()...) })
}

func TestVerification_NothingAtAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if c, found := b.run(b.verification()); c != (Counts{}) || found != nil {
		t.Errorf("%+v %q, want nothing", c, found)
	}
	// A topic that does not exist.
	e := event(1, 1)
	e.Type = "never-made"
	b.write(e)
	if c, found := b.run(b.verification()); c.Missing != 1 || len(found) != 1 {
		t.Errorf("%+v %q, want one missing", c, found)
	}
}

func TestVerification_Window(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lost, old := event(1, 1), event(3, 1)
	b.write(lost, old)
	time.Sleep(10 * time.Millisecond)
	since := time.Now()
	time.Sleep(10 * time.Millisecond)
	// Written before the window and published in it: not an unknown event.
	b.publish(0, old)
	b.write(event(1, 2), event(5, 1))
	b.publish(0, event(1, 2), event(5, 1))
	time.Sleep(10 * time.Millisecond)
	until := time.Now()
	time.Sleep(10 * time.Millisecond)
	b.write(event(7, 1))
	c, found := b.run(b.verification(func(v *Verification) { v.Window = Window{Since: since, Until: until} }))
	if want := (Counts{Rows: 2, Published: 2, Young: 1, Pending: 1}); c != want || found != nil {
		t.Errorf("%+v %q, want %+v", c, found, want)
	}
	c, _ = b.run(b.verification(func(v *Verification) { v.Window = Window{Until: until} }))
	if want := (Counts{Rows: 4, Published: 3, Young: 1, Pending: 1, Missing: 1}); c != want {
		t.Errorf("from the first: %+v, want %+v", c, want)
	}
}

func TestVerification_TopicThatDeletedItsOldRecords(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var events []outbox.Event
	for seq := 1; seq <= 10; seq++ {
		events = append(events, event(1, seq))
		b.write(events[seq-1])
		time.Sleep(3 * time.Millisecond) // records' times are in milliseconds
		b.publish(1, events[seq-1])
	}
	b.write(event(3, 1)) // never published, after the horizon
	adm := kadm.NewClient(b.client)
	offsets := kadm.Offsets{}
	offsets.AddOffset("A", 1, 4, -1)
	if _, err := adm.DeleteRecords(t.Context(), offsets); err != nil {
		t.Fatal(err)
	}
	c, found := b.run(b.verification())
	// The fifth may have been published after the fourth's record was deleted.
	if c.Untold != 4 || c.Published != 6 || c.Missing != 1 || !slices.Equal(found, []string{"missing 3/1"}) {
		t.Errorf("%+v %q, want four of which nothing can be told and one missing", c, found)
	}
}

// An open transaction of another program hides the records behind it from consumers: the events are
// published nevertheless.
func TestVerification_OpenTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	producer, err := kgo.NewClient(kgo.SeedBrokers(b.seeds...), kgo.TransactionalID("test"), kgo.TransactionTimeout(10*time.Minute), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	if err := errors.Join(producer.BeginTransaction(), producer.ProduceSync(t.Context(), &kgo.Record{Topic: "A"}).FirstErr()); err != nil {
		t.Fatal(err)
	}
	b.write(event(1, 1))
	b.publish(0, event(1, 1))
	if c, found := b.run(b.verification()); c.Published != 1 || c.Foreign != 1 || found != nil {
		t.Errorf("%+v %q, want one published", c, found)
	}
}

// A topic that cannot be read ends a verification, which names the partition and has no verdict; the same one
// continues once it can be read.
func TestVerification_TopicThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.write(event(1, 1))
	b.publish(0, event(1, 1))
	var away atomic.Bool
	away.Store(true)
	b.broker.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.broker.KeepControl()
		return nil, errors.New("away"), away.Load()
	})
	state := filepath.Join(t.TempDir(), "state")
	v := b.verification(func(v *Verification) { v.State, v.stall = state, time.Millisecond })
	if err := v.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "A/0 from offset 0 to 1") {
		t.Errorf("without answers of the broker the error is %v, want the partition that was not read", err)
	}
	away.Store(false)
	if c, found := b.run(b.verification(func(v *Verification) { v.State = state })); c.Published != 1 || found != nil {
		t.Errorf("continued: %+v %q, want one published", c, found)
	}
}

// errStop ends a verification as a crash would.
var errStop = errors.New("stopped here")

func TestVerification_ResumesAfterAnInterruption(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := b.plant()
	until := time.Now().Add(time.Hour)
	path := filepath.Join(t.TempDir(), "state")
	// Each run is stopped in the scan and does a part of the rest.
	runs := 0
	for scanned := int64(-1); ; runs++ {
		v := b.verification(func(v *Verification) {
			v.State, v.Window.Until = path, until.Add(time.Duration(runs)*time.Second)
			v.Scan.Parallel = 1
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		topic, rows := v.Scan.Topic, 0
		v.Scan.Topic = func(e *outbox.Event) (string, error) {
			if rows++; rows > 80 {
				cancel(errStop)
			}
			return topic(e)
		}
		err := v.Run(ctx)
		if err == nil {
			t.Fatal("the scan was not stopped")
		}
		if !errors.Is(err, errStop) && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		got := v.Ledger().Totals().Rows
		if got <= scanned {
			t.Fatalf("run %d has %d rows, the one before had %d", runs, got, scanned)
		}
		if scanned = got; runs == 2 {
			break
		}
	}
	// An incomplete block after a crash is ignored.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("\x40\x00\x00\x00half a block")); err != nil {
		t.Fatal(err)
	}
	f.Close()

	v := b.verification(func(v *Verification) { v.State = path })
	c, found := b.run(v)
	if !v.Resumed() || v.Window.Until.UnixMicro() != until.UnixMicro() {
		t.Errorf("Resumed() = %v, Until = %s, want those of the first run, %s", v.Resumed(), v.Window.Until, until)
	}
	if v.Scan.Rows() >= plantedCounts.Rows {
		t.Errorf("%d rows were scanned again, of %d", v.Scan.Rows(), plantedCounts.Rows)
	}
	if !slices.Equal(found, want) || c != plantedCounts {
		t.Errorf("found %q %+v\nwant %q %+v", found, c, want, plantedCounts)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state file is left behind: %v", err)
	}
}

// A run that was stopped while it read the topics resumes at the offsets.
func TestVerification_ResumesInTheTopics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := b.plant()
	path := filepath.Join(t.TempDir(), "state")
	reading := func() *Verification { return b.verification(func(v *Verification) { v.State = path }) }

	// The journal of a whole run, cut within the topics.
	v := reading()
	whole := filepath.Join(t.TempDir(), "whole")
	v.DeadLetters = deadLettersFunc(func([]gocql.UUID, func(DeadLetter)) error { return os.Link(path, whole) })
	if _, found := b.run(v); !slices.Equal(found, want) {
		t.Fatalf("found %q", found)
	}
	info, err := os.Stat(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(whole, info.Size()-1); err != nil { // the last batch is not whole
		t.Fatal(err)
	}
	if err := os.Rename(whole, path); err != nil {
		t.Fatal(err)
	}
	v = reading()
	c, found := b.run(v)
	if !slices.Equal(found, want) || c != plantedCounts {
		t.Errorf("found %q %+v\nwant %q %+v", found, c, want, plantedCounts)
	}
	if p := v.Progress(); v.Scan.Rows() != 0 || p.Total == 0 || p.Total >= plantedCounts.Published {
		t.Errorf("%d rows scanned and %d records read again, want none and some", v.Scan.Rows(), p.Total)
	}
}

func TestVerification_StateOfAnother(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := filepath.Join(t.TempDir(), "state")
	use := func(change ...func(*Verification)) error {
		v := b.verification(append(change, func(v *Verification) { v.State = path })...)
		return v.Run(t.Context())
	}
	if err := os.WriteFile(path, []byte("notes of mine, of some length"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := use(); !errors.Is(err, ErrOtherState) {
		t.Errorf("on a file of notes: %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(got), "notes of mine") {
		t.Errorf("the notes are now %q %v", got, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	j, err := openJournal(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.add(blockData{Head: &head{Version: journalVersion, Table: "outbox.outbox_messages", TableID: "another", Ranges: 16}}), j.close(false)); err != nil {
		t.Fatal(err)
	}
	if err := use(); !errors.Is(err, ErrOtherState) || !strings.Contains(err.Error(), "another") {
		t.Errorf("of a table that was made anew: %v", err)
	}
}

func TestVerification_BrokenTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, stmt := range []string{
		"CREATE TABLE outbox.no_outbox (aggregate_id uuid, seq bigint, note text, PRIMARY KEY (aggregate_id, seq))",
		"CREATE TABLE outbox.odd (aggregate_id text PRIMARY KEY, seq bigint, event_id uuid, aggregate_type text, event_type text, payload blob)",
	} {
		if err := b.session.Query(stmt).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	for table, want := range map[string]string{
		"nosuch": "does not exist", "no_outbox": "column event_id is missing", "odd": "numbers the events, but the primary key is ((aggregate_id), )",
	} {
		err := b.verification(func(v *Verification) { v.Table, v.Scan.Table = table, table }).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want it to say %q", table, err, want)
		}
	}
}

func TestScan_BoundsCoverEveryToken(t *testing.T) {
	t.Parallel()
	for _, ranges := range []int{1, 2, 3, 7, 512, 1000} {
		after, upTo := bounds(0, ranges)
		if after != -1<<63 {
			t.Errorf("%d ranges begin above %d", ranges, after)
		}
		for n := 1; n < ranges; n++ {
			a, u := bounds(n, ranges)
			if a != upTo || u <= a {
				t.Fatalf("%d ranges: range %d is (%d, %d], the one before ends at %d", ranges, n, a, u, upTo)
			}
			upTo = u
		}
		if upTo != 1<<63-1 {
			t.Errorf("%d ranges end at %d", ranges, upTo)
		}
	}
}

func TestScan_KeepsToItsRate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for a := range 60 {
		b.write(event(a+1, 1), event(a+1, 2))
	}
	l := NewLedger()
	s := b.verification().Scan
	s.Rate = 50
	began := time.Now()
	if err := s.Into(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	// The rows of the first second may be read immediately.
	if took := time.Since(began); took < time.Second || l.Totals().Rows != 120 {
		t.Errorf("%d rows in %s at 50 a second", l.Totals().Rows, took)
	}
}
