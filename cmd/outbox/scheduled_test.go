package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

// runMessages runs outbox messages and checks the exit status.
func (b *verifyFixture) runMessages(want int, args ...string) (out, errOut string) {
	b.t.Helper()
	return b.onAPI(want, append([]string{"messages"}, args...)...)
}

// onAPI runs a command with the API of the fixture and checks the exit status.
func (b *verifyFixture) onAPI(want int, args ...string) (out, errOut string) {
	b.t.Helper()
	var o, e bytes.Buffer
	args = append(args, b.target()...)
	if code := run(args, &o, &e); code != want {
		b.t.Fatalf("%v: exit status %d, want %d\n%s%s", args, code, want, o.String(), e.String())
	}
	return o.String(), e.String()
}

func TestScheduled_DeliversAndCancels(t *testing.T) {
	t.Parallel()
	onDatabaseAndAdmin(t, testScheduledChanges)
}

func testScheduledChanges(t *testing.T, b *verifyFixture) {
	scheduled := b.runMessages
	service, err := messages.NewService(b.session, messages.Config{Topics: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct{ topic, client string }{{"a", "shop"}, {"a", "shop"}, {"a", "till"}, {"b", "shop"}} {
		if _, err := service.Accept(t.Context(), messages.NewMessage{Topic: m.topic, Delay: "1h"}, messages.Options{Client: m.client}); err != nil {
			t.Fatal(err)
		}
	}
	waits := func() (due, waiting int) {
		page, _, _, err := service.List(t.Context(), schedule.Position{DeliverAt: time.Now().Add(-time.Hour)}, schedule.Filter{Until: time.Now().Add(2 * time.Hour)}, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range page {
			if v.DeliverAt.After(time.Now()) {
				waiting++
			} else {
				due++
			}
		}
		return due, waiting
	}
	mine := []string{"--topic", "a", "--client", "shop"}

	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"deliver-now"}, "no messages selected"},
		{[]string{"deliver-now", "--all", "--topic", "a"}, "--all and filters"},
		{[]string{"cancel", "--topic", "a", "--rate", "-1"}, "--rate -1"},
		{[]string{"cancel", "--topic", "a", "--rate", "0.05"}, "--rate 0.05: must be 0.1 or more"},
		{[]string{"cancel", "--since", "3h", "--until", "1h"}, "--since 3h is not before"},
		{[]string{"cancel", "--since", "soon"}, "--since"},
		{append([]string{"deliver-now"}, mine...), "--reason is required"},
		{append([]string{"deliver-now", "--reason", "a test"}, mine...), "--yes skips the confirmation"},
	} {
		if _, errOut := scheduled(cli.ExitUsage, tt.args...); !strings.Contains(errOut, tt.want) {
			t.Errorf("%v said %q, want %q", tt.args, errOut, tt.want)
		}
	}
	out, _ := scheduled(cli.ExitOK, append([]string{"deliver-now", "--dry-run", "-o", "json"}, mine...)...)
	var report scheduledReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || !report.DryRun || report.Messages != 2 || report.ByTopic["a"] != 2 || report.Changed.Changed != 0 {
		t.Errorf("dry run printed %s, %v", out, err)
	}
	if due, waiting := waits(); due != 0 || waiting != 4 {
		t.Errorf("after a dry run %d are due and %d wait", due, waiting)
	}
	out, errOut := scheduled(cli.ExitOK, append([]string{"deliver-now", "--yes", "--rate", "1000", "--reason", "INC-1: ÄÖ % done"}, append(mine, b.by("ann")...)...)...)
	if out != "deliver-now: 2 made due, 0 were published before\n" || !strings.Contains(errOut, "deliver-now 2 messages") || !strings.Contains(errOut, "shop") {
		t.Errorf("deliver-now printed %q, %q", out, errOut)
	}
	if due, waiting := waits(); due != 2 || waiting != 2 {
		t.Errorf("after the request %d are due and %d wait", due, waiting)
	}
	// Nothing matches any more: that is reported once, without a question.
	for _, args := range [][]string{{"deliver-now", "--reason", "a test"}, {"deliver-now", "--yes", "--reason", "a test"}, {"deliver-now", "--dry-run"}} {
		if out, errOut := scheduled(cli.ExitOK, append(args, mine...)...); out != "" || errOut != "no scheduled message matches\n" {
			t.Errorf("%v again printed %q, %q", args, out, errOut)
		}
	}
	if out, errOut := scheduled(cli.ExitOK, append([]string{"deliver-now", "--yes", "--reason", "a test", "-o", "json"}, mine...)...); errOut != "" || json.Unmarshal([]byte(out), &report) != nil || report.Messages != 0 {
		t.Errorf("deliver-now again as JSON printed %q, %q", out, errOut)
	}
	if out, _ := scheduled(cli.ExitOK, "cancel", "--yes", "--reason", "a test", "--created-since", "1h", "--until", "24h"); out != "cancel: 4 cancelled, 0 were published before\n" {
		t.Errorf("cancel printed %q", out)
	}
	if due, waiting := waits(); due+waiting != 0 {
		t.Errorf("after all were cancelled %d are due and %d wait", due, waiting)
	}
	var actor, detail, reason, outcome string
	if err := b.session.Query("SELECT actor, detail, reason, outcome FROM admin_audit WHERE action = 'deliver-messages-now' ALLOW FILTERING").
		Scan(&actor, &detail, &reason, &outcome); err != nil {
		t.Fatal(err)
	}
	if actor != b.actor("ann") || reason != "INC-1: ÄÖ % done" || !strings.Contains(detail, `"client":"shop"`) || !strings.Contains(detail, `"rate":1000`) || outcome != `{"changed":2,"gone":0}` {
		t.Errorf("the audit has %s %s %s %s", actor, detail, reason, outcome)
	}
}

// Beyond the topics and clients that are counted one by one there are others, not none.
func TestScheduled_PreviewNamesTheRest(t *testing.T) {
	t.Parallel()
	tally, rest := messages.NewTally(), messages.NewTally()
	for i := range 60 {
		rest.ByTopic = map[string]int{fmt.Sprintf("topic-%d", i): 2}
		rest.ByClient = map[string]int{"shop": 2}
		tally.Merge(&rest)
	}
	var out bytes.Buffer
	f := scheduledFlags{scheduledChange: scheduledChange{name: "deliver-now"}}
	if f.preview(&out, &tally); !strings.Contains(out.String(), "        20  (others)\n") || strings.Contains(out.String(), "(none)") {
		t.Errorf("the preview is\n%s", out.String())
	}
}

// The list has the messages that the filters of a change select, the next to be delivered first,
// and reports that it is empty or has more.
func TestScheduled_List(t *testing.T) {
	t.Parallel()
	onDatabaseAndAdmin(t, testScheduledList)
}

func testScheduledList(t *testing.T, b *verifyFixture) {
	service, err := messages.NewService(b.session, messages.Config{Topics: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	list := func(want int, args ...string) (out, errOut string) {
		t.Helper()
		return b.runMessages(want, append([]string{"list"}, args...)...)
	}
	if out, errOut := list(cli.ExitOK); out != "" || errOut != "no scheduled message matches\n" {
		t.Errorf("an empty list printed %q, %q", out, errOut)
	}
	if out, errOut := list(cli.ExitOK, "-o", "json"); len(decodeItems[any](t, out)) > 0 || errOut != "" {
		t.Errorf("an empty list as JSON printed %q, %q", out, errOut)
	}

	ids := make(map[string]string) // by key
	for _, m := range []struct {
		key, topic, client string
		delay              httpapi.Duration
	}{
		{"late", "a", "shop", "48h"}, {"soon", "a", "shop", "1h"}, {"till", "a", "till", "2h"}, {"other", "b", "shop", "3h"},
	} {
		accepted, err := service.Accept(t.Context(), messages.NewMessage{Topic: m.topic, Key: m.key, Delay: m.delay}, messages.Options{Client: m.client})
		if err != nil {
			t.Fatal(err)
		}
		ids[m.key] = accepted.ID.String()
	}
	for _, tt := range []struct {
		args []string
		keys []string
		more bool
	}{
		{nil, []string{"soon", "till", "other", "late"}, false},
		{[]string{"--limit", "0"}, []string{"soon", "till", "other", "late"}, false},
		{[]string{"--limit", "2"}, []string{"soon", "till"}, true},
		{[]string{"--limit", "4"}, []string{"soon", "till", "other", "late"}, false},
		{[]string{"--topic", "a"}, []string{"soon", "till", "late"}, false},
		{[]string{"--topic", "a", "--client", "shop", "--limit", "1"}, []string{"soon"}, true},
		{[]string{"--key", "other"}, []string{"other"}, false},
		{[]string{"--since", "90m", "--until", "24h"}, []string{"till", "other"}, false},
		{[]string{"--created-since", "1h"}, []string{"soon", "till", "other", "late"}, false},
		{[]string{"--created-until", "1h"}, nil, false},
	} {
		out, _ := list(cli.ExitOK, append(tt.args, "-o", "json")...)
		var keys []string
		for _, v := range decodeItems[adminclient.ScheduledMessage](t, out) {
			keys = append(keys, v.Key)
			if v.ID != ids[v.Key] || v.State != messages.Scheduled || v.Client == "" || !v.DeliverAt.After(v.CreatedAt) {
				t.Errorf("%v: %+v", tt.args, v)
			}
		}
		if !slices.Equal(keys, tt.keys) {
			t.Errorf("%v: %v, want %v", tt.args, keys, tt.keys)
		}
		_, errOut := list(cli.ExitOK, tt.args...)
		if got := strings.Contains(errOut, fmt.Sprintf("only the next %d; --limit 0 shows all", len(tt.keys))); got != tt.more {
			t.Errorf("%v said %q", tt.args, errOut)
		}
	}
	for limit := 1; limit <= 4; limit++ {
		var keys []string
		for cursor, pages := "", 0; ; pages++ {
			out, _ := list(cli.ExitOK, "--limit", strconv.Itoa(limit), "--cursor", cursor, "-o", "json")
			found, next := decodePage[adminclient.ScheduledMessage](t, out)
			for _, v := range found {
				keys = append(keys, v.Key)
			}
			if next != "" && pages == 0 {
				if _, errOut := list(cli.ExitUsage, "--key", "other", "--cursor", next); !strings.Contains(errOut, "query.cursor") {
					t.Errorf("the cursor of another filter: %s", errOut)
				}
			}
			if cursor = next; cursor == "" || pages > 4 {
				break
			}
			if len(found) != limit {
				t.Errorf("a page of %d messages with a next, want %d", len(found), limit)
			}
		}
		if want := []string{"soon", "till", "other", "late"}; !slices.Equal(keys, want) {
			t.Errorf("pages of %d: %v, want %v", limit, keys, want)
		}
	}
	out, _ := list(cli.ExitOK, "--client", "till")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[0], "MESSAGE") || !strings.Contains(lines[1], ids["till"]+"  a      till  till    2") {
		t.Errorf("the table is\n%s", out)
	}
	for args, want := range map[string]string{"--limit=-1": "--limit -1 must not be negative", "--since=soon": "--since \"soon\"", "--output=xml": "xml"} {
		if _, errOut := list(cli.ExitUsage, args); !strings.Contains(errOut, want) {
			t.Errorf("%s said %q, want %q", args, errOut, want)
		}
	}
}

// scheduleTwo stores two messages of the client shop, for topic a in an hour.
func scheduleTwo(t *testing.T, session *gocql.Session) {
	t.Helper()
	service, err := messages.NewService(session, messages.Config{Topics: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := service.Accept(t.Context(), messages.NewMessage{Topic: "a", Delay: "1h"}, messages.Options{Client: "shop"}); err != nil {
			t.Fatal(err)
		}
	}
}

// With an API the commands connect neither to the database nor to Kafka, and the role of the
// token decides.
func TestScheduled_ServerDecidesByRole(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	scheduleTwo(t, b.session)
	one := []string{"--topic", "a", "--yes", "--reason", "INC-1"}
	for _, role := range []access.Role{access.Viewer, access.Operator} {
		b.serveAdmin(role)
		b.forbidEngines()
		if out, errOut := b.runMessages(cli.ExitOK, "list", "--limit", "1"); !strings.Contains(out, "shop") || !strings.Contains(errOut, "only the next 1") {
			t.Errorf("%s: list printed %q, %q", role, out, errOut)
		}
		if role == access.Viewer {
			if _, errOut := b.runMessages(cli.ExitFailed, append([]string{"cancel"}, one...)...); !strings.Contains(errOut, "needs the role operator") || !strings.Contains(errOut, "OUTBOX_API_TOKEN") {
				t.Errorf("cancel by a viewer said %q", errOut)
			}
			continue
		}
		if _, errOut := b.runMessages(cli.ExitUsage, append([]string{"cancel", "--actor", "eve"}, one...)...); !strings.Contains(errOut, "--actor and --api-admin-url") {
			t.Errorf("--actor with an API said %q", errOut)
		}
		if _, errOut := b.runMessages(cli.ExitUsage, "cancel", "--topic", "a", "--yes", "--reason", strings.Repeat("x", 8001)); !strings.Contains(errOut, "at most 8,000 characters") || !strings.Contains(errOut, "outbox messages cancel --help") {
			t.Errorf("a long reason said %q", errOut)
		}
		if out, _ := b.runMessages(cli.ExitOK, append([]string{"cancel"}, one...)...); out != "cancel: 2 cancelled, 0 were published before\n" {
			t.Errorf("cancel by an operator printed %q", out)
		}
	}
	var n int
	if err := b.session.Query("SELECT COUNT(*) FROM outbox.admin_audit WHERE action = 'cancel-messages' AND actor = ? ALLOW FILTERING", serverActor).Scan(&n); err != nil || n != 1 {
		t.Errorf("the audit trail has %d changes, %v, want that of the operator", n, err)
	}
	out, _ := b.onAPI(cli.ExitOK, "audit", "list", "--action", "cancel-messages")
	if !strings.Contains(out, "INC-1") {
		t.Errorf("audit list printed %q", out)
	}
}

// A server that is older than the command has no such operation: the command names the fix.
func TestScheduled_OlderServer(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	b.serve(nil) // without the operations on messages
	for _, args := range [][]string{{"messages", "list"}, {"messages", "cancel", "--all", "--dry-run"}, {"messages", "deliver-now", "--all", "--yes", "--reason", "a test"}} {
		if out, errOut := b.onAPI(cli.ExitFailed, args...); out != "" || !strings.Contains(errOut, "no such endpoint") || !strings.Contains(errOut, "'outbox admin', of this version or a later one") {
			t.Errorf("%v said %q, %q", args, out, errOut)
		}
	}
}

// A server that is older than a filter refuses it: the list is not longer than requested.
func TestScheduled_OlderServerWithoutAFilter(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("created_since") {
			t.Errorf("the request is %s", r.URL)
		}
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"detail":"validation failed","errors":[{"location":"query.created_since","message":"is unknown; the parameters are client, key"}]}`)
	}))
	t.Cleanup(srv.Close)
	var out, errOut bytes.Buffer
	code := run([]string{"messages", "list", "--created-since", "1h", "--config", apiSettings(t, srv.URL, "t-1")}, &out, &errOut)
	if code != cli.ExitFailed || !strings.Contains(errOut.String(), "query.created_since is unknown") || !strings.Contains(errOut.String(), "update 'outbox admin'") {
		t.Errorf("exit status %d: %s%s", code, out.String(), errOut.String())
	}
}

// A request that fails is repeated while the database is unreachable, and the report counts
// what each request made.
func TestScheduled_RepeatsAfterAnOutage(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answers []string // to the requests of the change
		want    int
		text    string
	}{
		"outage":  {[]string{"503 2", "200 3 next", "200 4"}, cli.ExitOK, "cancel: 9 cancelled, 1 were published before\n"},
		"failure": {[]string{"200 3 next", "500 2"}, cli.ExitFailed, "5 were cancelled; run the same command again for the rest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cursors []string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var in messages.ManyBody
				if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.URL.Path != "/v1/messages/cancel" || r.Header.Get("Audit-Reason") != "a%20test" {
					t.Errorf("%s, reason %q, %v", r.URL, r.Header.Get("Audit-Reason"), err)
				}
				if in.DryRun {
					_, _ = io.WriteString(w, `{"dry_run":true,"preview":{"messages":10,"by_topic":{"a":10},"by_client":{"shop":10}}}`)
					return
				}
				answer := strings.Fields(tt.answers[len(cursors)])
				cursors = append(cursors, in.Cursor)
				code, _ := strconv.Atoi(answer[0])
				w.WriteHeader(code)
				gone, next := 0, ""
				if len(answer) > 2 {
					gone, next = 1, answer[2]
				}
				fmt.Fprintf(w, `{"detail":"The database cannot be reached.","outcome_unknown":%t,"result":{"changed":%s,"gone":%d},"next":%q}`, code != 200, answer[1], gone, next)
			}))
			t.Cleanup(srv.Close)
			var out, errOut bytes.Buffer
			code := run([]string{"messages", "cancel", "--topic", "a", "--yes", "--reason", "a test", "--config", apiSettings(t, srv.URL, "t-1")}, &out, &errOut)
			if text := out.String() + errOut.String(); code != tt.want || !strings.Contains(text, tt.text) {
				t.Errorf("exit status %d: %s, want %q", code, text, tt.text)
			}
			if want := map[string][]string{"outage": {"", "", "next"}, "failure": {"", "next"}}[name]; !slices.Equal(cursors, want) {
				t.Errorf("the cursors are %q, want %q", cursors, want)
			}
		})
	}
}
