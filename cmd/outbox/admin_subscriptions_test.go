package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/outbox/client"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// The admin API runs no subscription: it asks the processes that do for the messages in
// flight, lets them purge, and changes the subscription in the database.
func TestAdmin_Subscriptions(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	url, _ := b.startSubscriptions(t)
	c := &client.Client{URL: url}
	if _, err := c.PutSubscription(t.Context(), client.Subscription{Name: "s", Topics: []string{"things"}, Start: "earliest"}); err != nil {
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
	secret, file := token(t, "admin")
	yaml, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	conf, err := configOf(t, string(yaml), nil, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--admin-api-addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	gate, err := conf.Admin.Gate(log)
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.StartAdmin(t.Context(), conf, gate, b.session, nil, app.NewRegistry(), log, conf.ListenAdmin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	do := func(method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+a.Addr+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		if method != http.MethodGet {
			req.Header.Set(admin.ReasonHeader, "INC-7")
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
	}
	world.Eventually(t, "the admin API shows the lease and the owners", func() bool {
		code, body := do(http.MethodGet, "/v1/subscriptions/s/status", "")
		var st client.SubscriptionStatus
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
	for _, step := range []struct {
		path, body string
		code       int
		want       string
	}{
		{"purge", `{"dry_run":true}`, 200, `"count":2`},
		{"purge", `{"dry_run":false}`, 200, `"count":2`},
		{"pause", "", 204, ""},
		{"seek", `{"to":"never"}`, 422, "to"},
		{"seek", `{"to":"latest"}`, 204, ""},
	} {
		if code, body := do(http.MethodPost, "/v1/subscriptions/s/"+step.path, step.body); code != step.code || !strings.Contains(body, step.want) {
			t.Errorf("%s %s = %d %s, want %d with %q", step.path, step.body, code, body, step.code, step.want)
		}
	}
	if s, err := c.Subscription(t.Context(), "s"); err != nil || !s.Paused || s.ChangedBy != "ann" {
		t.Errorf("the subscription is %+v, %v; want it paused by ann", s, err)
	}
	_, trail := do(http.MethodGet, "/v1/dlq/audit?action=purge-subscription,pause-subscription,seek-subscription", "")
	var got struct {
		Lines []struct{ Action, Target, State, Detail string }
	}
	if err := json.Unmarshal([]byte(trail), &got); err != nil || len(got.Lines) != 4 {
		t.Fatalf("the audit trail is %s, %v; want four changes", trail, err)
	}
	for i, want := range []string{"done", "refused", "done", "done"} {
		if l := got.Lines[i]; l.State != want || l.Target != "s" {
			t.Errorf("entry %d is %+v, want %s of s", i, l, want)
		}
	}
}
