package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/client"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// hook is a receiver of signed webhooks.
type hook struct {
	*httptest.Server
	secret string
	mu     sync.Mutex
	status int
	got    map[string]string // text of the message by its id
	calls  []string          // texts
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{secret: "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", status: http.StatusNoContent, got: make(map[string]string)}
	keys, err := notify.ParseKeys(h.secret)
	if err != nil {
		t.Fatal(err)
	}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m notify.Message
		if err == nil {
			err = notify.Verify(r.Header, body, keys)
		}
		if err == nil {
			err = json.Unmarshal(body, &m)
		}
		if err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got[r.Header.Get(notify.HeaderID)] = m.Title
		h.calls = append(h.calls, m.Title)
		w.WriteHeader(h.status)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) answer(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

// received returns the sorted titles of all calls.
func (h *hook) received() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(slices.Values(h.calls))
}

// config is the configuration of a process with the target hook.
func (h *hook) config() string {
	return "subscriptions:\n  targets: [\"hook=webhook+" + h.URL + "\"]\n  webhook_secrets: [" + h.secret + "]\n"
}

// things publishes events n = from … of a partition, written at the given time.
func (b *verifyFixture) things(t *testing.T, partition int32, at time.Time, numbers ...int) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(b.e.KafkaAddr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, n := range numbers {
		e := outbox.Event{
			ID: outbox.NewID(), AggregateText: fmt.Sprint("t-", partition), Sequence: int64(n), AggregateType: "thing", Type: "ThingHappened",
			Payload: fmt.Appendf(nil, `{"n":"%d/%d"}`, partition, n), CreatedAt: at,
		}
		r := &kgo.Record{Topic: "things", Partition: partition, Timestamp: at, Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")}
		if err := c.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// command runs the command line on the engines of the fixture and returns its output.
func (b *verifyFixture) command(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := run(append(args, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr), &out, &errOut); code != want {
		t.Errorf("outbox %v = %d, want %d\n%s%s", args, code, want, out.String(), errOut.String())
	}
	return out.String() + errOut.String()
}

func written(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A rule of the former command react becomes a subscription that continues where the rule was: nothing
// is lost, and nothing before the committed offsets is delivered again.
func TestSubscriptions_ImportReactions(t *testing.T) {
	t.Parallel()
	b, h := setupVerify(t), newHook(t)
	since := time.Now().Truncate(time.Millisecond)
	b.things(t, 0, since, 0, 1, 2, 3, 4)
	b.things(t, 1, since.Add(-time.Hour), 0, 1) // before the rule began
	b.things(t, 1, since, 2, 3)
	adm := kadm.NewClient(b.client)
	const group = "outbox-react.big"
	if err := b.session.Query("INSERT INTO outbox.delivery_rules (rule, since) VALUES ('big', ?)", since).Exec(); err != nil {
		t.Fatal(err)
	}
	old := written(t, "old.yaml", `
scylla: {hosts: [127.0.0.1]}
react:
  targets: ["hook=webhook+http://127.0.0.1/secret"]
  rules:
    - {name: big, topics: ["thing*"], types: [ThingHappened], when: data.n != "0/4", to: hook, title: "{{subscription}} {{.data.n}}", timeout: 500ms, attempts: 2, from: start}
    - {name: other, topics: [things], to: loyalty, order: none}
`)
	conf := written(t, "new.yaml", h.config())
	importing := []string{"subscriptions", "import-reactions", "--config", conf, "-f"}

	member, err := kgo.NewClient(kgo.SeedBrokers(b.e.KafkaAddr), kgo.ConsumerGroup(group), kgo.ConsumeTopics("things"), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	member.PollFetches(t.Context())
	if out := b.command(t, cli.ExitFailed, append(importing, old)...); !strings.Contains(out, "rule big: consumer group "+group+" has 1 members: stop") {
		t.Errorf("with a member: %s", out)
	}
	member.Close()
	var committed kadm.Offsets
	committed.AddOffset("things", 0, 3, -1)
	if err := adm.CommitAllOffsets(t.Context(), group, committed); err != nil {
		t.Fatal(err)
	}
	if out := b.command(t, cli.ExitOK, append(importing, old, "--dry-run")...); !strings.Contains(out, "subscription big would continue in 1 partitions") {
		t.Errorf("--dry-run: %s", out)
	}
	for _, want := range []string{"subscription big continues in 1 partitions", "subscription big exists and was not changed"} {
		if out := b.command(t, cli.ExitOK, append(importing, old)...); !strings.Contains(out, want) || !strings.Contains(out, `push.to "loyalty": this process has no such target`) {
			t.Errorf("%s, want %q", out, want)
		}
	}

	url, _ := b.startSubscriptionsWith(t, h.config())
	world.Eventually(t, "the rest is delivered", func() bool { return len(h.received()) >= 3 })
	b.things(t, 2, since, 0)
	c := &client.Client{URL: url}
	world.Eventually(t, "nothing is left", func() bool {
		st, err := c.SubscriptionStatus(t.Context(), "big")
		return err == nil && len(h.received()) >= 4 && st.Lag == 0 && len(st.Partitions) == 3
	})
	if got, want := h.received(), []string{"big 0/3", "big 1/2", "big 1/3", "big 2/0"}; !slices.Equal(got, want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
	s, err := c.Subscription(t.Context(), "big")
	if err != nil || s.Push == nil || *s.Push != (client.Push{To: "hook", Title: "{{subscription}} {{.data.n}}", Severity: "info", Concurrency: 4}) || s.VisibilityTimeout != "1s" ||
		s.MaxReceive != 2 || s.Ordering != "key" || s.Filter != `data.n != "0/4"` {
		t.Errorf("the subscription is %+v, %v", s, err)
	}
}

func TestSubscriptions_ImportNamesTheRule(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"scylla: {}":                            "react.rules: the file contains no rules",
		"react: {rules: [{name: a, topic: x}]}": "field topic not found",
		"react: {rules: [{name: a, topics: [x], to: log, when: nothing}]}":                     "rule a: when: line 1, column 1",
		"react: {rules: [{name: a, topics: [x], to: x, title: '{{.rule}}', text: '{{end}}'}]}": "rule a: title: line 1, column 4: undeclared reference to '.rule': between {{ and }} write CEL, such as {{data.total}} or {{json(data)}}\ntext: line 1, column 3: undeclared reference to 'end'",
		"react: {rules: [{name: a, topics: [x], to: log, order: x, from: y}]}":                 `rule a: order "x": use aggregate or none`,
		"react: {rules: [{name: a b, topics: [x], to: log}]}":                                  `rule a b: name "a b"`,
		"react: {rules: [{name: a, topics: [x], to: l}, {name: a, topics: [x], to: l}]}":       "rule a: the name is taken",
	} {
		var out, errOut bytes.Buffer
		if code := run([]string{"subscriptions", "import-reactions", "-f", written(t, "old.yaml", text)}, &out, &errOut); code != cli.ExitUsage || !strings.Contains(errOut.String(), want) {
			t.Errorf("%s = %d %s, want %q", text, code, errOut.String(), want)
		}
	}
}

// A message goes the whole way: a record, a signed webhook whose receiver refuses, a dead
// letter, and its replay with the same id.
func TestSubscriptions_PushToAWebhook(t *testing.T) {
	t.Parallel()
	b, h := setupVerify(t), newHook(t)
	h.answer(http.StatusGone)
	url, _ := b.startSubscriptionsWith(t, h.config())
	file := written(t, "big.yaml", "name: big\ntopics: [things]\nstart: earliest\nfilter: data.n != '0/0'\npush: {to: hook, title: 'thing {{data.n}}'}\n")
	api := func(want int, args ...string) string {
		t.Helper()
		var out, errOut bytes.Buffer
		if code := run(append(args, "--api", url), &out, &errOut); code != want {
			t.Errorf("outbox %v = %d, want %d\n%s%s", args, code, want, out.String(), errOut.String())
		}
		return out.String() + errOut.String()
	}
	api(cli.ExitOK, "subscriptions", "apply", "-f", file)
	if out := api(cli.ExitOK, "subscriptions", "list"); !strings.Contains(out, "push to hook") {
		t.Errorf("list: %s", out)
	}
	if out := api(cli.ExitFailed, "consume", "big"); !strings.Contains(out, "body.push") {
		t.Errorf("consume: %s", out)
	}
	bad := written(t, "bad.yaml", "name: bad\ntopics: [things]\npush: {to: nowhere}\n")
	if out := api(cli.ExitFailed, "subscriptions", "apply", "-f", bad); !strings.Contains(out, "body.push.to") || !strings.Contains(out, "hook, log") {
		t.Errorf("an unknown destination: %s", out)
	}
	b.things(t, 0, time.Now(), 0, 1)
	c := &client.Client{URL: url}
	deadLetters := func(n int) func() bool {
		return func() bool {
			st, err := c.SubscriptionStatus(t.Context(), "big")
			return err == nil && st.DeadLetters == n && st.Lag == 0
		}
	}
	world.Eventually(t, "the refused event is a dead letter", deadLetters(1))
	h.answer(http.StatusNoContent)
	(&dlqFixture{verifyFixture: b}).run(cli.ExitOK, "replay", "--table", "subscription.big", "--yes", "--reason", "fixed", "--wait", "1m")
	world.Eventually(t, "the dead letter is resolved", deadLetters(0))
	if got := h.received(); !slices.Equal(got, []string{"thing 0/1", "thing 0/1"}) || len(h.got) != 1 {
		t.Errorf("received %v with %d ids, want the event twice with one id", got, len(h.got))
	}
}
