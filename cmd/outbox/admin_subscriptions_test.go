package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// startAdmin runs an admin API on the engines of the fixture. It returns requests to it as an
// administrator, and the file with the settings of commands that use it.
func (b *verifyFixture) startAdmin(t *testing.T) (do func(method, path, body string) (int, string), settings string) {
	t.Helper()
	secret, file := token(t, "admin")
	yaml, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	conf, err := parseConfig(t, string(yaml), nil, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--admin-addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	gate, err := conf.AdminGate(log)
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.StartAdmin(t.Context(), conf, gate, b.session, nil, app.NewRegistry(""), log, conf.ListenAdmin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return func(method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+a.Addr+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		if method != http.MethodGet {
			req.Header.Set(httpapi.ReasonHeader, "INC-7")
		}
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // it was read
		out, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(out)
	}, apiSettings(t, "http://"+a.Addr, secret)
}

// The admin API runs no subscription: it asks the processes that do for the messages in
// flight, lets them purge, and changes the subscription in the database.
func TestAdmin_Subscriptions(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	url, _ := b.startSubscriptions(t)
	c := &client.Client{URL: url}
	if _, err := c.Put(t.Context(), client.Subscription{Name: "s", Topics: []string{"things"}, Start: "earliest"}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := b.client.ProduceSync(t.Context(), &kgo.Record{Topic: "things", Partition: 1, Value: []byte("{}")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	world.Eventually(t, "a message is leased", func() bool {
		got, err := c.Receive(t.Context(), "s", client.ReceiveOptions{Max: 1})
		return err == nil && len(got) == 1
	})
	do, settings := b.startAdmin(t)
	world.Eventually(t, "the admin API shows the lease and the owners", func() bool {
		code, body := do(http.MethodGet, "/v1/subscriptions/s/status", "")
		var st client.Status
		if code != http.StatusOK || json.Unmarshal([]byte(body), &st) != nil {
			return false
		}
		for _, p := range st.Partitions {
			if p.Owner == "" {
				return false
			}
		}
		return st.Leased == 1 && st.Waiting == 2 && len(st.Partitions) == 3
	})
	_, body := do(http.MethodGet, "/v1/subscriptions/s/leases", "")
	var flight struct{ Leases []client.Lease }
	if err := json.Unmarshal([]byte(body), &flight); err != nil || len(flight.Leases) != 1 || flight.Leases[0].Consumer != "127.0.0.1" {
		t.Fatalf("leases %s, %v; want that of this client", body, err)
	}
	end := "leases/" + flight.Leases[0].ID
	for _, step := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"POST", "purge", `{"dry_run":true}`, 200, `"count":2`},
		{"POST", "purge", `{"dry_run":false}`, 200, `"count":2`},
		{"DELETE", end, "", 204, ""},
		{"DELETE", end, "", 409, "has ended"},
		{"DELETE", "leases/thing:0:1:99999999999999999999", "", 409, "has ended"},
		{"DELETE", "leases/x", "", 422, "path.lease"},
		{"POST", "pause", "", 204, ""},
		{"POST", "seek", `{"to":"never"}`, 422, "to"},
		{"POST", "seek", `{"to":"latest"}`, 204, ""},
	} {
		if code, body := do(step.method, "/v1/subscriptions/s/"+step.path, step.body); code != step.code || !strings.Contains(body, step.want) {
			t.Errorf("%s %s = %d %s, want %d with %q", step.path, step.body, code, body, step.code, step.want)
		}
	}
	for _, step := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"list"}, cli.ExitOK, "paused"},
		{[]string{"status", "s"}, cli.ExitOK, "in flight"},
		{[]string{"resume", "s"}, cli.ExitUsage, "--reason"},
		{[]string{"resume", "s", "--reason", "grüße"}, cli.ExitOK, "resumed"},
		{[]string{"pause", "s", "--reason", "INC-7"}, cli.ExitOK, "paused"},
		{[]string{"purge", "s", "--dry-run"}, cli.ExitOK, "would be removed"},
		{[]string{"delete", "s", "--yes", "--reason", "INC-7"}, cli.ExitFailed, "outbox subscriptions"},
	} {
		var out, errOut bytes.Buffer
		if code := run(append(append([]string{"subscriptions"}, step.args...), "--config", settings), &out, &errOut); code != step.code || !strings.Contains(out.String()+errOut.String(), step.want) {
			t.Errorf("outbox subscriptions %v = %d\n%s%s\nwant %d with %q", step.args, code, out.String(), errOut.String(), step.code, step.want)
		}
	}
	if s, err := c.Get(t.Context(), "s"); err != nil || s.Paused == nil || !*s.Paused || s.ChangedBy != "ann" {
		t.Errorf("the subscription is %+v, %v; want it paused by ann", s, err)
	}
	_, trail := do(http.MethodGet, "/v1/audit?action=resume-subscription", "")
	if !strings.Contains(trail, `"reason":"grüße"`) || strings.Count(trail, `"id"`) != 1 {
		t.Errorf("the audit trail is %s, want one change by the command", trail)
	}
	_, trail = do(http.MethodGet, "/v1/audit?action=end-lease,purge-subscription,pause-subscription,seek-subscription", "")
	var got struct {
		Entries []struct{ Action, Target, State, Detail string }
	}
	if err := json.Unmarshal([]byte(trail), &got); err != nil || len(got.Entries) != 9 {
		t.Fatalf("the audit trail is %s, %v; want nine changes", trail, err)
	}
	for i, want := range []string{"done", "done", "refused", "done", "refused", "refused", "refused", "done", "done"} {
		if l := got.Entries[i]; l.State != want || l.Target != "s" || strings.Contains(l.Detail, `"lease":"`) != (l.Action == "end-lease") {
			t.Errorf("entry %d is %+v, want %s of s, with the lease if it is of one", i, l, want)
		}
	}
}

// The state of a message contains its state in each subscription: the lease, which only the
// owner knows, and the acknowledgement.
func TestAdmin_MessageInSubscriptions(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	url, _ := b.startSubscriptions(t)
	c := &client.Client{URL: url}
	for _, s := range []client.Subscription{{Name: "s", Topics: []string{"thing*"}, Start: "earliest"}, {Name: "other", Topics: []string{"things"}, Types: []string{"none"}}} {
		if _, err := c.Put(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	do, settings := b.startAdmin(t)
	service, err := messages.NewService(b.session, messages.Config{Topics: []string{"things"}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := service.Accept(t.Context(), messages.NewMessage{Topic: "things", Key: "k", Payload: json.RawMessage(`{}`)}, messages.Options{Client: "c"})
	if err != nil {
		t.Fatal(err)
	}
	// The relay's part.
	e := outbox.Event{ID: outbox.IDFromUUID(m.ID), AggregateID: outbox.IDFromUUID(m.ID), Sequence: 1, AggregateType: outbox.MessageAggregate, Type: "things", Payload: []byte("{}"), CreatedAt: m.CreatedAt, Headers: map[string]string{outbox.HeaderPartitionKey: "k"}}
	if err := b.client.ProduceSync(t.Context(), &kgo.Record{Topic: "things", Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	state := func() subscriptions.Progress {
		t.Helper()
		var got struct {
			State         messages.State
			Subscriptions []subscriptions.Progress
		}
		code, body := do(http.MethodGet, "/v1/messages/"+m.ID.String(), "")
		if err := json.Unmarshal([]byte(body), &got); code != http.StatusOK || err != nil || got.State != messages.Completed || len(got.Subscriptions) != 2 ||
			got.Subscriptions[0] != (subscriptions.Progress{Subscription: "other", State: subscriptions.ProgressNotSelected}) {
			t.Fatalf("GET = %d %s, %v", code, body, err)
		}
		return got.Subscriptions[1]
	}
	var leased []client.Delivery
	world.Eventually(t, "the message is leased", func() bool {
		leased, err = c.Receive(t.Context(), "s", client.ReceiveOptions{Max: 1})
		return err == nil && len(leased) == 1
	})
	if p := state(); p.State != subscriptions.ProgressProcessing || p.Attempts != 1 || p.LeaseUntil.IsZero() || p.Owner == "" {
		t.Errorf("while it is leased: %+v", p)
	}
	if results, err := c.Ack(t.Context(), "s", leased[0].Receipt); err != nil {
		t.Fatalf("Ack() = %+v, %v", results, err)
	}
	if p := state(); p.State != subscriptions.ProgressCompleted || p.ProcessedAt.IsZero() || !p.LeaseUntil.IsZero() {
		t.Errorf("afterwards: %+v", p)
	}
	if err := b.session.Query("INSERT INTO outbox.relay_topics (relay, table_name, topic) VALUES ('outbox', 'outbox.outbox_messages', 'things')").Exec(); err != nil {
		t.Fatal(err)
	}
	for _, target := range [][]string{{"--config", settings}, {"--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr}} {
		var out, errOut bytes.Buffer
		code := run(append([]string{"events", "get", m.ID.String()}, target...), &out, &errOut)
		for _, want := range []string{"published", "not_selected", "completed", "processed at"} {
			if code != cli.ExitOK || !strings.Contains(out.String(), want) {
				t.Errorf("outbox events get %v = %d\n%s%s\nwant %q", target, code, out.String(), errOut.String(), want)
			}
		}
	}
}
