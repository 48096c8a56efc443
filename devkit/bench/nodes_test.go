package bench

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// startNode starts what answers as the Prometheus port of a node.
func startNode(t *testing.T, metrics string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, metrics) }))
	t.Cleanup(server.Close)
	return server.URL
}

// The processor time of a cluster is that of all shards of all nodes.
func TestNodes_AddTheShardsOfAllNodes(t *testing.T) {
	t.Parallel()
	first := startNode(t, "# TYPE scylla_reactor_cpu_busy_ms counter\nscylla_reactor_cpu_busy_ms{shard=\"0\"} 1500\nscylla_reactor_cpu_busy_ms{shard=\"1\"} 250\n# TYPE scylla_reactor_utilization gauge\nscylla_reactor_utilization{shard=\"0\"} 12\n")
	second := startNode(t, "# TYPE scylla_reactor_cpu_busy_ms counter\nscylla_reactor_cpu_busy_ms{shard=\"0\"} 250\n")
	got, err := Nodes{first, second}.Usage(t.Context())
	if err != nil || got.CPU != 2*time.Second || got.At.IsZero() {
		t.Errorf("Usage() = %+v, %v, want 2 s", got, err)
	}
	other := startNode(t, "# TYPE up gauge\nup 1\n")
	for _, nodes := range []Nodes{{}, {first, other}, {first, "http://127.0.0.1:1"}} {
		got, err := nodes.Usage(t.Context())
		if err == nil || got != (Usage{}) || len(nodes) > 0 && !strings.Contains(err.Error(), nodes[1]) {
			t.Errorf("of %v: %+v, %v, want an error that names the node", nodes, got, err)
		}
	}
}

// A processor time that is known at one of two moments only is not known.
func TestCostBetween_NeedsBothMoments(t *testing.T) {
	t.Parallel()
	known := Usage{At: time.Now(), CPU: time.Second}
	for _, c := range []Cost{CostBetween(known, Usage{}), CostBetween(Usage{}, known)} {
		if c != (Cost{}) {
			t.Errorf("the cost is %+v, want none", c)
		}
	}
}
