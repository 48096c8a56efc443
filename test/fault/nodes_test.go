//go:build fault

package fault

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// freeze is how long nodes are silent.
const freeze = 25 * time.Second

// nodesWorld is a database of three nodes and the processes that use it. The
// nodes share an engine in the process of the test, so signals cannot stop
// them: a silent one accepts connections and requests without responding, like
// a stopped process.
type nodesWorld struct {
	*testing.T
	db                     *scyllafake.Server
	cql, kafka, api, admin string
	metrics                string // of the relay
	processes              []*harness.Process
}

func newNodesWorld(t *testing.T) *nodesWorld {
	addrs := harness.FreeAddrs(t, 5)
	w := &nodesWorld{T: t, cql: addrs[0], kafka: addrs[1], api: addrs[2], admin: addrs[3], metrics: addrs[4]}
	var err error
	if w.db, err = scyllafake.Start(scyllafake.Config{Nodes: 3, Tokens: 12, Addr: w.cql}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.db.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.thaw)
	broker := harness.Start(t, "broker", "engines", "--cql-addr", "", "--kafka-addr", w.kafka)
	harness.Reachable(t, w.kafka)
	harness.Must(t, "schema", "migrate", "--scylla-hosts", w.cql, "--scylla-replication", "3", "--components", "schedule,subscriptions,orders")
	orders := harness.Start(t, "orders", "orders", "--scylla-hosts", w.cql, "--orders-addr", w.api, "--ops-addr", "off")
	relay := startRelay(t, w.cql, w.kafka, w.metrics)
	conf := filepath.Join(t.TempDir(), "admin.yml")
	entry := strings.Fields(harness.Must(t, "token", "operator"))[1]
	if err := os.WriteFile(conf, []byte("admin:\n  tokens: ["+entry+"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	admin := harness.Start(t, "admin", "admin", "--config", conf, "--scylla-hosts", w.cql, "--kafka-seeds", w.kafka, "--admin-addr", w.admin, "--ops-addr", "off")
	for _, addr := range []string{w.api, w.metrics, w.admin} {
		harness.Ready(t, addr)
	}
	w.processes = []*harness.Process{orders, relay, admin, broker}
	return w
}

func (w *nodesWorld) thaw() {
	for i := range 3 {
		w.db.Thaw(i)
	}
}

// stop ends the processes.
func (w *nodesWorld) stop() {
	for _, p := range w.processes {
		p.Stop()
	}
}

// awaitNodes waits until /readyz at an address names exactly these nodes.
func (w *nodesWorld) awaitNodes(addr string, want ...string) {
	w.Helper()
	harness.Until(w, fmt.Sprintf("/readyz at %s with the nodes %q", addr, want), func() bool {
		resp, err := http.Get("http://" + addr + "/readyz") //nolint:noctx // the test ends with the process
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var ready struct {
			Down []string `json:"database_nodes_down"`
		}
		return json.NewDecoder(resp.Body).Decode(&ready) == nil && slices.Equal(ready.Down, want)
	})
}

// posted is the answer to an order.
type posted struct {
	status     int
	retryAfter string
	took       time.Duration
	err        error
}

func (w *nodesWorld) post() (p posted) {
	began := time.Now()
	client := http.Client{Timeout: harness.Patience}
	resp, err := client.Post("http://"+w.api+"/v1/orders", "application/json", //nolint:noctx // the test ends with the process
		strings.NewReader(`{"country":"Finland","currency":"EUR","lines":[{"sku":"71053","quantity":1,"unit_price":"3.39"}]}`))
	if err != nil {
		return posted{err: err}
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return posted{status: resp.StatusCode, retryAfter: resp.Header.Get("Retry-After"), took: time.Since(began), err: err}
}

// during posts 40 orders per second while f runs, independent of the duration
// of earlier requests, and returns the responses, the fastest first.
func (w *nodesWorld) during(f func()) (all []posted) {
	ended := make(chan struct{})
	go func() { defer close(ended); f() }()
	var mu sync.Mutex
	var wg sync.WaitGroup
	ticker := time.NewTicker(time.Second / 40)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			wg.Go(func() {
				p := w.post()
				mu.Lock()
				defer mu.Unlock()
				all = append(all, p)
			})
			continue
		case <-ended:
		}
		break
	}
	wg.Wait()
	slices.SortFunc(all, func(a, b posted) int { return int(a.took - b.took) })
	return all
}

// nothingLost checks that each event is in its topic once, and returns the
// number of events.
func (w *nodesWorld) nothingLost() int {
	w.Helper()
	r := harness.NewAccount(w, w.cql, w.kafka, topics...).Wait()
	w.Log(r)
	if !r.OK() || r.Duplicates != 0 || r.Orders != r.Events {
		w.Errorf("%s, want 0 of each", r)
	}
	return r.Orders
}

// One of three nodes is silent for longer than any timeout: no order is refused, and
// every process names the node.
func TestFault_OneNodeSilent(t *testing.T) {
	t.Parallel()
	w := newNodesWorld(t)
	node := w.db.NodeAddr(1).String()
	all := w.during(func() {
		time.Sleep(2 * time.Second)
		w.db.Freeze(1)
		thaw := time.After(freeze)
		for _, addr := range []string{w.api, w.metrics, w.admin} {
			w.awaitNodes(addr, node)
		}
		<-thaw
		w.thaw()
		for _, addr := range []string{w.api, w.metrics, w.admin} {
			w.awaitNodes(addr)
		}
	})
	for _, p := range all {
		if p.err != nil || p.status != http.StatusCreated {
			t.Errorf("an order while a node is silent: %+v", p)
		}
	}
	t.Logf("%d orders, p50 %s, p99 %s, longest %s", len(all), all[len(all)/2].took, all[len(all)*99/100].took, all[len(all)-1].took)
	if n := w.nothingLost(); n != len(all) {
		t.Errorf("%d orders are stored, want %d", n, len(all))
	}
	w.stop()
}

// All nodes are silent: each order receives 503 with Retry-After, and orders
// are accepted again when the nodes respond. The stored orders are published.
func TestFault_AllNodesSilent(t *testing.T) {
	t.Parallel()
	w := newNodesWorld(t)
	var thawed time.Time
	var again time.Duration
	all := w.during(func() {
		time.Sleep(2 * time.Second)
		for i := range 3 {
			w.db.Freeze(i)
		}
		time.Sleep(freeze)
		thawed = time.Now()
		w.thaw()
		harness.Until(t, "an order after the nodes answer", func() bool { return w.post().status == http.StatusCreated })
		again = time.Since(thawed)
		for _, addr := range []string{w.api, w.metrics, w.admin} {
			w.awaitNodes(addr)
			harness.Ready(t, addr)
		}
	})
	created, refused := 1, 0
	for _, p := range all {
		seconds, _ := strconv.Atoi(p.retryAfter)
		switch {
		case p.err == nil && p.status == http.StatusCreated:
			created++
		case p.err == nil && p.status == http.StatusServiceUnavailable && seconds > 0:
			refused++
		default:
			t.Errorf("an order while no node answers: %+v", p)
		}
	}
	t.Logf("%d orders created, %d refused, the slowest after %s; the first one %s after the nodes answer", created, refused, all[len(all)-1].took, again)
	if refused == 0 {
		t.Error("no order was refused while no node answers")
	}
	// An order that was refused may be stored: its answer was lost.
	if n := w.nothingLost(); n < created || n > created+refused {
		t.Errorf("%d orders are stored, want %d and at most %d more", n, created, refused)
	}
	w.stop()
}
