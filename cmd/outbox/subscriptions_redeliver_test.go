package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/redeliver"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A slice of acknowledged messages is delivered once more, in order and to this subscription alone;
// messages in flight are left out, and the acknowledgement ends the redelivery.
func TestSubscriptions_Redeliver(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	b.runSubscriptions(t, "mail", "other")
	c := &client.Client{URL: b.url}
	receive := func(name string, n int, ack bool) (got []string) {
		t.Helper()
		if ack {
			return b.receiveNext(t, name, n)
		}
		b.receive(t, name, n, func(...string) {}, &got)
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
		b.produce(t, "a", n)
		b.produce(t, "b", n)
	}
	receive("mail", 6, true)
	receive("other", 6, true)
	b.produce(t, "a", 3)
	receive("mail", 1, false) // it stays leased

	run(cli.ExitUsage, "--reason", "a test", "-y")
	if _, errOut := run(cli.ExitUsage, "--filter", "data.n >", "--reason", "a test", "-y"); !strings.Contains(errOut, "filter") {
		t.Errorf("an invalid filter says %q", errOut)
	}
	run(cli.ExitUsage, "--key", "a", "-y")
	if _, errOut := run(cli.ExitUsage, "--key", "a", "--topic", "none", "--dry-run"); !strings.Contains(errOut, `body.topic "none" is none of the subscription, or does not exist: its topics are things`) {
		t.Errorf("another topic says %q", errOut)
	}
	out, _ := run(cli.ExitOK, "--key", "a", "--dry-run", "-o", "json")
	var plan redeliver.Plan
	if err := json.Unmarshal([]byte(out), &plan); err != nil || plan.Messages != 3 || plan.Keys != 1 || plan.Waiting != 1 || len(plan.Partitions) != 1 || plan.Partitions[0].Messages != 3 || len(plan.Sample) != 3 || plan.First.After(plan.Last) || plan.Until.IsZero() {
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
	// Waiting messages are left out of another redelivery.
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
	if i < 0 || entries[i].Target != "mail" || entries[i].Reason != "mail 2.3 lost them" || entries[i].State != "done" || !strings.Contains(details[i], `"filter":"data.n \u003e= 1"`) || !strings.Contains(details[i], `{"job":"`+job.ID+`"}`) {
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
	b.runSubscriptions(t, "mail")
	for n := range 5 {
		b.produce(t, "a", n)
	}
	want := b.receiveNext(t, "mail", 5)
	conf := b.redelivery(t)
	r, plan, err := redeliver.Find(t.Context(), conf, "mail", jobs.Slice{Filter: "data.n == 1 || data.n == 3"})
	if err != nil {
		t.Fatal(err)
	}
	first, err := r.Write(t.Context(), plan, dlq.Actor{Name: "ada", Reason: "a test"})
	if err != nil || len(first) != 2 {
		t.Fatalf("written are %v, %v", first, err)
	}

	r, plan, err = redeliver.Find(t.Context(), conf, "mail", jobs.Slice{Key: "a"})
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
	if got := b.receiveNext(t, "mail", 5); !slices.Equal(got, want) {
		t.Errorf("redelivered are %q, want %q", got, want)
	}
}

// A consumer with a fault acknowledged messages that it lost: through the admin API, or by the
// command that uses it, an operator previews them and has them delivered once more, in order, to
// this subscription alone, and the job and the audit trail show it.
func TestSubscriptions_RedeliverByAPI(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	b.runSubscriptions(t, "mail", "other")
	do, settings := b.startAdmin(t)
	for n := range 6 {
		b.produce(t, "ab"[n%2:n%2+1], n)
	}
	b.receiveNext(t, "mail", 6) // it loses those with an odd number
	b.receiveNext(t, "other", 6)

	const path, slice = "/v1/subscriptions/mail/redeliver", `"filter":"data.n == 1 || data.n == 5"`
	post := func(body string, code int, out any) {
		t.Helper()
		if got, text := do(http.MethodPost, path, body); got != code || json.Unmarshal([]byte(text), out) != nil {
			t.Fatalf("POST %s = %d %s, want %d", body, got, text, code)
		}
	}
	var dry admin.RedeliverPreviewBody
	post("{"+slice+`,"dry_run":true}`, http.StatusOK, &dry)
	p := dry.Preview
	if p.Messages != 2 || p.Keys != 1 || p.Records != 6 || len(p.Partitions) != 1 || p.Partitions[0].Messages != 2 || len(p.Sample) != 2 || p.Sample[0].Key != "b" || p.Truncated || p.Problem != "" || p.Until.IsZero() {
		t.Errorf("the preview is %+v", p)
	}
	for body, want := range map[string]string{
		`{"key":"c","dry_run":true}`:                                                     `key: none of 6 records has the key "c"`,
		`{"filter":"data.n == 99","dry_run":true}`:                                       "select none of 6 records",
		`{"since":"1999-01-01T00:00:00Z","until":"1999-01-02T00:00:00Z","dry_run":true}`: "select none of 6 records",
	} {
		dry = admin.RedeliverPreviewBody{}
		if post(body, http.StatusOK, &dry); dry.Preview.Messages != 0 || !strings.Contains(dry.Preview.Problem, want) {
			t.Errorf("the preview of %s is %+v, want %q", body, dry.Preview, want)
		}
	}
	for body, field := range map[string]string{
		`{}`:                     `"body"`,
		`{"filter":"data.n =="}`: `"body.filter"`,
		`{"since":"2099-01-01T00:00:00Z","dry_run":true}`:                 `"body.since"`,
		`{"filter":"data.n"}`:                                             `"body.filter"`,
		`{"key":"a","topic":"x","dry_run":true}`:                          `"body.topic"`,
		`{"since":"2026-01-02T00:00:00Z","until":"2026-01-02T00:00:00Z"}`: `"body.since"`,
		`{"filter":"data.missing > 1","dry_run":true}`:                    `"body.filter"`,
	} {
		if code, text := do(http.MethodPost, path, body); code != http.StatusUnprocessableEntity || !strings.Contains(text, `"location":`+field) {
			t.Errorf("POST %s = %d %s, want 422 with %s", body, code, text, field)
		}
	}

	var job admin.JobBody
	post("{"+slice+`,"until":"`+p.Until.Format(time.RFC3339Nano)+`"}`, http.StatusAccepted, &job)
	if got := b.receiveNext(t, "mail", 2); !slices.Equal(got, []string{`b {"n":1} attempt 1`, `b {"n":5} attempt 1`}) {
		t.Errorf("redelivered are %q", got)
	}
	b.finishes(t, do, job.ID, 2)
	if _, text := do(http.MethodGet, "/v1/jobs?limit=1", ""); !strings.Contains(text, job.ID) || !strings.Contains(text, `"redelivery":{"subscription":"mail","filter":"data.n == 1`) {
		t.Errorf("the list of jobs is %s", text)
	}
	if _, text := do(http.MethodGet, "/v1/audit?action=redeliver-subscription", ""); !strings.Contains(text, `"summary":"redeliver subscription mail, 2 messages, filter data.n == 1 || data.n == 5, until `) {
		t.Errorf("the audit trail is %s", text)
	}

	// The command uses the API: without an address of the database or Kafka.
	var out, errOut bytes.Buffer
	args := []string{"subscriptions", "redeliver", "mail", "--config", settings, "--key", "b", "--reason", "again", "-y", "--wait", "0", "-o", "json"}
	if code := run(args, &out, &errOut); code != cli.ExitWaits || json.Unmarshal(out.Bytes(), &job) != nil || job.Actor != "ann" || job.Progress.Changed != 3 {
		t.Fatalf("outbox %v = %d\n%s%s", args, code, out.String(), errOut.String())
	}
	if got := b.receiveNext(t, "mail", 3); !slices.Equal(got, []string{`b {"n":1} attempt 1`, `b {"n":3} attempt 1`, `b {"n":5} attempt 1`}) {
		t.Errorf("redelivered again are %q", got)
	}
	args = []string{"subscriptions", "redeliver", "sms", "--config", settings, "--key", "b", "--dry-run"}
	errOut.Reset()
	if code := run(args, &out, &errOut); code != cli.ExitFailed || !strings.Contains(errOut.String(), "outbox subscriptions list") {
		t.Errorf("outbox %v = %d\n%s", args, code, errOut.String())
	}
}

// Push subscriptions get a redelivery by their push, again in the order of the key.
func TestSubscriptions_RedeliverByPush(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	h := newHook(t)
	b.url, _ = b.startSubscriptionsWith(t, h.config())
	if _, err := (&client.Client{URL: b.url}).Put(t.Context(), client.Subscription{Name: "hook", Topics: []string{"things"}, Start: "earliest", Push: &client.Push{To: "hook", Title: "{{data.n}}"}}); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		b.produce(t, "a", n)
	}
	called := func(want ...string) {
		t.Helper()
		world.Eventually(t, fmt.Sprintf("the calls are %v", want), func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return slices.Equal(h.calls, want)
		})
	}
	called("0", "1", "2")
	do, _ := b.startAdmin(t)
	var dry admin.RedeliverPreviewBody
	world.Eventually(t, "the calls are settled", func() bool {
		_, text := do(http.MethodPost, "/v1/subscriptions/hook/redeliver", `{"key":"a","dry_run":true}`)
		return json.Unmarshal([]byte(text), &dry) == nil && dry.Preview.Messages == 3
	})
	var job admin.JobBody
	if code, text := do(http.MethodPost, "/v1/subscriptions/hook/redeliver", `{"key":"a","filter":"data.n > 0"}`); code != http.StatusAccepted || json.Unmarshal([]byte(text), &job) != nil {
		t.Fatalf("%d %s", code, text)
	}
	b.finishes(t, do, job.ID, 2)
	called("0", "1", "2", "1", "2")
}

// A process that ends while it writes the dead letters of a redelivery, or while it replays them,
// leaves the job to the next one: every message is delivered, once and in order.
func TestSubscriptions_RedeliverSurvivesARestart(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	b.runSubscriptions(t, "mail")
	for n := range 5 {
		b.produce(t, "a", n)
	}
	want := b.receiveNext(t, "mail", 5)

	deadLetters, err := dlq.Open(b.session, "outbox")
	if err != nil {
		t.Fatal(err)
	}
	store := jobs.New(deadLetters)
	job, err := store.Create(t.Context(), jobs.Spec{Action: dlq.ActionReplay, BatchSize: 1, Redelivery: &jobs.Redelivery{Subscription: "mail", Slice: jobs.Slice{Key: "a"}}}, dlq.Actor{Name: "ada", Reason: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	// run runs the job until stop returns true for it, and then ends.
	run := func(owner string, stop func(jobs.Reading) bool) {
		t.Helper()
		ctx, end := context.WithCancel(t.Context())
		defer end()
		from := ending{redeliver.New(b.redelivery(t)), func(r jobs.Reading) {
			if stop(r) {
				end()
			}
		}}
		if _, err := jobs.NewRunner(store, jobs.RunnerConfig{Owner: owner, Poll: 10 * time.Millisecond, Redeliverer: from}).RunJob(ctx, job.ID); !errors.Is(err, context.Canceled) {
			t.Fatalf("RunJob() = %v", err)
		}
	}
	run("first", func(r jobs.Reading) bool { return r.Written == 2 })
	if job, err = store.Read(t.Context(), job.ID); err != nil || len(job.IDs) > 0 || job.State != jobs.Running {
		t.Fatalf("after the first process the job is %+v, %v", job, err)
	}
	do, _ := b.startAdmin(t)
	if got := b.receiveNext(t, "mail", 5); !slices.Equal(got, want) {
		t.Errorf("redelivered are %q, want %q", got, want)
	}
	b.finishes(t, do, job.ID.String(), 5)
	if out, _ := b.dlq(t, "list", "--table", "subscription.mail", "--status", "all", "-o", "json"); len(decodeItems[admin.Summary](t, out)) != 5 {
		t.Errorf("the dead letters are %s", out)
	}
}

// ending is a Redeliverer whose progress a test follows.
type ending struct {
	*redeliver.Service
	seen func(jobs.Reading)
}

// Redeliver calls seen of the test too.
func (e ending) Redeliver(ctx context.Context, r *jobs.Redelivery, by dlq.Actor, seen func(jobs.Reading)) ([]gocql.UUID, error) {
	return e.Service.Redeliver(ctx, r, by, func(at jobs.Reading) { seen(at); e.seen(at) })
}

// finishes waits until a job has delivered n messages.
func (b *verifyFixture) finishes(t *testing.T, do func(method, path, body string) (int, string), id string, n int) {
	t.Helper()
	world.Eventually(t, "the job is done", func() bool {
		var job admin.JobBody
		_, text := do(http.MethodGet, "/v1/jobs/"+id, "")
		if err := json.Unmarshal([]byte(text), &job); err != nil || job.State == jobs.Failed || job.State == jobs.Paused {
			t.Fatalf("the job is %s, %v", text, err)
		}
		return job.State == jobs.Done && job.Progress.Replayed == n && job.Progress.Total == n && job.Progress.Reading.Written == n
	})
}

// redelivery returns the configuration of redeliveries in this process.
func (b *verifyFixture) redelivery(t *testing.T) (conf redeliver.Config) {
	t.Helper()
	conf.Kafka = world.Kafka{kgo.SeedBrokers(b.e.KafkaAddr)}.Client
	var err error
	if conf.DeadLetters, err = dlq.Open(b.session, "outbox"); err != nil {
		t.Fatal(err)
	}
	if conf.Store, err = store.Open(b.session, "outbox"); err != nil {
		t.Fatal(err)
	}
	return conf
}

// runSubscriptions runs subscriptions of things.
func (b *verifyFixture) runSubscriptions(t *testing.T, names ...string) {
	t.Helper()
	b.url, _ = b.startSubscriptions(t)
	for _, name := range names {
		if _, err := (&client.Client{URL: b.url}).Put(t.Context(), client.Subscription{Name: name, Topics: []string{"things"}, Start: "earliest"}); err != nil {
			t.Fatal(err)
		}
	}
}

// produce publishes a thing.
func (b *verifyFixture) produce(t *testing.T, key string, n int) {
	t.Helper()
	r := &kgo.Record{Topic: "things", Key: []byte(key), Value: fmt.Appendf(nil, `{"n":%d}`, n), Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte("application/json")}}}
	if err := b.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// receiveNext returns the next n messages of a subscription, as key, payload and attempt, and
// acknowledges them.
func (b *verifyFixture) receiveNext(t *testing.T, name string, n int) (got []string) {
	t.Helper()
	b.receive(t, name, n, func(receipts ...string) {
		if _, err := (&client.Client{URL: b.url}).Ack(t.Context(), name, receipts...); err != nil {
			t.Error(err)
		}
	}, &got)
	return got
}

// receive adds the next n messages to got, and calls settle with their receipts.
func (b *verifyFixture) receive(t *testing.T, name string, n int, settle func(receipts ...string), got *[]string) {
	t.Helper()
	world.Eventually(t, fmt.Sprintf("%d messages are received", n), func() bool {
		some, err := (&client.Client{URL: b.url}).Receive(t.Context(), name, client.ReceiveOptions{Max: n - len(*got)})
		if err != nil {
			return false
		}
		var receipts []string
		for _, m := range some {
			*got = append(*got, fmt.Sprintf("%s %s attempt %d", m.Key, m.Data, m.Attempt))
			receipts = append(receipts, m.Receipt)
		}
		if len(receipts) > 0 {
			settle(receipts...)
		}
		return len(*got) == n
	})
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
