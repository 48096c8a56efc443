package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/epochs"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

const epochsTable = "outbox.outbox_messages"

func (b *verifyFixture) newEpoch(args ...string) (stdout, stderr string, code int) {
	b.t.Helper()
	var out, errOut bytes.Buffer
	code = run(append([]string{
		"schema", "new-epoch", "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--relay-topics", "ThingHappened=things",
	}, args...), &out, &errOut)
	return out.String(), errOut.String(), code
}

// begin begins an epoch by the command and returns its output.
func (b *verifyFixture) begin(args ...string) (out forkedEpoch) {
	b.t.Helper()
	stdout, stderr, code := b.newEpoch(append([]string{"--yes", "--reason", "INC-7", "--actor", "ada", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(stdout), &out); err != nil || code != cli.ExitOK {
		b.t.Fatalf("exit status %d, %v\n%s%s", code, err, stdout, stderr)
	}
	return out
}

type forkedEpoch struct {
	Findings []verify.Finding `json:"findings"`
	begunEpoch
}

// lines are the findings as "kind number".
func (f *forkedEpoch) lines() (lines []string) {
	for _, x := range f.Findings {
		lines = append(lines, fmt.Sprintf("%s %d", x.Kind, x.Seq))
	}
	slices.Sort(lines)
	return lines
}

// publish produces the record of an event, as the relay does in an epoch.
func (b *verifyFixture) publish(e outbox.Event, epoch int64) {
	b.t.Helper()
	r := &kgo.Record{Topic: "things", Key: []byte(e.AggregateID.String()), Value: e.Payload, Headers: outbox.AppendHeaders([]kgo.RecordHeader(nil), &e, relay.Defaults().Source)}
	if epoch > 0 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: outbox.HeaderEpoch, Value: []byte(strconv.FormatInt(epoch, 10))})
	}
	if err := b.client.ProduceSync(b.t.Context(), r).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
}

// undo deletes rows, as a restore of a backup of before them does.
func (b *verifyFixture) undo(events ...outbox.Event) {
	b.t.Helper()
	for _, e := range events {
		if err := b.session.Query("DELETE FROM outbox_messages WHERE aggregate_id = ? AND seq = ?", e.AggregateID.String(), e.Sequence).Exec(); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *verifyFixture) epochs() epochs.Epochs {
	b.t.Helper()
	all, err := epochs.Read(b.t.Context(), b.session, "outbox", epochsTable)
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// Two restores, each with events that it undoes. A dry run changes nothing. The preview has the
// epoch before, verify lists the events as undone from the begin on, and the command can be repeated.
func TestNewEpoch_ListsWhatTheRestoreHasUndone(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	a := outbox.NewID().UUID()
	b.add(1, a, 1)
	b.add(2, a, 1)
	third := b.add(3, a, 1)
	b.add(1, outbox.NewID().UUID(), 1)
	b.undo(third)

	stdout, stderr, code := b.newEpoch("--dry-run")
	for _, want := range []string{"undone      event " + third.ID.String(), "table       " + epochsTable, "last epoch  none", "undone      1 event"} {
		if code != cli.ExitOK || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("exit status %d, want %q:\n%s%s", code, want, stdout, stderr)
		}
	}
	if all := b.epochs(); len(all) > 0 {
		t.Errorf("a dry run began %v", all)
	}
	if out, _, code := b.verify("--until", "0s"); code != cli.ExitFailed || !strings.Contains(out, "outbox schema new-epoch") {
		t.Errorf("exit status %d before the epoch:\n%s", code, out)
	}

	first := b.begin()
	if got := first.lines(); !slices.Equal(got, []string{"undone 3"}) || first.Previous != nil || first.Undone != 1 || first.Unknown != 0 || first.Table != epochsTable {
		t.Errorf("the first epoch: %q, %+v", got, first.begunEpoch)
	}
	if all := b.epochs(); !slices.Equal(all, epochs.Epochs{first.Epoch}) {
		t.Errorf("the table has %v, want %d", all, first.Epoch)
	}
	var actor, action, target, detail, outcome, reason string
	if err := b.session.Query("SELECT actor, action, target, detail, outcome, reason FROM outbox.admin_audit LIMIT 1").Scan(&actor, &action, &target, &detail, &outcome, &reason); err != nil {
		t.Fatal(err)
	}
	if got, want := []string{actor, action, target, detail, outcome, reason}, []string{"ada", "begin-epoch", epochsTable, `{"previous":0,"undone":1}`, fmt.Sprintf(`{"epoch":%d}`, first.Epoch), "INC-7"}; !slices.Equal(got, want) {
		t.Errorf("the audit trail has %q, want %q", got, want)
	}

	// The number is given again, and a second restore undoes that too.
	for all := b.epochs(); all.Of(time.Now().UnixMicro()) != first.Epoch; time.Sleep(10 * time.Millisecond) {
	}
	second := b.add(3, a, 0)
	b.publish(second, first.Epoch)
	if out, _, code := b.verify("--until", "0s"); code != cli.ExitOK || !strings.Contains(out, "event "+second.ID.String()+" has its number") || !strings.Contains(out, "1 in a topic, undone by a restore") {
		t.Errorf("exit status %d of the first epoch:\n%s", code, out)
	}
	b.undo(second)
	if _, stderr, code := b.newEpoch("--dry-run"); code != cli.ExitOK || !strings.Contains(stderr, fmt.Sprintf("last epoch  %d, begun at ", first.Epoch)) || !strings.Contains(stderr, "by ada: INC-7") || strings.Contains(stderr, "no event yet") {
		t.Errorf("exit status %d:\n%s", code, stderr)
	}
	again := b.begin()
	if got := again.lines(); !slices.Equal(got, []string{"undone 3", "undone 3"}) || again.Previous == nil || again.Previous.Epoch != first.Epoch || again.Epoch <= first.Epoch {
		t.Errorf("the second epoch: %q, %+v", got, again.begunEpoch)
	}
	if _, stderr, code := b.newEpoch("--dry-run"); code != cli.ExitOK || !strings.Contains(stderr, "it has no event yet") {
		t.Errorf("exit status %d:\n%s", code, stderr)
	}
	if repeated := b.begin(); repeated.Epoch <= again.Epoch || repeated.Undone != 2 || len(b.epochs()) != 3 {
		t.Errorf("once more: %+v, and the table has %v", repeated.begunEpoch, b.epochs())
	}
}

// The restore has undone the row of the first epoch too: the next epoch is later than the epochs of
// the records. Events without a row that others of their epoch follow are not undone.
func TestNewEpoch_IsLaterThanTheTopics(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	a := outbox.NewID().UUID()
	b.add(1, a, 1)
	lost := b.add(2, a, 1)
	b.add(3, a, 1)
	b.undo(lost)
	e := b.add(4, a, 0)
	ahead := time.Now().Unix() + 2
	b.publish(e, ahead)
	b.undo(e)
	_, stderr, code := b.newEpoch("--dry-run")
	if want := fmt.Sprintf("the topics have events of epoch %d", ahead); code != cli.ExitOK || !strings.Contains(stderr, want) {
		t.Errorf("exit status %d, want %q:\n%s", code, want, stderr)
	}
	out := b.begin()
	if got := out.lines(); !slices.Equal(got, []string{"undone 4", "unknown 2"}) || out.Epoch <= ahead || time.Now().Unix() < out.Epoch {
		t.Errorf("%q, %+v, want an epoch after %d that has begun", got, out.begunEpoch, ahead)
	}
	b.publish(b.add(4, a, 0), time.Now().Unix()+3600)
	if _, stderr, code := b.newEpoch("--yes", "--reason", "INC-7"); code != cli.ExitFailed || !strings.Contains(stderr, "ahead of the database's clock") {
		t.Errorf("exit status %d with a record of a distant epoch:\n%s", code, stderr)
	}
}

// Own tables have epochs of their own. One without numbers needs none.
func TestNewEpoch_OwnTables(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	exec := func(stmt string, args ...any) {
		t.Helper()
		if err := b.session.Query(stmt, args...).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}")
	exec("CREATE TABLE shop.log (account text, version bigint, id uuid, type text, body text, PRIMARY KEY (account, version)) WITH cdc = {'enabled': true}")
	exec("CREATE TABLE shop.events (aggregateid text, id timeuuid, aggregatetype text, type text, payload text, PRIMARY KEY (aggregateid, id)) WITH cdc = {'enabled': true}")
	config := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(config, []byte(`
relay:
  tables:
    - {source: messages}
    - {keyspace: shop, table: events, preset: debezium, topic: own}
    - keyspace: shop
      table: log
      columns: {aggregate_id: account, seq: version, event_id: id, event_type: type, payload: body, content_type: "-", headers: "-", created_at: "-", deliver_at: "-"}
      aggregate_type: account
      topic: things
      source: `+relay.Defaults().Source+`
`), 0o600); err != nil {
		t.Fatal(err)
	}
	kept, undone := outbox.NewID(), outbox.NewID()
	for seq, id := range []outbox.ID{kept, undone} {
		e := outbox.Event{ID: id, AggregateID: outbox.IDFromText("ann"), Sequence: int64(seq) + 1, AggregateType: "account", Type: "ThingHappened", Payload: []byte("{}"), CreatedAt: time.Now()}
		b.publish(e, 0)
	}
	exec("INSERT INTO shop.log (account, version, id, type, body) VALUES ('ann', 1, ?, 'ThingHappened', '{}')", kept.String())
	own := func(table string, args ...string) (string, string, int) {
		t.Helper()
		var out, errOut bytes.Buffer
		code := run(append(args, "--config", config, "--relay-table", table, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr), &out, &errOut)
		return out.String(), errOut.String(), code
	}
	begin := []string{"schema", "new-epoch", "--yes", "--reason", "INC-7"}
	if stdout, stderr, code := own("shop.log", begin...); code != cli.ExitOK || !strings.Contains(stdout, "of shop.log began") || !strings.Contains(stderr, "undone      event "+undone.String()) {
		t.Errorf("exit status %d\n%s%s", code, stdout, stderr)
	}
	if stdout, stderr, code := own("shop.log", "verify", "--until", "0s"); code != cli.ExitOK || !strings.Contains(stdout, "1 in a topic, undone by a restore") {
		t.Errorf("verify: exit status %d\n%s%s", code, stdout, stderr)
	}
	if all := b.epochs(); len(all) > 0 {
		t.Errorf("another table has the epochs %v", all)
	}
	if stdout, stderr, code := own("shop.events", begin...); code != cli.ExitFailed || !strings.Contains(stderr, "it has no sequence numbers") || !strings.Contains(stderr, "needs no epoch") {
		t.Errorf("without numbers: exit status %d\n%s%s", code, stdout, stderr)
	}
}

// A relay of the table that runs, under any name, rows that are written, no reason and no
// terminal: no epoch begins. A relay of another table does not matter.
func TestNewEpoch_Refusals(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	b.add(1, outbox.NewID().UUID(), 1)
	if err := b.session.Query("CREATE TABLE others (aggregate_id text, seq bigint, event_id uuid, aggregate_type text, event_type text, payload blob, content_type text," +
		" headers frozen<map<text, text>>, created_at timestamp, deliver_at timestamp, PRIMARY KEY (aggregate_id, seq)) WITH cdc = {'enabled': true}").Exec(); err != nil {
		t.Fatal(err)
	}
	first, second := b.relay(), b.relay(func(c *relay.Config) { c.Name = "second" })
	b.relay(func(c *relay.Config) { c.Name, c.Table = "third", "others" })
	for _, key := range [][2]string{{relay.Defaults().Name, epochsTable}, {"second", epochsTable}, {"third", "outbox.others"}} {
		b.until("relay "+key[0]+" is there", func() bool {
			n := 0
			err := b.session.Query("SELECT count(*) FROM relay_instances WHERE scope = 'keyspace' AND relay = ? AND table_name = ?", key[0], key[1]).Scan(&n)
			return err == nil && n == 1
		})
	}
	yes := []string{"--yes", "--reason", "INC-7"}
	refused := func(code int, want string, args ...string) {
		t.Helper()
		stdout, stderr, got := b.newEpoch(args...)
		if got != code || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit status %d, want %d and %q:\n%s%s", args, got, code, want, stdout, stderr)
		}
	}
	refused(cli.ExitFailed, "relays of "+epochsTable+" run", yes...)
	refused(cli.ExitOK, "refused now: the table is in use: relays of", "--dry-run")
	if err := first(); err != nil {
		t.Fatal(err)
	}
	refused(cli.ExitFailed, "relays of "+epochsTable+" run", yes...)
	if err := second(); err != nil {
		t.Fatal(err)
	}
	refused(cli.ExitUsage, "--reason is required", "--yes")
	refused(cli.ExitUsage, "no terminal", "--reason", "INC-7")

	e := outbox.Event{ID: outbox.NewID(), AggregateID: outbox.NewID(), Sequence: 1, AggregateType: "thing", Type: "ThingHappened", Payload: []byte("{}"), CreatedAt: time.Now()}
	batch := b.session.Batch(gocql.LoggedBatch)
	if err := outbox.Append(batch, e); err != nil {
		t.Fatal(err)
	}
	if err := batch.WithTimestamp(time.Now().Add(4 * time.Second).UnixMicro()).Exec(); err != nil { // while the command runs
		t.Fatal(err)
	}
	refused(cli.ExitFailed, epochsTable+" has 1 event written since", yes...)
	if all := b.epochs(); len(all) > 0 {
		t.Errorf("refused commands began %v", all)
	}
}
