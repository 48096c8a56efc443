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

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
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

// calledTitles returns the sorted titles of all calls.
func (h *hook) calledTitles() []string {
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
			ID: outbox.NewID(), AggregateID: outbox.IDFromText(fmt.Sprint("t-", partition)), Sequence: int64(n), AggregateType: "thing", Type: "ThingHappened",
			Payload: fmt.Appendf(nil, `{"n":"%d/%d"}`, partition, n), CreatedAt: at,
		}
		r := &kgo.Record{Topic: "things", Partition: partition, Timestamp: at, Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")}
		if err := c.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// writeFile writes a file into a temporary directory and returns its path.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A message goes the whole way: a record, a signed webhook whose receiver refuses, a dead
// letter, and its replay with the same id.
func TestSubscriptions_PushToAWebhook(t *testing.T) {
	t.Parallel()
	b, h := setupVerify(t), newHook(t)
	h.answer(http.StatusGone)
	url, _ := b.startSubscriptionsWith(t, h.config())
	file := writeFile(t, "big.yaml", "name: big\ntopics: [things]\nstart: earliest\nfilter: data.n != '0/0'\npush: {to: hook, title: 'thing {{data.n}}'}\n")
	api := func(want int, args ...string) string {
		t.Helper()
		var out, errOut bytes.Buffer
		if code := run(append(args, "--api-subscriptions-url", url), &out, &errOut); code != want {
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
	bad := writeFile(t, "bad.yaml", "name: bad\ntopics: [things]\npush: {to: nowhere}\n")
	if out := api(cli.ExitFailed, "subscriptions", "apply", "-f", bad); !strings.Contains(out, "body.push.to") || !strings.Contains(out, "hook, log") {
		t.Errorf("an unknown destination: %s", out)
	}
	b.things(t, 0, time.Now(), 0, 1)
	c := &client.Client{URL: url}
	deadLetters := func(n int) func() bool {
		return func() bool {
			st, err := c.Status(t.Context(), "big")
			return err == nil && st.DeadLetters == n && st.Lag == 0
		}
	}
	world.Eventually(t, "the refused event is a dead letter", deadLetters(1))
	h.answer(http.StatusNoContent)
	(&dlqFixture{verifyFixture: b}).run(cli.ExitOK, "replay", "--table", "subscription.big", "--yes", "--reason", "fixed", "--wait", "1m")
	world.Eventually(t, "the dead letter is resolved", deadLetters(0))
	if st, err := c.Status(t.Context(), "big"); err != nil || len(st.Instances) != 1 || st.Instances[0].Breaker == nil || st.Instances[0].Breaker.State != "closed" {
		t.Errorf("the instances are %+v, %v; want one with a closed breaker", st.Instances, err)
	}
	if got := h.calledTitles(); !slices.Equal(got, []string{"thing 0/1", "thing 0/1"}) || len(h.got) != 1 {
		t.Errorf("received %v with %d ids, want the event twice with one id", got, len(h.got))
	}
}
