package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// ready is the tested part of the status of the one shard on the relay's /readyz.
type ready struct {
	Ready             bool                          `json:"ready"`
	Problems          []string                      `json:"problems"`
	Breaker           struct{ State, Cause string } `json:"breaker"`
	DeadLetters       int                           `json:"dead_letters"`
	Spilled           int                           `json:"spilled"`
	BlockedAggregates int                           `json:"blocked_aggregates"`
	InFlight          int                           `json:"in_flight"`
}

// readyWhen waits for a state of the relay.
func (c *cluster) readyWhen(what string, ok func(*ready) bool) {
	c.t.Helper()
	var last ready
	var err error
	for deadline := time.Now().Add(harness.Patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var resp *http.Response
		if resp, err = http.Get("http://" + c.admin + "/readyz"); err != nil { //nolint:noctx // the test ends with the process
			continue
		}
		var body struct {
			Ready    bool             `json:"ready"`
			Problems []string         `json:"problems"`
			Relays   map[string]ready `json:"relays"`
		}
		err = json.NewDecoder(resp.Body).Decode(&body)
		_ = resp.Body.Close()
		if body.Ready != (resp.StatusCode == http.StatusOK) {
			c.t.Errorf("/readyz reports %t with status %d", body.Ready, resp.StatusCode)
		}
		last = body.Relays["00-of-01"]
		last.Ready, last.Problems = body.Ready, append(body.Problems, last.Problems...)
		if err == nil && ok(&last) {
			return
		}
	}
	c.t.Fatalf("the relay is not %s: %+v, %v", what, last, err)
}

// post sends JSON to the order API, with retries after 429 and 503, and returns
// the id in the response.
func (c *cluster) post(path string, body any) string {
	c.t.Helper()
	return c.postAs(nil, path, body)
}

// postAs is post with further headers.
func (c *cluster) postAs(headers map[string]string, path string, body any) string {
	c.t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	key := uuid.NewString()
	var got struct {
		ID string `json:"id"`
	}
	harness.Until(c.t, "an answer to POST "+path, func() bool {
		req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, "http://"+c.api+path, bytes.NewReader(b))
		if err != nil {
			c.t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
		for k, v := range headers {
			req.Header.Set(k, v)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			c.t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusServiceUnavailable {
			return false
		}
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.StatusCode/100 != 2 {
			c.t.Fatalf("POST %s = %s, %v", path, resp.Status, err)
		}
		return true
	})
	return got.ID
}

// order creates an order of so many lines, with incompressible content.
func (c *cluster) order(lines int) (id string) { return c.orderAs(nil, lines) }

// orderAs is order with headers of the request.
func (c *cluster) orderAs(headers map[string]string, lines int) (id string) {
	type line struct {
		SKU         string `json:"sku"`
		Description string `json:"description"`
		Quantity    int    `json:"quantity"`
		Price       string `json:"unit_price"`
	}
	all := make([]line, lines)
	for i := range all {
		all[i] = line{fmt.Sprint("sku", i), uuid.NewString() + uuid.NewString(), 1, "1.00"}
	}
	return c.postAs(headers, "/v1/orders", map[string]any{"country": "Finland", "currency": "EUR", "lines": all})
}

// command runs a command against the cluster and reads the JSON that it prints.
func (c *cluster) command(want int, into any, args ...string) {
	c.t.Helper()
	args = append(args, "--scylla-hosts", c.cqlAddr, "-o", "json")
	switch {
	case args[0] == "verify":
		args = append(args, "--kafka-seeds", c.kafkaAddr, "--until", "0s")
	case args[1] == "replay":
		args = append(args, "--wait", harness.Patience.String())
	}
	if slices.Contains(args, "list") {
		into = &struct {
			Items any `json:"items"`
		}{into}
	}
	out, stderr, code := harness.Run(c.t, args...)
	if err := json.Unmarshal([]byte(out), into); err != nil || code != want {
		c.t.Fatalf("outbox %v: status %d, want %d, %v\n%s%s", args, code, want, err, out, stderr)
	}
}

// deadLetter is the tested part of a dead letter.
type deadLetter struct {
	EventID     string `json:"event_id"`
	AggregateID string `json:"aggregate_id"`
	Sequence    int    `json:"sequence"`
	Status      string `json:"status"`
	ErrorClass  string `json:"error_class"`
	Outcome     struct {
		Kind  string `json:"kind"`
		Topic string `json:"topic"`
	} `json:"outcome"`
	Headers     map[string]string
	ChainLength int `json:"chain_length"`
}

// verified is the tested part of a verification.
type verified struct {
	OK        bool `json:"ok"`
	Rows      int  `json:"rows"`
	Published int  `json:"published"`
	Dead      int  `json:"dead"`
	Blocked   int  `json:"blocked"`
}

// An order is too large for its topic: it and its later events become dead
// letters, other orders are not affected. The topic's limit is raised, an
// operator replays, and everything is in the topics, in order.
func TestDeadLetters_RefusedAndReplayed(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "")
	client, err := kgo.NewClient(kgo.SeedBrokers(c.kafkaAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	small, large := "3000", "1048576"
	if _, err := admin.CreateTopic(t.Context(), 6, 1, map[string]*string{"max.message.bytes": &small}, "OrderCreated"); err != nil {
		t.Fatal(err)
	}
	c.order(1)
	made, cancelled := traced{"made-1", "0af7651916cd43dd8448eb211c80319c"}, traced{"cancelled-1", "4bf92f3577b34da6a3ce929d0e0e4736"}
	refused := c.orderAs(made.request(), 60)
	c.postAs(cancelled.request(), "/v1/orders/"+refused+"/cancel", map[string]string{"reason": "too much"})
	last := c.order(1)
	c.readyWhen("ready with two dead letters", func(r *ready) bool {
		return r.Ready && r.DeadLetters == 2 && r.BlockedAggregates == 1 && r.InFlight == 0
	})
	c.readHeaders("OrderCreated", last) // the relay has read so far

	var list []deadLetter
	c.command(0, &list, "dlq", "list", "--aggregate-id", refused)
	slices.SortFunc(list, func(a, b deadLetter) int { return a.Sequence - b.Sequence })
	if len(list) != 2 || list[0].Status != "suspended" || list[0].ErrorClass != "record_too_large" || list[1].Status != "blocked" || list[1].ErrorClass != "behind" {
		t.Fatalf("dlq list = %+v, want the order suspended and its cancellation blocked", list)
	}
	var shown deadLetter
	if c.command(0, &shown, "dlq", "get", list[0].EventID); shown.ChainLength != 2 || shown.AggregateID != refused {
		t.Errorf("dlq get = %+v", shown)
	}
	made.check(t, "the dead letter of the order", shown.Headers)
	if log := c.relay.Log(); !strings.Contains(log, made.line()) {
		t.Errorf("the log of the relay has no line with %q", made.line())
	}
	var stats struct {
		Open  int            `json:"open"`
		Class map[string]int `json:"open_by_error_class"`
	}
	if c.command(0, &stats, "dlq", "stats"); stats.Open != 2 || stats.Class["record_too_large"] != 1 || stats.Class["behind"] != 1 {
		t.Errorf("dlq stats = %+v", stats)
	}
	var v verified
	if c.command(0, &v, "verify"); !v.OK || v.Rows != 4 || v.Published != 2 || v.Dead != 1 || v.Blocked != 1 {
		t.Errorf("verify = %+v, want two published, one dead, one blocked", v)
	}

	if _, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &large}}, "OrderCreated"); err != nil {
		t.Fatal(err)
	}
	var job struct {
		Progress struct {
			Changed int `json:"changed"`
		} `json:"progress"`
	}
	if c.command(0, &job, "dlq", "replay", "--error-class", "record_too_large", "--yes", "--reason", "a test"); job.Progress.Changed != 1 {
		t.Errorf("dlq replay = %+v", job)
	}
	c.readyWhen("without dead letters", func(r *ready) bool { return r.Ready && r.DeadLetters == 0 && r.BlockedAggregates == 0 })
	if c.command(0, &v, "verify"); !v.OK || v.Published != 4 || v.Dead+v.Blocked != 0 {
		t.Errorf("verify = %+v, want all four published", v)
	}
	if c.command(0, &shown, "dlq", "get", list[0].EventID); shown.Status != "resolved" || shown.Outcome.Kind != "replayed" || shown.Outcome.Topic != "OrderCreated" {
		t.Errorf("dlq get = %+v, want it resolved by a replay", shown)
	}
	if r := harness.NewAccount(t, c.cqlAddr, c.kafkaAddr, topics...).Wait(); !r.OK() || r.Duplicates != 0 || r.Events != 4 {
		t.Errorf("%s, want 4 events, each once", r)
	}
	made.check(t, "the record of the order", c.readHeaders("OrderCreated", refused))
	cancelled.check(t, "the record of the cancellation", c.readHeaders("OrderCancelled", refused))
	c.relay.Stop()
}

// The broker acknowledges no records while orders arrive: the breaker opens, events become
// dead letters, and when it accepts records again everything is published automatically.
func TestDeadLetters_BrokerRefusesRecords(t *testing.T) {
	t.Parallel()
	broker := world.StartBroker(t)
	// Five attempts, because five failures in a row open the breaker.
	c := startCluster(t, broker.ListenAddrs()[0], "--relay-retry-delays", "0s,100ms,200ms,100ms,100ms", "--relay-attempt-timeout", "1s",
		"--relay-breaker-open", "2s", "--relay-topic-replication", "1")
	const n = 100
	c.load(n)
	account := harness.NewAccount(t, c.cqlAddr, c.kafkaAddr, topics...)
	if r := account.Wait(); !r.OK() || r.Events != n {
		t.Fatalf("%s, want %d events", r, n)
	}
	refusing := broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
	if s := c.load(n); s.Rejected != 0 {
		t.Errorf("load = %+v while the broker refuses records", s)
	}
	c.readyWhen("open", func(r *ready) bool { return !r.Ready && r.Breaker.State == "open" })
	if s := c.load(n); s.Rejected != 0 {
		t.Errorf("load = %+v while the breaker is open", s)
	}
	// Some are probes; the producer keeps its earlier events.
	c.readyWhen("spilling", func(r *ready) bool { return r.Spilled >= n/2 })
	refusing.Remove()
	c.readyWhen("healthy again", func(r *ready) bool {
		return r.Ready && r.Breaker.State == "closed" && r.DeadLetters == 0 && r.InFlight == 0
	})
	if r := account.Wait(); !r.OK() || r.Duplicates != 0 || r.Events != 3*n {
		t.Errorf("%s, want %d events, each once", r, 3*n)
	}
	var v verified
	if c.command(0, &v, "verify"); !v.OK || v.Published != 3*n {
		t.Errorf("verify = %+v", v)
	}
	c.relay.Stop()
}

// The only broker is away while orders arrive: the relay releases its shard and reports why
// it is not ready, and events wait in the CDC log. When the broker is back everything is
// published automatically.
func TestRelay_BrokerAway(t *testing.T) {
	t.Parallel()
	kafka := harness.FreeAddrs(t, 1)[0]
	broker := harness.Start(t, "kafka", "engines", "--data-dir", t.TempDir(), "--cql-addr", "", "--kafka-addr", kafka)
	harness.Reachable(t, kafka)
	c := startCluster(t, kafka)
	const n = 100
	c.load(n)
	account := harness.NewAccount(t, c.cqlAddr, c.kafkaAddr, topics...)
	if r := account.Wait(); !r.OK() || r.Events != n {
		t.Fatalf("%s, want %d events", r, n)
	}
	broker.Kill()
	if s := c.load(n); s.Rejected != 0 {
		t.Errorf("load = %+v while the broker is away", s)
	}
	c.readyWhen("without its shard", func(r *ready) bool {
		return !r.Ready && strings.Contains(strings.Join(r.Problems, " "), "no heartbeat is acknowledged by the broker")
	})
	if s := c.load(n); s.Rejected != 0 {
		t.Errorf("load = %+v while the relay has no shard", s)
	}
	broker.Restart()
	harness.Reachable(t, kafka)
	c.readyWhen("healthy again", func(r *ready) bool { return r.Ready && r.DeadLetters == 0 && r.InFlight == 0 })
	if r := account.Wait(); !r.OK() || r.Duplicates != 0 || r.Events != 3*n {
		t.Errorf("%s, want %d events, each once", r, 3*n)
	}
	c.relay.Stop()
}
