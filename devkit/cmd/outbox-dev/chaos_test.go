package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/chaos"
	"github.com/scylla-outbox/scylla-outbox/devkit/testkit"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// runChaos runs the command on the engines of a kit.
func runChaos(t *testing.T, k *testkit.Kit, args ...string) (status int, r chaosReport, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args = append([]string{"chaos", "--scylla-hosts", k.CQL, "--kafka-seeds", k.Kafka, "--pause", "300ms", "--down", "100ms", "-o", "json"}, args...)
	status = run(args, &stdout, &stderr)
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil && stdout.Len() > 0 {
		t.Errorf("%v: %s", err, stdout.String())
	}
	return status, r, stdout.String(), stderr.String()
}

// relayCommand is the command line of a relay of a kit: this program, as which package testkit runs it.
func relayCommand(t *testing.T, k *testkit.Kit) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--", "env", fmt.Sprintf(`OUTBOX_TESTKIT_RELAY={"CQL":%q,"Kafka":%q}`, k.CQL, k.Kafka), self}
}

// A relay that is killed while the database loses answers loses no event; the ledger has each.
func TestChaos_KillsARelayThatLosesNothing(t *testing.T) {
	t.Parallel()
	k := testkit.Start(t, testkit.Options{NoRelay: true})
	lost := k.FaultDatabase(testkit.Fault{Effect: testkit.LoseAnswer, On: "outbox.outbox_messages", Chance: 0.1})
	ledger := filepath.Join(t.TempDir(), "ledger.jsonl")
	status, r, out, errOut := runChaos(t, k, append([]string{"--kills", "3", "--aggregates", "3", "--rate", "50", "--ledger", ledger}, relayCommand(t, k)...)...)
	if status != 0 || r.Kills != 3 || r.Stored == 0 || r.Published != r.Stored || lost.Hits() == 0 {
		t.Errorf("status %d, %d lost answers: %s%s", status, lost.Hits(), out, errOut)
	}
	written, err := os.ReadFile(ledger)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(written, []byte("\n")); int64(n) != r.Stored {
		t.Errorf("the ledger has %d events, want %d", n, r.Stored)
	}
	for line := range bytes.Lines(written) {
		var e struct {
			Event outbox.ID `json:"event_id"`
		}
		if err := json.Unmarshal(line, &e); err != nil || e.Event.IsZero() {
			t.Errorf("ledger: %s: %v", line, err)
		}
	}
	t.Logf("%d events, %d conflicts, %d lost answers", r.Stored, r.Conflicts, lost.Hits())
}

// Events of other writers are in the table and in the topic, and are not counted. The table has
// other columns, and numbers as ids.
func TestChaos_OwnTable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"tables.cql": `CREATE TABLE outbox.ledger (account bigint, n int, id timeuuid, kind text, type text, body text, PRIMARY KEY (account, n)) WITH cdc = {'enabled': true, 'ttl': 259200};
INSERT INTO outbox.ledger (account, n, id, kind, type, body) VALUES (7, 3, 5132b130-ae79-11e4-ab27-0800200c9a66, 'chaos', 'ChaosHappened', '{}');`,
		"relay.yaml": `relay: {tables: [{table: ledger, topic: ledger, columns: {aggregate_id: account, seq: n, event_id: id, aggregate_type: kind, event_type: type, payload: body}}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	conf := filepath.Join(dir, "relay.yaml")
	k := testkit.Start(t, testkit.Options{Relay: conf, Schema: []string{filepath.Join(dir, "tables.cql")}})
	status, r, out, errOut := runChaos(t, k, "--config", conf, "--relay-table", "ledger", "--kills", "2", "--kill", "true")
	if status != 0 || r.Stored == 0 || r.Published != r.Stored {
		t.Errorf("status %d: %s%s", status, out, errOut)
	}
}

// A relay that publishes nothing has lost every event: the report has the ids, and the status is 1.
func TestChaos_ReportsWhatIsLost(t *testing.T) {
	t.Parallel()
	k := testkit.Start(t, testkit.Options{NoRelay: true})
	status, r, out, errOut := runChaos(t, k, "--kills", "1", "--patience", "2s", "--", "sleep", "1000")
	if status != 1 || r.Stored == 0 || r.Published != 0 || int64(len(r.Lost)) != r.Stored || r.Lost[0].Event.IsZero() {
		t.Errorf("status %d: %s%s", status, out, errOut)
	}
}

// A relay that runs beside the one that is killed publishes in its place: the report has its name.
func TestChaos_NamesRelaysBeside(t *testing.T) {
	t.Parallel()
	k := testkit.Start(t, testkit.Options{})
	status, r, out, errOut := runChaos(t, k, "--kills", "1", "--", "sleep", "1000")
	if status != 0 || len(r.Beside) != 1 || !strings.Contains(errOut, "may publish in its place: "+r.Beside[0]) {
		t.Errorf("status %d: %s%s", status, out, errOut)
	}
}

// A drill that the command cannot do is no result: a relay that ends by itself, a command that
// kills nothing, a table that does not exist, and no relay at all.
func TestChaos_Fails(t *testing.T) {
	t.Parallel()
	k := testkit.Start(t, testkit.Options{NoRelay: true})
	for want, args := range map[string][]string{
		"the relay ended by itself":     {"--kills", "1", "--patience", "2s", "--", "false"},
		"no such pod":                   {"--kills", "1", "--patience", "2s", "--kill", "echo no such pod; exit 1"},
		`behind "--", or --kill`:        {},
		"does not exist":                {"--relay-table", "none", "--kill", "true"},
		"must be positive":              {"--kills", "0", "--kill", "true"},
		"names no topic":                {"--event-type", "no topic", "--kill", "true"},
		"start the relay: exec: \"none": {"--kills", "1", "--patience", "2s", "--", "none"},
	} {
		if status, _, out, errOut := runChaos(t, k, args...); status == 0 || !strings.Contains(errOut, want) {
			t.Errorf("%q: status %d, %s%s, want %q", args, status, out, errOut, want)
		}
	}
}

// Each kind of finding is reported as such, with the id of its event.
func TestChaos_ReportsEachFinding(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	d := chaosDrill{ledger: verify.NewLedger(), out: &text, output: "table", topic: "t"}
	d.kills.Victims = []*chaos.Victim{{}}
	aggregate := outbox.NewID()
	ids := make([]outbox.ID, 6)
	record := func(n, offset int64) verify.Record {
		return verify.Record{Event: ids[n], Aggregate: aggregate, Seq: n, Topic: d.topic, Offset: offset, At: offset}
	}
	for n := int64(1); n < 6; n++ {
		if ids[n] = outbox.NewID(); n == 3 { // 3 is missing in the table
			continue
		}
		if err := d.ledger.AddRows(d.row(&outbox.Event{ID: ids[n], AggregateID: aggregate, Sequence: n})); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.ledger.AddRecords(record(2, 1), record(1, 2), record(1, 3), record(4, 4)); err != nil { // 5 is lost
		t.Fatal(err)
	}
	if err := d.report(); err == nil {
		t.Error("report() = nil, want the status 1")
	}
	for word, n := range map[string]int{"out of order": 2, "twice": 1, "gap before": 4, "lost": 5} {
		if want := fmt.Sprintf("%s: event %s, number %d of %s: ", word, ids[n], n, aggregate); !strings.Contains(text.String(), want) {
			t.Errorf("no %q in:\n%s", want, text.String())
		}
	}
	if want := "4 events stored, 3 published; 0 kills; 0 conflicts: 1 lost, 1 twice, 1 gaps, 1 out of order\n"; !strings.HasSuffix(text.String(), want) {
		t.Errorf("no %q at the end of:\n%s", want, text.String())
	}
}
