package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

var topics = []string{"OrderCreated", "OrderCancelled"}

// cluster is the services as separate processes, over a database and a broker.
type cluster struct {
	t                                           *testing.T
	cqlAddr, kafkaAddr, api, admin, ordersAdmin string
	orders, relay                               *harness.Process
}

// startCluster starts the embedded database and, if kafkaAddr is empty, the
// embedded broker; applies the schema; and starts the order API and the relay
// with more flags.
func startCluster(t *testing.T, kafkaAddr string, more ...string) *cluster {
	t.Helper()
	addrs := harness.FreeAddrs(t, 5)
	c := &cluster{t: t, cqlAddr: addrs[0], kafkaAddr: kafkaAddr, api: addrs[2], admin: addrs[3], ordersAdmin: addrs[4]}
	args := []string{"engines", "--data-dir", t.TempDir(), "--cql-addr", c.cqlAddr, "--tokens", "16"}
	if kafkaAddr == "" {
		c.kafkaAddr = addrs[1]
		args = append(args, "--kafka-addr", c.kafkaAddr)
	}
	harness.Start(t, "engines", args...)
	harness.Reachable(t, c.cqlAddr)
	harness.Reachable(t, c.kafkaAddr)
	harness.Must(t, "schema", "migrate", "--scylla-hosts", c.cqlAddr, "--components", "schedule,subscriptions,orders")
	c.orders = harness.Start(t, "orders", "orders", "--scylla-hosts", c.cqlAddr, "--orders-addr", c.api, "--ops-addr", c.ordersAdmin)
	c.relay = harness.Start(t, "relay", append([]string{
		"relay", "--scylla-hosts", c.cqlAddr, "--kafka-seeds", c.kafkaAddr, "--ops-addr", c.admin,
		"--relay-confidence-window", "30s",
	}, more...)...)
	harness.Ready(t, c.api)
	harness.Reachable(t, c.admin)
	return c
}

// loadSummary is the output of `outbox-dev load -o json`.
type loadSummary struct {
	Lines     int `json:"lines"`
	Created   int `json:"orders_created"`
	Cancelled int `json:"orders_cancelled"`
	Rejected  int `json:"rejected"`
}

// load loads the first n lines of the sample.
func (c *cluster) load(n int) loadSummary {
	c.t.Helper()
	out := harness.Must(c.t, "load", harness.Sample(c.t, n), "--api", "http://"+c.api, "-o", "json")
	var s loadSummary
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		c.t.Fatalf("load printed %q: %v", out, err)
	}
	return s
}

// check runs everything a user does with separate processes.
func (c *cluster) check() {
	t := c.t
	t.Helper()
	const n = 2000
	if s := c.load(n); s.Created+s.Cancelled != n || s.Rejected != 0 {
		t.Errorf("load = %+v, want %d lines and none rejected", s, n)
	}
	account := harness.NewAccount(t, c.cqlAddr, c.kafkaAddr, topics...)
	if r := account.Wait(); !r.OK() || r.Duplicates != 0 || r.Events != n {
		t.Errorf("%s, want %d events, each once", r, n)
	}

	tail := harness.Must(t, "tail", topics[0], topics[1], "--kafka-seeds", c.kafkaAddr, "--from-start", "--limit", "20", "-o", "json")
	lines := strings.Split(strings.TrimSpace(tail), "\n")
	if len(lines) != 20 {
		t.Errorf("tail -n 20 printed %d lines", len(lines))
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("tail -o json printed %q", line)
		}
	}
	if out, stderr, code := harness.Run(t, "doctor", "--scylla-hosts", c.cqlAddr, "--kafka-seeds", c.kafkaAddr); code != 0 {
		t.Errorf("doctor: status %d\n%s%s", code, out, stderr)
	}
	for _, url := range []string{"http://" + c.admin + "/readyz", "http://" + c.api + "/readyz", "http://" + c.ordersAdmin + "/readyz", "http://" + c.admin + "/metrics", "http://" + c.ordersAdmin + "/metrics"} {
		harness.Until(t, "200 from "+url, func() bool {
			resp, err := http.Get(url) //nolint:noctx // the test ends with the process
			if err != nil {
				t.Fatalf("GET %s: %v", url, err)
			}
			_ = resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		})
	}

	// A relay that was stopped leaves nothing to repeat.
	c.relay.Stop()
	if s := c.load(100); s.Rejected != 0 {
		t.Errorf("load = %+v while the relay is stopped", s)
	}
	c.relay.Restart()
	if r := account.Wait(); !r.OK() || r.Duplicates != 0 || r.Events != n+100 {
		t.Errorf("after a restart of the relay: %s, want %d events, each once", r, n+100)
	}
	c.relay.Stop()
	c.orders.Stop()
}

func TestCommands_AsSeparateProcesses(t *testing.T) {
	t.Parallel()
	startCluster(t, "").check()
}
