package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/engines"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// The commands of docs/operators/restore.md, in their order, restore a system whose relay runs the
// whole program.
func TestRestore(t *testing.T) {
	t.Parallel()
	p := readAdvice(t, "restore.md")
	var ended atomic.Int32
	cases := map[string]func(*testing.T, *advice){
		"the database":               restoreDatabase,
		"the rows of the database":   restoreRows,
		"topics that are lost":       func(t *testing.T, p *advice) { restoreTopics(t, p, true) },
		"topics from a copy":         func(t *testing.T, p *advice) { restoreTopics(t, p, false) },
		"both, the topics are newer": func(t *testing.T, p *advice) { restoreBoth(t, p, true) },
		"both, the topics are older": func(t *testing.T, p *advice) { restoreBoth(t, p, false) },

		"subscriptions, the database":               restoreSubscriptions,
		"subscriptions, topics that are lost":       restoreSubscribedLostTopics,
		"subscriptions, topics from a copy":         restoreSubscribedTopics,
		"subscriptions, both, the topics are newer": func(t *testing.T, p *advice) { restoreSubscribedBoth(t, p, true) },
		"subscriptions, both, the topics are older": func(t *testing.T, p *advice) { restoreSubscribedBoth(t, p, false) },
	}
	t.Run("cases", func(t *testing.T) {
		for name, test := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, p)
				ended.Add(1)
			})
		}
	})
	if int(ended.Load()) == len(cases) { // one alone, or one that failed, does not execute every command
		p.check(t, make(map[string]bool))
	}
}

// restored is a system with backups of its engines' folders.
type restored struct {
	*verifyFixture
	backups   string
	stopRelay func()
}

func setupRestored(t *testing.T) *restored {
	t.Helper()
	r := &restored{verifyFixture: &verifyFixture{t: t, e: engines.Engines{Dir: t.TempDir(), CQLAddr: "127.0.0.1:0", KafkaAddr: "127.0.0.1:0", Tokens: 4}}, backups: t.TempDir()}
	r.setup()
	r.startRelay()
	return r
}

// startRelay runs outbox relay, with the scheduler.
func (r *restored) startRelay() {
	r.t.Helper()
	c, err := parseConfig(r.t, "relay: {topics: [ThingHappened=things], confidence_window: 1s}", nil, "--scylla-hosts", r.e.CQLAddr, "--kafka-seeds", r.e.KafkaAddr, "--ops-addr", "off")
	if err != nil {
		r.t.Fatal(err)
	}
	_, r.stopRelay = startConfigured(r.t, c)
}

// copyFolders copies folders of the engines, which are stopped for it.
func (r *restored) copyFolders(from, to string, names []string) {
	r.t.Helper()
	r.stop()
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(to, name)); err != nil {
			r.t.Fatal(err)
		}
		if err := os.CopyFS(filepath.Join(to, name), os.DirFS(filepath.Join(from, name))); err != nil {
			r.t.Fatal(err)
		}
	}
	r.start()
	r.connect()
}

// The folders of the engines.
const (
	database = "scylla"
	topics   = "kafka"
)

// backUp stops the relay for a backup, after which it runs again.
func (r *restored) backUp(names ...string) {
	r.t.Helper()
	r.stopRelay()
	r.copyFolders(r.e.Dir, r.backups, names)
	r.startRelay()
}

func (r *restored) restore(names ...string) { r.copyFolders(r.backups, r.e.Dir, names) }

// publishes writes events of an aggregate and waits until they are records.
func (r *restored) publishes(a gocql.UUID, numbers ...int64) {
	r.t.Helper()
	for _, seq := range numbers {
		r.add(seq, a, 0)
	}
	r.until("the events are published", func() bool {
		all := r.of(a)
		return len(all) >= len(numbers) && all[len(all)-1].Sequence == numbers[len(numbers)-1]
	})
}

// consume returns the records of a topic, in order within each partition.
func (r *restored) consume(topic string) (all []outbox.Record) {
	r.t.Helper()
	ends, err := kadm.NewClient(r.client).ListEndOffsets(r.t.Context(), topic)
	if err != nil {
		r.t.Fatal(err)
	}
	left := int64(0)
	ends.Each(func(o kadm.ListedOffset) { left += max(o.Offset, 0) })
	if left == 0 {
		return nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(r.e.KafkaAddr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer client.Close()
	for left > 0 {
		client.PollFetches(r.t.Context()).EachRecord(func(x *kgo.Record) {
			left--
			e, err := outbox.FromRecord(x.Key, x.Value, x.Headers)
			if err != nil {
				r.t.Error(err)
			}
			all = append(all, e)
		})
	}
	return all
}

// of returns the records of an aggregate.
func (r *restored) of(a gocql.UUID) []outbox.Record {
	return slices.DeleteFunc(r.consume("things"), func(x outbox.Record) bool { return x.AggregateID.UUID() != a })
}

// hasRecords fails the test unless the records of an aggregate are those, each with its number and the
// index of its epoch.
func (r *restored) hasRecords(a gocql.UUID, want string) {
	r.t.Helper()
	all := append([]int64{0}, r.epochs()...)
	var got []string
	for _, x := range r.of(a) {
		got = append(got, fmt.Sprintf("%d/%d", x.Sequence, slices.Index(all, x.Epoch)))
	}
	if text := strings.Join(got, " "); text != want {
		r.t.Errorf("the topic has %s, want %s", text, want)
	}
}

// verifies executes the command of the section and fails the test unless the result is ok, with so
// many events that a restore has undone.
func (r *restored) verifies(p *advice, section string, undone int) {
	r.t.Helper()
	out := r.execute(cli.ExitOK, p.take(r.t, section, "outbox verify"))
	if got := countUndone(out); got != undone {
		r.t.Errorf("%d events are undone, want %d:\n%s", got, undone, out)
	}
}

// countUndone returns the number of printed events of the topic things that a restore has undone.
func countUndone(out string) int {
	return len(regexp.MustCompile(`(?m)^undone      event .*  things\[`).FindAllString(out, -1))
}

// ready waits until the relay has started.
func (r *restored) ready() {
	r.t.Helper()
	began := time.Now()
	r.until("the relay is ready", func() bool {
		iter := r.session.Query("SELECT at, status FROM relay_instances WHERE scope = 'keyspace'").Iter()
		var at time.Time
		ready := false
		for status := ""; iter.Scan(&at, &status); {
			ready = ready || at.After(began) && strings.Contains(status, `"ready":true`)
		}
		return iter.Close() == nil && ready
	})
}

// newEpoch executes the commands of the section that begin an epoch and returns the output of the
// preview.
func (r *restored) newEpoch(p *advice, section string) string {
	r.t.Helper()
	r.execute(cli.ExitOK, p.take(r.t, section, "outbox schema migrate"))
	return r.execute(cli.ExitOK, p.take(r.t, section, "outbox schema new-epoch --reason"))
}

// The database is restored, twice, under a relay that runs. The backup has a dead letter and
// scheduled messages that were published after it.
func restoreDatabase(t *testing.T, p *advice) {
	const section = "The database"
	r := setupRestored(t)
	limit := func(bytes string) {
		t.Helper()
		if _, err := kadm.NewClient(r.client).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &bytes}}, "things"); err != nil {
			t.Fatal(err)
		}
	}
	limit("2000")
	a, blocked, dropped := outbox.NewID().UUID(), outbox.NewID().UUID(), outbox.NewID().UUID()
	r.publishes(a, 1, 2)
	batch := r.session.Batch(gocql.LoggedBatch)
	discarded := outbox.NewID()
	for id, aggregate := range map[outbox.ID]gocql.UUID{outbox.NewID(): blocked, discarded: dropped} {
		large := outbox.Event{
			ID: id, AggregateID: outbox.IDFromUUID(aggregate), Sequence: 1, AggregateType: "thing", Type: "ThingHappened", Payload: fmt.Appendf(nil, "%5000d", 1), CreatedAt: time.Now(),
		}
		if err := outbox.Append(batch, large); err != nil {
			t.Fatal(err)
		}
	}
	if err := batch.Exec(); err != nil {
		t.Fatal(err)
	}
	r.add(2, blocked, 0)
	message := func(topic, key, delay string) {
		t.Helper()
		service, err := messages.NewService(r.session, messages.Config{Topics: []string{"*"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := service.Accept(t.Context(), messages.NewMessage{Topic: topic, Key: key, Delay: httpapi.Duration(delay)}, messages.Options{Client: "shop"}); err != nil {
			t.Fatal(err)
		}
	}
	message("reminders", "", "")
	due := time.Now().Add(10 * time.Second)
	message("reminders", "", "10s")
	message("later", "cancelled", "1h")
	message("later", "wanted", "1h")
	r.until("the dead letters are written", func() bool {
		return strings.Count(r.execute(cli.ExitOK, p.take(t, section, "outbox dlq list")), "ThingHappened") == 3
	})
	r.until("a message is published", func() bool { return len(r.consume("reminders")) == 1 })
	r.backUp(database)
	if time.Now().After(due) {
		t.Fatal("the machine is too slow for this test: the message was due before the backup")
	}
	r.publishes(a, 3, 4)
	limit("100000")
	r.ready()
	discard := p.take(t, section, "outbox dlq discard", "EVENT_ID", discarded.String())
	r.execute(cli.ExitOK, discard)
	r.execute(cli.ExitOK, p.take(t, section, "outbox dlq replay"))
	r.until("the dead letter is published", func() bool { return len(r.of(blocked)) == 2 })
	r.until("the scheduled message is published", func() bool { return len(r.consume("reminders")) == 2 })

	r.restore(database)
	r.ready()
	if _, stderr, code := r.verifyFixture.newEpoch("--yes", "--reason", "INC-7"); code != cli.ExitFailed || !strings.Contains(stderr, "run: ") {
		t.Errorf("exit status %d beside a relay: %s", code, stderr)
	}
	r.stopRelay()
	if out := r.execute(cli.ExitOK, p.take(t, section, "outbox schema new-epoch --dry-run")); countUndone(out) != 2 || len(r.epochs()) > 0 {
		t.Errorf("the dry run printed %s", out)
	}
	if out := r.newEpoch(p, section); countUndone(out) != 2 {
		t.Errorf("new-epoch printed %s", out)
	}
	r.execute(cli.ExitOK, discard)
	cancel := p.take(t, section, "outbox messages cancel", "TOPIC", "later", "KEY", "cancelled")
	if out := r.execute(cli.ExitOK, cancel); !strings.Contains(out, "1 cancelled") {
		t.Errorf("messages cancel printed %s", out)
	}
	r.startRelay()
	r.ready()
	if out := r.execute(cli.ExitOK, p.take(t, section, "outbox dlq list")); strings.Count(out, "ThingHappened") != 2 {
		t.Errorf("the dead letters are %s", out)
	}
	r.execute(cli.ExitOK, p.take(t, section, "outbox dlq replay"))
	r.verifies(p, section, 2)
	r.publishes(a, 3, 4)
	r.publishes(blocked, 3)
	r.verifies(p, section, 2)
	r.hasRecords(a, "1/0 2/0 3/0 4/0 3/1 4/1")
	r.hasRecords(blocked, "1/0 2/0 3/1")
	r.hasRecords(dropped, "")
	if n := len(r.consume("reminders")); n != 2 {
		t.Errorf("%d messages are published, want the scheduled one once", n)
	}

	// Once more, and the process that begins the epoch is killed after it has.
	r.stopRelay()
	first := r.epochs()[0]
	r.restore(database)
	for range 2 {
		if out := r.newEpoch(p, section); countUndone(out) != 5 {
			t.Errorf("new-epoch printed %s", out)
		}
	}
	if all := r.epochs(); len(all) != 2 || all[0] <= first {
		t.Errorf("the epochs are %v, want two after %d", all, first)
	}
	r.execute(cli.ExitOK, discard)
	r.startRelay()
	r.ready()
	r.execute(cli.ExitOK, p.take(t, section, "outbox dlq replay"))
	r.publishes(a, 3)
	r.verifies(p, section, 5)
	r.hasRecords(dropped, "")
	if last := r.of(a); last[len(last)-1].Epoch != r.epochs().Current() {
		t.Errorf("the last event is %+v", last[len(last)-1])
	}
	r.stopRelay()
}

// The tables are created again and their rows restored, without CDC logs.
func restoreRows(t *testing.T, p *advice) {
	const section = "The database"
	r := setupRestored(t)
	a := outbox.NewID().UUID()
	r.publishes(a, 1, 2)
	r.stopRelay()
	tables := r.rows()
	r.startRelay()
	r.publishes(a, 3)
	r.stopRelay()
	if err := r.session.Query("DROP KEYSPACE outbox").Exec(); err != nil {
		t.Fatal(err)
	}
	r.execute(cli.ExitOK, p.take(t, section, "outbox schema migrate"))
	r.insert(tables)
	if out := r.newEpoch(p, section); countUndone(out) != 1 {
		t.Errorf("new-epoch printed %s", out)
	}
	r.startRelay()
	r.ready()
	r.verifies(p, section, 1)
	r.publishes(a, 3)
	r.verifies(p, section, 1)
	r.hasRecords(a, "1/0 2/0 3/0 3/1")
	r.stopRelay()
}

// storedRow is a row by its columns; written is its time, for a row of the outbox.
type storedRow struct {
	columns map[string]any
	written int64
}

// rows returns the rows of all tables, as a backup has them.
func (r *restored) rows() map[string][]storedRow {
	r.t.Helper()
	all := make(map[string][]storedRow)
	names := r.session.Query("SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'outbox'").Iter()
	for name := ""; names.Scan(&name); {
		if strings.HasSuffix(name, "_scylla_cdc_log") || strings.HasSuffix(name, "$paxos") || name == "schema_migrations" {
			continue
		}
		more := ""
		if name == "outbox_messages" {
			more = ", WRITETIME(event_type) AS written"
		}
		iter := r.session.Query("SELECT " + strings.Join(r.columns(name), ", ") + more + " FROM outbox." + name).Iter()
		data, err := iter.RowData()
		if err != nil {
			r.t.Fatal(err)
		}
		for dest := pointers(data.Values); iter.Scan(dest...); dest = pointers(data.Values) {
			row := storedRow{columns: make(map[string]any)}
			for i, column := range data.Columns {
				value := reflect.ValueOf(dest[i]).Elem()
				if value.IsNil() {
					continue
				}
				if column == "written" {
					row.written = value.Elem().Int()
				} else {
					row.columns[column] = value.Elem().Interface()
				}
			}
			all[name] = append(all[name], row)
		}
		if err := iter.Close(); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := names.Close(); err != nil || len(all["relay_checkpoints"]) == 0 || len(all["outbox_messages"]) != 2 {
		r.t.Fatalf("read %d tables, %v", len(all), err)
	}
	return all
}

func (r *restored) columns(table string) (names []string) {
	r.t.Helper()
	iter := r.session.Query("SELECT column_name FROM system_schema.columns WHERE keyspace_name = 'outbox' AND table_name = ?", table).Iter()
	for name := ""; iter.Scan(&name); {
		names = append(names, name)
	}
	if err := iter.Close(); err != nil {
		r.t.Fatal(err)
	}
	return names
}

// pointers returns destinations that are nil for null.
func pointers(values []any) (dest []any) {
	for _, v := range values {
		dest = append(dest, reflect.New(reflect.TypeOf(v)).Interface())
	}
	return dest
}

// insert stores rows with their times.
func (r *restored) insert(tables map[string][]storedRow) {
	r.t.Helper()
	for table, rows := range tables {
		for _, row := range rows {
			var names, marks []string
			var values []any
			for name, value := range row.columns {
				names, marks, values = append(names, name), append(marks, "?"), append(values, value)
			}
			stmt := fmt.Sprintf("INSERT INTO outbox.%s (%s) VALUES (%s)", table, strings.Join(names, ", "), strings.Join(marks, ", "))
			if row.written > 0 {
				stmt += fmt.Sprintf(" USING TIMESTAMP %d", row.written)
			}
			if err := r.session.Query(stmt, values...).Exec(); err != nil {
				r.t.Fatalf("%s: %v", stmt, err)
			}
		}
	}
}

// The topics are lost, or restored from a copy of before some events.
func restoreTopics(t *testing.T, p *advice, lost bool) {
	const section = "The topics"
	r := setupRestored(t)
	a := outbox.NewID().UUID()
	r.publishes(a, 1, 2)
	r.backUp(topics)
	r.publishes(a, 3, 4)
	r.stopRelay()
	if lost {
		if _, err := kadm.NewClient(r.client).DeleteTopics(t.Context(), "things"); err != nil {
			t.Fatal(err)
		}
	} else {
		r.restore(topics)
	}
	r.startRelay()
	r.ready()
	r.repair(p.take(t, section, "outbox verify --repair"))
	r.verifies(p, section, 0)
	r.publishes(a, 5)
	r.verifies(p, section, 0)
	r.hasRecords(a, "1/0 2/0 3/0 4/0 5/0")
	r.stopRelay()
}

// Database and topics are restored from copies of different times. Event 4 is in neither.
func restoreBoth(t *testing.T, p *advice, newer bool) {
	const section = "Both"
	r := setupRestored(t)
	a := outbox.NewID().UUID()
	first, second, undone := topics, database, 0
	if newer {
		first, second, undone = database, topics, 1
	}
	r.publishes(a, 1, 2)
	r.backUp(first)
	r.publishes(a, 3)
	r.backUp(second)
	r.publishes(a, 4)
	r.stopRelay()
	r.restore(database, topics)
	if out := r.newEpoch(p, section); countUndone(out) != undone {
		t.Errorf("new-epoch printed %s", out)
	}
	r.startRelay()
	r.ready()
	r.repair(p.take(t, section, "outbox verify --repair"))
	r.verifies(p, section, undone)
	if newer {
		r.publishes(a, 3)
	}
	r.publishes(a, 4)
	r.verifies(p, section, undone)
	want := "1/0 2/0 3/0 4/1"
	if newer {
		want = "1/0 2/0 3/0 3/1 4/1"
	}
	r.hasRecords(a, want)
	r.stopRelay()
}
