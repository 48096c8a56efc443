package releases

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/inbox"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// TestReleases_Continue loads what each version wrote, and continues with today's code.
func TestReleases_Continue(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".json"), func(t *testing.T) {
			r, err := readRelease(f)
			if err != nil {
				t.Fatal(err)
			}
			id, err := r.Generation.identity()
			if err != nil {
				t.Fatal(err)
			}
			bubble(t, r.Recorded, id, func(w *world) {
				w.load(r)
				w.migrate()
				w.open()
				w.responses(r)
				w.resume(r)
			})
		})
	}
}

// TestReleases_WriteTheSame compares what today's code writes with the newest file: the
// columns, and the words for kinds and states. A difference is a new format. A released
// version keeps its file, and the next version gets one.
func TestReleases_WriteTheSame(t *testing.T) {
	version := regexp.MustCompile(`(?m)^## \[([0-9.]+)\]`).FindStringSubmatch(changelog(t))[1]
	was, err := readRelease(filepath.Join("testdata", version+".json"))
	if err != nil {
		t.Fatal(err)
	}
	want, got := vocabulary(was), vocabulary(written(t, version))
	for _, word := range slices.Sorted(maps.Keys(want)) {
		if !got[word] {
			t.Errorf("version %s wrote %s; today's code does not", version, word)
		}
	}
	for _, word := range slices.Sorted(maps.Keys(got)) {
		if !want[word] {
			t.Errorf("today's code writes %s; version %s did not", word, version)
		}
	}
	if t.Failed() {
		t.Log("if earlier versions may read it, write the file of the unreleased version: go test ./test/releases -update, then -digest")
	}
}

// vocabulary returns the words of a release: the columns of each table with their values,
// as far as these are words that do not depend on the host, and the headers of records.
func vocabulary(r *release) map[string]bool {
	words, word := map[string]bool{}, regexp.MustCompile(`^[a-z][a-z_ -]*$`)
	var add func(at string, v any)
	add = func(at string, v any) {
		words[at] = true
		switch v := v.(type) {
		case string:
			var object map[string]any
			switch {
			case json.Unmarshal([]byte(v), &object) == nil:
				add(at, object)
			case word.MatchString(v):
				words[at+"="+v] = true
			}
		case map[string]any:
			for k, v := range v {
				if !word.MatchString(k) {
					k = "*" // the key of a map
				}
				add(at+"."+k, v)
			}
		case []any:
			for _, v := range v {
				add(at+"[]", v)
			}
		}
	}
	for table, rows := range r.Tables {
		words[table] = true
		for _, x := range rows {
			for column, cell := range x.Cells {
				var v any
				if json.Unmarshal(cell, &v) == nil {
					add(table+"."+column, v)
				}
			}
		}
	}
	for topic, partitions := range r.Topics {
		for _, records := range partitions {
			for _, x := range records {
				for _, h := range x.Headers {
					words["topic "+topic+": "+h.Key] = true
				}
			}
		}
	}
	return words
}

// TestReleases_AreUnchanged compares the files with their recorded digests. -digest records that
// of the unreleased version alone; -update does not, so that no run writes a file unnoticed.
func TestReleases_AreUnchanged(t *testing.T) {
	const list = "testdata/SHA256SUMS"
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	b, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	recorded, open := string(b), unreleasedVersion(t)+".json"
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(f)
		line := fmt.Sprintf("%x  %s\n", sha256.Sum256(b), name)
		switch {
		case strings.Contains(recorded, line):
		case name == open && *digest:
			lines := slices.DeleteFunc(strings.SplitAfter(recorded, "\n"), func(l string) bool { return strings.HasSuffix(l, "  "+name+"\n") })
			if err := os.WriteFile(list, []byte(strings.Join(lines, "")+line), 0o644); err != nil { //nolint:gosec // a file of the repository
				t.Fatal(err)
			}
		case name == open:
			t.Errorf("%s has changed: go test ./test/releases -digest accepts it", f)
		default:
			t.Errorf("%s has changed; the file of a released version must not change: restore it", f)
		}
	}
	if got := strings.Count(recorded, "\n"); got != len(files) && !*digest {
		t.Errorf("%s has %d lines, want one for each of %d files", list, got, len(files))
	}
}

// TestReleases_EachHasAFile finds a version without a file.
func TestReleases_EachHasAFile(t *testing.T) {
	t.Parallel()
	for _, m := range regexp.MustCompile(`(?m)^## \[([0-9.]+)\]`).FindAllStringSubmatch(changelog(t), -1) {
		if _, err := readRelease(filepath.Join("testdata", m[1]+".json")); err != nil {
			t.Errorf("version %s: %v; go test ./test/releases -update writes it before its release", m[1], err)
		}
	}
}

// responses compares the responses of today's admin API with the recorded ones, before
// anything continues.
func (w *world) responses(r *release) {
	get := w.api()
	for _, path := range slices.Sorted(maps.Keys(r.Responses)) {
		code, body := get(path)
		if code != http.StatusOK {
			w.t.Errorf("GET %s: %d %s", path, code, body)
			continue
		}
		var want, got any
		w.must(json.Unmarshal(r.Responses[path], &want))
		w.must(json.Unmarshal(body, &got))
		for _, m := range contains("", want, got) {
			w.t.Errorf("GET %s: %s", path, m)
		}
	}
}

// resume starts today's programs, and checks that they continue where the programs of the release
// stopped.
func (w *world) resume(r *release) {
	ctx := w.t.Context()
	stopScheduler := w.scheduler()
	metrics, stopRelays := w.relays()
	e, stopEngine := w.subscribing("two")
	time.Sleep(5 * time.Minute)
	w.checkpoints(r, metrics)

	for _, name := range []string{"open", "failed", "suspended"} {
		w.must(w.deadLetters.Replay(ctx, event(name, 1, "").ID.UUID(), operator))
	}
	time.Sleep(time.Minute)
	for _, name := range []string{"open", "requested", "claimed", "edited", "failed", "suspended"} {
		if l := must1[dlq.DeadLetter](w)(w.deadLetters.Read(ctx, event(name, 1, "").ID.UUID())); l.Status != dlq.Resolved || l.Outcome.Kind != dlq.OutcomeReplayed {
			w.t.Errorf("dead letter %q is %s, %s; want replayed", name, l.Status, l.Outcome.Kind)
		}
	}
	for _, err := range must1[[]error](w)(w.sweeper.Restore(ctx, []gocql.UUID{event("purged", 1, "").ID.UUID()}, operator)) {
		w.must(err)
	}
	if l := must1[dlq.DeadLetter](w)(w.deadLetters.Read(ctx, event("purged", 1, "").ID.UUID())); l.Status != dlq.Resolved || l.Headers["tenant"] != "purged" {
		w.t.Errorf("the restored dead letter is %s with headers %v", l.Status, l.Headers)
	}

	if o := order(w).Order; o.ID.String() != r.Facts["order"][0] || o.Status != orders.StatusPlaced {
		w.t.Errorf("a repeated request has order %s, %s; want %s, as it was placed", o.ID, o.Status, r.Facts["order"])
	}
	if m := message(w).ID.String(); m != r.Facts["message"][0] {
		w.t.Errorf("a repeated request has message %s, want %s", m, r.Facts["message"])
	}
	if job, repeated := keyedJob(w); !repeated {
		w.t.Errorf("a repeated request has made job %s", job.ID)
	}
	w.inbox()
	w.subscription(r, e)
	time.Sleep(30 * time.Minute) // the last scheduled message is due
	stopEngine()
	stopScheduler()
	stopRelays()
	w.checkPublished(r)
}

// checkpoints checks that the relay read the CDC log from the recorded checkpoints on, and
// scanned the table that was created again.
func (w *world) checkpoints(r *release, metrics prometheus.Gatherer) {
	type key struct{ relay, table, generation, stream string }
	type state struct {
		position gocql.UUID
		started  string
	}
	parse := func(rows []row) map[key]state {
		out := map[key]state{}
		for _, x := range rows {
			c := func(name string) (text string) { _ = json.Unmarshal(x.Cells[name], &text); return text }
			id, _ := gocql.ParseUUID(c("position")) // none in a row of static columns
			out[key{c("relay"), c("table_name"), c("generation"), c("stream_id")}] = state{id, c("started_at")}
		}
		return out
	}
	var now release
	now.Tables = map[string][]row{}
	w.recordTables(&now)
	was, is := parse(r.Tables["relay_checkpoints"]), parse(now.Tables["relay_checkpoints"])
	positions := map[string]time.Time{} // of outbox_messages, by stream
	for k, s := range was {
		if is[k].started != s.started || is[k].position.Time().Before(s.position.Time()) {
			w.t.Errorf("checkpoint %v is %v, and was %v", k, is[k], s)
		}
		if k.table == keyspace+"."+outbox.DefaultTableName && k.stream != "" {
			positions[k.stream] = s.position.Time()
		}
	}
	if len(was) == 0 || len(is) != len(was) {
		w.t.Errorf("there are %d checkpoints and were %d", len(is), len(was))
	}
	// The data was loaded into new tables, as a backup is restored: the relay cannot know what
	// their logs have lost.
	if before, after := len(r.Tables["relay_backfills"]), len(now.Tables["relay_backfills"]); after != before+1 {
		w.t.Errorf("there are %d scans of the outbox table and were %d, want one more", after, before)
	}
	all, late := 0, 0
	iter := w.session.Query(`SELECT "cdc$stream_id", "cdc$time" FROM ` + outbox.DefaultTableName + "_scylla_cdc_log").Iter()
	var stream []byte
	for at := (gocql.UUID{}); iter.Scan(&stream, &at); {
		position, ok := positions["0x"+hex.EncodeToString(stream)]
		switch {
		case at.Time().After(r.Recorded):
		case !ok:
			w.t.Errorf("stream %x has rows and no checkpoint", stream)
		default:
			all++
			if at.Time().After(position.Add(-time.Minute)) {
				late++
			}
		}
	}
	w.must(iter.Close())
	read := -1
	families, err := metrics.Gather()
	w.must(err)
	for _, f := range families {
		if f.GetName() == "outbox_relay_tail_rows_total" {
			read = int(f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	if read < 5 || read > late || late >= all {
		w.t.Errorf("the relay has read %d of %d rows, want at most %d: those after its checkpoints", read, all, late)
	}
}

// inbox checks that a consumer applies no event again.
func (w *world) inbox() {
	for seq, want := range []inbox.Outcome{inbox.Duplicate, inbox.Duplicate, inbox.Applied} {
		if got := apply(w, int64(seq+1)); got != want {
			w.t.Errorf("event %d is %s, want %s", seq+1, got, want)
		}
	}
	result, first, err := once(w).Do(w.t.Context(), "mail-1", func(context.Context) ([]byte, error) { return []byte("again"), nil })
	if string(result) != "sent" || first || err != nil {
		w.t.Errorf("Do() = %q, %t, %v; want the stored result", result, first, err)
	}
}

// subscription checks that every message is delivered that was not acknowledged, and no
// other one.
func (w *world) subscription(r *release, e subscriptions.Service) {
	seen, last := map[string]int{}, map[string]int64{} // attempts by event, sequences by aggregate
	deliver := func() {
		for got := receive(w, e, "inventory"); len(got) > 0; got = receive(w, e, "inventory") {
			for _, m := range got {
				if seen[m.ID] > 0 || m.Sequence <= last[m.AggregateID] {
					w.t.Errorf("event %s, %d of %s, is delivered twice or after %d", m.ID, m.Sequence, m.AggregateID, last[m.AggregateID])
				}
				if m.Headers["queue"] != "stock" {
					w.t.Errorf("event %s is delivered without the transform: headers %v", m.ID, m.Headers)
				}
				seen[m.ID], last[m.AggregateID] = m.Attempt, m.Sequence
				settle(w, e, "inventory", subscriptions.Settle{Action: subscriptions.ActionAck, Receipt: m.Receipt})
			}
		}
	}
	deliver()
	failed, rejected := r.Facts["nacked"][0], r.Facts["rejected"][0]
	if seen[failed] != 0 || seen[rejected] != 0 {
		w.t.Errorf("the messages of %s and %s are delivered: one waits for its backoff, one is a dead letter", failed, rejected)
	}
	dead := ""
	w.must(w.deadLetters.List(w.t.Context(), dlq.Filter{Table: "subscription.inventory"}, func(l *dlq.DeadLetter) error {
		whole := must1[dlq.DeadLetter](w)(w.deadLetters.Read(w.t.Context(), l.EventID))
		dead = whole.Metadata["event_id"]
		if !slices.Equal(whole.Tags, []string{"stock"}) || whole.ErrorText != "unknown article" {
			w.t.Errorf("dead letter of the subscription: tags %q, error %q", whole.Tags, whole.ErrorText)
		}
		return w.deadLetters.Replay(w.t.Context(), l.EventID, operator)
	}))
	if dead != rejected {
		w.t.Errorf("the dead letter of the subscription is of event %q, want %s", dead, rejected)
	}
	time.Sleep(25 * time.Minute)
	deliver()
	if seen[failed] != 2 {
		w.t.Errorf("the message of event %s has attempt %d, want 2", failed, seen[failed])
	}
	for _, id := range r.Facts["acknowledged"] {
		if seen[id] > 0 {
			w.t.Errorf("the message of event %s is delivered again; it was acknowledged", id)
		}
		seen[id]++
	}
	for _, x := range w.consume() {
		if id := head(x, outbox.HeaderID); (x.Topic == orders.EventCreated || x.Topic == "Moved") && seen[id] == 0 {
			w.t.Errorf("the message of event %s is not delivered", id)
		}
	}
}

// head returns the value of a header of a record.
func head(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// checkPublished checks that each event is in its topic once and in order, unless an operator
// decided otherwise.
func (w *world) checkPublished(r *release) {
	times, last := map[string]int{}, map[string]string{}
	epochs := map[string]string{event("plain", 1, "").ID.String(): "", event("new", 1, "").ID.String(): r.Facts["epoch"][0]}
	for _, x := range w.consume() {
		id := head(x, outbox.HeaderID)
		if original := head(x, outbox.HeaderOriginalID); original != "" {
			id = original
		}
		times[id]++
		if epoch, ok := epochs[id]; ok && head(x, outbox.HeaderEpoch) != epoch {
			w.t.Errorf("event %s is of epoch %q, want %q", id, head(x, outbox.HeaderEpoch), epoch)
		}
		// Sequence numbers, and the payloads of the unnumbered table, have one digit.
		n, place := cmp.Or(head(x, outbox.HeaderSequence), string(x.Value)), x.Topic+" "+string(x.Key)
		if n <= last[place] && x.Topic != "reminders" { // whose key several aggregates have
			w.t.Errorf("topic %s, key %s: %s comes after %s", x.Topic, x.Key, n, last[place])
		}
		last[place] = n
		if x.Topic == "reminders" && head(x, "what") == "cancelled" {
			w.t.Error("a cancelled message is published")
		}
	}
	want := map[string]int{}
	for _, table := range []string{"event_id FROM " + outbox.DefaultTableName, "id FROM " + unnumbered} {
		iter := w.session.Query("SELECT " + table).Iter()
		for id := (gocql.UUID{}); iter.Scan(&id); {
			want[id.String()] = 1
		}
		w.must(iter.Close())
	}
	for _, name := range []string{"discarded", "resolved", "archived", "purged", "unblocked", "labelled", "paused"} {
		want[event(name, 1, "").ID.String()] = 0
	}
	want[event("large", 1, "").ID.String()] = 0
	for id, n := range want {
		if times[id] != n {
			w.t.Errorf("event %s is published %d times, want %d", id, times[id], n)
		}
		delete(times, id)
	}
	for id := range times {
		w.t.Errorf("event %s is published and in no outbox table", id)
	}
	if kept := r.Facts["message"][0]; want[kept] == 0 {
		w.t.Errorf("scheduled message %s is not in the outbox", kept)
	}
}
