package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"go.yaml.in/yaml/v3"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// dlqFixture is the embedded database with dead letters, and the command line.
type dlqFixture struct {
	*verifyFixture
	store *dlq.Store
}

func setupDLQ(t *testing.T) *dlqFixture {
	t.Helper()
	b := &dlqFixture{verifyFixture: setupVerify(t)}
	var err error
	if b.store, err = dlq.Open(b.session, "outbox"); err != nil {
		t.Fatal(err)
	}
	return b
}

// relaySays stores the status that a relay reported so long ago. A status of the next hour does not
// become stale during a test.
func (b *dlqFixture) relaySays(state, breaker string, ago time.Duration) {
	b.t.Helper()
	status := fmt.Sprintf(`{"state":%q,"breaker":{"state":%q}}`, state, breaker)
	if err := b.session.Query("INSERT INTO relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', 'r', ?, 'i', ?, ?)",
		"outbox.outbox_messages", time.Now().Add(-ago), status).Exec(); err != nil {
		b.t.Fatal(err)
	}
}

// writeDeadLetter stores a dead letter of aggregate a, changed by f.
func (b *dlqFixture) writeDeadLetter(seq int64, f func(*dlq.DeadLetter)) string {
	b.t.Helper()
	l := &dlq.DeadLetter{
		Table: "outbox.outbox_messages", EventID: gocql.MustRandomUUID(), AggregateID: "a", AggregateType: "order", EventType: "OrderCreated",
		Sequence: seq, Payload: []byte(`{"id":1}`), Headers: map[string]string{"traceparent": "00"}, Topic: "OrderCreated",
		ErrorClass: "record_too_large", ErrorText: "too large", ErrorChain: []string{"produce", "too large"}, Attempts: 1,
	}
	if f != nil {
		f(l)
	}
	if _, err := b.store.Write(b.t.Context(), l); err != nil {
		b.t.Fatal(err)
	}
	return l.EventID.String()
}

// run runs outbox dlq and checks the exit status.
func (b *dlqFixture) run(want int, args ...string) (out, errOut string) {
	b.t.Helper()
	var o, e bytes.Buffer
	args = append(append([]string{"dlq"}, args...), b.target()...)
	code := run(args, &o, &e)
	if code != want {
		b.t.Errorf("dlq %v: exit status %d, want %d\n%s%s", args, code, want, o.String(), e.String())
	}
	return o.String(), e.String()
}

// ids are the event ids of a listing as JSON.
func (b *dlqFixture) ids(args ...string) (ids []string) {
	b.t.Helper()
	out, _ := b.run(cli.ExitOK, append([]string{"list", "-o", "json"}, args...)...)
	for _, v := range decodeItems[admin.Summary](b.t, out) {
		ids = append(ids, v.EventID)
	}
	return ids
}

func (b *dlqFixture) status(id string) dlq.Status {
	b.t.Helper()
	u, err := gocql.ParseUUID(id)
	if err != nil {
		b.t.Fatal(err)
	}
	l, err := b.store.Read(b.t.Context(), u)
	if err != nil {
		b.t.Fatal(err)
	}
	return l.Status
}

func TestDLQ_Commands(t *testing.T) {
	t.Parallel()
	onBothAPIs(t, testDLQCommands)
}

func testDLQCommands(t *testing.T, b *dlqFixture) {
	b.relaySays("running", "closed", -time.Hour)
	if out, errOut := b.run(cli.ExitOK, "list"); out != "" || !strings.Contains(errOut, "no dead letter matches") {
		t.Errorf("list of nothing printed %q, %q", out, errOut)
	}
	if got := b.ids(); len(got) != 0 {
		t.Errorf("list of nothing: %v", got)
	}
	day := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	head := b.writeDeadLetter(1, func(l *dlq.DeadLetter) { l.FirstFailedAt = day })
	next := b.writeDeadLetter(2, func(l *dlq.DeadLetter) {
		l.Status, l.ErrorClass, l.EventType, l.FirstFailedAt = dlq.Blocked, "behind", "OrderCancelled", day.Add(time.Minute)
	})
	other := b.writeDeadLetter(1, func(l *dlq.DeadLetter) {
		l.AggregateID, l.Status, l.FirstFailedAt, l.Payload = "b\x1b[2J", dlq.Suspended, day.AddDate(0, 0, 1), []byte{0xff, 0}
	})

	t.Run("list", func(t *testing.T) {
		for _, tt := range []struct {
			args []string
			want []string
		}{
			{nil, []string{other, next, head}},
			{[]string{"--limit", "1"}, []string{other}},
			{[]string{"--error-class", "behind"}, []string{next}},
			{[]string{"--event-type", "OrderCreated"}, []string{other, head}},
			{[]string{"--aggregate-id", "a"}, []string{next, head}},
			{[]string{"--status", "suspended,pending"}, []string{other, head}},
			{[]string{"--since", "2026-01-03"}, []string{other}},
			{[]string{"--until", "2026-01-02"}, []string{next, head}},
			{[]string{"--until", "2026-01-02T12:00:30Z"}, []string{head}},
			{[]string{"--since", "1h"}, nil},
			{[]string{"--error-class", "record_too_large", "--status", "suspended", "--event-type", "OrderCreated"}, []string{other}},
		} {
			if got := b.ids(tt.args...); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("list %v: %v, want %v", tt.args, got, tt.want)
			}
		}
		out, _ := b.run(cli.ExitOK, "list")
		if strings.Contains(out, "\x1b") || strings.Count(out, "\n") != 4 || !strings.Contains(out, head) {
			t.Errorf("list printed %q", out)
		}
		if _, errOut := b.run(cli.ExitOK, "list", "--limit", "2"); !strings.Contains(errOut, "only the newest 2") {
			t.Errorf("list --limit 2 says %q", errOut)
		}
	})
	t.Run("yaml is json", func(t *testing.T) {
		j, _ := b.run(cli.ExitOK, "get", other, "-o", "json")
		y, _ := b.run(cli.ExitOK, "get", other, "-o", "yaml")
		var fromJSON, fromYAML any
		if err := errors.Join(yaml.Unmarshal([]byte(j), &fromJSON), yaml.Unmarshal([]byte(y), &fromYAML)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(fromJSON, fromYAML) || strings.HasPrefix(y, "{") || !strings.Contains(y, "payload_base64: /wA=") {
			t.Errorf("yaml %s\njson %s", y, j)
		}
	})
	t.Run("get", func(t *testing.T) {
		out, _ := b.run(cli.ExitOK, "get", head)
		for _, want := range []string{"pending", `{"id":1}`, "cause 2", "traceparent", "number 1 of 2 open dead letters", "events that it blocks: 1\n  2  " + next, "write", "record_too_large: too large"} {
			if !strings.Contains(out, want) {
				t.Errorf("show lacks %q:\n%s", want, out)
			}
		}
		if out, _ := b.run(cli.ExitOK, "get", next); !strings.Contains(out, "number 2 of 2 open dead letters") || !strings.Contains(out, "outbox dlq list --aggregate-id a\n") {
			t.Errorf("show of a blocked event printed %q", out)
		}
		if out, _ := b.run(cli.ExitOK, "get", other); strings.Contains(out, "\x1b") {
			t.Errorf("show printed a control character: %q", out)
		}
		b.run(cli.ExitFailed, "get", gocql.MustRandomUUID().String())
	})
	t.Run("stats", func(t *testing.T) {
		out, _ := b.run(cli.ExitOK, "stats", "-o", "json")
		var v admin.StatsBody
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Fatal(err)
		}
		if v.Open != 3 || v.ByStatus[dlq.Blocked] != 1 || v.OpenByClass["record_too_large"] != 2 || v.OpenByType["OrderCancelled"] != 1 || !v.Oldest.Equal(day) {
			t.Errorf("stats: %s", out)
		}
		if out, _ := b.run(cli.ExitOK, "stats"); !strings.Contains(out, "3 open, the oldest since 2026-01-02 12:00:00Z") {
			t.Errorf("stats printed %q", out)
		}
	})
	t.Run("usage", func(t *testing.T) {
		for _, args := range [][]string{
			{"list", "--status", "dead"},
			{"list", "--error-class", "TIMEOUT_ERROR"},
			{"replay", "--error-class", "record_to_large", "-y", "--reason", "a test"},
			{"list", "--since", "yesterday"},
			{"list", "-o", "xml"},
			{"list", "--limit", "-1"},
			{"list", "--since", "2026-01-03", "--until", "2026-01-02"},
			{"get", "x"},
			{"replay"},
			{"replay", "x"},
			{"replay", head, "--status", "failed"},
			{"discard", "--all", "--aggregate-id", "a"},
			{"replay", "--all", "--rate", "-1"},
		} {
			b.run(cli.ExitUsage, args...)
		}
	})
	t.Run("nothing is done without leave", func(t *testing.T) {
		for _, c := range dlqChanges {
			if c.action == dlq.ActionReopen {
				continue // of a dead letter that is settled, below
			}
			if _, errOut := b.run(cli.ExitUsage, string(c.action), head, "--reason", "a test"); !strings.Contains(errOut, "--yes") || !strings.Contains(errOut, "nothing was changed") {
				t.Errorf("%s without a terminal says %q", c.action, errOut)
			}
			if _, errOut := b.run(cli.ExitUsage, string(c.action), head, "--yes", "--reason", " "); !strings.Contains(errOut, "--reason is required") {
				t.Errorf("%s without a reason says %q", c.action, errOut)
			}
			_, errOut := b.run(cli.ExitOK, string(c.action), head, "--dry-run")
			if !strings.Contains(errOut, string(c.action)+" 1 dead letter of 1 aggregate\n") || !strings.Contains(errOut, "blocked by them: 1 event\n") {
				t.Errorf("%s --dry-run says %q", c.action, errOut)
			}
			out, _ := b.run(cli.ExitOK, string(c.action), "--aggregate-id", "a", "--dry-run", "-o", "json")
			var v admin.PreviewBody
			if err := json.Unmarshal([]byte(out), &v); err != nil || v.Action != c.action || v.DeadLetters == 0 {
				t.Errorf("%s --dry-run printed %q, %v", c.action, out, err)
			}
		}
		if s := b.status(head); s != dlq.Pending {
			t.Errorf("the dead letter is %s", s)
		}
	})
	t.Run("changes", func(t *testing.T) {
		b.run(cli.ExitOK, "suspend", head, "--yes", "--reason", "a test")
		if s := b.status(head); s != dlq.Suspended {
			t.Errorf("after suspend: %s", s)
		}
		// A blocked dead letter waits for the one before it.
		if _, errOut := b.run(cli.ExitFailed, "replay", next, "--yes", "--reason", "a test"); !strings.Contains(errOut, "act on the first") {
			t.Errorf("replay of a blocked dead letter says %q", errOut)
		}
		out, errOut := b.run(cli.ExitWaits, append([]string{"replay", "--all", "--yes", "--wait", "0", "--reason", "fixed", "-o", "json"}, b.by("eve")...)...)
		var v admin.JobBody
		if err := json.Unmarshal([]byte(out), &v); err != nil || v.Progress.Changed != 2 || v.Progress.SkippedAll() != 0 || !strings.Contains(errOut, "not eligible for replay\n         1  blocked") {
			t.Errorf("replay --all printed %s, %s, %v", out, errOut, err)
		}
		if out, _ := b.run(cli.ExitOK, "get", head); !strings.Contains(out, b.actor("eve")) || !strings.Contains(out, "fixed") || !strings.Contains(out, "suspended -> pending") {
			t.Errorf("history after replay: %s", out)
		}
		b.run(cli.ExitOK, "unblock", head, "-y", "--reason", "a test")
		b.run(cli.ExitOK, "resolve", other, "-y", "--reason", "by phone")
		b.run(cli.ExitFailed, "resolve", other, "-y", "--reason", "a test")
		if _, errOut := b.run(cli.ExitFailed, "discard", gocql.MustRandomUUID().String(), "-y", "--reason", "a test"); !strings.Contains(errOut, "has no dead letter") {
			t.Errorf("discard of an unknown event says %q", errOut)
		}
		b.run(cli.ExitOK, "discard", "--aggregate-id", "a", "-y", "--reason", "a test", "--rate", "1000")
		for _, id := range []string{head, next, other} {
			if s := b.status(id); s != dlq.Resolved {
				t.Errorf("at the end: %s", s)
			}
		}
		if got := b.ids("--status", "pending,blocked,suspended,processing,failed"); len(got) != 0 {
			t.Errorf("open at the end: %v", got)
		}
		rs, err := b.store.Requests(t.Context(), "outbox.outbox_messages", nil)
		if err != nil || len(rs) != 7 {
			t.Errorf("the relay is told of %d changes, %v, want 7", len(rs), err)
		}
	})
	t.Run("reopen", func(t *testing.T) {
		if got := b.ids("--outcome", "discarded"); !slices.Contains(got, head) || slices.Contains(got, other) {
			t.Errorf("discarded are %v, want %s among them and not %s", got, head, other)
		}
		if out, _ := b.run(cli.ExitOK, "list", "--status", "all"); !regexp.MustCompile(head+` +resolved \(discarded\)`).MatchString(out) || !regexp.MustCompile(other+` +resolved \(by_hand\)`).MatchString(out) {
			t.Errorf("list does not tell a discarded dead letter from one that was resolved:\n%s", out)
		}
		if _, errOut := b.run(cli.ExitUsage, "list", "--status", "discarded"); !strings.Contains(errOut, "use --outcome discarded") {
			t.Errorf("list --status discarded says %q", errOut)
		}
		if _, errOut := b.run(cli.ExitUsage, "reopen", head, "--reason", "a test"); !strings.Contains(errOut, "reopen 1 dead letter of 1 aggregate\n") || !strings.Contains(errOut, "--yes") {
			t.Errorf("reopen without a terminal says %q", errOut)
		}
		b.run(cli.ExitUsage, "reopen", "--outcome", "lost", "-y", "--reason", "a test")
		b.run(cli.ExitOK, "reopen", head, other, "-y", "--reason", "discarded by mistake")
		for _, id := range []string{head, other} {
			if s := b.status(id); s != dlq.Suspended {
				t.Errorf("reopened: %s", s)
			}
		}
		b.run(cli.ExitFailed, "reopen", head, "-y", "--reason", "a test")
		b.run(cli.ExitOK, "discard", head, other, "-y", "--reason", "a test")
	})
	t.Run("redirect", func(t *testing.T) {
		first := b.writeDeadLetter(1, func(l *dlq.DeadLetter) { l.AggregateID, l.ErrorClass, l.CreatedAt = "r", "topic_invalid", time.Now() })
		second := b.writeDeadLetter(2, func(l *dlq.DeadLetter) { l.AggregateID, l.Status, l.CreatedAt = "r", dlq.Blocked, time.Now() })
		b.run(cli.ExitUsage, "redirect", first, "-y", "--reason", "a test")
		if _, errOut := b.run(cli.ExitUsage, "redirect", first, "--topic", "a b", "-y", "--reason", "a test"); !strings.Contains(errOut, `--topic "a b"`) {
			t.Errorf("an invalid topic says %q", errOut)
		}
		if _, errOut := b.run(cli.ExitOK, "redirect", "--error-class", "topic_invalid", "--topic", "Elsewhere", "--dry-run"); !strings.Contains(errOut, "redirect 1 dead letter of 1 aggregate\n") || !strings.Contains(errOut, "blocked by them: 1 event") {
			t.Errorf("the preview says %q", errOut)
		}
		b.run(cli.ExitWaits, "redirect", first, second, "--topic", "Elsewhere", "--force", "--wait", "0", "-y", "--reason", "no such name")
		for id, want := range map[string]dlq.Status{first: dlq.Pending, second: dlq.Blocked} {
			if s := b.status(id); s != want {
				t.Errorf("redirected it is %s, want %s", s, want)
			}
			if out, _ := b.run(cli.ExitOK, "get", id); !strings.Contains(out, "Elsewhere") {
				t.Errorf("get prints no other topic:\n%s", out)
			}
		}
		if out, _ := b.run(cli.ExitFailed, "redirect", first, "--topic", "Elsewhere", "--force", "-y", "--reason", "again"); !strings.Contains(out, "already in that state") {
			t.Errorf("again it prints %q", out)
		}
		out, _ := b.run(cli.ExitOK, "jobs", "list", "-o", "json")
		if list := decodeItems[admin.JobBody](t, out); list[0].Action != dlq.ActionRedirect || list[0].Topic != "Elsewhere" {
			t.Errorf("the job is %+v", list[0])
		}
		b.run(cli.ExitOK, "discard", "--aggregate-id", "r", "-y", "--reason", "a test")
	})
	t.Run("many", func(t *testing.T) {
		for i := range 150 {
			b.writeDeadLetter(1, func(l *dlq.DeadLetter) { l.AggregateID = fmt.Sprint("m", i) })
		}
		out, errOut := b.run(cli.ExitOK, "discard", "--event-type", "OrderCreated", "--limit", "120", "-y", "--reason", "a test")
		if !strings.Contains(out, "discard: 120 changed") || !strings.Contains(errOut, "120/120") {
			t.Errorf("discard printed %q, %q", out, errOut)
		}
	})
}

func TestAsk_OnlyYesIsYes(t *testing.T) {
	t.Parallel()
	for in, ok := range map[string]bool{"yes\n": true, "YES\r\n": true, " yes ": true, "y\n": false, "\n": false, "": false, "no\n": false, "yess\n": false} {
		if err := ask(strings.NewReader(in), io.Discard, "?"); (err == nil) != ok {
			t.Errorf("ask(%q) = %v", in, err)
		}
	}
}

func (b *dlqFixture) jobs() *jobs.Store { return jobs.New(b.store) }

// Each change by the command line leaves an entry in the audit trail, like one by the API.
func TestDLQ_ChangesAreAudited(t *testing.T) {
	t.Parallel()
	onBothAPIs(t, testChangesAreAudited)
}

func testChangesAreAudited(t *testing.T, b *dlqFixture) {
	id := b.writeDeadLetter(1, nil)
	b.run(cli.ExitOK, append([]string{"discard", id, "--yes", "--reason", "INC-7"}, b.by("eve")...)...)
	out, _ := b.run(cli.ExitOK, "jobs", "list", "-o", "json")
	list := decodeItems[admin.JobBody](t, out)
	if len(list) != 1 {
		t.Fatalf("jobs list = %s", out)
	}
	b.run(cli.ExitFailed, append([]string{"jobs", "pause", list[0].ID, "--reason", "wait"}, b.by("bob")...)...)
	type entry struct{ Actor, Action, Target, Reason, State string }
	got := make(map[string]entry)
	var e entry
	var detail string
	iter := b.session.Query("SELECT actor, action, target, detail, reason, state FROM outbox.admin_audit").Iter()
	for iter.Scan(&e.Actor, &e.Action, &e.Target, &detail, &e.Reason, &e.State) {
		got[e.Action] = e
		if e.Action == "create-job" && (!strings.Contains(detail, id) || !strings.Contains(detail, `"action":"discard"`)) {
			t.Errorf("the entry has the detail %s, want the action and event %s", detail, id)
		}
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	want := map[string]entry{
		"create-job": {b.actor("eve"), "create-job", list[0].ID, "INC-7", "done"},
		"pause-job":  {b.actor("bob"), "pause-job", list[0].ID, "wait", "refused"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the audit trail has %+v, want %+v", got, want)
	}
	for name, args := range map[string][]string{
		"all": nil, "of the actor": {"--actor", b.actor("bob")}, "of one kind": {"--action", "pause-job,resume-job", "--since", "1h"}, "of the past": {"--until", "1h"},
	} {
		var out, errOut bytes.Buffer
		code := run(append(append([]string{"audit", "list", "-o", "json"}, args...), b.target()...), &out, &errOut)
		if code != cli.ExitOK {
			t.Fatalf("%s: audit list = %d: %s%s", name, code, out.String(), errOut.String())
		}
		lines := decodeItems[admin.AuditEntry](t, out.String())
		if name == "of the past" {
			if len(lines) > 0 {
				t.Errorf("%s: %+v", name, lines)
			}
			continue
		}
		if len(lines) == 0 || lines[0].Action != "pause-job" || lines[0].Actor != b.actor("bob") || lines[0].Reason != "wait" {
			t.Errorf("%s: audit list = %+v, want the pause first", name, lines)
		}
	}
}

// Without --status the list has open dead letters only.
func TestDLQ_ListOmitsClosed(t *testing.T) {
	t.Parallel()
	onBothAPIs(t, func(t *testing.T, b *dlqFixture) {
		open := b.writeDeadLetter(1, nil)
		closed := b.writeDeadLetter(1, func(l *dlq.DeadLetter) { l.AggregateID = "b" })
		b.run(cli.ExitOK, append([]string{"discard", closed, "--yes", "--reason", "a test"}, b.by("eve")...)...)
		for _, tt := range []struct{ args, want []string }{
			{nil, []string{open}},
			{[]string{"--status", "open"}, []string{open}},
			{[]string{"--status", "resolved"}, []string{closed}},
			{[]string{"--status", "all"}, []string{open, closed}},
		} {
			got := b.ids(tt.args...)
			slices.Sort(got)
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) {
				t.Errorf("dlq list %v has %v, want %v", tt.args, got, tt.want)
			}
		}
	})
}
