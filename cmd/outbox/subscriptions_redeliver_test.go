package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/redeliver"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A slice of acknowledged messages is delivered once more, in order and to this subscription
// alone; what is in flight is left out, and the acknowledgement ends the redelivery.
func TestSubscriptions_Redeliver(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	url, _ := b.startSubscriptions(t)
	c := &client.Client{URL: url}
	for _, name := range []string{"mail", "other"} {
		if _, err := c.Put(t.Context(), client.Subscription{Name: name, Topics: []string{"things"}, Start: "earliest"}); err != nil {
			t.Fatal(err)
		}
	}
	produce := func(key string, n int) {
		t.Helper()
		r := &kgo.Record{Topic: "things", Key: []byte(key), Value: fmt.Appendf(nil, `{"n":%d}`, n), Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte("application/json")}}}
		if err := b.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	// receive returns the next n messages, as key and payload, and acknowledges them.
	receive := func(name string, n int, ack bool) (got []string) {
		t.Helper()
		world.Eventually(t, fmt.Sprintf("%d messages are received", n), func() bool {
			some, err := c.Receive(t.Context(), name, client.ReceiveOptions{Max: n - len(got)})
			if err != nil {
				return false
			}
			var receipts []string
			for _, m := range some {
				got = append(got, fmt.Sprintf("%s %s attempt %d", m.Key, m.Data, m.Attempt))
				receipts = append(receipts, m.Receipt)
			}
			if ack && len(receipts) > 0 {
				if _, err := c.Ack(t.Context(), name, receipts...); err != nil {
					t.Error(err)
				}
			}
			return len(got) == n
		})
		return got
	}
	run := func(want int, args ...string) (string, string) {
		t.Helper()
		var out, errOut bytes.Buffer
		args = append([]string{"subscriptions", "redeliver", "mail", "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr}, args...)
		if code := run(args, &out, &errOut); code != want {
			t.Fatalf("outbox %v = %d, want %d\n%s%s", args, code, want, out.String(), errOut.String())
		}
		return out.String(), errOut.String()
	}
	for n := range 3 {
		produce("a", n)
		produce("b", n)
	}
	receive("mail", 6, true)
	receive("other", 6, true)
	produce("a", 3)
	receive("mail", 1, false) // it stays leased

	run(cli.ExitUsage, "--reason", "a test", "-y")
	if _, errOut := run(cli.ExitUsage, "--filter", "data.n >", "--reason", "a test", "-y"); !strings.Contains(errOut, "filter") {
		t.Errorf("an invalid filter says %q", errOut)
	}
	run(cli.ExitUsage, "--key", "a", "-y")
	run(cli.ExitFailed, "--key", "a", "--topic", "none", "--dry-run")
	out, _ := run(cli.ExitOK, "--key", "a", "--dry-run", "-o", "json")
	var plan redeliver.Plan
	if err := json.Unmarshal([]byte(out), &plan); err != nil || plan.Messages != 3 || plan.Keys != 1 || plan.Waiting != 1 || plan.ByTopic["things"] != 3 || plan.First.After(plan.Last) {
		t.Errorf("the preview is %s, %v", out, err)
	}
	if _, errOut := run(cli.ExitUsage, "--key", "a", "--reason", "mail 2.3 lost them"); !strings.Contains(errOut, "redeliver 3 messages of 1 key") || !strings.Contains(errOut, "--yes") {
		t.Errorf("without a terminal it says %q", errOut)
	}

	out, _ = run(cli.ExitWaits, "--filter", "data.n >= 1", "--since", "1h", "--reason", "mail 2.3 lost them", "-y", "--wait", "0", "-o", "json")
	var job admin.JobBody
	if err := json.Unmarshal([]byte(out), &job); err != nil || job.Progress.Changed != 4 || job.Reason != "mail 2.3 lost them" {
		t.Errorf("the job is %s, %v", out, err)
	}
	// Those that wait are left out of another redelivery.
	out, _ = run(cli.ExitOK, "--since", "1h", "--dry-run", "-o", "json")
	plan = redeliver.Plan{}
	if err := json.Unmarshal([]byte(out), &plan); err != nil || plan.Messages != 2 || plan.DeadLetters != 4 {
		t.Errorf("while 4 wait the preview is %s, %v", out, err)
	}
	got := receive("mail", 2, true) // b; a message of a is leased
	if want := []string{`b {"n":1} attempt 1`, `b {"n":2} attempt 1`}; !slices.Equal(got, want) {
		t.Errorf("redelivered are %q, want %q", got, want)
	}
	world.Eventually(t, "the dead letters of acknowledged messages are resolved", func() bool {
		out, _ := b.dlq(t, "list", "--table", "subscription.mail", "--error-class", "redelivery", "--status", "resolved", "-o", "json")
		return len(decodeItems[admin.Summary](t, out)) == 2
	})
	if some, err := c.Receive(t.Context(), "other", client.ReceiveOptions{Max: 10}); err != nil || len(some) != 1 { // a 3
		t.Errorf("another subscription received %+v, %v", some, err)
	}
	entries, details := b.trail(t)
	i := slices.IndexFunc(entries, func(e audited) bool { return e.Action == "redeliver-subscription" })
	if i < 0 || entries[i].Target != "mail" || entries[i].Reason != "mail 2.3 lost them" || entries[i].State != "done" || !strings.Contains(details[i], `"filter":"data.n \u003e= 1"`) || !strings.Contains(details[i], `{"messages":4}`) {
		t.Errorf("the audit trail has %+v %q", entries, details)
	}
	// Once more: the resolved ones are redelivered again.
	out, _ = run(cli.ExitWaits, "--key", "b", "--since", "1h", "--reason", "again", "-y", "--wait", "0", "-o", "json")
	if err := json.Unmarshal([]byte(out), &job); err != nil || job.Progress.Changed != 3 {
		t.Errorf("the second job is %s, %v", out, err)
	}
	if got := receive("mail", 3, true); !slices.Equal(got, []string{`b {"n":0} attempt 1`, `b {"n":1} attempt 1`, `b {"n":2} attempt 1`}) {
		t.Errorf("redelivered again are %q", got)
	}
}

// A redelivery that was interrupted before its job is continued by the next one of its slice, in
// order.
func TestSubscriptions_RedeliverAfterAnInterruption(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	url, _ := b.startSubscriptions(t)
	c := &client.Client{URL: url}
	if _, err := c.Put(t.Context(), client.Subscription{Name: "mail", Topics: []string{"things"}, Start: "earliest"}); err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		r := &kgo.Record{Topic: "things", Key: []byte("a"), Value: fmt.Appendf(nil, `{"n":%d}`, n), Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte("application/json")}}}
		if err := b.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	receive := func() (got []string) {
		t.Helper()
		world.Eventually(t, "5 messages are received", func() bool {
			some, err := c.Receive(t.Context(), "mail", client.ReceiveOptions{Max: 1})
			for _, m := range some {
				got = append(got, string(m.Data))
				if _, err := c.Ack(t.Context(), "mail", m.Receipt); err != nil {
					t.Error(err)
				}
			}
			return err == nil && len(got) == 5
		})
		return got
	}
	want := receive()

	conf := redeliver.Config{Kafka: func(opts ...kgo.Opt) (*kgo.Client, error) {
		return kgo.NewClient(append(opts, kgo.SeedBrokers(b.e.KafkaAddr))...)
	}}
	var err error
	if conf.DeadLetters, err = dlq.Open(b.session, "outbox"); err != nil {
		t.Fatal(err)
	}
	if conf.Store, err = store.Open(b.session, "outbox"); err != nil {
		t.Fatal(err)
	}
	r, plan, err := redeliver.Find(t.Context(), conf, "mail", redeliver.Slice{Filter: "data.n == 1 || data.n == 3"})
	if err != nil {
		t.Fatal(err)
	}
	first, err := r.Write(t.Context(), plan, dlq.Actor{Name: "ada", Reason: "a test"})
	if err != nil || len(first) != 2 {
		t.Fatalf("written are %v, %v", first, err)
	}

	r, plan, err = redeliver.Find(t.Context(), conf, "mail", redeliver.Slice{Key: "a"})
	if err != nil || plan.Messages != 5 || plan.Interrupted != 2 || plan.DeadLetters != 0 {
		t.Fatalf("the next plan is %+v, %v", plan, err)
	}
	ids, err := r.Write(t.Context(), plan, dlq.Actor{Name: "ada", Reason: "a test"})
	if err != nil || len(ids) != 5 || ids[1] != first[0] || ids[3] != first[1] {
		t.Fatalf("after %v the ids are %v, %v", first, ids, err)
	}
	var out, errOut bytes.Buffer
	args := []string{"subscriptions", "redeliver", "mail", "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--key", "a", "--reason", "a test", "-y", "--wait", "0"}
	if code := run(args, &out, &errOut); code != cli.ExitWaits || !strings.Contains(errOut.String(), "of these from an interrupted redelivery: 5 messages") {
		t.Fatalf("outbox %v = %d\n%s%s", args, code, out.String(), errOut.String())
	}
	if got := receive(); !slices.Equal(got, want) {
		t.Errorf("redelivered are %q, want %q", got, want)
	}
}

// Without a job the command says how to continue, with the time that an age was.
func TestSubscriptions_RedeliverWithoutAJob(t *testing.T) {
	t.Parallel()
	api := &operatorAPI{Client: adminclient.Local(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))}
	f := redeliverFlags{slice: redeliver.Slice{Since: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}}
	cmd := newSubscriptionsRedeliverCommand()
	cmd.SetContext(t.Context())
	err := f.deliver(cmd, api, []gocql.UUID{gocql.TimeUUID()})
	if hint := cli.FindHint(err); !strings.Contains(hint, "run the same command again with --since 2026-01-02T03:04:05Z:") {
		t.Errorf("without a job it says %v, %q", err, hint)
	}
}

// dlq runs outbox dlq on the database.
func (b *verifyFixture) dlq(t *testing.T, args ...string) (out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	if code := run(append(append([]string{"dlq"}, args...), "--scylla-hosts", b.e.CQLAddr), &o, &e); code != cli.ExitOK {
		t.Fatalf("outbox dlq %v = %d: %s%s", args, code, o.String(), e.String())
	}
	return o.String(), e.String()
}
