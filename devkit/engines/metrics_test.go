package engines

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
)

type busyShards []time.Duration

func (b busyShards) Busy() []time.Duration { return b }

// A benchmark reads the busy time of the embedded database as that of a node.
func TestMetrics_AreThoseOfANode(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(metricsHandler(busyShards{1500 * time.Millisecond, 250 * time.Microsecond}))
	defer server.Close()
	got, err := bench.Nodes{server.URL}.Usage(t.Context())
	if want := 1500250 * time.Microsecond; err != nil || got.CPU != want {
		t.Errorf("Usage() = %s, %v, want %s", got.CPU, err, want)
	}
}
